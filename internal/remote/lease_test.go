package remote_test

import (
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/internal/remote"
)

// TestForgetKeepsLeases: a reset gives everything back but what is out on lease; of a limit of which nothing is,
// no key is left.
func TestForgetKeepsLeases(t *testing.T) {
	server := redistest.Start(t)
	forms(t, server, func(t *testing.T, state limit.StateForm) {
		b := newBench(t, remote.Config{Addr: server.Addr()})
		l := hourly("leased", 100, state)
		var err error
		if l.Settings, err = l.Settings.Leased(time.Minute.Microseconds()); err != nil {
			t.Fatal(err)
		}
		c := charge(l, "a", 30)
		d := new(limit.Decision)
		r := limit.Request{Charges: []limit.Charge{c}, Orders: []limit.LeaseOrder{{Limit: l, Settings: c.Settings, Key: c.Key, Want: 20}}}
		b.store.Decide(t.Context(), []limit.Request{r}, []*limit.Decision{d})
		if d.Err != nil || len(d.Leases) != 1 || d.Leases[0].Tokens != 20 || d.Verdicts[0].Remaining != 70 {
			t.Fatalf("%+v, want 20 lent after 30 of 100 were charged", d)
		}
		if err := b.store.Forget(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		c.Cost = 0
		if v := b.mustAsk(c).Verdicts[0]; v.Remaining != 80 || v.Out != 20 {
			t.Errorf("%d are left and %d out after a reset, want 80 and 20", v.Remaining, v.Out)
		}
		report := limit.LeaseReport{Epoch: d.Leases[0].Epoch, Slot: d.Leases[0].Slot, Used: 5, Unused: 15}
		back := limit.Request{Orders: []limit.LeaseOrder{{Limit: l, Settings: c.Settings, Key: c.Key, Reports: []limit.LeaseReport{report}}}}
		b.store.Decide(t.Context(), []limit.Request{back}, []*limit.Decision{{}})
		if v := b.mustAsk(c).Verdicts[0]; v.Remaining != 95 || v.Out != 0 {
			t.Errorf("%d are left and %d out when the lease is back, want 95 and 0", v.Remaining, v.Out)
		}
		if err := b.store.Forget(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if keys := server.Do(t, "KEYS", "*").([]any); len(keys) > 0 {
			t.Errorf("keys after a reset: %v", keys)
		}
	})
}
