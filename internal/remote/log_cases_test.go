package remote

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// askFor returns so many requests for a charge; each but those without a name has an ID of its own.
func askFor(c limit.Charge, n int, name string) []limit.Request {
	requests := make([]limit.Request, n)
	for i := range requests {
		requests[i] = limit.Request{Charges: []limit.Charge{c}, Life: time.Hour}
		if name != "" {
			requests[i].ID = fmt.Sprint(name, i)
		}
	}
	return requests
}

// fill charges so many requests to a key, all of which must pass.
func (w *logWorld) fill(c limit.Charge, n int, name string) {
	w.t.Helper()
	for batch := range slices.Chunk(askFor(c, n, name), 500) {
		for i, d := range w.decideBoth(batch) {
			if !d.Allowed {
				w.t.Fatalf("request %d: %+v", i, d.Verdicts[0])
			}
		}
	}
}

// peek returns what is left.
func (w *logWorld) peek(c limit.Charge) int64 {
	w.t.Helper()
	c.Cost = 0
	return w.decideBoth([]limit.Request{{Charges: []limit.Charge{c}, List: true}})[0].Verdicts[0].Remaining
}

func (w *logWorld) finish(ticket *limit.Ticket, actual int64) {
	w.t.Helper()
	w.settleBoth(&limit.Settlement{Act: limit.Finish, Ticket: ticket, Actual: []int64{actual}})
}

func (w *logWorld) entries(c limit.Charge, want int64) {
	w.t.Helper()
	if got := w.do("ZCARD", c.Key); got != want {
		w.t.Errorf("%d entries, want %d", got, want)
	}
}

// onEachLog runs a test over one key of each limit, in a world of its own.
func onEachLog(t *testing.T, limits []*limit.Limit, test func(*testing.T, *logWorld, limit.Charge)) {
	conn := startLogWorld(t, 0).conn
	for _, l := range limits {
		t.Run(l.Name, func(t *testing.T) {
			w := newLogWorld(t, conn, 0)
			test(t, w, limit.Charge{Limit: l, Settings: &l.Settings, Key: "rl:{" + l.Name + "}", Cost: 1})
		})
	}
}

// twoLogs returns a limit of each algorithm. What is charged at once is gone after span at most.
func twoLogs(t *testing.T, most, span int64) []*limit.Limit {
	t.Helper()
	window, err := limit.NewSlidingWindowLog(most, span)
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := limit.NewLeakyBucketLog(limit.Rate{Tokens: 1, Micros: span / most}, most)
	if err != nil {
		t.Fatal(err)
	}
	return []*limit.Limit{{Name: "window", Settings: window}, {Name: "bucket", Settings: bucket}}
}

// TestLogScriptsDropAThousandAtOnce: a call removes at most 1,000 entries that no longer count, and every
// request is an entry of its own.
func TestLogScriptsDropAThousandAtOnce(t *testing.T) {
	onEachLog(t, twoLogs(t, 6000, 6_000_000), func(t *testing.T, w *logWorld, c limit.Charge) {
		w.fill(c, 3500, "")
		w.entries(c, 3500)
		w.now += 10_000_000
		w.fill(c, 1, "later")
		w.entries(c, 2501)
		w.finish(w.tickets[0], 5)
		w.entries(c, 1501)
		for _, want := range []int64{502, 3, 4} {
			w.fill(c, 1, "")
			w.entries(c, want)
		}
	})
}

// TestManyLogEntriesMoveBack: thousands of entries that count are moved back with the clock, and none of the
// thousands that no longer do comes back with it.
func TestManyLogEntriesMoveBack(t *testing.T) {
	for _, back := range []int64{1, 1_000_000, 30_000_000} {
		onEachLog(t, twoLogs(t, 6000, 6_000_000), func(t *testing.T, w *logWorld, c limit.Charge) {
			w.fill(c, 5500, "")
			w.now -= back
			if left := w.peek(c); left != 500 {
				t.Errorf("back by %dµs: %d left, want 500", back, left)
			}
			w.entries(c, 5500)
			w.now += 10_000_000
			w.fill(c, 1, "later") // it drops 1,000
			w.now -= back
			if left := w.peek(c); left != 5999 {
				t.Errorf("then back by %dµs: %d left, want 5999", back, left)
			}
			w.entries(c, 1)
			w.finish(w.tickets[0], 7)
			if left := w.peek(c); left != 5993 {
				t.Errorf("settled after the clock: %d left, want 5993", left)
			}
		})
	}
}

