package remote

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
)

type metrics struct {
	calls     prometheus.Counter
	duration  prometheus.Histogram
	batch     prometheus.Histogram
	errors    *prometheus.CounterVec
	ambiguous prometheus.Counter
	expired   prometheus.Counter
	nodes     prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer, skew func() time.Duration) (*metrics, error) {
	m := &metrics{
		calls: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidegate_redis_calls_total",
			Help: "Script calls sent to Redis.",
		}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "tidegate_redis_call_duration_seconds",
			Help:    "Time from sending a script call to its reply or failure.",
			Buckets: []float64{5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 1e-1, 1},
		}),
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "tidegate_batch_size",
			Help:    "Requests in one script call.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128},
		}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidegate_redis_errors_total",
			Help: "Failed calls to Redis by kind of failure: script calls, heartbeats, resets, and single keys of a wrong type.",
		}, []string{"kind"}),
		ambiguous: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidegate_ambiguous_total",
			Help: "Charging calls that got no reply: the charge may have been made. They are never sent again.",
		}),
		expired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidegate_expired_calls_total",
			Help: "Requests that reached Redis after their deadline and were charged nothing.",
		}),
	}
	for _, f := range limit.Failures() {
		m.errors.WithLabelValues(string(f)) // so that the first failure shows as an increase
	}
	m.nodes = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tidegate_nodes",
		Help: "Live nodes that share this node's limits; the most of any limit.",
	})
	clockSkew := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidegate_redis_clock_skew_seconds",
		Help: "How far Redis's clock is ahead of this machine's.",
	}, func() float64 { return skew().Seconds() })
	for _, c := range []prometheus.Collector{m.calls, m.duration, m.batch, m.errors, m.ambiguous, m.expired, m.nodes, clockSkew} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
