package config

import (
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// limitEntry is one entry of limits.
type limitEntry struct {
	limit   limit.Limit
	at      pos
	cost    setting[int64] // default_cost
	hold    time.Duration  // of leases, when its mode is leased; else 0
	written writtenLimit
}

// writtenLimit is what a file says of a limit's numbers, for people to read.
type writtenLimit struct {
	kind      kind
	numbers   numbers
	overrides []writtenOverride // beside Limit.Overrides
}

// attributes returns the names of the attributes that the limit reads.
func (l *limitEntry) attributes() []string {
	names := slices.Clone(l.limit.Key)
	for _, m := range l.limit.When {
		names = append(names, m.Attribute)
	}
	for _, o := range l.limit.Overrides {
		for _, m := range o.When {
			names = append(names, m.Attribute)
		}
	}
	return names
}

// readLimits reads the limits, each with onFailure where it names no policy of its own. A leased one is held for
// hold; 0 means that none is leased.
func readLimits(root *mapping, onFailure limit.FailurePolicy, hold time.Duration) []*limitEntry {
	v, ok := root.get("limits")
	if !ok {
		if root.lacks("limits") {
			root.src.refuse(root.at, "limits is missing: write at least one limit")
		}
		return nil
	}
	items, ok := v.list()
	if ok && len(items) == 0 {
		v.src.refuse(v.at, "limits is empty: write at least one limit")
	}
	var limits []*limitEntry
	lines := map[string]int{} // the name of each limit → its line
	for _, item := range items {
		m, ok := item.mapping()
		if !ok {
			continue
		}
		l := &limitEntry{at: m.at, hold: hold}
		l.limit.OnRedisFailure = onFailure
		l.read(m)
		if line, twice := lines[l.limit.Name]; twice && l.limit.Name != "" {
			m.src.refuse(m.placeOf("name"), "limit %s is there twice, first in line %d: give each its own name", shown(l.limit.Name), line)
			continue
		}
		lines[l.limit.Name] = m.placeOf("name").line
		limits = append(limits, l)
	}
	return limits
}

func (l *limitEntry) read(m *mapping) {
	before := len(m.src.problems)
	l.limit.Unit = limit.RequestsUnit
	read(m, "name", func(v value) (string, bool) { return v.ident("a limit", "per-user") }, &l.limit.Name)
	k := readKind(m)
	read(m, "unit", func(v value) (string, bool) { return v.ident("a unit", "tokens") }, &l.limit.Unit)
	readSetting(m, "default_cost", value.whole, &l.cost)
	l.readState(m, &k)
	l.readKey(m)
	l.readFailure(m)
	if v, ok := m.get("when"); ok {
		l.limit.When = readWhen(v)
	}
	l.written.kind, l.written.numbers = k, k.read(m, k.algorithm)
	overrides, hasOverrides := m.get("overrides")
	k.refuseOthers(m)
	m.inRequest()
	if m.lacks("name") {
		m.src.refuse(m.at, "a limit has no name: write name: per-user")
	}
	l.written.numbers.missing(m)
	m.close()
	l.limit.DefaultCost = l.cost.val
	if !l.cost.set() && l.limit.Unit == limit.RequestsUnit {
		l.limit.DefaultCost = 1
	}
	sound := len(m.src.problems) == before
	if sound {
		l.build(m)
	}
	if hasOverrides {
		l.readOverrides(overrides, sound)
	}
}

// build makes the limit's own settings of its numbers.
func (l *limitEntry) build(m *mapping) {
	size := l.written.kind.size
	built, ok := l.settings(m.src, m.placeOf(size, "rate", "refill"), l.written.numbers)
	if ok && l.deniesDefault(&built) {
		m.src.refuse(m.placeOf("default_cost", size), "default_cost of %d is above the %s of %d, so a request without a cost never passes: raise the %s or lower default_cost",
			l.limit.DefaultCost, size, built.Capacity(), size)
	}
	l.limit.Settings = built
	l.warnOfUnit(m)
}

// settings makes settings of a limit's numbers, or of an override's.
func (l *limitEntry) settings(src *source, at pos, n numbers) (limit.Settings, bool) {
	built, ok := n.build(src, at)
	if !ok || l.hold == 0 {
		return built, ok
	}
	leased, err := built.Leased(l.hold.Microseconds())
	if err != nil {
		src.refuse(at, "%s", strings.TrimPrefix(err.Error(), "limit: "))
	}
	return leased, err == nil
}

// warnOfUnit warns where a default does not go with a unit other than requests.
func (l *limitEntry) warnOfUnit(m *mapping) {
	if l.limit.Unit == limit.RequestsUnit {
		return
	}
	switch algorithm := l.limit.Settings.Algorithm; {
	case algorithm == limit.ConcurrencyAlgorithm && !l.cost.set():
		m.src.warn(m.placeOf("unit"), "a request that names no %s takes no slot: write default_cost: 1, or leave unit out", l.limit.Unit)
	case algorithm == limit.LeakyBucketAlgorithm && !m.has("burst"):
		m.src.warn(m.placeOf("unit"), "a request of more than 1 in %s never passes, for that is the burst of a leaky_bucket: write burst", l.limit.Unit)
	}
}

// deniesDefault reports whether s can never pass a request that names no cost, though it is not
// there to let nothing pass. A slot is one whatever the cost.
func (l *limitEntry) deniesDefault(s *limit.Settings) bool {
	return s.Algorithm != limit.ConcurrencyAlgorithm && s.Capacity() > 0 && l.limit.DefaultCost > s.Capacity()
}

// readState reads how the limit's state lies in Redis, and its mode.
func (l *limitEntry) readState(m *mapping, k *kind) {
	if k.stored != "" {
		m.refuses("state", "the state of "+k.label+" is always a "+k.stored+": take it out")
	} else {
		read(m, "state", func(v value) (limit.StateForm, bool) {
			word, ok := v.choice([]string{limit.HashState.String(), limit.StringState.String()})
			if word == limit.StringState.String() {
				return limit.StringState, ok
			}
			return limit.HashState, ok
		}, &l.limit.State)
	}
	l.readMode(m, k)
}

// readMode reads whether the limit is leased.
func (l *limitEntry) readMode(m *mapping, k *kind) {
	leased := false
	if v, ok := m.get("mode"); ok {
		word, _ := v.choice([]string{"strict", "leased"})
		leased = word == "leased"
		if leased && k.size != "" && !k.leasable {
			v.src.refuse(v.at, "mode is leased, which a %s cannot be: take it out, or write algorithm: token_bucket or fixed_window", k.algorithm)
		} else if leased && l.hold == 0 {
			v.src.warn(v.at, "leased has no effect without redis: this process decides alone")
		}
	}
	if !leased || !k.leasable {
		l.hold = 0
	}
}

// readKey reads key, and colocate, which must be part of it.
func (l *limitEntry) readKey(m *mapping) {
	keyRead := !m.has("key")
	if v, ok := m.get("key"); ok {
		l.limit.Key, keyRead = v.attributes()
	}
	v, ok := m.get("colocate")
	if !ok {
		return
	}
	names, places, ok := v.words()
	if ok && len(names) == 0 {
		v.src.refuse(v.at, "colocate is empty: name an attribute of key, or leave colocate out")
	}
	for i, name := range names {
		if keyRead && !slices.Contains(l.limit.Key, name) {
			v.src.refuse(places[i], "colocate names %s, which is not part of key: add it to key, or name one of key", shown(name))
		}
	}
	l.limit.Colocate = names
}

// attributes reads a list of attribute names.
func (v value) attributes() ([]string, bool) {
	names, places, ok := v.words()
	for i, name := range names {
		refuseAttribute(v.src, places[i], name)
	}
	return names, ok
}

// readFailure reads what holds while Redis is away, and whether the limit is a shadow.
func (l *limitEntry) readFailure(m *mapping) {
	var own setting[limit.FailurePolicy]
	readSetting(m, "on_redis_failure", failurePolicy, &own)
	read(m, "shadow", value.flag, &l.limit.Shadow)
	if !own.set() {
		return
	}
	l.limit.OnRedisFailure = own.val
	if l.limit.Shadow && own.val == limit.FailClosed {
		m.src.warn(own.at, "closed has no effect here: a shadow limit never refuses a request")
	}
}

// readWhen reads attribute: glob pairs, at least one.
func readWhen(v value) []limit.Match {
	m, ok := v.mapping()
	if !ok {
		return nil
	}
	if len(m.entries) == 0 {
		v.src.refuse(v.at, "when is empty: write attribute: glob, such as {model: \"gpt-*\"}")
	}
	var when []limit.Match
	for _, e := range m.entries {
		refuseAttribute(m.src, e.at, e.key)
		if pattern, ok := e.value.glob(); ok {
			when = append(when, limit.Match{Attribute: e.key, Pattern: pattern})
		}
	}
	return when
}

// glob reads a pattern of limit.Glob.
func (v value) glob() (string, bool) {
	v.name = "the glob of " + v.name
	pattern, ok := v.scalar("a text, such as \"gpt-*\"; for several values write an override each")
	if !ok {
		return "", false
	}
	plain := strings.ReplaceAll(pattern, `\\`, "")
	if strings.HasSuffix(plain, `\`) {
		v.src.refuse(v.at, `%s ends in a \ with nothing to make plain: write \\ for a backslash`, v.name)
		return "", false
	}
	for _, special := range []string{"[", "{"} {
		if i := strings.Index(plain, special); i == 0 || i > 0 && plain[i-1] != '\\' {
			v.src.warn(v.at, `%s matches %s as it stands, for only *, ? and \ are special: write \%s if that is meant`, v.name, special, special)
		}
	}
	return pattern, true
}

// ident reads a name of what: [a-z0-9][a-z0-9._-]{0,63}.
func (v value) ident(what, example string) (string, bool) {
	text, ok := v.scalar("a text, such as " + example)
	if ok && !validIdent(text) {
		v.src.refuseIdent(v.at, what, text, example)
		return "", false
	}
	return text, ok
}

func (s *source) refuseIdent(at pos, what, text, example string) {
	s.refuse(at, "%s cannot be named %s: write 1 to 64 of a-z, 0-9, dot, _ and -, beginning with a letter or digit, such as %s", what, shown(text), example)
}

func validIdent(text string) bool {
	const first = "abcdefghijklmnopqrstuvwxyz0123456789"
	return text != "" && len(text) <= 64 && strings.ContainsRune(first, rune(text[0])) && strings.Trim(text, first+"._-") == ""
}
