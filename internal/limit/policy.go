package limit

import (
	"fmt"
	"slices"
	"time"
)

// Policy is a list of limits that are asked together, all or nothing. A limit asked by its own
// name is a policy of one with an empty Name.
type Policy struct {
	Name   string
	Limits []*Limit

	index int    // its place in Rules.All
	needs []need // every attribute that a question must name
	leaky bool   // some limit is a leaky_bucket
	units []string
}

// need is an attribute that a question must name; in a key it must not be empty.
type need struct {
	attribute string
	filled    bool
}

// Rules are the limits and policies in force, ready to resolve questions. They never change, and
// are safe for concurrent use.
type Rules struct {
	Limits   []*Limit  // in the config's order
	Policies []*Policy // in the config's order

	TicketTTL    time.Duration // how long a ticket may be settled at least; set before the rules are in force
	RequestIDTTL time.Duration // how long a grant is remembered by its request_id; likewise

	byName  map[string]*Policy
	byLimit map[string]*Policy
}

// NewRules takes the limits and policies over and prepares them. keyPrefix begins every key;
// hashed names the attributes of which only a keyed hash may leave the process. It is an error
// when two limits or two policies have one name, or when a policy holds no limit, a limit that is
// not in limits, or one twice.
func NewRules(keyPrefix string, hashed []string, limits []*Limit, policies []*Policy) (*Rules, error) {
	r := &Rules{Limits: limits, Policies: policies, byName: map[string]*Policy{}, byLimit: map[string]*Policy{}}
	for i, l := range limits {
		if r.byLimit[l.Name] != nil {
			return nil, fmt.Errorf("limit: two limits are named %q", l.Name)
		}
		l.index = i
		l.prepareKeys(keyPrefix, hashed)
		single := &Policy{Limits: []*Limit{l}, index: len(policies) + i}
		single.prepare()
		r.byLimit[l.Name] = single
	}
	for n, p := range policies {
		if r.byName[p.Name] != nil {
			return nil, fmt.Errorf("limit: two policies are named %q", p.Name)
		}
		if len(p.Limits) == 0 {
			return nil, fmt.Errorf("limit: policy %q has no limit", p.Name)
		}
		for i, l := range p.Limits {
			if slices.Contains(p.Limits[:i], l) || !slices.Contains(limits, l) {
				return nil, fmt.Errorf("limit: policy %q: limit %q is there twice or is unknown", p.Name, l.Name)
			}
		}
		p.index = n
		p.prepare()
		r.byName[p.Name] = p
	}
	return r, nil
}

// Zone returns the time zone of the given name that a limit has; nil when none has it.
func (r *Rules) Zone(name string) *time.Location {
	for _, l := range r.Limits {
		if zone := l.Settings.Window.Zone; zone != nil && zone.String() == name {
			return zone
		}
	}
	return nil
}

// KeepZones gives the limits the time zones of the same names that former has, before the rules are in
// force: settings are equal only with the very same zone.
func (r *Rules) KeepZones(former *Rules) {
	keep := func(s *Settings) {
		if s.Window.Zone == nil {
			return
		}
		if zone := former.Zone(s.Window.Zone.String()); zone != nil {
			s.Window.Zone = zone
		}
	}
	for _, l := range r.Limits {
		keep(&l.Settings)
		for i := range l.Overrides {
			keep(&l.Overrides[i].Settings)
		}
	}
}

// Current gives the charges of a ticket the settings that are in force for their states now. What no
// longer belongs to a limit keeps those of the ticket.
func (r *Rules) Current(t *Ticket) {
	for i := range t.Charges {
		c := &t.Charges[i]
		single := r.byLimit[c.Limit.Name]
		if single == nil {
			continue
		}
		l := single.Limits[0]
		if !l.owns(c.Key) || c.Override > len(l.Overrides) {
			continue
		}
		if settings, exempt := l.settingsOf(c.Override); !exempt {
			c.Settings = settings
		}
	}
}

// All returns every policy that a question can be asked of: the named ones, and a policy of one
// for each limit. Each stands at its Index.
func (r *Rules) All() []*Policy {
	all := slices.Clone(r.Policies)
	for _, l := range r.Limits {
		all = append(all, r.byLimit[l.Name])
	}
	return all
}

// Index returns the policy's place among All of the Rules that it belongs to.
func (p *Policy) Index() int { return p.index }

func (p *Policy) prepare() {
	p.units = []string{RequestsUnit}
	for _, l := range p.Limits {
		if !slices.Contains(p.units, l.Unit) {
			p.units = append(p.units, l.Unit)
		}
		p.leaky = p.leaky || l.Settings.Algorithm == LeakyBucketAlgorithm
		for _, name := range l.Key {
			p.require(name, true)
		}
		for _, m := range l.When {
			p.require(m.Attribute, false)
		}
		for _, o := range l.Overrides {
			for _, m := range o.When {
				p.require(m.Attribute, false)
			}
		}
	}
}

func (p *Policy) require(name string, filled bool) {
	for i := range p.needs {
		if p.needs[i].attribute == name {
			p.needs[i].filled = p.needs[i].filled || filled
			return
		}
	}
	p.needs = append(p.needs, need{attribute: name, filled: filled})
}

// Find returns the policy that the question is asked of, or ErrUnknownPolicy.
func (r *Rules) Find(q *Query) (*Policy, error) {
	switch {
	case (q.Policy == "") == (q.Limit == ""):
		return nil, invalid("policy", "name either a policy or a limit")
	case q.Policy != "":
		if p := r.byName[q.Policy]; p != nil {
			return p, nil
		}
		return nil, fmt.Errorf("%w: policy %q", ErrUnknownPolicy, q.Policy)
	default:
		if p := r.byLimit[q.Limit]; p != nil {
			return p, nil
		}
		return nil, fmt.Errorf("%w: limit %q", ErrUnknownPolicy, q.Limit)
	}
}

