package main

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/tidegate/tidegate/bench/internal/load"
)

// counters are what a sidecar has counted so far.
type counters struct {
	decisions map[outcome]int64
	calls     int64 // of scripts in Redis
}

// counters asks the sidecar's admin plane.
func (s *server) counters() (counters, error) {
	response, err := http.Get("http://" + s.admin + "/metrics")
	if err != nil {
		return counters{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return counters{}, err
	}
	return parseCounters(string(text))
}

// requestsTotal is a sample of tidegate_requests_total, the labels in the order in which they are written.
var requestsTotal = regexp.MustCompile(`^tidegate_requests_total\{policy="[^"]*",result="([^"]*)",tier="([^"]*)"\} (\S+)$`)

func parseCounters(text string) (counters, error) {
	c := counters{decisions: map[outcome]int64{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if m := requestsTotal.FindStringSubmatch(line); m != nil {
			n, err := strconv.ParseFloat(m[3], 64)
			if err != nil {
				return counters{}, fmt.Errorf("%q: %w", line, err)
			}
			c.decisions[outcome{m[1], m[2]}] += int64(n)
		} else if value, ok := strings.CutPrefix(line, "tidegate_redis_calls_total "); ok {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return counters{}, fmt.Errorf("%q: %w", line, err)
			}
			c.calls = int64(n)
		}
	}
	return c, nil
}

// since returns what was counted after before.
func (c counters) since(before counters) counters {
	grown := counters{decisions: map[outcome]int64{}, calls: c.calls - before.calls}
	for o, n := range c.decisions {
		if n > before.decisions[o] {
			grown.decisions[o] = n - before.decisions[o]
		}
	}
	return grown
}

func (c counters) total() int64 {
	var n int64
	for _, more := range c.decisions {
		n += more
	}
	return n
}

// mostOf is the least share of the decisions that the wanted tier must have made.
const mostOf = 0.5

// check returns an error when a sidecar decided what was not wanted, or from another tier than the
// scenario is about. Redis may answer a part: it is asked again once a second, and when a lease is used up.
func (c counters) check(want outcome) error {
	for o, n := range c.decisions {
		if o != want && o != (outcome{want.result, "redis"}) {
			return fmt.Errorf("%d decisions of %d were %s by %s: all must be %s by %s", n, c.total(), o.result, o.tier, want.result, want.tier)
		}
	}
	if n := c.decisions[want]; float64(n) < mostOf*float64(c.total()) || n == 0 {
		return fmt.Errorf("only %d decisions of %d were made by %s", n, c.total(), want.tier)
	}
	return nil
}

// checkAnswers returns an error when a client saw what was not wanted.
func checkAnswers(r load.Result, want outcome) error {
	failures := int64(0)
	if want.result == "denied" {
		failures = r.Answers
	}
	if r.Broken > 0 || r.Failures != failures {
		return fmt.Errorf("%d answers: %d of 400 and above where %d are expected, and %d questions without an answer",
			r.Answers, r.Failures, failures, r.Broken)
	}
	return nil
}
