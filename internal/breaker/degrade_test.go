package breaker_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/breaker"
	"github.com/tidegate/tidegate/internal/limit"
)

func limitOf(name string, policy limit.FailurePolicy) *limit.Limit {
	return &limit.Limit{Name: name, Unit: limit.RequestsUnit, OnRedisFailure: policy}
}

func shadowOf(l *limit.Limit) *limit.Limit {
	l.Shadow = true
	return l
}

// request asks for one of each limit.
func request(limits ...*limit.Limit) limit.Request {
	var r limit.Request
	for _, l := range limits {
		r.Charges = append(r.Charges, limit.Charge{Limit: l, Settings: &l.Settings, Key: "rl:{" + l.Name + "}", Cost: 1})
	}
	return r
}

func TestDegrade(t *testing.T) {
	open, other := limitOf("open", limit.FailOpen), limitOf("other", limit.FailOpen)
	closed := limitOf("closed", limit.FailClosed)
	local, drained := limitOf("local", limit.FailLocal), limitOf("drained", limit.FailLocal)
	shadow := shadowOf(limitOf("shadow", limit.FailClosed))
	drainedShadow := shadowOf(limitOf("drained-shadow", limit.FailLocal))
	tests := []struct {
		name     string
		limits   []*limit.Limit
		refused  bool   // 503
		allowed  bool   // else
		share    string // the limits that the share was asked of, in one request
		verdicts string // limit, + or -, ? when nothing is known
	}{
		{"open", []*limit.Limit{open}, false, true, "", "open+?"},
		{"closed", []*limit.Limit{closed}, true, false, "", ""},
		{"local", []*limit.Limit{local}, false, true, "local", "local+"},
		{"local, nothing left", []*limit.Limit{drained}, false, false, "drained", "drained-"},
		{"one closed", []*limit.Limit{open, local, closed}, true, false, "", ""},
		{"closed first", []*limit.Limit{closed, local}, true, false, "", ""},
		{"closed beside nothing left", []*limit.Limit{drained, closed}, true, false, "", ""},
		{"open and local", []*limit.Limit{open, local, other}, false, true, "local", "open+? local+ other+?"},
		{"all or nothing", []*limit.Limit{local, open, drained}, false, false, "local drained", "local+ open+? drained-"},
		{"a closed shadow refuses nothing", []*limit.Limit{shadow}, false, true, "", "shadow+?"},
		{"a closed shadow beside others", []*limit.Limit{shadow, local, open}, false, true, "local", "shadow+? local+ open+?"},
		{"a closed shadow beside closed", []*limit.Limit{shadow, closed}, true, false, "", ""},
		{"a local shadow denies nothing", []*limit.Limit{local, drainedShadow}, false, true, "local drained-shadow", "local+ drained-shadow-"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var result error = errTimeout
			b := newBench(t, breaker.GateConfig{Failures: 1}, &result)
			b.share.denies = map[string]bool{"drained": true, "drained-shadow": true}
			for _, when := range []string{"the call fails", "the breaker is open"} {
				b.share.asked = nil
				d := new(limit.Decision)
				b.Decide(t.Context(), []limit.Request{request(tt.limits...)}, []*limit.Decision{d})
				if !d.Degraded || d.Tier != limit.TierFallback {
					t.Errorf("%s: degraded %t, tier %v", when, d.Degraded, d.Tier)
				}
				if refused := errors.Is(d.Err, limit.ErrUnavailable); refused != tt.refused || !refused && d.Err != nil {
					t.Errorf("%s: error %v, want ErrUnavailable: %t", when, d.Err, tt.refused)
				}
				d.Conclude()
				if got := verdicts(d); got != tt.verdicts || !tt.refused && d.Allowed != tt.allowed {
					t.Errorf("%s: got %q, allowed %t, want %q, %t", when, got, d.Allowed, tt.verdicts, tt.allowed)
				}
				if got := asked(b.share.asked); got != tt.share {
					t.Errorf("%s: the share was asked of %q, want %q", when, got, tt.share)
				}
			}
			if b.shared.called() != 1 {
				t.Errorf("%d calls of the shared store, want 1", b.shared.called())
			}
		})
	}
}

