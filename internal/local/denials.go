package local

import (
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// denial is what is remembered of an answer that denied: of fixed_window, sliding_window,
// sliding_window_log and leaky_bucket_log. Until its wait is over the store denies that cost, and so
// every larger one: what others take meanwhile only makes the wait longer, since whatever was charged
// leaves a window, or drains from a log, at a time of its own that no later charge brings forward.
type denial struct {
	cost  int64         // what was denied; 0: a peek, so that the limit is in debt
	wait  time.Duration // for how long from the answer on
	asOf  instant       // before the answer was asked for
	took  micros32      // how long after asOf the answer was there
	taken bool          // something was charged here since then, so that the wait may be longer by now
}

// holds reports whether the store would still deny at now what it denied then, and the denial is no
// older than recheck. The store decided at asOf or later, so its wait ends no earlier than wait after
// asOf; a µs less, since the store cuts its times to whole ones, and one for the rounding of ours.
func (d *denial) holds(now instant, recheck time.Duration) bool {
	age := now - d.asOf
	return age <= recheck && time.Duration(float64(age)*driftFactor) <= d.wait-2*time.Microsecond
}

// remember takes over what the newest answer says of cost. The caller holds the shard's mu.
//
// An answer that denies is remembered, unless a denial of a smaller cost holds. That one denies more,
// and what is in force of it is no less true.
//
// An answer that allows says that cost passed when it was decided, after what was remembered. So a
// remembered denial of cost or less is over: something was given back. The same is seen when what the
// answer left, together with what it may have charged, has room for the denied cost. Else it does
// not speak against the denial, and does not renew it either: the denial is as old as its own answer,
// or one that was false after a credit would go on being so for as long as smaller costs pass. All
// that is as true of a peek's answer, which charges nothing, of a shadow's, which is one as any other,
// and of one that passed here but was not charged, since another limit denied the request.
func (e *entry) remember(cost int64, v *limit.Verdict, recheck time.Duration) {
	d := e.denial()
	switch {
	case v.RetryAfter > 0 && cost <= v.Remaining+v.Out:
		// What is out on lease may come back at any time.
	case v.RetryAfter > 0:
		if d == nil || cost <= d.cost || !d.holds(e.asOf, recheck) {
			e.aside().denial = &denial{cost: cost, wait: v.RetryAfter, asOf: e.asOf, took: e.took}
		}
	case d == nil:
	case max(0, v.Remaining)+cost >= d.cost:
		e.rare.denial = nil
	case cost > 0:
		d.taken = true
	}
}

// denied returns the wait of a cost that the remembered denial denies at now; 0 when it denies
// nothing. The wait is exact for the very cost that was denied, until something is charged here, and
// in a fixed window, where everything comes back at once. Else it may be longer than the remembered one
// by some time that is not known here. So the store is asked for it; only in a flood, while it is being
// asked about this key already, all that is told is when the limit is as if unused. The caller holds
// the shard's mu.
func (e *entry) denied(now instant, cost int64, recheck time.Duration) (wait int64) {
	d := e.denial()
	if d == nil || cost < d.cost || !d.holds(now, recheck) {
		return 0
	}
	if cost == d.cost && !d.taken {
		return (d.wait - d.since(now)).Microseconds()
	}
	if e.settings.Algorithm != limit.FixedWindowAlgorithm && e.pending == 0 {
		return 0
	}
	return max(1, e.resetAfter(now).Microseconds())
}

// since returns the time since the denial's answer was there, in whole µs rounded down.
func (d *denial) since(now instant) time.Duration {
	return max(0, now-d.asOf-d.took.duration()).Truncate(time.Microsecond)
}

// resetAfter returns how long after now the limit is as if unused, if nobody took anything since the
// newest answer; 0 when it is by now. The caller holds the shard's mu.
func (e *entry) resetAfter(now instant) time.Duration {
	return max(0, e.reset-max(0, now-e.asOf-e.took.duration()).Truncate(time.Microsecond))
}

// leftAt returns what a limit that no mirror follows has left at now at least, if nobody took
// anything since the newest answer: what that left, and all when the limit is as if unused. The
// caller holds the shard's mu.
func (e *entry) leftAt(now instant) int64 {
	if e.resetAfter(now) == 0 {
		return e.settings.Capacity()
	}
	return e.left
}
