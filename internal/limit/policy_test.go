package limit_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

func settingsOf(t *testing.T, rate string, burst int64) limit.Settings {
	t.Helper()
	parsed, err := limit.ParseRate(rate)
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := limit.NewTokenBucket(parsed.Rate, burst, burst)
	if err != nil {
		t.Fatal(err)
	}
	return limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: bucket}
}

// chatRules are the limits and policies that the tests ask.
func chatRules(t *testing.T) *limit.Rules {
	t.Helper()
	on := func(attribute, pattern string) []limit.Match {
		return []limit.Match{{Attribute: attribute, Pattern: pattern}}
	}
	requests := &limit.Limit{
		Name: "requests", Unit: limit.RequestsUnit, DefaultCost: 1,
		Key: []string{"user"}, Settings: settingsOf(t, "100/s", 200),
	}
	tokens := &limit.Limit{
		Name: "tokens", Unit: "tokens", DefaultCost: 500,
		Key: []string{"tenant", "model"}, When: on("model", "gpt-*"), Settings: settingsOf(t, "60000/m", 60000),
		Overrides: []limit.Override{
			{When: on("tenant", "acme"), Settings: settingsOf(t, "600000/m", 600000)},
			{When: on("tenant", "ac*"), Settings: settingsOf(t, "1/s", 1)}, // acme never comes here
			{When: on("tenant", "internal"), Exempt: true},
			{When: append(on("tenant", "banned"), on("plan", "free")...), Settings: settingsOf(t, "0/s", 0)},
		},
	}
	images := &limit.Limit{
		Name: "images", Unit: "images",
		Settings: settingsOf(t, "10/m", 10),
	}
	models := &limit.Limit{
		Name: "models", Unit: limit.RequestsUnit, DefaultCost: 1,
		Key: []string{"model"}, When: on("plan", "free"), Settings: settingsOf(t, "1/s", 5),
	}
	plans := &limit.Limit{
		Name: "plans", Unit: limit.RequestsUnit, DefaultCost: 1,
		Key: []string{"plan"}, Settings: settingsOf(t, "1/s", 6),
	}
	rules, err := limit.NewRules("rl", nil, []*limit.Limit{requests, tokens, images, models, plans}, []*limit.Policy{
		{Name: "chat", Limits: []*limit.Limit{requests, tokens}},
		{Name: "plans", Limits: []*limit.Limit{models, plans}},
		{Name: "all", Limits: []*limit.Limit{images, requests}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// attributes reads "name=value name=value".
func attributes(text string) limit.Attributes {
	var all limit.Attributes
	for _, field := range strings.Fields(text) {
		name, value, _ := strings.Cut(field, "=")
		all = append(all, limit.Attribute{Name: name, Value: value})
	}
	return all
}

// resolve writes the charges that a query makes as "limit cost/burst" or its error.
func resolve(rules *limit.Rules, q limit.Query) (string, error) {
	policy, err := rules.Find(&q)
	if err != nil {
		return "", err
	}
	var keys limit.Keys
	charges, err := policy.Resolve(&q, nil, &keys, nil)
	keys.Name(charges)
	if err != nil {
		return "", err
	}
	var all []string
	for _, c := range charges {
		all = append(all, fmt.Sprintf("%s %d/%d", c.Limit.Name, c.Cost, c.Settings.Capacity()))
	}
	return strings.Join(all, ", "), nil
}

func TestResolve(t *testing.T) {
	const ada = "user=ada tenant=t plan=pro model=gpt-5"
	costs := func(pairs ...limit.UnitCost) []limit.UnitCost { return pairs }
	tests := []struct {
		name  string
		query limit.Query
		want  string
	}{
		{"defaults", limit.Query{Policy: "chat", Attributes: attributes(ada)}, "requests 1/200, tokens 500/60000"},
		{"the policy's order", limit.Query{Policy: "all", Attributes: attributes(ada)}, "images 0/10, requests 1/200"},
		{"a number is requests in a policy", limit.Query{Policy: "chat", Attributes: attributes(ada), HasAmount: true, Amount: 3}, "requests 3/200, tokens 500/60000"},
		{"units", limit.Query{Policy: "chat", Attributes: attributes(ada), Costs: costs(limit.UnitCost{Unit: "tokens", Amount: 1200})}, "requests 1/200, tokens 1200/60000"},
		{"both units", limit.Query{Policy: "chat", Attributes: attributes(ada), Costs: costs(limit.UnitCost{Unit: "tokens"}, limit.UnitCost{Unit: "requests", Amount: 2})}, "requests 2/200, tokens 0/60000"},
		{"the largest cost", limit.Query{Policy: "all", Attributes: attributes(ada), Costs: costs(limit.UnitCost{Unit: "images", Amount: limit.MaxNumber})}, "images 9007199254740992/10, requests 1/200"},
		{"a peek, whatever the costs", limit.Query{Policy: "chat", Attributes: attributes(ada), Peek: true, HasAmount: true, Amount: 3}, "requests 0/200, tokens 0/60000"},
		{"when does not match", limit.Query{Policy: "chat", Attributes: attributes("user=ada tenant=t plan=pro model=opus")}, "requests 1/200"},
		{"an empty value is one, outside a key", limit.Query{Policy: "chat", Attributes: attributes("user=ada tenant=t plan= model=gpt-5")}, "requests 1/200, tokens 500/60000"},
		{"the first override that matches", limit.Query{Policy: "chat", Attributes: attributes("user=ada tenant=acme plan=pro model=gpt-5")}, "requests 1/200, tokens 500/600000"},
		{"a later override", limit.Query{Policy: "chat", Attributes: attributes("user=ada tenant=acne plan=pro model=gpt-5")}, "requests 1/200, tokens 500/1"},
		{"exempt", limit.Query{Policy: "chat", Attributes: attributes("user=ada tenant=internal plan=pro model=gpt-5")}, "requests 1/200"},
		{"denied", limit.Query{Policy: "chat", Attributes: attributes("user=ada tenant=banned plan=free model=gpt-5")}, "requests 1/200, tokens 500/0"},
		{"half of an override's conditions", limit.Query{Policy: "chat", Attributes: attributes("user=ada tenant=banned plan=pro model=gpt-5")}, "requests 1/200, tokens 500/60000"},
		{"a limit by its name", limit.Query{Limit: "requests", Attributes: attributes("user=ada")}, "requests 1/200"},
		{"a single key", limit.Query{Limit: "requests", HasKey: true, Key: "ada"}, "requests 1/200"},
		{"no key at all", limit.Query{Limit: "images"}, "images 0/10"},
		{"a number is the limit's own unit", limit.Query{Limit: "images", HasAmount: true, Amount: 4}, "images 4/10"},
		{"requests are always a unit", limit.Query{Limit: "images", Costs: costs(limit.UnitCost{Unit: "requests", Amount: 1})}, "images 0/10"},
		{"no limit applies", limit.Query{Limit: "tokens", Attributes: attributes("tenant=internal plan=pro model=gpt-5")}, ""},
	}
	rules := chatRules(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := resolve(rules, tt.query); err != nil || got != tt.want {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestResolveRefuses(t *testing.T) {
	const ada = "user=ada tenant=t plan=pro model=gpt-5"
	tests := []struct {
		name          string
		query         limit.Query
		field, reason string
	}{
		{"neither", limit.Query{}, "policy", "name either a policy or a limit"},
		{"both", limit.Query{Policy: "chat", Limit: "requests"}, "policy", "name either a policy or a limit"},
		{"no attributes", limit.Query{Policy: "chat"}, "attributes.user", `missing; policy "chat" needs it`},
		{"part of a key missing", limit.Query{Limit: "tokens", Attributes: attributes("model=gpt-5 plan=pro")}, "attributes.tenant", `missing; limit "tokens" needs it`},
		{"part of a condition missing", limit.Query{Policy: "chat", Attributes: attributes("user=ada tenant=t model=gpt-5")}, "attributes.plan", `missing; policy "chat" needs it`},
		{"missing, although the limit would not apply", limit.Query{Policy: "chat", Attributes: attributes("user=ada plan=pro model=opus")}, "attributes.tenant", `missing; policy "chat" needs it`},
		{"part of a key empty", limit.Query{Policy: "chat", Attributes: attributes("user= tenant=t plan=pro model=gpt-5")}, "attributes.user", "empty; it is part of a key, so it needs a value"},
		{"empty in a key and a condition", limit.Query{Policy: "chat", Attributes: attributes("user=ada tenant=t plan=pro model=")}, "attributes.model", "empty; it is part of a key, so it needs a value"},
		{"empty in a condition, and in a later limit's key", limit.Query{Policy: "plans", Attributes: attributes("plan= model=opus")}, "attributes.plan", "empty; it is part of a key, so it needs a value"},
		{"an empty short key", limit.Query{Limit: "requests", HasKey: true}, "key", "empty; it needs a value"},
		{"a short key in a policy", limit.Query{Policy: "chat", HasKey: true, Key: "ada"}, "key", "goes with limit; with a policy name the attributes"},
		{"a short key of two attributes", limit.Query{Limit: "tokens", HasKey: true, Key: "ada"}, "key", `limit "tokens" has 2 key attributes; name them in attributes`},
		{"a short key of none", limit.Query{Limit: "images", HasKey: true, Key: "ada"}, "key", `limit "images" has 0 key attributes; name them in attributes`},
		{"a key said twice", limit.Query{Limit: "requests", HasKey: true, Key: "ada", Attributes: attributes("user=ada")}, "key", `attributes already names "user"; give one of the two`},
		{"a unit that nobody counts", limit.Query{Policy: "chat", Attributes: attributes(ada), Costs: []limit.UnitCost{{Unit: "images", Amount: 1}}}, "cost.images", `no limit of policy "chat" counts this unit; it counts [requests tokens]`},
		{"a cost below 0", limit.Query{Policy: "chat", Attributes: attributes(ada), HasAmount: true, Amount: -1}, "cost", "must be a whole number from 0 to 2^53"},
		{"a unit's cost below 0", limit.Query{Policy: "chat", Attributes: attributes(ada), Costs: []limit.UnitCost{{Unit: "tokens", Amount: -1}}}, "cost.tokens", "must be a whole number from 0 to 2^53"},
		{"a cost above 2^53", limit.Query{Policy: "chat", Attributes: attributes(ada), HasAmount: true, Amount: limit.MaxNumber + 1}, "cost", "must be a whole number from 0 to 2^53"},
		{"a cost said twice", limit.Query{Policy: "chat", Attributes: attributes(ada), HasAmount: true, Amount: 1, Costs: []limit.UnitCost{{Unit: "tokens", Amount: 1}}}, "cost", "give either one number or an object of units"},
		{"a bad cost in a peek", limit.Query{Policy: "chat", Attributes: attributes(ada), Peek: true, HasAmount: true, Amount: -1}, "cost", "must be a whole number from 0 to 2^53"},
	}
	rules := chatRules(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := resolve(rules, tt.query)
			var invalid *limit.InvalidError
			if !errors.As(err, &invalid) {
				t.Fatalf("got %q, %v, want an InvalidError", got, err)
			}
			if invalid.Field != tt.field || invalid.Reason != tt.reason || err.Error() != "limit: "+tt.field+": "+tt.reason {
				t.Errorf("got %q: %q\nwant %q: %q", invalid.Field, invalid.Reason, tt.field, tt.reason)
			}
		})
	}
}

func TestUnknownNames(t *testing.T) {
	rules := chatRules(t)
	for _, q := range []limit.Query{{Policy: "requests"}, {Limit: "chat"}, {Policy: "none"}} {
		if _, err := resolve(rules, q); !errors.Is(err, limit.ErrUnknownPolicy) {
			t.Errorf("%+v: got %v", q, err)
		}
	}
}

// TestResolveAppends: what was there before stays, on success and on failure.
func TestResolveAppends(t *testing.T) {
	rules := chatRules(t)
	before := []limit.Charge{{Key: "before"}}
	for _, text := range []string{"user=ada", ""} {
		q := limit.Query{Limit: "requests", Attributes: attributes(text)}
		policy, err := rules.Find(&q)
		if err != nil {
			t.Fatal(err)
		}
		var keys limit.Keys
		got, err := policy.Resolve(&q, nil, &keys, before)
		keys.Name(got[len(before):])
		if want := 1 + len(q.Attributes); len(got) != want || got[0].Key != "before" || (err == nil) != (want == 2) {
			t.Errorf("%q: got %+v, %v", text, got, err)
		}
	}
}

// TestShortKeyBecomesAnAttribute: the same query may be resolved again.
func TestShortKeyBecomesAnAttribute(t *testing.T) {
	rules := chatRules(t)
	q := limit.Query{Limit: "requests", HasKey: true, Key: "ada"}
	policy, err := rules.Find(&q)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var keys limit.Keys
		charges, err := policy.Resolve(&q, nil, &keys, nil)
		keys.Name(charges)
		if err != nil || !strings.HasSuffix(charges[0].Key, ":ada}") {
			t.Fatalf("got %+v, %v", charges, err)
		}
	}
	if value, ok := q.Attributes.Get("user"); !ok || value != "ada" {
		t.Errorf("attributes %v", q.Attributes)
	}
	q.Reset()
	if q.HasKey || q.Limit != "" || len(q.Attributes) != 0 || cap(q.Attributes) == 0 {
		t.Errorf("after Reset: %+v", q)
	}
}

func TestNewRulesRefuses(t *testing.T) {
	l, m := &limit.Limit{Name: "l"}, &limit.Limit{Name: "m"}
	tests := []struct {
		name     string
		limits   []*limit.Limit
		policies []*limit.Policy
		want     string
	}{
		{"two limits of one name", []*limit.Limit{l, {Name: "l"}}, nil, `limit: two limits are named "l"`},
		{"two policies of one name", []*limit.Limit{l}, []*limit.Policy{{Name: "p", Limits: []*limit.Limit{l}}, {Name: "p", Limits: []*limit.Limit{l}}}, `limit: two policies are named "p"`},
		{"a policy of nothing", []*limit.Limit{l}, []*limit.Policy{{Name: "p"}}, `limit: policy "p" has no limit`},
		{"a limit twice", []*limit.Limit{l}, []*limit.Policy{{Name: "p", Limits: []*limit.Limit{l, l}}}, `limit: policy "p": limit "l" is there twice or is unknown`},
		{"a limit of nobody", []*limit.Limit{l}, []*limit.Policy{{Name: "p", Limits: []*limit.Limit{m}}}, `limit: policy "p": limit "m" is there twice or is unknown`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := limit.NewRules("rl", nil, tt.limits, tt.policies); text(err) != tt.want {
				t.Errorf("got %q, want %q", text(err), tt.want)
			}
		})
	}
}

func TestAllPolicies(t *testing.T) {
	var got []string
	for _, p := range chatRules(t).All() {
		got = append(got, p.Name+"/"+p.Limits[0].Name)
	}
	if want := []string{"chat/requests", "plans/models", "all/images", "/requests", "/tokens", "/images", "/models", "/plans"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestKeepZones: a calendar limit has the same settings after a reload.
func TestKeepZones(t *testing.T) {
	rules := func() *limit.Rules {
		zone, err := time.LoadLocation("Europe/Paris")
		if err != nil {
			t.Fatal(err)
		}
		settings, err := limit.NewCalendarWindow(5, limit.Day, zone)
		if err != nil {
			t.Fatal(err)
		}
		l := &limit.Limit{Name: "daily", Settings: settings, Overrides: []limit.Override{{Settings: settings}}}
		r, err := limit.NewRules("rl", nil, []*limit.Limit{l}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	former, next := rules(), rules()
	was, is := former.Limits[0], next.Limits[0]
	if is.Settings == was.Settings {
		t.Fatal("they are the same without it: nothing is tested")
	}
	next.KeepZones(former)
	if is.Settings != was.Settings || is.Overrides[0].Settings != was.Overrides[0].Settings {
		t.Error("the settings differ")
	}
}
