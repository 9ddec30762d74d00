package breaker_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidegate/tidegate/internal/breaker"
	"github.com/tidegate/tidegate/internal/limit"
)

// TestDegradedDecisionIsNamed: it has the request's id and a time, so that a ticket can be given, even
// for nothing.
func TestDegradedDecisionIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var result error = errTimeout
		b := newBench(t, breaker.GateConfig{}, &result)
		open, local := limitOf("open", limit.FailOpen), limitOf("local", limit.FailLocal)
		alone, mixed := request(open), request(open, local)
		alone.ID, alone.Life = "alone", time.Minute
		mixed.ID, mixed.MaxWait, mixed.Grant, mixed.GrantTTL = "mixed", time.Second, "rl:{g}", time.Hour
		decisions := decide(t, b, []limit.Request{alone, mixed})
		now := time.Now().UnixMicro()
		if d := decisions[0]; d.ID != "alone" || d.At != now || d.Expires != now+60_000_000 {
			t.Errorf("%+v, want the request's id, now, and a minute", d)
		}
		if d := decisions[1]; d.ID != "mixed" || d.At != 3 || d.Expires != 4 {
			t.Errorf("%+v, want what the share says", d)
		}
		if r := b.share.asked[0]; len(r.Charges) != 1 || r.ID != "mixed" || r.MaxWait != time.Second || r.Grant != "rl:{g}" || r.GrantTTL != time.Hour {
			t.Errorf("the share was asked %+v, want the whole request", r)
		}
	})
}

func TestListsStandBesideVerdicts(t *testing.T) {
	var result error = errTimeout
	b := newBench(t, breaker.GateConfig{}, &result)
	r := request(limitOf("open", limit.FailOpen), limitOf("one", limit.FailLocal), limitOf("other", limit.FailOpen), limitOf("three", limit.FailLocal))
	r.List = true
	d := decide(t, b, []limit.Request{r})[0]
	var got []int64
	for _, list := range d.Lists {
		if list == nil {
			got = append(got, 0)
		} else {
			got = append(got, list[0].Cost)
		}
	}
	if want := []int64{0, 3, 0, 5}; !slices.Equal(got, want) || verdicts(d) != "open+? one+ other+? three+" {
		t.Errorf("lists %v beside %s, want %v", got, verdicts(d), want)
	}
	r.List = false
	if d := decide(t, b, []limit.Request{r})[0]; d.Lists != nil {
		t.Errorf("lists that nobody asked for: %v", d.Lists)
	}
}

// TestShareRefuses: the share has an error of its own, as for a request_id that was granted with another
// cost.
func TestShareRefuses(t *testing.T) {
	var result error = errTimeout
	b := newBench(t, breaker.GateConfig{}, &result)
	b.share.err = limit.OtherCost()
	d := decide(t, b, []limit.Request{request(limitOf("open", limit.FailOpen), limitOf("local", limit.FailLocal))})[0]
	if !errors.Is(d.Err, b.share.err) || !d.Degraded {
		t.Errorf("%+v, want the share's error", d)
	}
}

// TestSettleGoesWhereTheTicketWasGiven: this process's own tickets to its share whatever Redis does, the
// others through the breaker.
func TestSettleGoesWhereTheTicketWasGiven(t *testing.T) {
	var result error
	b := newBench(t, breaker.GateConfig{}, &result)
	own := &limit.Settlement{Act: limit.Finish, Ticket: &limit.Ticket{Home: 9}}
	shared := &limit.Settlement{Act: limit.Finish, Ticket: &limit.Ticket{}}
	if answer, err := b.Settle(t.Context(), shared); err != nil || !answer.Done || answer.At != 2 {
		t.Errorf("%+v, %v, want Redis's answer", answer, err)
	}
	for range 10 {
		result = errTimeout
		if answer, err := b.Settle(t.Context(), own); err != nil || answer.At != 1 {
			t.Errorf("%+v, %v, want the share's answer", answer, err)
		}
	}
	b.wantState(t, "closed")
	b.share.err = limit.ErrExpired
	if _, err := b.Settle(t.Context(), own); !errors.Is(err, limit.ErrExpired) {
		t.Errorf("%v, want the share's error", err)
	}
	if len(b.share.settled) != 11 || b.share.settled[0] != own || len(b.shared.settled) != 1 || b.shared.settled[0] != shared {
		t.Errorf("%d settled by the share, %d by Redis, want 11 and 1", len(b.share.settled), len(b.shared.settled))
	}
}
