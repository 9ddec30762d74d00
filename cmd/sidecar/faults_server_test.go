package main_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

// TestFaultForeignKeys: a key that something else has taken is refused whatever the policy,
// counted, left as it is, and harms no other key; another form of state has another key.
func TestFaultForeignKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := newSite(t, server, server.Addr(), "timeout: 10s", policies)
	for _, name := range []string{"open", "closed", "local"} {
		s.take(name, "u1", 1)
		key := s.key(name, "u1")
		for _, command := range [][]string{{"SET", key, "42"}, {"LPUSH", key, "x"}, {"ZADD", key, "1", "x"}, {"HSET", key, "count", "3"}} {
			server.Do(t, "DEL", key)
			server.Do(t, command...)
			before := server.Do(t, "DUMP", key)
			errors := s.metric(t, `tidegate_requests_total{policy="",result="error"`)
			r := s.ask(t, fmt.Sprintf(`{"limit": %q, "key": "u1"}`, name))
			if r.status != http.StatusServiceUnavailable || r.Code != "wrong-type" {
				t.Errorf("%v: got %d %s, want 503 wrong-type", command, r.status, r.text)
			}
			if n := s.metric(t, `tidegate_requests_total{policy="",result="error"`); n != errors+1 {
				t.Errorf("%v: %v errors are counted, want %v", command, n, errors+1)
			}
			if after := server.Do(t, "DUMP", key); after != before || s.ttl(key) != -time.Millisecond {
				t.Errorf("%v: the foreign key was changed", command)
			}
		}
		if r := s.take(name, "u2", 1); r.status != http.StatusOK || r.Tier != "redis" {
			t.Errorf("another key of %s: got %d %s", name, r.status, r.text)
		}
	}
	if state := s.metric(t, "tidegate_breaker_state"); state != 0 {
		t.Errorf("the breaker is in state %v", state)
	}
	s.state = "string"
	s.reload(1, policies)
	if r := s.take("closed", "u1", 1); r.status != http.StatusOK || r.left() != 49 {
		t.Errorf("with another form of state got %d %s", r.status, r.text)
	}
}

// TestFaultUnfitServers: a server that can never decide is named as that, and until it is
// replaced the policies decide.
func TestFaultUnfitServers(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, reply, log string }{
		{"Redis 5", "-ERR unknown command `HELLO`, with args beginning with:\r\n", "Redis 6.2"},
		{"loading", "-LOADING Redis is loading the dataset in memory\r\n", "LOADING"},
		{"out of memory", "-OOM command not allowed when used memory > 'maxmemory'.\r\n", "OOM"},
		{"a replica", "-READONLY You can't write against a read only replica.\r\n", "READONLY"},
		{"a password is missing", "-NOAUTH Authentication required.\r\n", "NOAUTH"},
		{"no Redis", "HTTP/1.1 400 Bad Request\r\n\r\n", ""},
		{"silent", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			stub := redistest.NewStub(t, func([]string) string { return tt.reply })
			s := &site{t: t, head: listenAnywhere}
			s.head += fmt.Sprintf("redis: {addrs: [%q], timeout: 50ms}\nbreaker: {failures: 3, open_for: 1h}\n", stub.Addr())
			s.process = serve(t, "serve", "--config", writeConfig(t, s.head, policies))
			for range 3 {
				s.wantDegraded()
			}
			if state := s.metric(t, "tidegate_breaker_state"); state != 2 {
				t.Errorf("the breaker is in state %v, want 2", state)
			}
			commands := stub.Commands()
			s.wantDegraded()
			if n := stub.Commands() - commands; n > 0 {
				t.Errorf("%d commands went through the open breaker", n)
			}
			_, body := s.ready(t)
			if !strings.Contains(s.logged(), tt.log) || !strings.Contains(s.logged(), `"redis is away"`) || !strings.Contains(body, `"reachable":false`) {
				t.Errorf("log and readyz do not say %q:\n%s\n%s", tt.log, s.logged(), body)
			}
		})
	}
}

