package chaos_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/redistest"
)

// stage is a sidecar on a redis-server behind a fault proxy.
type stage struct {
	*testing.T
	server   *redistest.Server
	proxy    *redistest.Proxy
	sidecar  *sidecar
	password string // path of the file with the sidecar's password
}

// The limits and policies that every stage serves. Nothing refills within a test, so what is
// missing from burst has been charged.
const (
	burst = 100_000
	rules = `
limits:
  - {name: open, algorithm: token_bucket, rate: 1/h, burst: 100000, key: [user], on_redis_failure: open}
  - {name: closed, algorithm: token_bucket, rate: 1/h, burst: 100000, key: [user], on_redis_failure: closed}
  - {name: local, algorithm: token_bucket, rate: 1/h, burst: 100000, key: [user], on_redis_failure: local}
  - {name: shadow, algorithm: token_bucket, rate: 1/h, burst: 100000, key: [user], on_redis_failure: closed, shadow: true}
policies:
  open-local: {limits: [open, local]}
  mixed: {limits: [open, closed, local]}
  shadowed: {limits: [local, shadow]}
`
)

// question is one way to ask the stage.
type question struct {
	name   string
	body   string
	limits []string
	closed bool // without Redis the answer is 503
}

func questions() []question {
	limit := func(name string) string { return `{"limit":"` + name + `","key":"u%d"}` }
	policy := func(name string) string { return `{"policy":"` + name + `","attributes":{"user":"u%d"}}` }
	return []question{
		{"open", limit("open"), []string{"open"}, false},
		{"closed", limit("closed"), []string{"closed"}, true},
		{"local", limit("local"), []string{"local"}, false},
		{"open-local", policy("open-local"), []string{"open", "local"}, false},
		{"mixed", policy("mixed"), []string{"open", "closed", "local"}, true},
		{"shadowed", policy("shadowed"), []string{"local", "shadow"}, false},
	}
}

// bodies are the questions as the load asks them.
func bodies() []string {
	var all []string
	for _, q := range questions() {
		all = append(all, q.body)
	}
	return all
}

// users is how many keys each limit has.
const users = 16

// newStage starts a server, a proxy and a sidecar, and waits until it has reached Redis.
func newStage(t *testing.T, f form, options ...redistest.Option) *stage {
	t.Helper()
	s := &stage{T: t, server: redistest.Start(t, options...)}
	s.proxy = redistest.NewProxy(t, s.server.Addr())
	s.password = filepath.Join(t.TempDir(), "password")
	s.setPassword("")
	s.sidecar = startSidecar(t, redisAt(f, s.proxy.Addr())+fmt.Sprintf("  password_file: %s\n", s.password)+rules)
	s.sidecar.awaitRedis()
	return s
}

// redisAt is the part of a config about Redis; the block redis stands last.
func redisAt(f form, addr string) string {
	return fmt.Sprintf("breaker: {open_for: %v}\nredis:\n  addrs: [%q]\n  timeout: %v\n", f.openFor, addr, f.timeout)
}

// setPassword changes the password that the sidecar uses.
func (s *stage) setPassword(text string) {
	s.Helper()
	if err := os.WriteFile(s.password, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
}

// do sends Redis a command, whose reply must not be an error, and returns the reply.
func (s *stage) do(args ...string) any {
	s.Helper()
	reply := s.server.Do(s.T, args...)
	if err, failed := reply.(redistest.ReplyError); failed {
		s.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return reply
}

// background sends Redis a command that it is long about, over a connection of its own.
func (s *stage) background(args ...string) {
	s.Helper()
	conn, err := net.Dial("unix", s.server.Socket())
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = conn.Close() })
	if err := redistest.NewConn(conn).Send(args...); err != nil {
		s.Fatal(err)
	}
}

// charges counts what has been charged in Redis, by limit and user.
func (s *stage) charges() map[string]int {
	s.Helper()
	charged := map[string]int{}
	for _, key := range s.do("KEYS", "rl:{*~*:u*").([]any) {
		left, ok := s.server.Do(s.T, "HGET", key.(string), "tokens").(string)
		if !ok {
			continue // the key of a wrong type
		}
		n, err := strconv.Atoi(left)
		if err != nil {
			s.Fatal(err)
		}
		charged[account(key.(string))] = burst - n
	}
	return charged
}

// account turns a state's key, "rl:{local~123abc:u7}", into the limit and the user, "local u7".
func account(key string) string {
	name, rest, _ := strings.Cut(strings.TrimPrefix(key, "rl:{"), "~")
	_, user, _ := strings.Cut(strings.TrimSuffix(rest, "}"), ":")
	return name + " " + user
}

// key returns the state's key of a limit and a user, which must exist.
func (s *stage) key(limit, user string) string {
	s.Helper()
	keys := s.do("KEYS", "rl:{"+limit+"~*:"+user+"}").([]any)
	if len(keys) != 1 {
		s.Fatalf("%s %s has the keys %v, want one", limit, user, keys)
	}
	return keys[0].(string)
}
