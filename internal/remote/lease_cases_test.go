package remote

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// leasedLimits returns a bucket and a window of 10 tokens, leased for a second, in the given form.
func leasedLimits(t *testing.T, form limit.StateForm) []*limit.Limit {
	t.Helper()
	b, err := limit.NewTokenBucket(limit.Rate{Tokens: 1, Micros: 1_000_000}, 10, 10)
	if err != nil {
		t.Fatal(err)
	}
	w, err := limit.NewFixedWindow(10, 10_000_000)
	if err != nil {
		t.Fatal(err)
	}
	limits := []*limit.Limit{{Name: "bucket", Settings: limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: b}}, {Name: "window", Settings: w}}
	for _, l := range limits {
		l.Unit, l.State = limit.RequestsUnit, form
		if l.Settings, err = l.Settings.Leased(1_000_000); err != nil {
			t.Fatal(err)
		}
	}
	return limits
}

// eachLeased runs a test for each leased algorithm and form, on a key of its own.
func eachLeased(t *testing.T, test func(t *testing.T, w *world, c limit.Charge)) {
	w := newWorld(t, dial(t), 1)
	for _, form := range []limit.StateForm{limit.HashState, limit.StringState} {
		for _, l := range leasedLimits(t, form) {
			t.Run(form.String()+"/"+l.Name, func(t *testing.T) {
				w.t = t
				test(t, w, limit.Charge{Limit: l, Settings: &l.Settings, Key: "rl:{" + form.String() + l.Name + "}", Cost: 1})
			})
		}
	}
}

func orderOf(c limit.Charge, want int64, reports ...limit.LeaseReport) limit.LeaseOrder {
	return limit.LeaseOrder{Limit: c.Limit, Settings: c.Settings, Key: c.Key, Want: want, Reports: reports}
}