// Resolve appends to charges what the question asks of each limit that applies to it, in the
// policy's order. They get their Hash, and their Key by keys.Name. It moves the short form Key into
// Attributes. An InvalidError says what is wrong with the question. A cost may be above a limit's
// capacity: such a charge can never pass.
func (p *Policy) Resolve(q *Query, secret Secret, keys *Keys, charges []Charge) ([]Charge, error) {
	if err := p.check(q); err != nil {
		return charges, err
	}
	for _, l := range p.Limits {
		if !matchesAll(l.When, q.Attributes) {
			continue
		}
		override := l.overrideFor(q.Attributes)
		settings, exempt := l.settingsOf(override)
		if exempt {
			continue
		}
		charges = append(charges, Charge{
			Limit:    l,
			Settings: settings,
			Override: override,
			Cost:     settings.costOf(p.costOf(l, q)),
		})
		from := len(keys.bytes)
		keys.bytes = l.appendKey(keys.bytes, q.Attributes, secret, &keys.hash)
		keys.add(from, &charges[len(charges)-1])
	}
	return charges, nil
}

// overrideFor returns which override the attributes match first, counted from 1; 0 is none.
func (l *Limit) overrideFor(attributes Attributes) int {
	for i := range l.Overrides {
		if matchesAll(l.Overrides[i].When, attributes) {
			return i + 1
		}
	}
	return 0
}

// settingsOf returns the settings of an override, as overrideFor counts them.
func (l *Limit) settingsOf(override int) (settings *Settings, exempt bool) {
	if override == 0 {
		return &l.Settings, false
	}
	o := &l.Overrides[override-1]
	return &o.Settings, o.Exempt
}

func (p *Policy) check(q *Query) error {
	if q.HasKey {
		if err := p.expandKey(q); err != nil {
			return err
		}
	}
	for _, n := range p.needs {
		value, ok := q.Attributes.Get(n.attribute)
		if !ok {
			return invalid("attributes."+n.attribute, "missing; %s needs it", p.label(q))
		}
		if value == "" && n.filled {
			return invalid("attributes."+n.attribute, "empty; it is part of a key, so it needs a value")
		}
	}
	if q.MaxWait > 0 && !p.leaky {
		return invalid("max_wait_ms", "no limit of %s is a leaky_bucket, so nothing can be waited for; leave it out", p.label(q))
	}
	if q.HasAmount && len(q.Costs) > 0 {
		return invalid("cost", "give either one number or an object of units")
	}
	if q.HasAmount {
		return checkCost("cost", q.Amount)
	}
	for _, c := range q.Costs {
		if !slices.Contains(p.units, c.Unit) {
			return invalid("cost."+c.Unit, "no limit of %s counts this unit; it counts %v", p.label(q), p.units)
		}
		if !isCost(c.Amount) { // else the name of its field would be put together for nothing
			return checkCost("cost."+c.Unit, c.Amount)
		}
	}
	return nil
}

func isCost(amount int64) bool { return amount >= 0 && amount <= MaxNumber }

func checkCost(field string, amount int64) error {
	if !isCost(amount) {
		return invalid(field, "must be a whole number from 0 to 2^53")
	}
	return nil
}

// expandKey turns the short form {"limit": …, "key": …} into the attribute that it stands for.
func (p *Policy) expandKey(q *Query) error {
	if q.Limit == "" {
		return invalid("key", "goes with limit; with a policy name the attributes")
	}
	names := p.Limits[0].Key
	if len(names) != 1 {
		return invalid("key", "limit %q has %d key attributes; name them in attributes", q.Limit, len(names))
	}
	if _, ok := q.Attributes.Get(names[0]); ok {
		return invalid("key", "attributes already names %q; give one of the two", names[0])
	}
	if q.Key == "" {
		return invalid("key", "empty; it needs a value")
	}
	q.Attributes = append(q.Attributes, Attribute{Name: names[0], Value: q.Key})
	q.HasKey = false
	return nil
}

func (p *Policy) label(q *Query) string {
	if p.Name == "" {
		return fmt.Sprintf("limit %q", q.Limit)
	}
	return fmt.Sprintf("policy %q", p.Name)
}

// costOf returns what the question costs the limit. A number without a unit is in the limit's own
// unit when the limit is asked by its name, and requests in a policy.
func (p *Policy) costOf(l *Limit, q *Query) int64 {
	if q.Peek {
		return 0
	}
	if q.HasAmount && (p.Name == "" || l.Unit == RequestsUnit) {
		return q.Amount
	}
	for i := range q.Costs {
		if q.Costs[i].Unit == l.Unit {
			return q.Costs[i].Amount
		}
	}
	return l.DefaultCost
}

// Address returns the charge of cost 0 on a policy of one limit that names the state for the
// query's attributes, whatever the limit's When and overrides say. An InvalidError says what is
// wrong with the query.
func (p *Policy) Address(q *Query, secret Secret) (Charge, error) {
	l := p.Limits[0]
	for _, name := range l.Key {
		if value, _ := q.Attributes.Get(name); value == "" {
			return Charge{}, invalid("attributes."+name, "missing or empty; %s needs it", p.label(q))
		}
	}
	return Charge{Limit: l, Settings: &l.Settings, Key: string(l.appendKey(nil, q.Attributes, secret, new(valueHash)))}, nil
}

// GrantKey returns the key under which a grant of the charges is remembered by the question's
// RequestID. There is at least one charge.
func (p *Policy) GrantKey(q *Query, charges []Charge) string {
	return grantKey(p.Name, charges, q.RequestID)
}
