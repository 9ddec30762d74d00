package config

import (
	"slices"
	"strings"

	"github.com/tidegate/tidegate/internal/limit"
)

// writtenOverride is what a file says of an override's numbers, on those of its limit.
type writtenOverride struct {
	deny   bool
	bucket bucket
}

// readOverrides reads the overrides of a limit; sound says that the limit's own settings are.
func (l *limitEntry) readOverrides(v value, sound bool) {
	items, ok := v.list()
	if ok && len(items) == 0 {
		v.src.refuse(v.at, "overrides is empty: write one, such as {when: {tenant: acme}, rate: 10/s}, or leave overrides out")
	}
	var lines []int
	for _, item := range items {
		item.name = "an override"
		m, ok := item.mapping()
		if !ok {
			continue
		}
		override, written := l.readOverride(m, sound)
		for i, earlier := range l.limit.Overrides {
			if len(override.When) > 0 && covers(earlier.When, override.When) {
				m.src.refuse(m.at, "this override is never reached: the one in line %d matches all that it does; put it first, or take it out", lines[i])
				break
			}
		}
		lines = append(lines, m.at.line)
		l.limit.Overrides = append(l.limit.Overrides, override)
		l.written.overrides = append(l.written.overrides, written)
	}
}

func (l *limitEntry) readOverride(m *mapping, sound bool) (limit.Override, writtenOverride) {
	before := len(m.src.problems)
	var override limit.Override
	override.Settings.Algorithm = l.limit.Settings.Algorithm
	var written writtenOverride
	if v, ok := m.get("when"); ok {
		override.When = readWhen(v)
	}
	read(m, "exempt", value.flag, &override.Exempt)
	read(m, "deny", value.flag, &written.deny)
	own := readBucket(m)
	if m.lacks("when") {
		m.src.refuse(m.at, "an override has no when: write whom it is for, such as when: {tenant: acme}")
	}
	m.close()
	if len(m.src.problems) > before {
		return override, written
	}
	switch {
	case override.Exempt && written.deny:
		m.src.refuse(m.placeOf("deny"), "exempt and deny exclude each other: write one of the two")
	case (override.Exempt || written.deny) && !own.empty():
		m.src.refuse(m.at, "an override with exempt or deny has no rate, refill, burst or initial: take either out")
	case written.deny:
		override.Settings.Bucket, _ = bucket{}.build(m.src)
	case override.Exempt:
	case own.empty():
		m.src.refuse(m.at, "this override changes nothing: write rate, refill, burst, initial, exempt: true or deny: true")
	case sound:
		own.warnRounded(m.src)
		written.bucket = own.over(l.written.bucket)
		override.Settings.Bucket = l.buildOverride(m, own, written.bucket)
	}
	return override, written
}

// buildOverride makes the settings of merged, and says that any problem is in the override.
func (l *limitEntry) buildOverride(m *mapping, own, merged bucket) limit.TokenBucket {
	at := first([]pos{own.burst.at, own.rate.at, own.refill.at, m.at})
	if merged.initial.set() && !own.initial.set() {
		merged.initial.at = at
	}
	built, ok := merged.build(m.src, at)
	if ok && l.deniesDefault(merged) {
		m.src.refuse(at, "default_cost of %d is above this burst of %d, so a request without a cost never passes: raise the burst here", l.limit.DefaultCost, merged.capacity())
	}
	return built
}

// covers reports whether, as far as can be told without comparing globs, whatever passes narrow
// passes wide: each condition of wide is in narrow too, or is a glob that matches everything.
func covers(wide, narrow []limit.Match) bool {
	for _, m := range wide {
		if strings.Trim(m.Pattern, "*") != "" && !slices.Contains(narrow, m) {
			return false
		}
	}
	return len(wide) > 0
}
