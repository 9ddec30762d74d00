package chaos_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"
)

// run is one fault as it went: when it was, and what was seen of it.
type run struct {
	form      form
	fault     *fault
	begin     time.Duration // of the fault, since the load began
	end       time.Duration
	answers   []answer
	before    samples       // metrics before the fault
	during    samples       // at its end
	after     samples       // after the recovery
	dials     int           // connections that the load opened while it ran
	lag       time.Duration // by how much the load was itself late at most
	charged   map[string]int
	recovered time.Duration // from the fault's end to the first answer of Redis
}

// TestFaults puts the sidecar through every fault under load. Every request is answered, in time
// and as the limits' policies say; nothing is charged twice; and all is well soon after.
func TestFaults(t *testing.T) {
	f := formOf()
	report := newReport(f)
	for _, fault := range faults() {
		t.Run(fault.name, func(t *testing.T) {
			shareMachine(t)
			r := endure(t, f, &fault)
			for range retries {
				if !*strict || r.lag <= idleLag {
					break
				}
				t.Logf("the load was itself late by up to %v: once more", r.lag)
				r = endure(t, f, &fault)
			}
			report.add(r)
			r.checkAnswers(t)
			r.checkTimes(t)
			r.checkCharges(t)
			r.checkMetrics(t)
		})
	}
	t.Cleanup(func() { report.write(t) })
}

// idleLag is by how much the load may itself be late for the times to mean something; retries is
// how often the strict form waits for the machine to be so idle.
const (
	idleLag = 5 * time.Millisecond
	retries = 3
)

// endure lets one fault happen under load.
func endure(t *testing.T, f form, fault *fault) *run {
	if fault.effect == none && !*strict {
		f.timeout = time.Second // a busy machine must not add to the fault
	}
	s := newStage(t, f, fault.options...)
	r := &run{form: f, fault: fault}
	l := startLoad(t, s.sidecar.addr, f.rate, bodies(), users)
	time.Sleep(f.warm)
	r.before = s.sidecar.metrics()

	r.begin = time.Since(l.begin)
	if fault.begin != nil {
		fault.begin(s)
	}
	for time.Since(l.begin) < r.begin+f.fault {
		if fault.again != nil {
			fault.again(s)
		}
		time.Sleep(pace)
	}
	r.during = s.sidecar.metrics()
	if fault.end != nil {
		fault.end(s)
	}
	r.end = time.Since(l.begin)
	s.sidecar.await("an answer is of Redis again", func() bool { return l.recovered(r.end) })
	time.Sleep(f.settle)
	if !*strict {
		s.sidecar.await("the breaker is closed", func() bool { return s.sidecar.metrics()["tidegate_breaker_state"] == 0 })
	}
	r.after = s.sidecar.metrics()
	r.answers = l.end()
	r.dials, r.lag = l.side()
	r.charged = s.charges()
	for i := range r.answers {
		if a := &r.answers[i]; a.sent >= r.end && a.err == nil && a.shared() {
			r.recovered = max(0, a.sent+a.took-r.end)
			break
		}
	}
	return r
}

// checkAnswers checks that every request was answered, and as the policies say.
func (r *run) checkAnswers(t *testing.T) {
	asked := questions()
	counts := map[string]int{}
	wrong := 0
	for i := range r.answers {
		a := &r.answers[i]
		kind, err := r.judge(a, &asked[a.question])
		counts[kind]++
		if err == nil {
			continue
		}
		if wrong++; wrong <= 5 {
			t.Errorf("%s of user %d, due at %v: %v", asked[a.question].name, a.user, a.sent, err)
		}
	}
	if wrong > 5 {
		t.Errorf("%d of %d answers are wrong", wrong, len(r.answers))
	}
	t.Logf("answers: %v; the load was late by up to %v", counts, r.lag)
	degraded := counts["fallback"] + counts["closed"]
	if r.fault.effect == overcome && !slices.ContainsFunc(r.answers, func(a answer) bool {
		return a.err == nil && a.shared() && a.sent > (r.begin+r.end)/2 && a.sent < r.end
	}) {
		t.Error("no answer was of Redis in the fault's second half")
	}
	if r.fault.effect == none && degraded > 0 || r.fault.effect == total && (counts["fallback"] == 0 || counts["closed"] == 0) {
		t.Errorf("%d answers without Redis: %v", degraded, counts)
	}
}

// judge says what kind of answer a is, and whether it may be so.
func (r *run) judge(a *answer, q *question) (kind string, err error) {
	foreign := r.fault.foreign != "" && slices.ContainsFunc(q.limits, func(limit string) bool {
		return r.fault.foreign == fmt.Sprintf("%s u%d", limit, a.user)
	})
	switch {
	case a.err != nil:
		return "none", a.err
	case a.status == http.StatusServiceUnavailable && a.body.Code == "wrong-type":
		if !foreign {
			err = fmt.Errorf("wrong-type at another key")
		}
		return "wrong-type", err
	case a.status == http.StatusServiceUnavailable && a.body.Code == "temporary-reduced-capacity":
		if !q.closed {
			err = fmt.Errorf("503, though no limit is closed")
		}
		return "closed", err
	case a.status != http.StatusOK || !a.body.Allowed:
		return "other", fmt.Errorf("status %d %+v", a.status, a.body)
	case a.body.Degraded:
		if q.closed || a.body.Tier != "fallback" {
			err = fmt.Errorf("%+v without Redis", a.body)
		}
		return "fallback", err
	case a.body.Tier != "redis":
		return "other", fmt.Errorf("%+v", a.body)
	}
	if since := a.sent - r.begin; r.fault.effect == total && since > blackout && a.sent+a.took < r.end {
		err = fmt.Errorf("an answer of Redis %v after the fault's begin", since)
	}
	if foreign && a.sent > r.begin+blackout && a.sent+a.took < r.end {
		err = fmt.Errorf("the key of a wrong type was decided on")
	}
	return "redis", err
}

