package local_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/local"
)

const hold = 100 * time.Millisecond

// leased is a bucket of which nodes may hold tokens for hold.
func leased(t testing.TB, perSecond, burst int64) limit.Settings {
	t.Helper()
	bucket, err := limit.NewTokenBucket(limit.Rate{Tokens: perSecond, Micros: 1_000_000}, burst, burst)
	if err != nil {
		t.Fatal(err)
	}
	s, err := limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: bucket}.Leased(hold.Microseconds())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// lessee is one node's leases on a store that keeps what it is told.
type lessee struct {
	t *testing.T
	*local.Leases
	store  *local.Memory
	charge limit.Charge
	told   []limit.LeaseReport
}

// hasher gives the keys of all tests their hashes.
var hasher = limit.NewHasher()

func hashOf(key string) limit.Hash { return hasher.Hash(key) }

func newLessee(t *testing.T, store *local.Memory, s limit.Settings) *lessee {
	t.Helper()
	leases, err := local.NewLeases(local.LeasesConfig{Timeout: time.Second, Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	l := &limit.Limit{Name: "l", Settings: s}
	return &lessee{t: t, Leases: leases, store: store, charge: limit.Charge{Limit: l, Settings: &l.Settings, Key: "rl:{l:u}", Hash: hashOf("rl:{l:u}"), Cost: 1}}
}

// Decide is the store as Run knows it.
func (n *lessee) Decide(ctx context.Context, requests []limit.Request, decisions []*limit.Decision) {
	for i := range requests {
		for _, o := range requests[i].Orders {
			n.told = append(n.told, o.Reports...)
		}
	}
	n.store.Decide(ctx, requests, decisions)
}

// ask puts a question for cost tokens to the store, after late, and returns what was lent. With lost the reply
// does not come.
func (n *lessee) ask(cost int64, late time.Duration, lost bool) (allowed bool, lease limit.Lease) {
	c := n.charge
	c.Cost = cost
	asOf := time.Now()
	r := limit.Request{Charges: []limit.Charge{c}, Orders: n.Order(asOf, &c, nil)}
	d := new(limit.Decision)
	n.Decide(context.Background(), []limit.Request{r}, []*limit.Decision{d})
	time.Sleep(late)
	if lost {
		for i := range r.Orders {
			n.Receive(asOf, time.Now(), &r.Orders[i], limit.Lease{})
		}
		return false, lease
	}
	n.Observe(asOf, &c, &d.Verdicts[0])
	for i := range r.Orders {
		lease = d.Leases[i]
		n.Receive(asOf, time.Now(), &r.Orders[i], lease)
	}
	return d.Verdicts[0].Allowed, lease
}

// take hands out tokens, one after the other, and returns how many there were.
func (n *lessee) take(most int) (had int) {
	for had < most {
		if _, ok := n.Take(time.Now(), &n.charge); !ok {
			break
		}
		had++
	}
	return had
}

// demand makes the node's demand known: so many tokens asked for, of which none is handed out.
func (n *lessee) demand(tokens int) {
	n.ask(0, 0, false)
	for range tokens {
		if v, ok := n.Take(time.Now(), &n.charge); ok {
			n.PutBack(&n.charge, &v)
		}
	}
}

// left returns what is left in the store, and out on lease.
func (n *lessee) left() (left, out int64) {
	c := n.charge
	c.Cost = 0
	d := new(limit.Decision)
	n.store.Decide(context.Background(), []limit.Request{{Charges: []limit.Charge{c}}}, []*limit.Decision{d})
	return d.Verdicts[0].Remaining, d.Verdicts[0].Out
}

func (n *lessee) want(what string, got, want int64) {
	n.t.Helper()
	if got != want {
		n.t.Errorf("%s: %d, want %d", what, got, want)
	}
}

func newStore(t *testing.T) *local.Memory {
	t.Helper()
	memory, err := local.NewMemory(local.MemoryConfig{Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	return memory
}

// TestLeaseIsHandedOut: what is lent is handed out here until 98 % of the hold after it was asked for, no
// token twice.
func TestLeaseIsHandedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newLessee(t, newStore(t), leased(t, 1, 1000))
		n.demand(400)
		_, lease := n.ask(1, 10*time.Millisecond, false)
		n.want("lent, of a tenth of the burst at most", lease.Tokens, 100)
		n.want("handed out", int64(n.take(60)), 60)
		time.Sleep(hold*98/100 - 10*time.Millisecond - time.Nanosecond)
		n.want("handed out just before the end", int64(n.take(10)), 10)
		time.Sleep(time.Nanosecond)
		n.want("handed out at the end", int64(n.take(1)), 0)
		n.ask(1, 0, false)
		if len(n.told) != 1 || n.told[0].Used != 70 || n.told[0].Unused != 30 {
			t.Errorf("reported %+v, want 70 used and 30 unused", n.told)
		}
	})
}

// TestLateLeaseIsGivenBack: what arrives after its end is never handed out.
func TestLateLeaseIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newLessee(t, newStore(t), leased(t, 1, 1000))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.Run(ctx, n) }()
		n.demand(400)
		_, lease := n.ask(1, hold*98/100, false)
		if lease.Tokens == 0 {
			t.Fatal("nothing was lent")
		}
		n.want("handed out", int64(n.take(1)), 0)
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		if len(n.told) != 1 || n.told[0].Used != 0 || n.told[0].Unused != lease.Tokens {
			t.Errorf("reported %+v, want all %d unused", n.told, lease.Tokens)
		}
		cancel()
		<-ended
	})
}

