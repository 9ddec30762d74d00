package remote

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/redistest"
)

// world is one random trace: limits whose settings change on the way, asked and settled through the
// scripts on a real Redis and through local.Memory, at times that the test chooses.
type world struct {
	rig
	keeper  string // the hash of the script
	limits  []*limit.Limit
	calm    bool            // time passes and steps by seconds, not by years
	wait    int64           // the retry-after of the last denial
	ids     int             // given to requests so far
	granted []limit.Request // with a Grant, some of which are asked again
	tickets []*limit.Ticket
	seen    map[string]int // what has happened, how often
}

// keeper returns the keys' times to live, and makes them too long to run out.
const keeper = `
local left = {}
for i, key in ipairs(KEYS) do
  left[i] = redis.call('PTTL', key)
  redis.call('PEXPIRE', key, '4000000000000000')
end
return left
`

// untouched is keeper's time to live, which no script gives: a key that still has it was not written.
const untouched = 4_000_000_000_000_000

func newWorld(t *testing.T, conn *redistest.Conn, seed uint64, algorithms ...limit.Algorithm) *world {
	w := &world{rig: newRig(t, conn, seed, 7, 1_780_000_000_000_000), seen: map[string]int{}}
	w.keeper = w.do("SCRIPT", "LOAD", keeper).(string)
	for i, algorithm := range algorithms {
		l := &limit.Limit{Name: "l" + strconv.Itoa(i), Unit: limit.RequestsUnit}
		if algorithm == limit.TokenBucketAlgorithm {
			l.State = limit.StateForm(w.rng.IntN(2))
		}
		l.Shadow = w.rng.IntN(4) == 0
		l.Settings.Algorithm = algorithm
		w.limits = append(w.limits, l)
		w.change(l)
	}
	return w
}

// run runs a script at w.now over what c holds, and keeps each key's time to live, which must not run
// in real time.
func (w *world) run(script string, c *call) string {
	for i, key := range c.keys {
		if dies, ok := w.dies[key]; ok && w.now >= dies && (c.kinds[i] == noteKind || w.rng.IntN(2) == 0) {
			w.do("DEL", key)
		}
	}
	keys := append([]string{strconv.Itoa(len(c.keys))}, c.keys...)
	keep := append([]string{"EVALSHA", w.keeper}, keys...)
	replies := w.transaction(
		keep, // for what a test has planted
		append(append([]string{"EVALSHA", script}, keys...), string(c.args)),
		keep,
	)
	text, ok := replies[1].(string)
	if !ok {
		w.t.Fatalf("the script failed: %v", replies[1])
	}
	for i, ttl := range replies[2].([]any) {
		switch ttl := ttl.(int64); {
		case ttl == -1:
			w.t.Fatalf("%s has no time to live", c.keys[i])
		case ttl >= 0 && ttl < untouched*9/10:
			w.dies[c.keys[i]] = w.now + (ttl+500)/1000*1000
		}
	}
	return text
}

// transaction sends commands in one go, and returns their replies.
func (w *world) transaction(commands ...[]string) []any {
	w.t.Helper()
	commands = slices.Concat([][]string{{"MULTI"}}, commands, [][]string{{"EXEC"}})
	for _, command := range commands {
		if err := w.conn.Send(command...); err != nil {
			w.t.Fatal(err)
		}
	}
	var last any
	for range commands {
		var err error
		if last, err = w.conn.Receive(); err != nil {
			w.t.Fatal(err)
		}
	}
	replies, ok := last.([]any)
	if !ok {
		w.t.Fatalf("the transaction failed: %v", last)
	}
	return replies
}

// ask runs the script that decides at w.now.
func (w *world) ask(requests []limit.Request) []*limit.Decision {
	var c call
	c.pack(w.now, requests, func(time.Time) int64 { return 0 })
	text := w.run(w.decider, &c)
	decisions := make([]*limit.Decision, len(requests))
	for i := range decisions {
		decisions[i] = new(limit.Decision)
	}
	now := readReply(text).now
	alone, err := unpack(text, requests, decisions)
	if err != nil || len(alone.expired)+len(alone.outside) > 0 || now != w.now {
		w.t.Fatalf("unpack: now %d, left alone %v, error %v", now, alone, err)
	}
	return decisions
}
