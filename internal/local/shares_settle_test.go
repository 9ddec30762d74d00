package local_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// ticket is what a client that asked a node would hold: sealed and opened, so that its limit is no
// more than a name.
func (c *cutOff) ticket(d limit.Decision, cost int64) *limit.Ticket {
	c.t.Helper()
	secret := limit.NewSecret()
	given := limit.Ticket{ID: d.ID, Expires: d.Expires, Home: 7, Charges: []limit.Charge{*c.charge(cost)}, Marks: []int64{d.Verdicts[0].Mark}}
	opened, err := limit.OpenTicket(given.Seal(secret), []limit.Secret{secret}, 7, time.LoadLocation)
	if err != nil {
		c.t.Fatal(err)
	}
	return opened
}

// settle settles a ticket of one charge on a node.
func (c *cutOff) settle(node int, act limit.Act, ticket *limit.Ticket, actual int64) (limit.Settled, error) {
	c.t.Helper()
	answer, err := c.nodes[node].Settle(context.Background(), &limit.Settlement{Act: act, Ticket: ticket, Actual: []int64{actual}})
	if err == nil && (len(answer.Verdicts) != 1 || answer.Verdicts[0].Settings != ticket.Charges[0].Settings || answer.Verdicts[0].Limit != ticket.Charges[0].Limit) {
		c.t.Fatalf("settled %+v, want a verdict on the ticket's own limit and settings", answer)
	}
	return answer, err
}

var named = limit.Request{ID: "decision", Life: time.Hour}

func TestShareCarriesTheWholeRequest(t *testing.T) {
	forHourly(t, func(t *testing.T, c *cutOff) {
		first := c.ask(0, limit.Request{ID: "one", Life: time.Hour, Grant: "rl:{l:u}:~request:1", GrantTTL: time.Minute}, 1)
		if first.ID != "one" || first.At != time.Now().UnixMicro() || first.Expires != first.At+3_600_000_000 || first.Verdicts[0].Mark == 0 {
			t.Errorf("%+v, want the request's id, now, an hour and a mark", first)
		}
		time.Sleep(time.Second)
		again := c.ask(0, limit.Request{ID: "two", Life: time.Hour, Grant: "rl:{l:u}:~request:1", GrantTTL: time.Minute}, 1)
		if again.ID != "one" || again.Age != time.Second || again.Verdicts[0] != first.Verdicts[0] {
			t.Errorf("%+v, want what was granted before", again)
		}
		var other limit.Decision
		r := limit.Request{Charges: []limit.Charge{*c.charge(0)}, ID: "three", Grant: "rl:{l:u}:~request:1"}
		c.nodes[0].Decide([]limit.Request{r}, []*limit.Decision{&other})
		var invalid *limit.InvalidError
		if !errors.As(other.Err, &invalid) {
			t.Errorf("another cost under the same request_id: %v", other.Err)
		}
		peek := c.ask(0, limit.Request{List: true}, 0)
		listed := c.limit.Settings.Algorithm == limit.ConcurrencyAlgorithm || c.limit.Settings.Algorithm == limit.LeakyBucketLogAlgorithm
		if len(peek.Lists) != 1 || len(peek.Lists[0]) == 1 != listed || peek.Verdicts[0].Remaining != 32 {
			t.Errorf("%+v, want 32 left and the one that holds or waits: %t", peek, listed)
		}
	})
}

func TestShareOfALeakyBucketHoldsAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaky := bucketOf(even(t, 10, 1_000_000, 2))
		leaky.Algorithm = limit.LeakyBucketAlgorithm
		c := newCutOffOf(t, leaky, 2) // 5/s over 1 each
		c.want(0, 1, 1)
		if d := c.ask(0, limit.Request{MaxWait: 300 * time.Millisecond}, 1); !d.Allowed || d.Hold() != 200*time.Millisecond || d.Verdicts[0].Remaining != -1 {
			t.Errorf("%+v, want one that is held for 200ms", d)
		}
		if d := c.ask(0, limit.Request{MaxWait: 300 * time.Millisecond}, 1); d.Allowed || d.RetryAfter != 100*time.Millisecond {
			t.Errorf("%+v, want a retry after 100ms", d)
		}
	})
}

