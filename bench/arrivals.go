package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/bench/internal/load"
	"github.com/tidegate/tidegate/bench/internal/report"
	"github.com/tidegate/tidegate/bench/internal/yardstick"
)

const (
	arrivalName = "constant arrival"
	arrivalRate = 2000 // questions a second

	arrivalSidecar = "sidecar over a Unix socket"
	arrivalDirect  = "EVALSHA over Redis's Unix socket"
)

// arrival is who is asked at a constant rate.
type arrival struct {
	name string
	ask  func(span time.Duration) (load.Arrivals, error)
}

// measureArrivals asks at a constant rate, in one arrival process and in turn, a sidecar over its Unix
// socket, a bare handler over its own, whose wait is that of HTTP alone, and Redis itself.
func (l *lab) measureArrivals(ctx context.Context, p plan, results *report.Results) (err error) {
	st := &stage{scenario: scenario{
		name: arrivalName, deck: load.Uniform(someKey, manyKeys), connections: usualConnections, decisions: 1, want: outcome{"allowed", "redis"},
		contestants: []contestant{
			{name: arrivalSidecar, kind: sidecar, limits: hashLimit, store: unixRedis}, {name: "bare over a Unix socket", kind: bare}},
	}, results: results}
	redis := yardstick.Connect(l.redis.Socket)
	defer func() { err = errors.Join(err, redis.Close(), l.strike(st)) }()
	if err := l.set(ctx, st); err != nil {
		return err
	}
	limiter, err := yardstick.ByScript(ctx, redis)
	if err != nil {
		return err
	}
	asked := []arrival{{arrivalDirect, func(span time.Duration) (load.Arrivals, error) {
		return load.ArriveAt(ctx, st.deck, arrivalRate, span, func(ctx context.Context, question []byte) error {
			return yardstick.Decide(ctx, limiter, question)
		})
	}}}
	for _, s := range st.servers {
		asked = append(asked, arrival{s.name, func(span time.Duration) (load.Arrivals, error) {
			return load.Arrive(ctx, st.deck, arrivalRate, span, s.socket)
		}})
	}
	for _, a := range asked { // the first connections
		if _, err := a.sample(warmUp); err != nil {
			return err
		}
	}
	for range p.rounds {
		for _, a := range asked {
			sample, err := a.sample(p.run)
			if err != nil {
				return err
			}
			results.Add(report.Point{Scenario: arrivalName, Contestant: a.name}, sample)
		}
	}
	counted, err := st.servers[0].counters()
	if err != nil {
		return err
	}
	return counted.check(st.want)
}

func (a arrival) sample(span time.Duration) (report.Sample, error) {
	seen, err := a.ask(span)
	if err != nil {
		return report.Sample{}, err
	}
	if seen.Failures > 0 {
		return report.Sample{}, fmt.Errorf("%s: %d of %d questions failed", a.name, seen.Failures, seen.Answers)
	}
	return report.Sample{
		PerSecond: float64(seen.Answers) / seen.Took.Seconds(),
		P50:       millis(seen.P50), P99: millis(seen.P99), DueP50: millis(seen.DueP50), DueP99: millis(seen.DueP99),
	}, nil
}
