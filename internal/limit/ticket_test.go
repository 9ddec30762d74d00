package limit_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

const (
	ticketHome  = 77
	ticketValue = "acme-and-sons" // of an attribute, in a key
)

// ticketZones finds time zones as a sidecar's rules do: the same one for the same name.
func ticketZones(t testing.TB) func(string) (*time.Location, error) {
	known := map[string]*time.Location{}
	return func(name string) (*time.Location, error) {
		if zone, ok := known[name]; ok {
			return zone, nil
		}
		zone, err := time.LoadLocation(name)
		known[name] = zone
		return zone, err
	}
}

// everySettings returns settings of every kind that a ticket may carry.
func everySettings(t testing.TB, zone func(string) (*time.Location, error)) []limit.Settings {
	t.Helper()
	must := func(s limit.Settings, err error) limit.Settings {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	rate := limit.Rate{Tokens: 7, Micros: 3_000_000}
	discrete, err := limit.NewDiscreteBucket(10, 100_000, 200, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := []limit.Settings{
		*bucketOf(t, limit.TokenBucketAlgorithm, 7, 30), *bucketOf(t, limit.LeakyBucketAlgorithm, 7, 1),
		{Algorithm: limit.TokenBucketAlgorithm, Bucket: discrete},
		must(limit.NewLeakyBucketLog(rate, 40)), must(limit.NewSlidingWindowLog(50, 60_000_000)),
		must(limit.NewSlidingWindow(1<<40, 3_600_000_000)), must(limit.NewFixedWindow(limit.MaxNumber, 1)),
		*slots(t, 3, 3_600_000_000),
		must(bucketOf(t, limit.TokenBucketAlgorithm, 7, 30).Leased(100_000)),
		must(must(limit.NewFixedWindow(50, 60_000_000)).Leased(3_600_000_000)),
	}
	for i, name := range []string{"UTC", "Europe/Paris", "Asia/Kathmandu"} {
		location, err := zone(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, must(limit.NewCalendarWindow(60, limit.Period(i+1), location)))
	}
	return all
}

// ticketWith returns a ticket with one charge for each of the settings.
func ticketWith(settings []limit.Settings) *limit.Ticket {
	t := &limit.Ticket{ID: "K4VQX6YB2ZJ5N7T3PDAWSRCMEH", Expires: vectorStart + 3_600_000_000, Policy: "chat"}
	for i := range settings {
		l := &limit.Limit{Name: "per-tenant", Unit: "tokens", Shadow: i%2 == 1, Settings: settings[i]}
		if i%3 == 1 {
			l.State = limit.StringState
		}
		t.Charges = append(t.Charges, limit.Charge{
			Limit: l, Settings: &settings[i], Key: "rl:{per-tenant~0a1b2c:" + ticketValue + "}", Cost: int64(i) * 1000,
		})
		t.Marks = append(t.Marks, vectorStart-int64(i))
	}
	return t
}

func open(text string, zone func(string) (*time.Location, error), secrets ...limit.Secret) (*limit.Ticket, error) {
	return limit.OpenTicket(text, secrets, ticketHome, zone)
}

// TestTicketsComeBackWhole: what is sealed comes out as it went in, for every algorithm, by itself and
// with all others, under a former secret too, and home again.
func TestTicketsComeBackWhole(t *testing.T) {
	secret, former := limit.Secret("the secret of all sidecars......"), limit.Secret("the one before..................")
	zone := ticketZones(t)
	all := everySettings(t, zone)
	for i := range all {
		one := ticketWith(all[i : i+1])
		one.Home = ticketHome * uint64(i%2)
		got, err := open(one.Seal(secret), zone, secret, former)
		if err != nil || !reflect.DeepEqual(got, one) {
			t.Errorf("%s: got %+v, %v, want %+v", all[i].Algorithm, got, err, one)
		}
		if got != nil && *got.Charges[0].Settings != all[i] {
			t.Errorf("%s: settings %+v, want equal ones: %+v", all[i].Algorithm, *got.Charges[0].Settings, all[i])
		}
	}
	whole := ticketWith(all)
	whole.Policy = ""
	for _, secrets := range [][]limit.Secret{{secret}, {former, secret}, {nil, secret}} {
		if got, err := open(whole.Seal(secret), zone, secrets...); err != nil || !reflect.DeepEqual(got, whole) {
			t.Errorf("got %+v, %v, want %+v", got, err, whole)
		}
	}
	if got, err := open((&limit.Ticket{ID: "none"}).Seal(secret), zone, secret); err != nil || got.ID != "none" || len(got.Charges) > 0 {
		t.Errorf("a ticket that charged nothing: %+v, %v", got, err)
	}
}

// TestForgedTickets: no other secret, no flipped bit, no piece of a ticket and no other text opens.
func TestForgedTickets(t *testing.T) {
	secret, zone := limit.Secret("the secret of all sidecars......"), ticketZones(t)
	ticket := ticketWith(everySettings(t, zone))
	sealed := ticket.Seal(secret)
	refused := func(name, text string, secrets ...limit.Secret) {
		t.Helper()
		if _, err := open(text, zone, secrets...); !errors.Is(err, limit.ErrForged) {
			t.Errorf("%s: error %v, want ErrForged", name, err)
		}
	}
	refused("another secret", sealed, limit.Secret("another secret.................."))
	refused("no secret", sealed)
	refused("an unknown secret", sealed, nil)
	for _, text := range []string{"", "x", "not base64!", strings.Repeat("A", 200), sealed + "=", sealed + "A", sealed + "\n", "\r" + sealed, sealed + sealed, "A" + sealed} {
		refused("other text", text, secret)
	}
	for n := range len(sealed) {
		refused("a cut ticket", sealed[:n], secret)
		for _, c := range []byte("A_b-0") {
			if sealed[n] != c {
				refused("another letter", sealed[:n]+string(c)+sealed[n+1:], secret)
			}
		}
	}
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(raw) * 8 {
		flipped := bytes.Clone(raw)
		flipped[n/8] ^= 1 << (n % 8)
		refused("a flipped bit", base64.RawURLEncoding.EncodeToString(flipped), secret)
	}
	strange := func(string) (*time.Location, error) { return nil, errors.New("no such zone") }
	if _, err := open(sealed, strange, secret); !errors.Is(err, limit.ErrForged) {
		t.Errorf("a time zone that is not known here: error %v, want ErrForged", err)
	}
}

// TestTicketsOfAnotherProcess: what was charged to another process's memory can no longer be settled,
// whether or not its secret is known.
func TestTicketsOfAnotherProcess(t *testing.T) {
	secret, zone := limit.Secret("the secret of all sidecars......"), ticketZones(t)
	ticket := ticketWith(everySettings(t, zone)[:1])
	ticket.Home = ticketHome + 1
	for _, secrets := range [][]limit.Secret{{secret}, nil} {
		if _, err := open(ticket.Seal(secret), zone, secrets...); !errors.Is(err, limit.ErrExpired) {
			t.Errorf("error %v, want ErrExpired", err)
		}
	}
}

// TestTicketsShowNothing: a sealed ticket holds no key, name or value in clear, and two of one
// decision are not alike.
func TestTicketsShowNothing(t *testing.T) {
	secret, zone := limit.Secret("the secret of all sidecars......"), ticketZones(t)
	ticket := ticketWith(everySettings(t, zone))
	first, second := ticket.Seal(secret), ticket.Seal(secret)
	raw, err := base64.RawURLEncoding.DecodeString(first)
	if err != nil {
		t.Fatal(err)
	}
	for _, plain := range []string{ticketValue, "per-tenant", "chat", "tokens", "rl:", "Europe"} {
		if strings.Contains(first, plain) || bytes.Contains(raw, []byte(plain)) {
			t.Errorf("the sealed ticket shows %q", plain)
		}
	}
	same := 0
	for i := range min(len(first), len(second)) {
		if first[i] == second[i] {
			same++
		}
	}
	if first == second || same > len(first)/4 {
		t.Errorf("%d of %d letters of two seals are the same", same, len(first))
	}
}

// TestActual: what each charge costs in the end, by what the client says it has used.
func TestActual(t *testing.T) {
	charge := func(unit string, s *limit.Settings, cost int64) limit.Charge {
		return limit.Charge{Limit: &limit.Limit{Name: unit, Unit: unit, Settings: *s}, Settings: s, Cost: cost}
	}
	bucket := bucketOf(t, limit.TokenBucketAlgorithm, 1, 10)
	policy := []limit.Charge{
		charge("requests", bucket, 1), charge("tokens", bucket, 1200), charge("requests", slots(t, 3, 1000), 1),
		charge("tokens", bucket, 500), charge("requests", slots(t, 3, 1000), 0),
	}
	single := policy[1:2]
	tests := []struct {
		name    string
		policy  string
		charges []limit.Charge
		costs   []limit.UnitCost
		amount  int64
		has     bool
		want    []int64
		field   string // of the error
	}{
		{"nothing said", "chat", policy, nil, 0, false, []int64{1, 1200, 0, 500, 0}, ""},
		{"one unit, in all its limits", "chat", policy, []limit.UnitCost{{Unit: "tokens", Amount: 843}}, 0, false, []int64{1, 843, 0, 843, 0}, ""},
		{"nothing used", "chat", policy, []limit.UnitCost{{Unit: "tokens"}, {Unit: "requests"}}, 0, false, []int64{0, 0, 0, 0, 0}, ""},
		{"a number in a policy is requests", "chat", policy, nil, 3, true, []int64{3, 1200, 0, 500, 0}, ""},
		{"a number for a limit is its unit's", "", single, nil, 3, true, []int64{3}, ""},
		{"a slot is freed whatever it cost", "", policy[2:3], nil, 1, true, []int64{0}, ""},
		{"requests is always known", "", single, []limit.UnitCost{{Unit: "requests", Amount: 9}}, 0, false, []int64{1200}, ""},
		{"an unknown unit", "chat", policy, []limit.UnitCost{{Unit: "bytes", Amount: 9}}, 0, false, nil, "cost.bytes"},
		{"a negative cost", "chat", policy, []limit.UnitCost{{Unit: "tokens", Amount: -1}}, 0, false, nil, "cost.tokens"},
		{"a negative number", "chat", policy, nil, -1, true, nil, "cost"},
		{"above 2^53", "chat", policy, []limit.UnitCost{{Unit: "tokens", Amount: limit.MaxNumber + 1}}, 0, false, nil, "cost.tokens"},
		{"both forms", "chat", policy, []limit.UnitCost{{Unit: "tokens", Amount: 1}}, 1, true, nil, "cost"},
		{"no charge", "chat", nil, nil, 5, true, []int64{}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ticket := &limit.Ticket{Policy: tt.policy, Charges: tt.charges}
			got, err := ticket.Actual(tt.costs, tt.amount, tt.has)
			var invalid *limit.InvalidError
			if tt.field != "" {
				if !errors.As(err, &invalid) || invalid.Field != tt.field {
					t.Errorf("error %v, want one of the field %s", err, tt.field)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %v, %v, want %v", got, err, tt.want)
			}
		})
	}
}

// FuzzOpenTicket: no text opens but one that says what was sealed, and what opens is sealed and opened
// again alike.
func FuzzOpenTicket(f *testing.F) {
	secret, zone := limit.Secret("the secret of all sidecars......"), ticketZones(f)
	all := everySettings(f, zone)
	var known []*limit.Ticket
	for i := range all {
		ticket := ticketWith(all[i : i+1])
		known = append(known, ticket)
		sealed := ticket.Seal(secret)
		f.Add(sealed)
		f.Add(sealed[:len(sealed)/2])
	}
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		ticket, err := open(text, zone, secret)
		switch {
		case err == nil:
			if !slices.ContainsFunc(known, func(k *limit.Ticket) bool { return reflect.DeepEqual(k, ticket) }) {
				t.Errorf("%q opens: %+v", text, ticket)
			}
			again, err := open(ticket.Seal(secret), zone, secret)
			if err != nil || !reflect.DeepEqual(again, ticket) {
				t.Errorf("sealed again: %+v, %v, want %+v", again, err, ticket)
			}
		case !errors.Is(err, limit.ErrForged) && !errors.Is(err, limit.ErrExpired):
			t.Errorf("error %v", err)
		}
	})
}
