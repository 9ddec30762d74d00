package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/bench/internal/load"
	"github.com/tidegate/tidegate/bench/internal/process"
	"github.com/tidegate/tidegate/bench/internal/report"
	"github.com/tidegate/tidegate/bench/internal/yardstick"
)

const (
	usualConnections = 64
	warmUp           = 300 * time.Millisecond
	sweepRun         = time.Second
)

// stage is one scenario under way.
type stage struct {
	scenario
	wrk     *load.Wrk
	redis   *process.Redis
	servers []*server
	results *report.Results
	skip    int // of the deck: every round begins elsewhere, all contestants of a round at the same place
}

// measure runs a scenario: every contestant in turn, round after round, so that what slows the machine
// for a while slows all of them.
func (l *lab) measure(ctx context.Context, s scenario, p plan, results *report.Results) (err error) {
	st := &stage{scenario: s, redis: l.redis, results: results}
	if st.connections == 0 {
		st.connections = usualConnections
	}
	if st.decisions == 0 {
		st.decisions = 1
	}
	defer func() { err = errors.Join(err, l.strike(st)) }()
	if err := l.set(ctx, st); err != nil {
		return err
	}
	rounds, length := p.rounds, p.run
	if s.short {
		rounds, length = p.sweepRounds, sweepRun
	}
	if err := st.rounds(ctx, rounds, st.connections, length, st.servers); err != nil {
		return err
	}
	swept := slices.DeleteFunc(slices.Clone(st.servers), func(s *server) bool { return !s.sweep })
	for _, n := range p.connections {
		if n == st.connections || len(swept) == 0 {
			continue
		}
		if err := st.rounds(ctx, p.sweepRounds, n, sweepRun, swept); err != nil {
			return err
		}
	}
	return nil
}

// set starts the contestants. The yardsticks give the answer that the first sidecar gave.
func (l *lab) set(ctx context.Context, st *stage) error {
	dir, err := l.folder()
	if err != nil {
		return err
	}
	if st.wrk, err = load.NewWrk(dir, st.deck); err != nil {
		return err
	}
	file := filepath.Join(dir, "answer")
	var answer yardstick.Answer
	for _, c := range st.contestants {
		var s *server
		if c.kind == sidecar {
			s, err = l.startSidecar(c)
		} else {
			s, err = l.startYardstick(c, file)
		}
		if err != nil {
			return err
		}
		st.servers = append(st.servers, s)
		if _, err := load.Closed(ctx, st.deck, load.Run{Network: "tcp", Address: s.address, Connections: st.connections, For: warmUp}); err != nil {
			return err
		}
		if s == st.servers[0] {
			if answer, err = st.record(s.address); err != nil {
				return err
			}
			if err := answer.Write(file); err != nil {
				return err
			}
		}
		if c.kind == sidecar {
			continue
		}
		if replayed, err := yardstick.Record(s.address, load.Path, st.deck[0]); err != nil || !replayed.Equal(answer) {
			return errors.Join(err, fmt.Errorf("%s answers %+v, want %+v", c.name, replayed, answer))
		}
	}
	return nil
}

// strike ends the contestants and empties Redis.
func (l *lab) strike(st *stage) error {
	var err error
	for _, s := range st.servers {
		err = errors.Join(err, s.Stop())
	}
	return errors.Join(err, l.redis.Flush())
}

// record returns an answer of the tier that the scenario is about: the first ones may be another's.
func (st *stage) record(address string) (yardstick.Answer, error) {
	var answer yardstick.Answer
	for range 200 {
		var err error
		if answer, err = yardstick.Record(address, load.Path, st.deck[0]); err != nil {
			return answer, err
		}
		if strings.Contains(answer.Body, fmt.Sprintf(`"tier":%q`, st.want.tier)) {
			return answer, nil
		}
	}
	return answer, fmt.Errorf("no answer is of tier %s; the last one: %s", st.want.tier, answer.Body)
}

// rounds measures each server once a round.
func (st *stage) rounds(ctx context.Context, rounds, connections int, length time.Duration, servers []*server) error {
	for range rounds {
		st.skip += 10_007
		for _, s := range servers {
			sample, err := st.once(ctx, s, connections, length)
			if err != nil {
				return fmt.Errorf("%s at %d connections: %w", s.name, connections, err)
			}
			st.results.Add(report.Point{Scenario: st.name, Contestant: s.name, Connections: connections}, sample)
		}
	}
	return nil
}

// once is one run of one server. Any answer that was not expected is an error.
func (st *stage) once(ctx context.Context, s *server, connections int, length time.Duration) (report.Sample, error) {
	before, err := st.spentBy(s)
	if err != nil {
		return report.Sample{}, err
	}
	result, err := st.load(ctx, s, connections, length)
	if err != nil {
		return report.Sample{}, err
	}
	if err := checkAnswers(result, st.want); err != nil {
		return report.Sample{}, err
	}
	after, err := st.spentBy(s)
	if err != nil {
		return report.Sample{}, err
	}
	decisions := result.Answers * int64(st.decisions)
	sample := report.Sample{
		PerSecond: result.PerSecond() * float64(st.decisions),
		P50:       millis(result.P50), P99: millis(result.P99),
		CPU: float64((after.cpu - before.cpu).Microseconds()) / float64(decisions),
	}
	if s.asksRedis() {
		sample.Calls = float64(after.scripts-before.scripts) / float64(decisions)
	}
	if s.kind != sidecar {
		return sample, nil
	}
	counted := after.decisions.since(before.decisions)
	if counted.total() < decisions {
		return report.Sample{}, fmt.Errorf("the sidecar counted %d decisions, its clients %d", counted.total(), decisions)
	}
	return sample, counted.check(st.want)
}

// spent is what a server has used so far, and what it decided.
type spent struct {
	cpu       time.Duration
	scripts   int64    // that Redis ran, for anyone: only one contestant at a time is asked
	decisions counters // of a sidecar
}

func (st *stage) spentBy(s *server) (now spent, err error) {
	if now.cpu, err = s.CPU(); err != nil {
		return now, err
	}
	if now.scripts, err = st.redis.ScriptCalls(); err != nil {
		return now, err
	}
	if s.kind == sidecar {
		now.decisions, err = s.counters()
	}
	return now, err
}

func (st *stage) load(ctx context.Context, s *server, connections int, length time.Duration) (load.Result, error) {
	run := load.Run{Network: "tcp", Address: s.address, Connections: connections, For: length, Skip: st.skip}
	if s.unix {
		run.Network, run.Address = "unix", s.socket
	}
	if st.ownClient {
		return load.Closed(ctx, st.deck, run)
	}
	return st.wrk.Do(ctx, run)
}

func millis(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