// TestSettledAfterItIsGone: an entry that no longer counts is not changed, though it is still stored, and
// the clock was set back.
func TestSettledAfterItIsGone(t *testing.T) {
	onEachLog(t, twoLogs(t, 6000, 6_000_000), func(t *testing.T, w *logWorld, c limit.Charge) {
		w.fill(c, 2500, "first")
		w.now += 10_000_000
		w.fill(c, 1, "")
		w.finish(w.tickets[2000], 9)
		if left := w.peek(c); left != 5999 {
			t.Errorf("%d left, want 5999", left)
		}
		w.now -= 10_000_000
		w.finish(w.tickets[2001], 9)
		if left := w.peek(c); left != 5999 {
			t.Errorf("after the clock %d left, want 5999", left)
		}
	})
}

// TestLogWaitsAreSearched: the wait among thousands of entries at different times.
func TestLogWaitsAreSearched(t *testing.T) {
	onEachLog(t, twoLogs(t, 3000, 30_000_000), func(t *testing.T, w *logWorld, c limit.Charge) {
		for range 300 {
			w.fill(c, 10, "")
			w.now += 7
		}
		for range 100 {
			c.Cost = 1 + w.rng.Int64N(3000)
			w.decideBoth([]limit.Request{{Charges: []limit.Charge{c}}})
		}
	})
}