// TestUnusedGoesBackByItself: at the end of a lease, without another question, and when the process goes; each
// lease once.
func TestUnusedGoesBackByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newLessee(t, newStore(t), leased(t, 1, 1000))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.Run(ctx, n) }()
		for i := range 3 {
			n.demand(400)
			n.ask(0, 0, false)
			n.want("handed out", int64(n.take(30)), 30)
			if _, out := n.left(); out != 100 {
				t.Errorf("%d are out, want 100", out)
			}
			time.Sleep(hold + 10*time.Millisecond)
			synctest.Wait()
			left, out := n.left()
			n.want("out on lease", out, 0)
			n.want("left", left, 1000-30*int64(i+1))
			var used int64
			for _, r := range n.told {
				used += r.Used
			}
			n.want("reported as used", used, 30*int64(i+1))
		}
		n.demand(400)
		n.ask(0, 0, false)
		n.take(1)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		left, out := n.left()
		n.want("left at the end", left, 909)
		n.want("out at the end", out, 0)
		n.demand(400)
		_, lease := n.ask(0, 0, false)
		n.want("lent after the end", lease.Tokens, 0)
	})
}

// TestLeaseIsNeverRevived: a lease is given up before its report is sent, and stays so when the call fails.
func TestLeaseIsNeverRevived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newLessee(t, newStore(t), leased(t, 1, 1000))
		n.demand(400)
		n.ask(0, 0, false)
		n.take(40)
		c := n.charge
		c.Cost = 61 // more than is on hand
		asOf := time.Now()
		orders := n.Order(asOf, &c, nil)
		n.want("handed out while the report is under way", int64(n.take(1)), 0)
		if more := n.Order(asOf, &c, nil); more != nil {
			t.Errorf("a second order while one is under way: %+v", more)
		}
		n.Receive(asOf, time.Now(), &orders[0], limit.Lease{})
		n.want("handed out after the call failed", int64(n.take(1)), 0)
		for _, o := range n.Order(time.Now(), &c, nil) {
			if o.Reports != nil {
				t.Errorf("reported again: %+v", o.Reports)
			}
		}
	})
}

// TestLeaseOfOtherSettings: tokens lent under other settings are not handed out, but reported.
func TestLeaseOfOtherSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newLessee(t, newStore(t), leased(t, 1, 1000))
		n.demand(400)
		n.ask(0, 0, false)
		same, changed := leased(t, 1, 1000), leased(t, 1, 500)
		c := n.charge
		c.Settings = &same
		if _, ok := n.Take(time.Now(), &c); !ok {
			t.Error("equal settings of a reloaded file: nothing is handed out")
		}
		c.Settings = &changed
		if _, ok := n.Take(time.Now(), &c); ok {
			t.Error("handed out under other settings")
		}
		orders := n.Order(time.Now(), &c, nil)
		if len(orders) != 1 || len(orders[0].Reports) != 1 || orders[0].Reports[0].Used != 1 || orders[0].Reports[0].Unused != 99 {
			t.Errorf("orders %+v, want a report of 1 and 99", orders)
		}
	})
}