// blackout is how long after its beginning a fault has certainly taken effect.
const blackout = 300 * time.Millisecond

// checkTimes checks how long callers waited, and how soon Redis was back.
func (r *run) checkTimes(t *testing.T) {
	waits := r.waits()
	if worst := waits[len(waits)-1]; worst > r.form.timeout+r.form.slack {
		t.Errorf("the worst answer took %v, want at most %v (the load was late by up to %v)", worst, r.form.timeout+r.form.slack, r.lag)
	}
	if tail := percentile(waits, 0.999); *strict && tail > r.form.timeout+tailSlack {
		t.Errorf("p99.9 is %v, want at most %v (the load was late by up to %v)", tail, r.form.timeout+tailSlack, r.lag)
	}
	most := r.form.openFor + time.Second
	if !*strict {
		most += r.form.slack
	}
	if r.recovered > most {
		t.Errorf("Redis was back %v after the fault, want at most %v", r.recovered, most)
	}
	for i := range r.answers {
		if a := &r.answers[i]; *strict && a.sent > r.end+most && a.err == nil && !a.shared() {
			t.Errorf("an answer without Redis %v after the fault", a.sent-r.end)
			break
		}
	}
}

// waits returns how long the answers took from the fault's beginning to a second after its end,
// in order.
func (r *run) waits() []time.Duration {
	var waits []time.Duration
	for i := range r.answers {
		if a := &r.answers[i]; a.sent >= r.begin && a.sent <= r.end+time.Second {
			waits = append(waits, a.took)
		}
	}
	slices.Sort(waits)
	return waits
}

func percentile(sorted []time.Duration, p float64) time.Duration {
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}

// checkCharges checks that every grant of Redis was charged once, and beside those only calls in
// doubt: at most once each, and each for an answer without Redis.
func (r *run) checkCharges(t *testing.T) {
	granted, without := map[string]int{}, map[string]int{}
	asked := questions()
	for i := range r.answers {
		a := &r.answers[i]
		for _, limit := range asked[a.question].limits {
			account := fmt.Sprintf("%s u%d", limit, a.user)
			if a.err == nil && a.shared() {
				granted[account]++
			} else {
				without[account]++
			}
		}
	}
	extra := 0
	for account, n := range r.charged {
		if account == r.fault.foreign {
			continue
		}
		if n > granted[account]+without[account] || n < granted[account] && !r.fault.lossy {
			t.Errorf("%s was granted %d times by Redis, answered %d times without; charged are %d", account, granted[account], without[account], n)
		}
		extra += max(0, n-granted[account])
	}
	inDoubt := int(r.after["tidegate_ambiguous_total"])
	// A call carries what was asked within a timeout, of three limits at most. Twice that, since the load is uneven.
	aboard := 2 * 3 * int(1+float64(r.form.rate)*(r.form.timeout+r.lag).Seconds())
	if extra > inDoubt*aboard {
		t.Errorf("%d charges without a grant, %d calls in doubt, which carry at most %d charges each", extra, inDoubt, aboard)
	}
	t.Logf("charges without a grant: %d; calls in doubt: %d; expired: %v", extra, inDoubt, r.after["tidegate_expired_calls_total"])
}

// checkMetrics checks that the metrics tell the same story.
func (r *run) checkMetrics(t *testing.T) {
	state := r.during["tidegate_breaker_state"]
	quiet := r.fault.effect == none || r.fault.effect == overcome && *strict
	if open := state > 0; r.fault.effect == total && !open || quiet && open {
		t.Errorf("breaker_state is %v at the fault's end", state)
	}
	if state := r.after["tidegate_breaker_state"]; *strict && state != 0 {
		t.Errorf("breaker_state is %v after the recovery", state)
	}
	kinds := r.after.errorKinds(r.before)
	for kind := range kinds {
		if kind == "overload" { // whatever slows Redis down may leave too little time for some
			continue
		}
		if late := kind == "timeout" && !*strict; !late && !slices.Contains(r.fault.kinds, kind) {
			t.Errorf("errors by kind: %v, want only %v", kinds, r.fault.kinds)
		}
	}
	if len(r.fault.kinds) > 0 && len(kinds) == 0 && r.fault.effect != overcome {
		t.Errorf("no errors were counted, want %v", r.fault.kinds)
	}
	t.Logf("errors by kind: %v", slices.Sorted(maps.Keys(kinds)))
	// Each connection of the load is a goroutine of the server.
	before, after := r.before["go_goroutines"], r.after["go_goroutines"]
	if after > before+float64(r.dials)+goroutineSlack {
		t.Errorf("%v goroutines before, %v after, %d more connections", before, after, r.dials)
	}
}

// goroutineSlack is for what comes and goes by itself, such as the answer to /metrics.
const goroutineSlack = 8
