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

// counters are the decisions that a sidecar has counted so far.
type counters map[outcome]int64

// counters asks the sidecar's admin plane.
func (s *server) counters() (counters, error) {
	response, err := http.Get("http://" + s.admin + "/metrics")
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	return parseCounters(string(text))
}

// requestsTotal is a sample of tidegate_requests_total, the labels in the order in which they are written.
var requestsTotal = regexp.MustCompile(`^tidegate_requests_total\{policy="[^"]*",result="([^"]*)",tier="([^"]*)"\} (\S+)$`)

func parseCounters(text string) (counters, error) {
	c := counters{}
	for line := range strings.Lines(text) {
		m := requestsTotal.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		n, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		c[outcome{m[1], m[2]}] += int64(n)
	}
	return c, nil
}

// since returns what was counted after before.
func (c counters) since(before counters) counters {
	grown := counters{}
	for o, n := range c {
		if n > before[o] {
			grown[o] = n - before[o]
		}
	}
	return grown
}

func (c counters) total() int64 {
	var n int64
	for _, more := range c {
		n += more
	}
	return n
}

// leastShare is the part of the decisions that a tier must have made where it is wanted. Redis may make the
// rest: it is asked again once a second about what is denied, and all who ask meanwhile have that answer; and
// it is asked when a lease is used up.
func leastShare(tier string) float64 {
	switch tier {
	case "local":
		return 0.9
	case "lease":
		return 0.5
	}
	return 1
}

// check returns an error when a sidecar decided what was not wanted, or too little of it from the tier that
// the scenario is about.
func (c counters) check(want outcome) error {
	for o, n := range c {
		if o != want && o != (outcome{want.result, "redis"}) {
			return fmt.Errorf("%d decisions of %d were %s by %s: all must be %s by %s", n, c.total(), o.result, o.tier, want.result, want.tier)
		}
	}
	if n := c[want]; float64(n) < leastShare(want.tier)*float64(c.total()) || n == 0 {
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
