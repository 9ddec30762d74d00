package config

import (
	"fmt"

	"github.com/tidegate/tidegate/internal/limit"
)

// slots is what a limit or an override says of its limit on what is under way at once.
type slots struct {
	limit setting[int64]
	ttl   setting[int64] // in µs
}

// readSlots reads the settings of a concurrency limit.
func readSlots(m *mapping, _ limit.Algorithm) slots {
	var s slots
	readSetting(m, "limit", value.whole, &s.limit)
	readSetting(m, "ttl", micros, &s.ttl)
	return s
}

func (slots) missing(m *mapping) {
	if m.lacks("limit") {
		m.src.refuse(m.at, "%s has no limit: write limit: 10", limit.ConcurrencyAlgorithm)
	}
	if m.lacks("ttl") {
		m.src.refuse(m.at, "%s has no ttl, after which the slot of a crashed holder is free again: write ttl: 10m", limit.ConcurrencyAlgorithm)
	}
}

func (s slots) override(m *mapping) numbers {
	readSetting(m, "limit", value.whole, &s.limit)
	m.refuses("ttl", "ttl cannot differ in an override, for all slots of a limit last as long: write a limit of its own, with when")
	return s
}

func (s slots) denied() numbers {
	s.limit.val = 0
	return s
}

func (s slots) build(src *source, at pos) (limit.Settings, bool) {
	built, err := limit.NewConcurrency(s.limit.val, s.ttl.val)
	if err != nil {
		src.refuse(at, "%v: write other numbers", err)
	}
	return built, err == nil
}

func (s slots) describe(d *description, _ *limit.Settings) {
	d.line(2, "limit", "%d%s", s.limit.val, optional(s.limit.val == 0, ": nothing passes"))
	d.line(2, "ttl", "%s, unless it is renewed", limit.FormatMicros(s.ttl.val))
}

func (s slots) summary(*limit.Settings) string { return fmt.Sprintf("limit %d", s.limit.val) }
