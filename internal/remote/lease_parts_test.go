package remote

import (
	"strconv"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// TestLeasedStatesThatContradictThemselves: a state of which each number may be right, but not all together, is no
// state: more is out than a number holds, or in a window than was charged.
func TestLeasedStatesThatContradictThemselves(t *testing.T) {
	eachLeased(t, func(t *testing.T, w *world, c limit.Charge) {
		w.ask([]limit.Request{{Charges: []limit.Charge{c}, Orders: []limit.LeaseOrder{orderOf(c, 2)}}})
		const out, before = limit.MaxNumber, 2
		if c.Limit.State == limit.StringState {
			numbers := unpacked(t, w.do("GET", c.Key).(string))
			numbers = append(numbers[:len(numbers)-2], out, before)
			w.do("SET", c.Key, packed(t, numbers...), "KEEPTTL")
		} else {
			w.do("HSET", c.Key, "out", strconv.Itoa(out), "before", strconv.Itoa(before))
		}
		dump := w.do("DUMP", c.Key)
		if d := w.ask([]limit.Request{{Charges: []limit.Charge{c}}})[0]; d.Err == nil {
			t.Errorf("it is taken for a state: %+v", d)
		}
		if w.do("DUMP", c.Key) != dump {
			t.Error("the key was changed")
		}
	})
}

// TestLeasedRefundStopsAtWhatIsOut: even a settlement that gives back more than was ever charged leaves what is out on
// lease alone, by the script as by the arithmetic.
func TestLeasedRefundStopsAtWhatIsOut(t *testing.T) {
	eachLeased(t, func(t *testing.T, w *world, c limit.Charge) {
		c.Cost = 3
		r := limit.Request{Charges: []limit.Charge{c}, Orders: []limit.LeaseOrder{orderOf(c, 4)}, ID: "id", Life: time.Hour}
		d := w.both(r)[0]
		c.Cost = 100
		s := &limit.Settlement{Act: limit.Finish, Actual: []int64{0}, Ticket: &limit.Ticket{
			ID: "id", Expires: d.Expires, Charges: []limit.Charge{c}, Marks: []int64{d.Verdicts[0].Mark},
		}}
		got, err := w.settleBoth(s)
		if err != nil {
			t.Fatal(err)
		}
		if v := got.Verdicts[0]; v.Remaining != 6 || v.Out != 4 {
			t.Errorf("%d are left and %d out, want 6 and 4", v.Remaining, v.Out)
		}
	})
}
