package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/bench/internal/load"
	"github.com/tidegate/tidegate/bench/internal/report"
)

const (
	memoryName = "memory"
	idleMemory = "idle" // MB, as every value here
	keptMemory = "churn, all kept"
	usualPeak  = "churn, as many kept as by default"

	churnKeys = 1_000_000
	churnRun  = 4 * time.Second // of wrk, until all keys were asked about
	churnRuns = 20              // at most
)

// measureMemory reads what is resident in a sidecar that has nothing to do, and the most that ever was
// while a million keys came and went, first with room for all of them in the local tier.
func (l *lab) measureMemory(ctx context.Context, p plan, results *report.Results) error {
	idle, err := l.idle(ctx)
	if err != nil {
		return err
	}
	results.Set(idleMemory, idle)
	if !p.churn {
		return nil
	}
	deck := load.Batches(someKey, churnKeys, batchSize)
	for _, sized := range []struct{ name, limits string }{
		{keptMemory, fmt.Sprintf("local: {max_keys: %d}\n", churnKeys) + hashLimit},
		{usualPeak, hashLimit},
	} {
		peak, err := l.churn(ctx, deck, sized.limits)
		if err != nil {
			return err
		}
		results.Set(sized.name, peak)
	}
	return nil
}

func (l *lab) idle(ctx context.Context) (megabytes float64, err error) {
	s, err := l.startSidecar(contestant{kind: sidecar, limits: hashLimit})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	select { // until it has reached Redis and sent a heartbeat or two
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	resident, _, err := s.Memory()
	return float64(resident) / 1e6, err
}

// churn asks about every key of the deck in turn, again and again until each was asked about.
func (l *lab) churn(ctx context.Context, deck load.Deck, limits string) (megabytes float64, err error) {
	s, err := l.startSidecar(contestant{kind: sidecar, limits: limits})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Stop(), l.redis.Flush()) }()
	dir, err := l.folder()
	if err != nil {
		return 0, err
	}
	wrk, err := load.NewWrk(dir, deck)
	if err != nil {
		return 0, err
	}
	want := outcome{"allowed", "redis"}
	var asked int64
	for run := 0; asked < churnKeys; run++ {
		if run == churnRuns {
			return 0, fmt.Errorf("only %d keys of %d were asked about", asked, churnKeys)
		}
		result, err := wrk.Do(ctx, load.Run{Network: "tcp", Address: s.address, Connections: usualConnections, For: churnRun, Skip: int(asked / batchSize)})
		if err != nil {
			return 0, err
		}
		if err := checkAnswers(result, want); err != nil {
			return 0, err
		}
		asked += result.Answers * batchSize
	}
	counted, err := s.counters()
	if err != nil {
		return 0, err
	}
	if err := counted.check(want); err != nil {
		return 0, err
	}
	_, peak, err := s.Memory()
	return float64(peak) / 1e6, err
}
