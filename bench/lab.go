package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tidegate/tidegate/bench/internal/process"
	"github.com/tidegate/tidegate/bench/internal/report"
)

// away is how far farRedis is: a round trip of 1 ms.
const away = time.Millisecond

// lab is the temporary folder, and the servers that all scenarios share.
type lab struct {
	dir     string
	sidecar string // the binary
	self    string // this program
	redis   *process.Redis
	near    *process.Process
	far     *process.Process
	stores  map[store]string // the address of Redis, as in a config
	started int              // servers so far: each has a folder and a key prefix of its own
}

// newLab starts Redis and the proxies before it. On an error nothing is left.
func newLab(binary string) (_ *lab, err error) {
	l := &lab{}
	if l.sidecar, err = filepath.Abs(binary); err != nil {
		return nil, err
	}
	if l.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if l.dir, err = os.MkdirTemp("", "tidegate-bench"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if l.redis, err = process.StartRedis(l.dir); err != nil {
		return nil, err
	}
	l.stores = map[store]string{tcpRedis: l.redis.Address, unixRedis: l.redis.Socket}
	if l.near, l.stores[nearRedis], err = l.startProxy(0); err != nil {
		return nil, err
	}
	l.far, l.stores[farRedis], err = l.startProxy(away / 2)
	return l, err
}

func (l *lab) startProxy(oneWay time.Duration) (*process.Process, string, error) {
	return process.Start(readyLine, l.self, modeProxy, "-to", l.redis.Address, "-one-way", oneWay.String())
}

// distances says how far away Redis is through the proxies.
func (l *lab) distances() (report.Fact, error) {
	near, err := process.RoundTrip(l.stores[nearRedis])
	if err != nil {
		return report.Fact{}, err
	}
	far, err := process.RoundTrip(l.stores[farRedis])
	return report.Fact{Name: "PING through the proxies", Value: fmt.Sprintf("%v without delay, %v with %v",
		near.Round(time.Microsecond), far.Round(time.Microsecond), away)}, err
}

// readyLine is what this program says in its other modes when it listens.
func readyLine(line string) (address string, ok bool) { return strings.CutPrefix(line, "ready ") }

// close ends every server, and removes the folder.
func (l *lab) close() error {
	var err error
	for _, p := range []*process.Process{l.near, l.far} {
		if p != nil {
			err = errors.Join(err, p.Stop())
		}
	}
	if l.redis != nil {
		err = errors.Join(err, l.redis.Stop())
	}
	return errors.Join(err, os.RemoveAll(l.dir))
}

// folder makes the folder of one more server, short enough for the path of a Unix socket.
func (l *lab) folder() (string, error) {
	l.started++
	dir := filepath.Join(l.dir, fmt.Sprint(l.started))
	return dir, os.Mkdir(dir, 0o700)
}

// server is a running contestant.
type server struct {
	contestant
	*process.Process
	address string
	socket  string
	admin   string // of a sidecar
}

// startSidecar runs a sidecar. A config that it refuses is an error with what it says.
func (l *lab) startSidecar(c contestant) (*server, error) {
	dir, err := l.folder()
	if err != nil {
		return nil, err
	}
	s := &server{contestant: c, socket: filepath.Join(dir, "api.sock")}
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(l.config(c, s.socket)), 0o600); err != nil {
		return nil, err
	}
	var line string
	s.Process, line, err = process.Start(func(line string) (string, bool) {
		return line, strings.Contains(line, `"msg":"listening"`)
	}, l.sidecar, "serve", "--config", file)
	if err != nil {
		return nil, err
	}
	var listening struct{ HTTP, Admin string }
	if err := json.Unmarshal([]byte(line), &listening); err != nil {
		return nil, errors.Join(fmt.Errorf("the sidecar says %s: %w", line, err), s.Stop())
	}
	s.address, s.admin = listening.HTTP, listening.Admin
	return s, nil
}

// config is the config of a sidecar. It waits so long for Redis that no question of an overload times out.
func (l *lab) config(c contestant, socket string) string {
	text := fmt.Sprintf("listen: {http: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", unix: %s}\nshutdown_timeout: 10s\n", socket)
	if c.store != embedded {
		text += fmt.Sprintf("redis: {addrs: [%q], timeout: 5s, key_prefix: bench%d}\n", l.stores[c.store], l.started)
	}
	return text + c.limits
}

// startYardstick runs a yardstick that gives the answer in a file.
func (l *lab) startYardstick(c contestant, answer string) (*server, error) {
	dir, err := l.folder()
	if err != nil {
		return nil, err
	}
	s := &server{contestant: c, socket: filepath.Join(dir, "api.sock")}
	s.Process, s.address, err = process.Start(readyLine, l.self, modeYardstick,
		"-kind", string(c.kind), "-answer", answer, "-unix", s.socket, "-redis", l.stores[c.store])
	return s, err
}
