package config

import (
	"slices"
	"strings"

	"github.com/tidegate/tidegate/internal/limit"
)

// readPolicies reads the policies, which name limits.
func readPolicies(root *mapping, limits []*limitEntry) []*limit.Policy {
	m, ok := root.block("policies")
	if !ok {
		return nil
	}
	byName := map[string]*limitEntry{}
	var names []string
	for _, l := range limits {
		byName[l.limit.Name] = l
		names = append(names, l.limit.Name)
	}
	var policies []*limit.Policy
	for _, e := range m.entries {
		if !validIdent(e.key) {
			m.src.refuseIdent(e.at, "a policy", e.key, "chat")
		}
		settings, ok := e.value.mapping()
		if !ok {
			continue
		}
		p := &limit.Policy{Name: e.key}
		if v, ok := settings.get("limits"); ok {
			p.Limits = v.limitsOf(e, byName, names)
		}
		if settings.lacks("limits") {
			m.src.refuse(e.at, "policy %s has no limits: write {limits: [per-user]}", shown(e.key))
		}
		settings.inRequest()
		settings.close()
		policies = append(policies, p)
	}
	return policies
}

// limitsOf reads the list of the limits that the policy in e asks.
func (v value) limitsOf(e entry, byName map[string]*limitEntry, names []string) []*limit.Limit {
	texts, places, ok := v.words()
	if ok && len(texts) == 0 {
		v.src.refuse(v.at, "policy %s has no limit: name at least one", shown(e.key))
	}
	var limits []*limit.Limit
	for i, text := range texts {
		l := byName[text]
		if l == nil {
			advice := "write one of limits"
			if guess, found := nearest(text, names); found {
				advice = "did you mean " + guess + "?"
			}
			v.src.refuse(places[i], "policy %s names %s, which is no limit: %s", shown(e.key), shown(text), advice)
			continue
		}
		limits = append(limits, &l.limit)
	}
	v.checkColocation(e, limits)
	return limits
}

// checkColocation refuses limits that say different things about where their state lies. Where some
// say it and others do not there is a warning: on the one server of this version they are fine.
func (v value) checkColocation(e entry, limits []*limit.Limit) {
	var placed *limit.Limit
	for _, l := range limits {
		switch {
		case len(l.Colocate) == 0:
		case placed == nil:
			placed = l
		case !slices.Equal(placed.Colocate, l.Colocate):
			v.src.refuse(v.at, "policy %s: limit %s has colocate [%s], but %s has [%s]: give all limits of one policy the same attributes in the same order",
				shown(e.key), l.Name, strings.Join(l.Colocate, ", "), placed.Name, strings.Join(placed.Colocate, ", "))
			return
		}
	}
	if placed != nil && slices.ContainsFunc(limits, func(l *limit.Limit) bool { return len(l.Colocate) == 0 }) {
		v.src.warn(e.at, "a Redis Cluster could not answer policy %s: give all its limits the same colocate", shown(e.key))
	}
}
