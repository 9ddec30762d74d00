package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tidegate/tidegate/lua"
)

// options turns off every default of the client that sends a command twice or waits for longer
// than the caller does.
func (s *Store) options() *redis.Options {
	network := "tcp"
	if strings.HasPrefix(s.cfg.Addr, "/") {
		network = "unix"
	}
	return &redis.Options{
		Network:               network,
		Addr:                  s.cfg.Addr,
		TLSConfig:             s.cfg.TLS,
		Protocol:              2,
		MaxRetries:            -1, // a retry would charge again
		DialerRetries:         1,
		DialTimeout:           s.cfg.Timeout,
		ReadTimeout:           s.cfg.Timeout,
		WriteTimeout:          s.cfg.Timeout,
		PoolTimeout:           s.cfg.Timeout,
		PoolSize:              poolSize,
		ContextTimeoutEnabled: true, // else a caller's deadline is not seen while reading
		PipelinePoolSize:      -1,
		DisableIdentity:       true,
		ReadBufferSize:        16 << 10,
		WriteBufferSize:       16 << 10,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
		CredentialsProviderContext: s.credentials,
		OnConnect:                  s.greet,
	}
}

// credentials reads the password anew for each connection, so that a rotated one is picked up.
func (s *Store) credentials(context.Context) (username, password string, err error) {
	if s.cfg.Password == nil {
		return "", "", nil
	}
	password, err = s.cfg.Password()
	if err != nil {
		return "", "", fmt.Errorf("remote: read the password: %w", err)
	}
	return s.cfg.Username, password, nil
}

// greet makes a new connection ready: it refuses a server that is too old, reads Redis's time,
// without which no charge may leave, and loads the script. A user that may not load scripts may
// still run them.
func (s *Store) greet(ctx context.Context, conn *redis.Conn) error {
	pipe := conn.Pipeline()
	hello := pipe.Do(ctx, "HELLO")
	now := pipe.Time(ctx)
	pipe.ScriptLoad(ctx, s.decider.text)
	_, failed := pipe.Exec(ctx)
	arrived := time.Now()
	major, err := checkVersion(hello)
	if err != nil {
		return err
	}
	s.knowVersion(major)
	if failed != nil && !isReply(failed) {
		return failed
	}
	t, err := now.Result()
	if err != nil {
		return err
	}
	s.clock.set(t.UnixMicro(), arrived)
	return nil
}

// allowOOM begins a script that may run when memory is short: what is given back frees memory, and
// what must be settled would else be lost. Redis knows it since version 7.
const allowOOM = "#!lua flags=allow-oom\n"

// scripts are those that give back.
type scripts struct{ settle, forget script }

// knowVersion chooses the scripts that give back by the server's major version; 0 is unknown.
func (s *Store) knowVersion(major int) {
	flags := ""
	if major >= 7 {
		flags = allowOOM
	}
	if known := s.scripts.Load(); known == nil || strings.HasPrefix(known.settle.text, allowOOM) != (major >= 7) {
		s.scripts.Store(&scripts{newScript(flags + lua.Settle()), newScript(flags + lua.Forget())})
	}
}

// checkVersion refuses a server older than Redis 6.2, and returns its major version. HELLO, which every
// user may send, came with Redis 6. A reply that names no version, as some proxies give, passes as 0.
func checkVersion(hello *redis.Cmd) (major int, err error) {
	fields, err := hello.Slice()
	if err != nil {
		if isReply(err) && strings.Contains(strings.ToLower(err.Error()), "unknown command") {
			return 0, errTooOld
		}
		if isReply(err) && !errors.Is(err, redis.Nil) {
			return 0, err
		}
		return 0, nil
	}
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i] != "version" {
			continue
		}
		text, _ := fields[i+1].(string)
		number, rest, _ := strings.Cut(text, ".")
		minor, _, _ := strings.Cut(rest, ".")
		ma, errMajor := strconv.Atoi(number)
		mi, errMinor := strconv.Atoi(minor)
		if errMajor != nil || errMinor != nil {
			continue
		}
		major = ma
		if ma < 6 || ma == 6 && mi < 2 {
			return 0, fmt.Errorf("%w (this one is %s)", errTooOld, text)
		}
	}
	return major, nil
}

// LogTo makes the Redis client, which logs by itself and for the whole process, log to logger at
// debug level: what matters in its messages comes back as errors too. Call it once, before New.
func LogTo(logger *slog.Logger) { redis.SetLogger(clientLog{logger}) }

type clientLog struct{ logger *slog.Logger }

// Printf is the client's logging interface.
func (l clientLog) Printf(ctx context.Context, format string, v ...any) {
	l.logger.DebugContext(ctx, "redis client", slog.String("message", fmt.Sprintf(format, v...)))
}