// TestSettleOnTheShare: what comes back fills no more than the share, what is charged on top is a debt
// of the share.
func TestSettleOnTheShare(t *testing.T) {
	sizes := hundredAnHour(t)
	sizes["token_bucket"] = bucketOf(even(t, 100, 3_600_000_000, 100))
	delete(sizes, "concurrency")
	for name, s := range sizes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCutOffOf(t, s, 3)
				nodes := 0
				c.counted = func(l *limit.Limit) int {
					if l != c.limit {
						t.Error("the nodes of a limit that nobody configured are counted")
					}
					nodes++
					return 3
				}
				less := c.ticket(c.ask(0, limit.Request{ID: "less", Life: time.Hour}, 20), 20)
				more := c.ticket(c.ask(0, limit.Request{ID: "more", Life: time.Hour}, 5), 5)
				if answer, err := c.settle(0, limit.Finish, more, 20); err != nil || !answer.Done || answer.Verdicts[0].Remaining != -7 {
					t.Errorf("15 more than charged: %+v, %v, want -7 left", answer, err)
				}
				answer, err := c.settle(0, limit.Finish, less, 2)
				if err != nil || !answer.Done || answer.Verdicts[0].Remaining != 11 {
					t.Errorf("18 less than charged: %+v, %v, want 11 left", answer, err)
				}
				if answer, err := c.settle(0, limit.Finish, less, 2); err != nil || answer.Done || answer.Verdicts[0].Remaining != 11 {
					t.Errorf("the same again: %+v, %v, want nothing done", answer, err)
				}
				c.want(0, 1, 11)
				if nodes < 5 {
					t.Errorf("the nodes were counted %d times", nodes)
				}
			})
		})
	}
}

func TestRefundNeverPassesTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCutOff(t, even(t, 100, 3_600_000_000, 100), 4)
		ticket := c.ticket(c.ask(0, named, 20), 20)
		time.Sleep(30 * time.Minute) // 12 come back
		if answer, err := c.settle(0, limit.Finish, ticket, 0); err != nil || answer.Verdicts[0].Remaining != 25 {
			t.Errorf("%+v, %v, want the 25 of the share", answer, err)
		}
		c.want(0, 1, 25)
	})
}

func TestSlotsOfTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCutOffOf(t, must(t)(limit.NewConcurrency(3, 60_000_000)), 3)
		ticket := c.ticket(c.ask(0, named, 1), 1)
		c.want(0, 1, 0)
		time.Sleep(50 * time.Second)
		if _, err := c.settle(0, limit.Renew, ticket, 0); err != nil {
			t.Error(err)
		}
		time.Sleep(50 * time.Second)
		c.want(0, 1, 0)
		// The store is back and away again, and all is in use there: this node's own slot stays its own.
		c.use(3)
		c.want(0, 1, 0)
		if _, err := c.settle(0, limit.Renew, ticket, 0); err != nil {
			t.Error(err)
		}
		if answer, err := c.settle(0, limit.Finish, ticket, 0); err != nil || !answer.Done {
			t.Errorf("%+v, %v", answer, err)
		}
		if _, err := c.settle(0, limit.Renew, ticket, 0); !errors.Is(err, limit.ErrExpired) {
			t.Errorf("renewed after the finish: %v", err)
		}
		c.want(0, 1, 0) // none was left in the store
		time.Sleep(time.Minute)
		c.want(0, 1, 1)
		if _, err := c.settle(1, limit.Renew, ticket, 0); !errors.Is(err, limit.ErrExpired) {
			t.Errorf("renewed where it was never given: %v", err)
		}
	})
}

// TestTicketsOutliveANewAnswer: what an answer takes from a share leaves what was charged before to be
// settled.
func TestTicketsOutliveANewAnswer(t *testing.T) {
	forHourly(t, func(t *testing.T, c *cutOff) {
		cost := int64(10)
		if c.limit.Settings.Algorithm == limit.ConcurrencyAlgorithm {
			cost = 1
		}
		ticket := c.ticket(c.ask(0, named, cost), cost)
		c.use(70)
		before := c.ask(0, limit.Request{}, 0).Verdicts[0].Remaining
		if before != 10 {
			t.Fatalf("%d left, want 10", before)
		}
		if answer, err := c.settle(0, limit.Finish, ticket, 0); err != nil || !answer.Done || answer.Verdicts[0].Remaining != before+cost {
			t.Errorf("%+v, %v, want %d left", answer, err, before+cost)
		}
	})
}
