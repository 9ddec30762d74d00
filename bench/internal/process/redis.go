package process

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Redis is a private redis-server that persists nothing.
type Redis struct {
	*Process
	Socket  string // the path of its Unix socket
	Address string // host:port on the loopback
}

// StartRedis runs the redis-server in PATH with its files in dir.
func StartRedis(dir string) (*Redis, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, fmt.Errorf("process: start redis-server: %w", err)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("process: start redis-server: %w", err)
	}
	r := &Redis{Socket: filepath.Join(dir, "redis.sock"), Address: address}
	r.Process, _, err = Start(func(line string) (string, bool) {
		return "", strings.Contains(line, "Ready to accept connections")
	}, "redis-server", "--bind", host, "--port", port, "--unixsocket", r.Socket, "--save", "", "--appendonly", "no", "--dir", dir)
	return r, err
}

// freeAddress returns a loopback address that nobody listened on a moment ago.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// Flush forgets all keys and scripts, so that every scenario starts with an empty Redis.
func (r *Redis) Flush() error {
	conn, err := net.Dial("unix", r.Socket)
	if err != nil {
		return fmt.Errorf("process: flush Redis: %w", err)
	}
	defer conn.Close()
	replies := bufio.NewReader(conn)
	for _, command := range []string{"FLUSHALL", "SCRIPT FLUSH"} {
		if err := exchange(conn, replies, command, "+OK"); err != nil {
			return fmt.Errorf("process: flush Redis: %w", err)
		}
	}
	return nil
}

// ScriptCalls is how many scripts Redis has run so far, for whoever asked it to.
func (r *Redis) ScriptCalls() (int64, error) {
	conn, err := net.Dial("unix", r.Socket)
	if err != nil {
		return 0, fmt.Errorf("process: count script calls: %w", err)
	}
	defer conn.Close()
	text, err := info(conn, "commandstats")
	if err != nil {
		return 0, fmt.Errorf("process: count script calls: %w", err)
	}
	return scriptCalls(text)
}

// scriptCalls adds the calls of the commands that run a script. One that was never called has no line.
func scriptCalls(commandstats string) (int64, error) {
	var calls int64
	for line := range strings.Lines(commandstats) {
		name, stats, _ := strings.Cut(strings.TrimSpace(line), ":calls=")
		if name != "cmdstat_evalsha" && name != "cmdstat_eval" && name != "cmdstat_fcall" {
			continue
		}
		number, _, _ := strings.Cut(stats, ",")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("process: count script calls: %q: %w", line, err)
		}
		calls += n
	}
	return calls, nil
}

// info returns a section of INFO, whose reply begins with its length.
func info(conn net.Conn, section string) (string, error) {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(conn, "INFO %s\r\n", section); err != nil {
		return "", err
	}
	replies := bufio.NewReader(conn)
	var length int
	if _, err := fmt.Fscanf(replies, "$%d\r\n", &length); err != nil {
		return "", fmt.Errorf("INFO %s: %w", section, err)
	}
	text := make([]byte, length)
	_, err := io.ReadFull(replies, text)
	return string(text), err
}

// pings is how many exchanges RoundTrip takes the median of.
const pings = 101

// RoundTrip is how long a PING to a Redis at a TCP address takes, there and back: the median of some.
func RoundTrip(address string) (time.Duration, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return 0, fmt.Errorf("process: ping Redis: %w", err)
	}
	defer conn.Close()
	replies := bufio.NewReader(conn)
	var took [pings]time.Duration
	for i := range took {
		began := time.Now()
		if err := exchange(conn, replies, "PING", "+PONG"); err != nil {
			return 0, fmt.Errorf("process: ping Redis: %w", err)
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took[:])
	return took[pings/2], nil
}

// exchange sends an inline command, and reads the one line that is expected.
func exchange(conn net.Conn, replies *bufio.Reader, command, want string) error {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(command + "\r\n")); err != nil {
		return err
	}
	reply, err := replies.ReadString('\n')
	if err != nil {
		return err
	}
	if reply != want+"\r\n" {
		return fmt.Errorf("%s: reply %q", command, reply)
	}
	return nil
}
