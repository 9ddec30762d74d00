package limit_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

// keyed returns rules of one limit named "l" that is keyed by the given attributes.
func keyed(t testing.TB, hashed []string, key, colocate []string) *limit.Rules {
	t.Helper()
	l := &limit.Limit{
		Name: "l", Unit: limit.RequestsUnit, DefaultCost: 1,
		Key: key, Colocate: colocate, Settings: limit.Settings{Algorithm: limit.TokenBucketAlgorithm},
	}
	rules, err := limit.NewRules("rl", hashed, []*limit.Limit{l}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// keyOf returns the key of the state that values, for the attributes of the limit's key in order,
// are counted in.
func keyOf(t testing.TB, rules *limit.Rules, values ...string) string {
	t.Helper()
	q := limit.Query{Limit: "l"}
	for i, name := range rules.Limits[0].Key {
		q.Attributes = append(q.Attributes, limit.Attribute{Name: name, Value: values[i]})
	}
	policy, err := rules.Find(&q)
	if err != nil {
		t.Fatal(err)
	}
	var keys limit.Keys
	charges, err := policy.Resolve(&q, limit.Secret("secret"), &keys, nil)
	keys.Name(charges)
	if err != nil {
		t.Fatal(err)
	}
	return charges[0].Key
}

// By sha256sum: the first 6 digits over the algorithm, the form and the key's attributes, one a
// line, and the first 32 over values of more than 200 bytes. The last is an HMAC by Python.
const (
	stateOfAll      = "ce06b0"
	stateOfUser     = "b6e9f7"
	stateOfBoth     = "932996"
	sumOfAs         = "a92efd82109373e58f9a2056dee01e80" // a × 201
	sumOfNULs       = "f4e0b600889dc5461dab5be680bd8446" // %00 × 67
	sumOfAcmeAndUs  = "b00bad9bb097d455644219622fdde7d8" // acme: and u × 196
	hashOfUserIsU42 = "750b971c3ac25c3bdf0d63dc60a65698"
)

func TestStateKeyLayout(t *testing.T) {
	user, both := []string{"user"}, []string{"tenant", "user"}
	as, us := strings.Repeat("a", 201), strings.Repeat("u", 196)
	tests := []struct {
		name          string
		hashed        []string
		key, colocate []string
		values        []string
		want          string
	}{
		{"one bucket for all", nil, nil, nil, nil, "rl:{l~" + stateOfAll + ":}"},
		{"plain", nil, user, nil, []string{"u42"}, "rl:{l~" + stateOfUser + ":u42}"},
		{"every plain byte", nil, user, nil, []string{"azAZ09._-"}, "rl:{l~" + stateOfUser + ":azAZ09._-}"},
		{"escaped", nil, user, nil, []string{"a:b{c}d%e/f g~h*"}, "rl:{l~" + stateOfUser + ":a%3Ab%7Bc%7Dd%25e%2Ff%20g%7Eh%2A}"},
		{"line ends, NUL and 0xFF", nil, user, nil, []string{"\r\n\x00\xff"}, "rl:{l~" + stateOfUser + ":%0D%0A%00%FF}"},
		{"not ASCII", nil, user, nil, []string{"Å🙂"}, "rl:{l~" + stateOfUser + ":%C3%85%F0%9F%99%82}"},
		{"two values", nil, both, nil, []string{"acme", "u42"}, "rl:{l~" + stateOfBoth + ":acme:u42}"},
		{"a colon is no border", nil, both, nil, []string{"acme:u", "42"}, "rl:{l~" + stateOfBoth + ":acme%3Au:42}"},
		{"colocated", nil, both, []string{"tenant"}, []string{"acme", "u42"}, "rl:{acme}:l~" + stateOfBoth + ":acme:u42"},
		{"colocated by the second", nil, both, user, []string{"acme", "u}42"}, "rl:{u%7D42}:l~" + stateOfBoth + ":acme:u%7D42"},
		{"colocated by all", nil, both, both, []string{"acme", "u42"}, "rl:{acme:u42}:l~" + stateOfBoth + ":acme:u42"},
		{"200 bytes", nil, user, nil, []string{as[1:]}, "rl:{l~" + stateOfUser + ":" + as[1:] + "}"},
		{"201 bytes", nil, user, nil, []string{as}, "rl:{l~" + stateOfUser + ":" + sumOfAs + "}"},
		{"201 bytes once escaped", nil, user, nil, []string{strings.Repeat("\x00", 67)}, "rl:{l~" + stateOfUser + ":" + sumOfNULs + "}"},
		{"201 bytes together", nil, both, nil, []string{"acme", us}, "rl:{l~" + stateOfBoth + ":" + sumOfAcmeAndUs + "}"},
		{"a short tag of long values", nil, both, []string{"tenant"}, []string{"acme", us}, "rl:{acme}:l~" + stateOfBoth + ":" + sumOfAcmeAndUs},
		{"a long tag", nil, user, user, []string{as}, "rl:{" + sumOfAs + "}:l~" + stateOfUser + ":" + sumOfAs},
		{"hashed", user, user, nil, []string{"u42"}, "rl:{l~" + stateOfUser + ":" + hashOfUserIsU42 + "}"},
		{"hashed, the other not", user, both, user, []string{"acme", "u42"}, "rl:{" + hashOfUserIsU42 + "}:l~" + stateOfBoth + ":acme:" + hashOfUserIsU42},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := keyOf(t, keyed(t, tt.hashed, tt.key, tt.colocate), tt.values...); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestValuesAreByteExact: what differs in one byte is counted apart, in length, case, space or
// Unicode form.
func TestValuesAreByteExact(t *testing.T) {
	long := strings.Repeat("x", 999)
	values := []string{
		"User", "user", " user", "user ", "Å", "å", "A\u030a", "a\u030a", "Admin@", "ADMIN@",
		long + "1", long + "2", "1" + long, "%41", "A", "%2541", "a:b", "a%3Ab", "127.0.0.1", "127.0.0.1\x00",
	}
	rules := keyed(t, nil, []string{"user"}, nil)
	seen := map[string]string{}
	for _, value := range values {
		key := keyOf(t, rules, value)
		if other, ok := seen[key]; ok {
			t.Errorf("%q and %q share the key %s", value, other, key)
		}
		seen[key] = value
	}
}

// TestWhatBeginsAState: limits are counted apart by name, algorithm, form and key attributes;
// neither settings nor conditions begin afresh.
func TestWhatBeginsAState(t *testing.T) {
	base := limit.Limit{Name: "l", Unit: limit.RequestsUnit, Key: []string{"user"}}
	key := func(prefix string, change func(*limit.Limit)) string {
		l := base
		change(&l)
		rules, err := limit.NewRules(prefix, nil, []*limit.Limit{&l}, nil)
		if err != nil {
			t.Fatal(err)
		}
		q := limit.Query{Limit: l.Name, Attributes: limit.Attributes{{Name: "user", Value: "u"}, {Name: "tenant", Value: "u"}}}
		policy, err := rules.Find(&q)
		if err != nil {
			t.Fatal(err)
		}
		charge, err := policy.Address(&q, nil)
		if err != nil {
			t.Fatal(err)
		}
		return charge.Key
	}
	was := key("rl", func(*limit.Limit) {})
	tests := []struct {
		name, prefix string
		change       func(*limit.Limit)
		same         bool
	}{
		{"name", "rl", func(l *limit.Limit) { l.Name = "m" }, false},
		{"prefix", "tg", func(*limit.Limit) {}, false},
		{"algorithm", "rl", func(l *limit.Limit) { l.Settings.Algorithm++ }, false},
		{"form", "rl", func(l *limit.Limit) { l.State = limit.StringState }, false},
		{"key", "rl", func(l *limit.Limit) { l.Key = []string{"tenant"} }, false},
		{"settings", "rl", func(l *limit.Limit) { l.Settings.Bucket.Burst = 7 }, true},
		{"unit", "rl", func(l *limit.Limit) { l.Unit, l.DefaultCost = "tokens", 5 }, true},
		{"shadow", "rl", func(l *limit.Limit) { l.Shadow = true }, true},
		{"when", "rl", func(l *limit.Limit) { l.When = []limit.Match{{Attribute: "tenant", Pattern: "never"}} }, true},
		{"overrides", "rl", func(l *limit.Limit) { l.Overrides = []limit.Override{{Exempt: true}} }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := key(tt.prefix, tt.change); (got == was) != tt.same {
				t.Errorf("%s beside %s", got, was)
			}
		})
	}
}

func TestAddressNeedsTheKey(t *testing.T) {
	rules := keyed(t, []string{"tenant"}, []string{"tenant", "user"}, nil)
	for _, attributes := range []limit.Attributes{nil, {{Name: "tenant", Value: "acme"}}, {{Name: "tenant", Value: "acme"}, {Name: "user"}}} {
		q := limit.Query{Limit: "l", Attributes: attributes}
		policy, err := rules.Find(&q)
		if err != nil {
			t.Fatal(err)
		}
		want := "limit: attributes.user: missing or empty; limit \"l\" needs it"
		if len(attributes) == 0 {
			want = "limit: attributes.tenant: missing or empty; limit \"l\" needs it"
		}
		if _, err := policy.Address(&q, nil); text(err) != want {
			t.Errorf("%v: got %q, want %q", attributes, text(err), want)
		}
	}
	q := limit.Query{Limit: "l", Attributes: limit.Attributes{{Name: "user", Value: "u"}, {Name: "tenant", Value: "t"}}}
	policy, err := rules.Find(&q)
	if err != nil {
		t.Fatal(err)
	}
	charge, err := policy.Address(&q, limit.Secret("secret"))
	if want := keyOf(t, rules, "t", "u"); err != nil || charge.Key != want || charge.Cost != 0 || charge.Limit != rules.Limits[0] {
		t.Errorf("got %+v, %v, want the key %s", charge, err, want)
	}
}

func TestSecretHash(t *testing.T) {
	secret := limit.Secret("secret")
	if got := secret.Hash("user", "u42"); got != hashOfUserIsU42 {
		t.Errorf("got %s, want %s", got, hashOfUserIsU42)
	}
	for _, other := range []string{secret.Hash("tenant", "u42"), secret.Hash("user", "u43"), secret.Hash("user\x00u", "42"), limit.Secret("other").Hash("user", "u42")} {
		if other == hashOfUserIsU42 {
			t.Errorf("%s is the hash of something else too", other)
		}
	}
}

// FuzzStateKey: two lists of values never have one key, and a key's braces are its tag's alone.
func FuzzStateKey(f *testing.F) {
	f.Add("acme", "u42", "acme:u", "42")
	f.Add("a", "b}:l", "a}", ":b")
	f.Add("%41", "x", "A", "x")
	f.Add(strings.Repeat("y", 150), strings.Repeat("z", 60), strings.Repeat("y", 151), strings.Repeat("z", 59))
	both := []string{"tenant", "user"}
	const part = `[A-Za-z0-9._%-]+(:[A-Za-z0-9._%-]+)?`
	whole := regexp.MustCompile(`^rl:\{l~[0-9a-f]{6}:` + part + `\}$`)
	tagged := regexp.MustCompile(`^rl:\{` + part + `\}:l~[0-9a-f]{6}:` + part + `$`)
	layouts := []struct {
		rules  *limit.Rules
		layout *regexp.Regexp
	}{
		{keyed(f, nil, both, nil), whole},
		{keyed(f, nil, both, []string{"tenant"}), tagged},
		{keyed(f, nil, both, both), tagged},
		{keyed(f, []string{"user"}, both, nil), whole},
	}
	f.Fuzz(func(t *testing.T, tenant1, user1, tenant2, user2 string) {
		if tenant1 == "" || user1 == "" || tenant2 == "" || user2 == "" {
			return // refused before a key is made
		}
		for _, l := range layouts {
			key1, key2 := keyOf(t, l.rules, tenant1, user1), keyOf(t, l.rules, tenant2, user2)
			if (key1 == key2) != (tenant1 == tenant2 && user1 == user2) {
				t.Errorf("%q, %q has the key %s; %q, %q has %s", tenant1, user1, key1, tenant2, user2, key2)
			}
			for _, key := range []string{key1, key2} {
				if !l.layout.MatchString(key) || len(key) > 450 {
					t.Errorf("the key %s does not match %s, or is too long", key, l.layout)
				}
			}
		}
	})
}