// packed returns a state in the String form, and unpacked the numbers of one.
func packed(t *testing.T, numbers ...float64) string {
	t.Helper()
	text, err := binary.Append(nil, binary.LittleEndian, numbers)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func unpacked(t *testing.T, state string) []float64 {
	t.Helper()
	numbers := make([]float64, len(state)/8)
	if n, err := binary.Decode([]byte(state), binary.LittleEndian, numbers); err != nil || n != len(state) {
		t.Fatalf("%q is no state: %v", state, err)
	}
	return numbers
}

// TestForeignLeasedStates: what is no state of a leased limit is left alone and told; nothing is lent from it, and the
// rest of the call goes on. Only a reset drops it.
func TestForeignLeasedStates(t *testing.T) {
	eachLeased(t, func(t *testing.T, w *world, c limit.Charge) {
		other := c
		other.Key += ":other"
		w.ask([]limit.Request{{Charges: []limit.Charge{c}, Orders: []limit.LeaseOrder{orderOf(c, 2)}}})
		var foreign [][]string
		if c.Limit.State == limit.StringState {
			good := w.do("GET", c.Key).(string)
			fields := unpacked(t, good)
			for i := range fields {
				for _, bad := range []float64{1.5, 1e17, -9007199254740994, math.NaN(), math.Inf(1)} {
					changed := slices.Clone(fields)
					changed[i] = bad
					foreign = append(foreign, []string{"SET", c.Key, packed(t, changed...)})
				}
			}
			for _, bad := range []string{"", good[:len(good)-1], good + packed(t, 1), strings.Repeat("1", len(good))} {
				foreign = append(foreign, []string{"SET", c.Key, bad})
			}
			foreign = append(foreign, []string{"SADD", c.Key, "a"})
		} else {
			fields := w.do("HGETALL", c.Key).([]any)
			for i := 0; i < len(fields); i += 2 {
				for _, bad := range []string{"x", "1.5", "1e17", "-9007199254740994", "nan"} {
					command := []string{"HSET", c.Key}
					for j, f := range fields {
						if j == i+1 {
							f = bad
						}
						command = append(command, f.(string))
					}
					foreign = append(foreign, command)
				}
			}
			foreign = append(foreign, []string{"HSET", c.Key, "a", "b"}, []string{"SET", c.Key, "1 2 3"}, []string{"SADD", c.Key, "a"})
		}
		for _, command := range foreign {
			w.do("DEL", c.Key)
			w.do(command...)
			before := w.do("DUMP", c.Key)
			d := w.ask([]limit.Request{
				{Charges: []limit.Charge{other}},
				{Charges: []limit.Charge{c}, Orders: []limit.LeaseOrder{orderOf(c, 5, limit.LeaseReport{Unused: 1})}},
				{Orders: []limit.LeaseOrder{orderOf(other, 1)}},
			})
			if !errors.Is(d[1].Err, limit.ErrWrongType) || d[1].Leases[0] != (limit.Lease{}) {
				t.Fatalf("%q: %+v", command, d[1])
			}
			if d[0].Err != nil || len(d[0].Verdicts) != 1 || d[2].Err != nil || len(d[2].Leases) != 1 {
				t.Fatalf("%q: the others of the call: %+v, %+v", command, d[0], d[2])
			}
			if after := w.do("DUMP", c.Key); after != before {
				t.Fatalf("%q: the key was changed", command)
			}
		}
		w.forget(c)
		if n := w.do("EXISTS", c.Key).(int64); n != 0 {
			t.Error("a reset has not dropped it")
		}
	})
}

// TestOrdersOfRequestsLeftAlone: of a request that comes too late the reports are taken all the same, so it is asked again
// without its orders; but nothing is lent, since nobody would hand it out. A request with nothing else knows no deadline.
func TestOrdersOfRequestsLeftAlone(t *testing.T) {
	eachLeased(t, func(t *testing.T, w *world, c limit.Charge) {
		lent := w.ask([]limit.Request{{Orders: []limit.LeaseOrder{orderOf(c, 4)}}})[0].Leases[0]
		if lent.Tokens != 4 {
			t.Fatalf("%+v", lent)
		}
		report := limit.LeaseReport{Epoch: lent.Epoch, Slot: lent.Slot, Used: 1, Unused: 3}
		requests := []limit.Request{
			{Charges: []limit.Charge{c}, Orders: []limit.LeaseOrder{orderOf(c, 2, report)}},
			{Orders: []limit.LeaseOrder{orderOf(c, 1)}},
		}
		late := func(time.Time) int64 { return w.now - 1 }
		var pack call
		pack.pack(w.now, requests, late)
		d := []*limit.Decision{new(limit.Decision), new(limit.Decision)}
		untouched, err := unpack(w.run(w.decider, &pack), requests, d)
		if err != nil || !slices.Equal(untouched.expired, []int{0}) || d[0].Tier != limit.TierNone || d[1].Tier != limit.TierRedis {
			t.Fatalf("left alone %+v, error %v; %+v, %+v", untouched, err, d[0], d[1])
		}
		if d[0].Leases[0] != (limit.Lease{}) || d[1].Leases[0].Tokens != 1 {
			t.Fatalf("lent %+v and %+v, want nothing and 1", d[0].Leases, d[1].Leases)
		}
		requests[0].Orders = nil
		pack.pack(w.now, requests[:1], unclocked)
		if _, err := unpack(w.run(w.decider, &pack), requests[:1], d[:1]); err != nil || d[0].Tier != limit.TierRedis {
			t.Fatalf("asked again: %+v, %v", d[0], err)
		}
		// 10, less 1 used, 1 lent, and 1 charged.
		if v := d[0].Verdicts[0]; len(d[0].Leases) != 1 || d[0].Leases[0] != (limit.Lease{}) || v.Remaining != 7 || v.Out != 1 {
			t.Errorf("asked again: %+v", d[0])
		}
	})
}

// TestNothingIsLentBeforeRequests: what waits is decided first, and tokens that are reported are there for it.
func TestNothingIsLentBeforeRequests(t *testing.T) {
	eachLeased(t, func(t *testing.T, w *world, c limit.Charge) {
		lent := w.ask([]limit.Request{{Orders: []limit.LeaseOrder{orderOf(c, 10)}}})[0].Leases[0]
		all := c
		all.Cost = 6
		d := w.ask([]limit.Request{
			{Orders: []limit.LeaseOrder{orderOf(c, 9)}},
			{Charges: []limit.Charge{all}},
			{Orders: []limit.LeaseOrder{orderOf(c, 0, limit.LeaseReport{Epoch: lent.Epoch, Slot: lent.Slot, Used: 2, Unused: 8})}},
		})
		if v := d[1].Verdicts[0]; !v.Allowed || v.Remaining != 2 || d[0].Leases[0].Tokens != 2 || d[2].Leases[0] != (limit.Lease{}) {
			t.Errorf("%+v, lent %+v", v, d[0].Leases)
		}
	})
}

// TestFlightKeepsOrders: who asks may leave, and use the memory of its orders for others, before a call reads them.
func TestFlightKeepsOrders(t *testing.T) {
	orders := []limit.LeaseOrder{{Key: "asked", Reports: []limit.LeaseReport{{Used: 1}}}}
	var f flight
	f.board(&item{request: &limit.Request{Orders: orders}})
	orders[0] = limit.LeaseOrder{Key: "another"}
	if got := f.requests[0].Orders; len(got) != 1 || got[0].Key != "asked" || len(got[0].Reports) != 1 {
		t.Errorf("the call says %+v", got)
	}
}
