package chaos_test

import (
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

// effect is what a fault does to the answers while it lasts.
type effect int

const (
	none     effect = iota // every answer is of Redis
	overcome               // all are but at first
	some                   // some are, some are not
	total                  // none is, once the breaker is open
)

// fault is one way in which Redis fails.
type fault struct {
	name    string
	options []redistest.Option
	begin   func(*stage)
	again   func(*stage) // repeated while the fault lasts; nil: nothing
	end     func(*stage) // nil: nothing
	effect  effect
	kinds   []string // of redis_errors_total, one of which must grow, and no other may
	lossy   bool     // Redis forgets what was charged
	foreign string   // the limit and user whose key is taken by something else
}

// pace is the time between two repetitions of a fault.
const pace = 20 * time.Millisecond

func faults() []fault {
	return append(networkFaults(), serverFaults()...)
}

// networkFaults are those of the way to Redis, or of a process that does not run.
func networkFaults() []fault {
	slow := func(d time.Duration) func(*stage) { return func(s *stage) { s.proxy.SetDelay(d) } }
	return []fault{
		{
			name: "killed", effect: total, kinds: []string{"connection"}, lossy: true,
			begin: func(s *stage) { s.server.Kill() },
			end:   func(s *stage) { s.server.Restart() },
		}, {
			name: "refused", effect: total, kinds: []string{"connection"},
			begin: func(s *stage) { s.proxy.Refuse(true) },
			end:   func(s *stage) { s.proxy.Refuse(false) },
		}, {
			name: "frozen (SIGSTOP)", effect: total, kinds: []string{"timeout"},
			begin: func(s *stage) { s.server.Pause() },
			end:   func(s *stage) { s.server.Resume() },
		}, {
			name: "black hole", effect: total, kinds: []string{"timeout"},
			begin: func(s *stage) { s.proxy.BlackHole(true) },
			end:   func(s *stage) { s.proxy.BlackHole(false) },
		},
		{
			// The calls that need a further connection are late; the connection is there for the next.
			name: "slow by 20 ms", effect: overcome, kinds: []string{"timeout"},
			begin: slow(20 * time.Millisecond), end: slow(0),
		},
		{name: "slow by 200 ms", effect: total, kinds: []string{"timeout"}, begin: slow(200 * time.Millisecond), end: slow(0)},
		{name: "slow by 2 s", effect: total, kinds: []string{"timeout"}, begin: slow(2 * time.Second), end: slow(0)},
		{
			name: "replies lost", effect: total, kinds: []string{"timeout"},
			begin: func(s *stage) { s.proxy.DropReplies(true) },
			end:   func(s *stage) { s.proxy.DropReplies(false) },
		}, {
			name: "reset in mid-reply", effect: some, kinds: []string{"connection"},
			again: func(s *stage) { s.proxy.CutReplyAfter(3) },
			end:   func(s *stage) { s.proxy.CutReplyAfter(-1) },
		}, {
			name: "restart", effect: some, kinds: []string{"connection"}, lossy: true,
			begin: func(s *stage) { s.server.Restart() },
		},
	}
}

// serverFaults are those that Redis itself reports, or does not notice.
func serverFaults() []fault {
	return []fault{
		{name: "SCRIPT FLUSH", effect: none, again: func(s *stage) { s.do("SCRIPT", "FLUSH") }},
		{name: "FLUSHALL", effect: none, lossy: true, again: func(s *stage) { s.do("FLUSHALL") }},
		loading(),
		{
			name: "read-only", effect: total, kinds: []string{"readonly"},
			begin: func(s *stage) { s.do("REPLICAOF", "127.0.0.1", "1") },
			end:   func(s *stage) { s.do("REPLICAOF", "NO", "ONE") },
		}, {
			name: "out of memory", effect: total, kinds: []string{"oom"},
			begin: func(s *stage) { s.do("CONFIG", "SET", "maxmemory", "1") },
			end:   func(s *stage) { s.do("CONFIG", "SET", "maxmemory", "0") },
		}, {
			name: "busy with a script", effect: total, kinds: []string{"busy", "timeout"},
			options: []redistest.Option{redistest.WithArgs("--busy-reply-threshold", "100")},
			begin:   func(s *stage) { s.background("EVAL", "while true do end", "0") },
			end:     func(s *stage) { s.do("SCRIPT", "KILL") },
		}, {
			name: "no permission", effect: total, kinds: []string{"auth"},
			begin: func(s *stage) { s.do("ACL", "SETUSER", "default", "-eval", "-evalsha") },
			end:   func(s *stage) { s.do("ACL", "SETUSER", "default", "+@all") },
		}, {
			name: "password rotated", effect: total, kinds: []string{"auth", "connection"},
			begin: func(s *stage) {
				s.do("ACL", "SETUSER", "default", "resetpass", ">new")
				s.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			},
			end: func(s *stage) { s.setPassword("new") },
		}, {
			name: "wrong type at one key", effect: none, kinds: []string{"wrongtype"}, foreign: "local u7",
			begin: func(s *stage) { s.do("SET", s.key("local", "u7"), "not ours") },
			end:   func(s *stage) { s.do("DEL", s.key("local", "u7")) },
		}, {
			name: "too many clients", effect: total, kinds: []string{"connection", "other"},
			begin: func(s *stage) {
				s.do("CONFIG", "SET", "maxclients", "1")
				s.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			},
			end: func(s *stage) { s.do("CONFIG", "SET", "maxclients", "1000") },
		},
	}
}

// loading makes Redis read its data set again, pausing at each key, and answer LOADING meanwhile.
func loading() fault {
	return fault{
		name: "loading", effect: total, kinds: []string{"loading", "timeout"},
		options: []redistest.Option{redistest.WithArgs(
			"--enable-debug-command", "yes", "--loading-process-events-interval-bytes", "1024")},
		begin: func(s *stage) {
			s.do("DEBUG", "POPULATE", "60000")
			s.do("CONFIG", "SET", "key-load-delay", "200")
			s.background("DEBUG", "RELOAD")
		},
		end: func(s *stage) { s.do("CONFIG", "SET", "key-load-delay", "0") },
	}
}
