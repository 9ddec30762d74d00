package config

import (
	"slices"
	"strings"

	"github.com/tidegate/tidegate/internal/limit"
)

// writtenOverride is what a file says of an override's numbers, on those of its limit.
type writtenOverride struct {
	deny    bool
	numbers numbers
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
	var written writtenOverride
	if v, ok := m.get("when"); ok {
		override.When = readWhen(v)
	}
	read(m, "exempt", value.flag, &override.Exempt)
	read(m, "deny", value.flag, &written.deny)
	others := len(m.known)
	written.numbers = l.written.numbers.override(m)
	own := m.known[others:]
	l.written.kind.refuseOthers(m)
	m.inRequest()
	if m.lacks("when") {
		m.src.refuse(m.at, "an override has no when: write whom it is for, such as when: {tenant: acme}")
	}
	m.close()
	if len(m.src.problems) > before {
		return override, written
	}
	override.Settings.Algorithm = l.limit.Settings.Algorithm
	changes := slices.ContainsFunc(own, m.has)
	switch {
	case override.Exempt && written.deny:
		m.src.refuse(m.placeOf("deny"), "exempt and deny exclude each other: write one of the two")
	case (override.Exempt || written.deny) && changes:
		m.src.refuse(m.at, "an override with exempt or deny has no %s: take either out", listed(own, "or"))
	case override.Exempt:
	case !written.deny && !changes:
		m.src.refuse(m.at, "this override changes nothing: write %s, exempt: true or deny: true", strings.Join(own, ", "))
	case !sound:
	case written.deny:
		override.Settings, _ = l.settings(m.src, m.at, written.numbers.denied())
	default:
		override.Settings = l.buildOverride(m, written.numbers)
	}
	return override, written
}

// buildOverride makes the settings of n, and says that any problem is in the override.
func (l *limitEntry) buildOverride(m *mapping, n numbers) limit.Settings {
	size := l.written.kind.size
	at := m.placeOf(size, "rate", "refill")
	built, ok := l.settings(m.src, at, n)
	if ok && l.deniesDefault(&built) {
		m.src.refuse(at, "default_cost of %d is above this %s of %d, so a request without a cost never passes: raise the %s here", l.limit.DefaultCost, size, built.Capacity(), size)
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
