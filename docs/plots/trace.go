package main

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/tidegate/tidegate/internal/limit"
)

const (
	second = 1_000_000 // µs
	span   = 60 * second
	window = 10 * second
	start  = 1_780_000_000 * second // of the trace, in µs since 1970
)

// trace returns the times, in µs from the start, of a minute of requests: three a second all the
// time, and bursts of 150 within half a second, two of them close to each other.
func trace() []int64 {
	rng := rand.New(rand.NewPCG(1, 2))
	var asked []int64
	for t := int64(0); t < span; t += int64(rng.ExpFloat64() * second / 3) {
		asked = append(asked, t)
	}
	for _, at := range []int64{9, 19, 21, 38, 52} {
		for range 150 {
			asked = append(asked, at*second+rng.Int64N(second/2))
		}
	}
	slices.Sort(asked)
	return asked
}

// contestant is an algorithm with settings that let 100 requests pass in 10 seconds.
type contestant struct {
	name     string
	settings limit.Settings
	dashed   bool
}

func contestants() ([]contestant, error) {
	rate := limit.Rate{Tokens: 10, Micros: second}
	bucket, err := limit.NewTokenBucket(rate, 100, 100)
	if err != nil {
		return nil, err
	}
	leaky, err := limit.NewTokenBucket(rate, 10, 10)
	if err != nil {
		return nil, err
	}
	all := []contestant{
		{name: "token_bucket 10/s, burst 100", settings: limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: bucket}},
		{name: "leaky_bucket 10/s, burst 10", settings: limit.Settings{Algorithm: limit.LeakyBucketAlgorithm, Bucket: leaky}},
	}
	for _, made := range []struct {
		name   string
		make   func() (limit.Settings, error)
		dashed bool
	}{
		{"leaky_bucket_log 10/s, capacity 10", func() (limit.Settings, error) { return limit.NewLeakyBucketLog(rate, 10) }, true},
		{"fixed_window 100 in 10s", func() (limit.Settings, error) { return limit.NewFixedWindow(100, window) }, false},
		{"sliding_window 100 in 10s", func() (limit.Settings, error) { return limit.NewSlidingWindow(100, window) }, false},
		{"sliding_window_log 100 in 10s", func() (limit.Settings, error) { return limit.NewSlidingWindowLog(100, window) }, true},
	} {
		settings, err := made.make()
		if err != nil {
			return nil, fmt.Errorf("plots: %s: %w", made.name, err)
		}
		all = append(all, contestant{made.name, settings, made.dashed})
	}
	return all, nil
}

// admitted is when a contestant let requests pass, in µs from the start.
type admitted struct {
	contestant
	times []int64
}

// replay asks for one request at each time.
func (c contestant) replay(asked []int64) admitted {
	run := admitted{contestant: c}
	var state limit.State
	for _, t := range asked {
		next := state
		wait, moved := c.settings.Decide(&next, start+t, 1)
		switch {
		case wait == 0:
			run.times = append(run.times, t)
			c.settings.Charge(&next, start+t, 1, "")
			state = next
		case moved:
			c.settings.Charge(&next, start+t, 0, "")
			state = next
		}
	}
	return run
}

// worst returns the most times that lie in any half-open span of the given length.
func worst(times []int64, length int64) int {
	most, first := 0, 0
	for last := range times {
		for times[last]-times[first] >= length {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}
