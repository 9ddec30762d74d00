package limiter

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
)

// result is how a request or one limit's part of it ended.
type result int

const (
	allowed result = iota
	denied
	never
	shadowDenied
	failed
	resultCount
)

var resultNames = [resultCount]string{"allowed", "denied", "never", "shadow_denied", "error"}

type metrics struct {
	requests  *prometheus.CounterVec
	decisions *prometheus.CounterVec
	duration  [limit.TierCount]prometheus.Observer
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidegate_requests_total",
			Help: "Requests by policy (empty for a limit asked by its own name), result and the tier that answered.",
		}, []string{"policy", "result", "tier"}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidegate_decisions_total",
			Help: "Verdicts of single limits by limit, result and tier.",
		}, []string{"limit", "result", "tier"}),
	}
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "tidegate_decision_duration_seconds",
		Help:    "Time from a request's arrival to its decision, by the tier that answered.",
		Buckets: []float64{1e-6, 1e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 1e-1, 1},
	}, []string{"tier"})
	for tier := range m.duration {
		m.duration[tier] = duration.WithLabelValues(limit.Tier(tier).String())
	}
	for _, c := range []prometheus.Collector{m.requests, m.decisions, duration} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// counters keeps the counters of one generation of rules at hand, since looking one up by its
// labels costs ten times as much as counting.
type counters struct {
	metrics  *metrics
	policies []*tally // each at its policy's Index
	limits   []*tally // each at its limit's Index
	unknown  *tally   // of queries that name no policy
}

// tally is the counters of one policy or limit, each made when it first counts: most never do.
type tally struct {
	vec      *prometheus.CounterVec
	name     string
	counters [resultCount][limit.TierCount]atomic.Pointer[prometheus.Counter]
}

func (t *tally) inc(r result, tier limit.Tier) {
	at := &t.counters[r][tier]
	c := at.Load()
	if c == nil {
		made := t.vec.WithLabelValues(t.name, resultNames[r], tier.String())
		c = &made
		at.Store(c)
	}
	(*c).Inc()
}

func (m *metrics) countersFor(rules *limit.Rules) *counters {
	single := &tally{vec: m.requests}
	c := &counters{metrics: m, unknown: single}
	for _, p := range rules.All() {
		if p.Name == "" {
			c.policies = append(c.policies, single)
		} else {
			c.policies = append(c.policies, &tally{vec: m.requests, name: p.Name})
		}
	}
	for _, l := range rules.Limits {
		c.limits = append(c.limits, &tally{vec: m.decisions, name: l.Name})
	}
	return c
}

// observe counts one answered query.
func (c *counters) observe(policy *limit.Policy, d *limit.Decision, elapsed time.Duration) {
	if policy == nil {
		c.unknown.inc(failed, limit.TierNone)
		return
	}
	c.policies[policy.Index()].inc(requestResult(d), d.Tier)
	c.metrics.duration[d.Tier].Observe(elapsed.Seconds())
	if d.Err != nil {
		return
	}
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		c.limits[v.Limit.Index()].inc(verdictResult(v), d.Tier)
	}
}

func requestResult(d *limit.Decision) result {
	switch {
	case d.Err != nil:
		return failed
	case d.Never:
		return never
	case !d.Allowed:
		return denied
	}
	for i := range d.Verdicts {
		if !d.Verdicts[i].Allowed {
			return shadowDenied
		}
	}
	return allowed
}

func verdictResult(v *limit.Verdict) result {
	switch {
	case v.Allowed:
		return allowed
	case v.Limit.Shadow:
		return shadowDenied
	case v.Never:
		return never
	default:
		return denied
	}
}