func verdicts(d *limit.Decision) string {
	var words []string
	for _, v := range d.Verdicts {
		word := v.Limit.Name
		if v.Allowed {
			word += "+"
		} else {
			word += "-"
		}
		if !v.Known {
			word += "?"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// asked lists the limits of each request, requests divided by a bar.
func asked(requests []limit.Request) string {
	var parts []string
	for _, r := range requests {
		var names []string
		for _, c := range r.Charges {
			names = append(names, c.Limit.Name)
		}
		parts = append(parts, strings.Join(names, " "))
	}
	return strings.Join(parts, " | ")
}

// TestSingleRequestsFail pins what becomes of the requests that fail alone in a call that does
// not: an expired one degrades, one on a key of a wrong type is refused whatever its policy.
func TestSingleRequestsFail(t *testing.T) {
	var result error
	b := newBench(t, breaker.GateConfig{Failures: 1}, &result)
	open, closed := limitOf("open", limit.FailOpen), limitOf("closed", limit.FailClosed)
	requests := []limit.Request{request(open), request(open), request(closed), request(open)}
	b.shared.do = func(_ []limit.Request, decisions []*limit.Decision) error {
		decisions[0].Tier, decisions[0].Verdicts = limit.TierRedis, []limit.Verdict{{Limit: open, Allowed: true}}
		decisions[1].Err, decisions[2].Err = errTimeout, errTimeout
		decisions[3].Tier, decisions[3].Err = limit.TierRedis, limit.ErrWrongType
		return nil
	}
	decisions := decide(t, b, requests)
	if d := decisions[0]; d.Degraded || d.Tier != limit.TierRedis || d.Err != nil {
		t.Errorf("answered: %+v", d)
	}
	if d := decisions[1]; !d.Degraded || d.Tier != limit.TierFallback || d.Err != nil || verdicts(d) != "open+?" {
		t.Errorf("expired, open: %+v", d)
	}
	if d := decisions[2]; !d.Degraded || d.Tier != limit.TierFallback || !errors.Is(d.Err, limit.ErrUnavailable) {
		t.Errorf("expired, closed: %+v", d)
	}
	if d := decisions[3]; d.Degraded || d.Err != limit.ErrWrongType {
		t.Errorf("wrong type: %+v", d)
	}
	b.wantState(t, "closed")
}

// TestAnswersBeforeAFailureHold pins that what a store answered before a later call of it failed
// is not decided, and so charged, a second time.
func TestAnswersBeforeAFailureHold(t *testing.T) {
	var result error
	b := newBench(t, breaker.GateConfig{Failures: 1}, &result)
	local := limitOf("local", limit.FailLocal)
	b.shared.do = func(_ []limit.Request, decisions []*limit.Decision) error {
		decisions[0].Tier, decisions[0].Verdicts = limit.TierRedis, []limit.Verdict{{Limit: local, Allowed: true}}
		return errTimeout
	}
	decisions := decide(t, b, []limit.Request{request(local), request(local)})
	if d := decisions[0]; d.Degraded || d.Tier != limit.TierRedis || verdicts(d) != "local+?" {
		t.Errorf("answered: %+v", d)
	}
	if d := decisions[1]; !d.Degraded || d.Tier != limit.TierFallback || verdicts(d) != "local+" {
		t.Errorf("unanswered: %+v", d)
	}
	if len(b.share.asked) != 1 {
		t.Errorf("the share was asked %d times, want once", len(b.share.asked))
	}
	b.wantState(t, "open")
}

func decide(t *testing.T, b *bench, requests []limit.Request) []*limit.Decision {
	t.Helper()
	decisions := make([]*limit.Decision, len(requests))
	for i := range decisions {
		decisions[i] = new(limit.Decision)
	}
	b.Decide(context.Background(), requests, decisions)
	return decisions
}