// TestFaultMissingRights: a user without a right, or with a password that is no longer right, is
// told of in log, metric and readyz, whoever met it first; nothing passes silently, and it is well
// again when mended.
func TestFaultMissingRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithUsers("default off", "teller on >one ~rl:* +@all"))
	password := writeFile(t, "password", "one")
	s := newSite(t, server, server.Addr(), "timeout: 200ms, username: teller, password_file: "+password+"}\nbreaker: {failures: 2, open_for: 1500ms", policies)
	for _, fault := range []struct{ rule, mend, reason string }{
		{"-eval -evalsha", "+@all", "NOPERM"},
		{"-time", "+@all", "time"},
		{"resetkeys", "~rl:*", "key"},
		{"resetpass >two", "", "WRONGPASS"},
	} {
		s.wantReachable(t)
		logged := len(s.logged())
		before := s.metric(t, `tidegate_redis_errors_total{kind="auth"}`)
		server.Do(t, append([]string{"ACL", "SETUSER", "teller"}, strings.Fields(fault.rule)...)...)
		server.Do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		await(t, fault.rule+" opens the breaker", func() bool { // so a heartbeat may never see the reason
			s.take("local", "u1", 1)
			return s.metric(t, "tidegate_breaker_state") == 2
		})
		s.wantDegraded()
		await(t, "log and readyz say "+fault.reason, func() bool {
			_, body := s.ready(t)
			return strings.Contains(body, `"reachable":false`) && strings.Contains(body, fault.reason) && strings.Contains(s.logged()[logged:], fault.reason)
		})
		if n := s.metric(t, `tidegate_redis_errors_total{kind="auth"}`); n == before {
			t.Errorf("%s: the metric does not count it", fault.rule)
		}
		if fault.mend != "" {
			server.Do(t, "ACL", "SETUSER", "teller", fault.mend)
		} else if err := os.WriteFile(password, []byte("two\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.wantReachable(t)
	if r := s.take("closed", "u1", 1); r.status != http.StatusOK || r.Tier != "redis" {
		t.Errorf("mended: got %d %s", r.status, r.text)
	}
}

// TestFaultUndocumentedRights: the rights that the manual lists are enough for all that a sidecar
// does.
func TestFaultUndocumentedRights(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rule, found := strings.Cut(string(manual), "\nACL SETUSER tidegate ")
	rule, _, closed := strings.Cut(rule, "\n```")
	if !found || !closed {
		t.Fatal("docs/config.md has no ACL SETUSER tidegate")
	}
	rule = strings.Join(strings.Fields(strings.ReplaceAll(rule, "\\\n", " ")), " ")
	for _, command := range scriptCommands(t) {
		if !strings.Contains(rule+" ", "+"+command+" ") {
			t.Errorf("a script uses %s, which the manual does not list", command)
		}
	}
	server := redistest.Start(t, redistest.WithUsers("default off", "tidegate "+rule))
	_, password, _ := strings.Cut(rule, ">")
	password, _, _ = strings.Cut(password, " ")
	for _, state := range []string{"hash", "string"} {
		s := &site{t: t, head: listenAnywhere, state: state}
		s.onRedis(server, server.Addr(), "rl", "timeout: 10s, username: tidegate, password_file: "+writeFile(t, "password", password))
		s.serve(strings.Replace(policies, "limits:\n", everyLimit, 1) + "  every: {limits: [bucket, leaky, leakylog, log, sliding, fixed, daily, slots]}\n")
		s.wantMetric(t, "tidegate_nodes 1")
		if r := s.ask(t, `{"policy": "all", "attributes": {"user": "u1"}}`); r.status != http.StatusOK || r.Tier != "redis" {
			t.Errorf("got %d %s", r.status, r.text)
		}
		s.useEverything()
		response, err := http.Post("http://"+s.addr("admin")+"/v1/reset", "application/json", strings.NewReader(`{"limit": "open", "attributes": {"user": "u1"}}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusNoContent || s.peek("open", "u1").left() != 50 {
			t.Errorf("reset: got %d", response.StatusCode)
		}
		s.signal(t, syscall.SIGTERM)
		s.wantExit(t, 0)
		if log := s.logged(); strings.Contains(log, "NOPERM") || strings.Contains(log, "could not") {
			t.Errorf("logged %s", log)
		}
	}
	if denied := server.Do(t, "ACL", "LOG"); len(denied.([]any)) > 0 {
		t.Errorf("Redis refused %v", denied)
	}
}

// scriptCommands returns the commands that the Lua files name, in lower case.
func scriptCommands(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../lua/*.lua")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var commands []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(`(?:call\(|try\(s, )'([A-Z]+)'`).FindAllSubmatch(text, -1) {
			commands = append(commands, strings.ToLower(string(match[1])))
		}
	}
	return commands
}

// useEverything asks every algorithm, with tickets that are renewed and settled, denials and lists.
func (s *site) useEverything() {
	s.t.Helper()
	const question = `{"policy": "every", "attributes": {"user": "u1"}, "cost": {"tokens": 4}, "request_id": "r%d"}`
	var tickets []string
	for i := range 3 {
		r := s.ask(s.t, fmt.Sprintf(question, i))
		if want := map[int]int{2: http.StatusTooManyRequests}[i]; r.status != max(want, http.StatusOK) || r.Tier != "redis" {
			s.t.Errorf("request %d: got %d %s", i, r.status, r.text)
		}
		tickets = append(tickets, r.Ticket)
	}
	renewed := s.send(s.t, http.MethodPost, "/v1/renew", fmt.Sprintf(`{"ticket": %q}`, tickets[0]))
	if renewed.status != http.StatusOK || !s.finish(renewed.Ticket, 1) || !s.finish(tickets[1], 0) {
		s.t.Errorf("renew and finish: got %d %s", renewed.status, renewed.text)
	}
	if r := s.send(s.t, http.MethodGet, "/v1/status?policy=every&user=u1", ""); r.status != http.StatusOK {
		s.t.Errorf("status: got %d %s", r.status, r.text)
	}
}

// everyLimit begins a list of limits with one of every algorithm.
const everyLimit = tokenLimits + `
  - {name: daily, algorithm: fixed_window, limit: 10, period: day, unit: tokens, key: [user]}
  - {name: slots, algorithm: concurrency, limit: 2, ttl: 1h, key: [user]}
`