// TestLogSumsBeginAgain: costs near 2^53, of which those that no longer count leave room for others, also
// when one is settled.
func TestLogSumsBeginAgain(t *testing.T) {
	window, err := limit.NewSlidingWindowLog(limit.MaxNumber, 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := limit.NewLeakyBucketLog(limit.Rate{Tokens: 1000, Micros: 1}, limit.MaxNumber)
	if err != nil {
		t.Fatal(err)
	}
	limits := []*limit.Limit{{Name: "window", Settings: window}, {Name: "bucket", Settings: bucket}}
	onEachLog(t, limits, func(t *testing.T, w *logWorld, c limit.Charge) {
		charge := func(cost int64, name string) {
			c.Cost = cost
			w.fill(c, 1, name)
		}
		left := func(want int64) {
			t.Helper()
			if got := w.peek(c); got != want {
				t.Errorf("%d left, want %d", got, want)
			}
		}
		charge(limit.MaxNumber-20, "large")
		w.now += 10_000_000_000_000
		charge(5, "a")
		charge(5, "b")
		charge(5, "c")
		w.finish(w.tickets[2], 100)
		left(limit.MaxNumber - 110)
		charge(limit.MaxNumber-110, "rest")
		left(0)
		w.finish(w.tickets[3], 6) // which is too much
		left(0)
		w.finish(w.tickets[1], 0)
		left(5)
		charge(5, "last")
		left(0)
	})
}

// TestLogEntriesOfOneScore: where many requests drain in one microsecond and some cost nothing in the end,
// they keep their order.
func TestLogEntriesOfOneScore(t *testing.T) {
	bucket, err := limit.NewLeakyBucketLog(limit.Rate{Tokens: 997, Micros: 1}, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	onEachLog(t, []*limit.Limit{{Name: "bucket", Settings: bucket}}, func(t *testing.T, w *logWorld, c limit.Charge) {
		for range 300 {
			w.now += w.rng.Int64N(3)
			for range 1 + w.rng.IntN(6) {
				c.Cost = 1 + w.rng.Int64N(300)
				w.ids++
				w.decideBoth([]limit.Request{{Charges: []limit.Charge{c}, ID: fmt.Sprint("id", w.ids), Life: time.Hour, List: true}})
			}
			for range 1 + w.rng.IntN(5) {
				i := max(0, len(w.tickets)-1-w.rng.IntN(8))
				w.finish(w.tickets[i], 0)
				w.peek(c)
			}
		}
	})
}

// TestNamelessEntriesAreNotSettled: a payment without a name settles nothing, also when the clock was set back.
func TestNamelessEntriesAreNotSettled(t *testing.T) {
	onEachLog(t, twoLogs(t, 10, 10_000_000), func(t *testing.T, w *logWorld, c limit.Charge) {
		w.fill(c, 2, "")
		w.now--
		w.finish(&limit.Ticket{Expires: w.now + 1_000_000, Charges: []limit.Charge{c}, Marks: []int64{w.now}}, 5)
		if left := w.peek(c); left != 8 {
			t.Errorf("%d left, want 8", left)
		}
	})
}

// TestForeignLogsAreLeftAlone: a key that holds something else, or a member that is none of a log, is not
// overwritten, and its requests get an error.
func TestForeignLogsAreLeftAlone(t *testing.T) {
	w := startLogWorld(t, 0)
	at := strconv.FormatInt(w.now, 10)
	later := strconv.FormatInt(w.now+1000, 10)
	const good, leaky = "0000000000000001 1", "0000000000000001 1 1000 0 1"
	tests := map[string][]string{
		"a String":                     {"SET", "", "x"},
		"a Hash":                       {"HSET", "", "tokens", "1"},
		"another member":               {"ZADD", "", at, "x"},
		"a sum of 15 digits":           {"ZADD", "", at, good[1:]},
		"a sum above 2^53":             {"ZADD", "", at, "9007199254740994 1 1000 0 1"},
		"a cost above the sum":         {"ZADD", "", at, "0000000000000001 2 1000 0 1"},
		"an infinite score":            {"ZADD", "", "+inf", leaky},
		"a fraction as score":          {"ZADD", "", at + ".5", leaky},
		"a score below 0":              {"ZADD", "", "-5", leaky},
		"the first that counts":        {"ZADD", "", later, "x", later + "0", leaky},
		"bucket: charged before 1970":  {"ZADD", "", at, "0000000000000001 1 " + at + "0 0 1"},
		"bucket: charged when drained": {"ZADD", "", later, "0000000000000001 1 0 0 1"},
		"bucket: no such fraction":     {"ZADD", "", at, "0000000000000001 1 1000 3 3"},
		"one ahead when moving back":   {"ZADD", "", later + "0", leaky, later + "00", "0000000000000003 1 1000 0 1", later + "01", "0000000000000002 x"},
	}
	for name, command := range tests {
		for _, l := range twoLogs(t, 10, 10_000_000) {
			if strings.HasPrefix(name, "bucket") && l.Name != "bucket" {
				continue // a window takes the rest of a member for an id
			}
			t.Run(name+"/"+l.Name, func(t *testing.T) {
				c := limit.Charge{Limit: l, Settings: &l.Settings, Key: "rl:{foreign}", Cost: 1}
				w.do("DEL", c.Key)
				command[1] = c.Key
				w.do(command...)
				before := w.do("DUMP", c.Key)
				d, _ := w.ask([]limit.Request{{Charges: []limit.Charge{c}}})
				if !errors.Is(d[0].Err, limit.ErrWrongType) {
					t.Errorf("decided: %+v, %v", d[0].Verdicts, d[0].Err)
				}
				ticket := &limit.Ticket{ID: "d", Expires: w.now + 1000, Charges: []limit.Charge{c}, Marks: []int64{w.now}}
				var settle call
				settle.packSettlement(w.now, &limit.Settlement{Act: limit.Finish, Ticket: ticket, Actual: []int64{5}}, noClock)
				text, _ := w.run(w.settler, &settle)
				if _, _, err := unpackSettled(text, &limit.Settlement{Act: limit.Finish, Ticket: ticket}); !errors.Is(err, limit.ErrWrongType) {
					t.Errorf("settled: %v", err)
				}
				if after := w.do("DUMP", c.Key); after != before {
					t.Errorf("the key was changed: %q", strings.ToValidUTF8(fmt.Sprint(after), "?"))
				}
			})
		}
	}
}

// TestForeignMemberAmongOthers: a member that is none of a log, found only by a search, keeps the log from
// being written.
func TestForeignMemberAmongOthers(t *testing.T) {
	onEachLog(t, twoLogs(t, 1000, 1_000_000), func(t *testing.T, w *logWorld, c limit.Charge) {
		for range 90 {
			w.fill(c, 10, "")
			w.now++
		}
		middle := w.do("ZRANGE", c.Key, "449", "449", "WITHSCORES").([]any)
		w.do("ZREM", c.Key, middle[0].(string))
		w.do("ZADD", c.Key, middle[1].(string), middle[0].(string)[:16]+" x")
		before := w.do("DUMP", c.Key)
		large := c
		large.Cost = 550
		d, _ := w.ask([]limit.Request{{Charges: []limit.Charge{c}}, {Charges: []limit.Charge{large}}})
		if after := w.do("DUMP", c.Key); !errors.Is(d[1].Err, limit.ErrWrongType) || after != before {
			t.Errorf("%+v, %v; changed: %t", d[1].Verdicts, d[1].Err, after != before)
		}
	})
}

// TestLostLifeComesBack: a log that lost its time to live, as by PERSIST, gets it back with the next charge,
// and never more than a window or the time until it has drained.
func TestLostLifeComesBack(t *testing.T) {
	w := startLogWorld(t, 0)
	for _, l := range twoLogs(t, 3, 60_000_000) {
		c := limit.Charge{Limit: l, Settings: &l.Settings, Key: "rl:{" + l.Name + "}", Cost: 3}
		for round := range 3 {
			d, lives := w.ask([]limit.Request{{Charges: []limit.Charge{c}}}) // and the life is taken away
			if v := d[0].Verdicts[0]; !v.Allowed || lives[c.Key] != 60_000 {
				t.Errorf("%s, round %d: %+v with a life of %dms", l.Name, round, v, lives[c.Key])
			}
			d, lives = w.ask([]limit.Request{{Charges: []limit.Charge{c}}})
			if v := d[0].Verdicts[0]; v.Allowed || lives[c.Key] != -1 {
				t.Errorf("%s, round %d: exhausted, but %+v with a life of %dms", l.Name, round, v, lives[c.Key])
			}
			w.now += 120_000_000
		}
	}
}