// TestPutBack: what was taken for a request that could not have the rest is on hand again, in its own lease
// only.
func TestPutBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newLessee(t, newStore(t), leased(t, 1, 1000))
		n.demand(400)
		n.ask(0, 0, false)
		n.take(99)
		v, ok := n.Take(time.Now(), &n.charge)
		if !ok {
			t.Fatal("nothing on hand")
		}
		n.PutBack(&n.charge, &v)
		n.want("on hand again", int64(n.take(5)), 1)
		n.demand(400)
		n.ask(0, 0, false)
		n.PutBack(&n.charge, &v) // of the lease before
		n.want("on hand of the next lease", int64(n.take(200)), 100)
	})
}

// TestLeaseSize: a quarter of what is asked for in a hold, a tenth of the burst and a quarter of what is left
// at most; nothing on a first question or a limit that is used up.
func TestLeaseSize(t *testing.T) {
	for _, tt := range []struct {
		name             string
		rate, burst      int64
		perSecond, spend int64
		want             int64
	}{
		{"a first question", 1, 1000, 0, 0, 0},
		{"a quarter of a hold's demand", 1, 100_000, 4000, 0, 100},
		{"a tenth of the burst", 1, 1000, 100_000, 0, 100},
		{"a small burst", 1, 9, 100_000, 0, 0},
		{"seldom", 1, 1000, 30, 0, 0},
		{"a quarter of what is left", 1, 1000, 100_000, 960, 10},
		{"used up", 1, 1000, 100_000, 1000, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newLessee(t, newStore(t), leased(t, tt.rate, tt.burst))
				n.ask(tt.spend, 0, false)
				if tt.perSecond > 0 {
					for range tt.perSecond / 5 { // for 200ms
						n.Take(time.Now(), &n.charge)
						time.Sleep(time.Second / time.Duration(tt.perSecond))
					}
				}
				_, lease := n.ask(0, 0, false)
				if diff := lease.Tokens - tt.want; diff < -tt.want/20 || diff > tt.want/20 {
					t.Errorf("lent %d, want about %d", lease.Tokens, tt.want)
				}
			})
		})
	}
}

// TestWaitingIsAskedOnce: a question that waits for an order under way and is then answered counts once in what is
// asked for, and so in the size of the next lease.
func TestWaitingIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newLessee(t, newStore(t), leased(t, 1, 100_000))
		n.demand(100)
		asOf := time.Now()
		orders := n.Order(asOf, &n.charge, nil)
		for range 40 {
			if _, ok := n.Take(asOf, &n.charge); ok || n.Await(&n.charge) == nil {
				t.Fatal("a question does not wait for the order under way")
			}
		}
		n.Receive(asOf, asOf, &orders[0], limit.Lease{Tokens: 40, Usable: hold})
		n.want("handed out to those who waited", int64(n.take(50)), 40)
		order := n.Order(asOf, &n.charge, nil)[0]
		// Besides the last of take, which had nothing and is charged by itself.
		n.want("wanted next", order.Want, 100+40)
	})
}

// TestEvictedLeaseIsGivenBack: keys beyond the most are dropped, and their tokens given back.
func TestEvictedLeaseIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		n := newLessee(t, store, leased(t, 1, 1000))
		n.demand(400)
		n.ask(0, 0, false)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.Run(ctx, n) }()
		synctest.Wait()
		other := n.charge
		for i := range 400_000 {
			other.Hash = hashOf(time.Duration(i).String())
			n.Order(time.Now(), &other, nil)
		}
		n.want("handed out", int64(n.take(1)), 0)
		time.Sleep(hold)
		synctest.Wait()
		if _, out := n.left(); out != 0 {
			t.Errorf("%d are out, want 0", out)
		}
		cancel()
		<-ended
	})
}
