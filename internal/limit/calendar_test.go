package limit_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

func zoneOf(t testing.TB, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

func calendar(t testing.TB, period limit.Period, zone string) *limit.Window {
	t.Helper()
	s, err := limit.NewCalendarWindow(1, period, zoneOf(t, zone))
	if err != nil {
		t.Fatal(err)
	}
	return &s.Window
}

func micros(t testing.TB, text string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixMicro()
}

// TestBoundaries names days, weeks and months by the instants at which they begin.
func TestBoundaries(t *testing.T) {
	tests := []struct {
		name, zone string
		period     limit.Period
		want       []string // boundaries in a row, at least four
	}{
		{"a day of 25 hours, Europe", "Europe/Paris", limit.Day, []string{
			"2025-10-25T00:00:00+02:00", "2025-10-26T00:00:00+02:00", "2025-10-27T00:00:00+01:00", "2025-10-28T00:00:00+01:00"}},
		{"a day of 23 hours, Europe", "Europe/Paris", limit.Day, []string{
			"2025-03-29T00:00:00+01:00", "2025-03-30T00:00:00+01:00", "2025-03-31T00:00:00+02:00", "2025-04-01T00:00:00+02:00"}},
		{"a day of 25 hours, United States", "America/New_York", limit.Day, []string{
			"2025-11-01T00:00:00-04:00", "2025-11-02T00:00:00-04:00", "2025-11-03T00:00:00-05:00", "2025-11-04T00:00:00-05:00"}},
		{"a day of 23 hours, United States", "America/New_York", limit.Day, []string{
			"2025-03-08T00:00:00-05:00", "2025-03-09T00:00:00-05:00", "2025-03-10T00:00:00-04:00", "2025-03-11T00:00:00-04:00"}},
		{"a week with a change", "Europe/Paris", limit.Week, []string{
			"2025-10-13T00:00:00+02:00", "2025-10-20T00:00:00+02:00", "2025-10-27T00:00:00+01:00", "2025-11-03T00:00:00+01:00"}},
		{"a week over New Year", "UTC", limit.Week, []string{
			"2024-12-23T00:00:00Z", "2024-12-30T00:00:00Z", "2025-01-06T00:00:00Z", "2025-01-13T00:00:00Z"}},
		{"months end as they do", "UTC", limit.Month, []string{
			"2025-12-01T00:00:00Z", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z",
			"2026-04-01T00:00:00Z", "2026-05-01T00:00:00Z", "2026-06-01T00:00:00Z", "2026-07-01T00:00:00Z"}},
		{"February of a leap year", "UTC", limit.Month, []string{
			"2028-01-01T00:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z", "2028-04-01T00:00:00Z"}},
		{"29 February", "UTC", limit.Day, []string{
			"2028-02-27T00:00:00Z", "2028-02-28T00:00:00Z", "2028-02-29T00:00:00Z", "2028-03-01T00:00:00Z", "2028-03-02T00:00:00Z"}},
		{"the last day of a leap year, by rule", "Europe/Paris", limit.Day, []string{
			"2068-12-29T00:00:00+01:00", "2068-12-30T00:00:00+01:00", "2068-12-31T00:00:00+01:00", "2069-01-01T00:00:00+01:00", "2069-01-02T00:00:00+01:00"}},
		{"a quarter of an hour off", "Asia/Kathmandu", limit.Day, []string{
			"2026-05-30T18:15:00Z", "2026-05-31T18:15:00Z", "2026-06-01T18:15:00Z", "2026-06-02T18:15:00Z"}},
		{"eight hours before UTC's", "Asia/Shanghai", limit.Day, []string{
			"2026-05-30T16:00:00Z", "2026-05-31T16:00:00Z", "2026-06-01T16:00:00Z", "2026-06-02T16:00:00Z"}},
		{"midnight is skipped, Brazil", "America/Sao_Paulo", limit.Day, []string{
			"2018-11-03T00:00:00-03:00", "2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00", "2018-11-06T00:00:00-02:00"}},
		{"the last hour comes twice, Brazil", "America/Sao_Paulo", limit.Day, []string{
			"2018-02-17T00:00:00-02:00", "2018-02-18T00:00:00-03:00", "2018-02-19T00:00:00-03:00", "2018-02-20T00:00:00-03:00"}},
		{"midnight is skipped, Egypt", "Africa/Cairo", limit.Day, []string{
			"2024-04-25T00:00:00+02:00", "2024-04-26T01:00:00+03:00", "2024-04-27T00:00:00+03:00", "2024-04-28T00:00:00+03:00"}},
		{"the last hour comes twice, Egypt", "Africa/Cairo", limit.Day, []string{
			"2024-10-31T00:00:00+03:00", "2024-11-01T00:00:00+02:00", "2024-11-02T00:00:00+02:00", "2024-11-03T00:00:00+02:00"}},
		{"midnight is skipped, Lebanon", "Asia/Beirut", limit.Day, []string{
			"2024-03-30T00:00:00+02:00", "2024-03-31T01:00:00+03:00", "2024-04-01T00:00:00+03:00", "2024-04-02T00:00:00+03:00"}},
		{"midnight is skipped, Cuba", "America/Havana", limit.Day, []string{
			"2025-03-08T00:00:00-05:00", "2025-03-09T01:00:00-04:00", "2025-03-10T00:00:00-04:00", "2025-03-11T00:00:00-04:00"}},
		{"midnight comes twice, Cuba", "America/Havana", limit.Day, []string{
			"2025-11-01T00:00:00-04:00", "2025-11-02T00:00:00-04:00", "2025-11-03T00:00:00-05:00", "2025-11-04T00:00:00-05:00"}},
		{"the date before comes back for an hour, Newfoundland", "America/St_Johns", limit.Day, []string{
			"2006-10-28T00:00:00-02:30", "2006-10-29T00:00:00-02:30", "2006-10-30T00:00:00-03:30", "2006-10-31T00:00:00-03:30"}},
		{"a month that begins in an hour that comes back", "America/St_Johns", limit.Month, []string{
			"1987-09-01T00:00:00-02:30", "1987-10-01T00:00:00-02:30", "1987-11-01T00:00:00-03:30", "1987-12-01T00:00:00-03:30"}},
		{"midnight is left in its first minute, Newfoundland", "America/St_Johns", limit.Day, []string{
			"2006-04-01T00:00:00-03:30", "2006-04-02T00:00:00-03:30", "2006-04-03T00:00:00-02:30", "2006-04-04T00:00:00-02:30"}},
		{"a date is missing, Samoa", "Pacific/Apia", limit.Day, []string{
			"2011-12-28T00:00:00-10:00", "2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00", "2012-01-02T00:00:00+14:00"}},
		{"a week of six days, Samoa", "Pacific/Apia", limit.Week, []string{
			"2011-12-19T00:00:00-10:00", "2011-12-26T00:00:00-10:00", "2012-01-02T00:00:00+14:00", "2012-01-09T00:00:00+14:00"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := calendar(t, test.period, test.zone)
			var want []int64
			for _, text := range test.want {
				want = append(want, micros(t, text))
			}
			for i := 1; i+2 < len(want); i++ {
				for _, now := range []int64{want[i], want[i] + 1, (want[i] + want[i+1]) / 2, want[i+1] - 1} {
					got := w.Boundaries(now)
					if !slices.Equal(got[:], want[i-1:i+3]) {
						t.Errorf("at %s: got %s, want %s", stamp(w, now), stamp(w, got[:]...), stamp(w, want[i-1:i+3]...))
					}
				}
			}
		})
	}
}

func stamp(w *limit.Window, times ...int64) []string {
	var all []string
	for _, at := range times {
		all = append(all, time.UnixMicro(at).In(w.Zone).Format(time.RFC3339Nano))
	}
	return all
}

// TestEveryInstantIsInOnePeriod goes through days on which the clocks are set, a minute at a time: the
// current period changes only at its end, and never comes back.
func TestEveryInstantIsInOnePeriod(t *testing.T) {
	for zone, days := range map[string][]string{
		"America/St_Johns":  {"2006-10-29T03:00:00Z", "2006-04-02T03:00:00Z"},
		"America/Havana":    {"2025-11-02T04:00:00Z"},
		"America/Sao_Paulo": {"2018-02-18T02:00:00Z", "2018-11-04T03:00:00Z"},
		"Pacific/Apia":      {"2011-12-30T10:00:00Z"},
	} {
		w := calendar(t, limit.Day, zone)
		for _, around := range days {
			middle := micros(t, around)
			current := w.Boundaries(middle - 40*3_600_000_000)
			for now := middle - 40*3_600_000_000; now < middle+40*3_600_000_000; now += 60_000_000 {
				got := w.Boundaries(now)
				if now >= current[2] {
					current = [4]int64{current[1], current[2], current[3], got[3]}
				}
				if got != current {
					t.Fatalf("at %s: got %s, want %s", stamp(w, now), stamp(w, got[:]...), stamp(w, current[:]...))
				}
			}
		}
	}
}

// begins finds out when the period that begins with a date does, by looking at the clocks a minute at a
// time and then a second.
func begins(zone *time.Location, date time.Time) int64 {
	shown := func(at int64) bool {
		t := time.Unix(at, 0).In(zone)
		return !time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC).Before(date)
	}
	at := date.Unix() - 30*3600
	for !shown(at) {
		at += 60
	}
	for shown(at - 1) {
		at--
	}
	return at * 1_000_000
}

// scan is Boundaries done slowly: it finds the begin of every date around now.
func scan(w *limit.Window, now int64) [4]int64 {
	year, month, day := time.UnixMicro(now).In(w.Zone).Date()
	var all []int64
	for n := -70; n < 70; n++ {
		date := time.Date(year, month, day+n, 0, 0, 0, 0, time.UTC)
		near := n >= -4 && n <= 4
		if w.Period == limit.Day && !near || w.Period == limit.Week && (date.Weekday() != time.Monday || n < -22 || n > 22) ||
			w.Period == limit.Month && date.Day() != 1 {
			continue
		}
		if at := begins(w.Zone, date); len(all) == 0 || at > all[len(all)-1] {
			all = append(all, at)
		}
	}
	next, _ := slices.BinarySearch(all, now+1)
	return [4]int64(all[next-2 : next+2])
}

// zones are of all kinds: every sort of change, now or in the past.
var zones = []string{
	"UTC", "Europe/Paris", "America/New_York", "Asia/Kathmandu", "Asia/Shanghai", "America/Sao_Paulo", "Africa/Cairo",
	"Asia/Beirut", "America/Havana", "America/St_Johns", "Pacific/Apia", "Australia/Lord_Howe", "Australia/Sydney",
	"Africa/Casablanca", "America/Nuuk", "Asia/Gaza", "Asia/Tehran", "Pacific/Kwajalein", "Pacific/Kiritimati",
	"Antarctica/Troll", "Antarctica/Casey", "America/Asuncion", "Europe/Dublin", "Asia/Pyongyang", "America/Caracas",
	"Africa/Monrovia", "Europe/Lisbon", "America/Santiago", "Pacific/Chatham", "Asia/Amman", "America/Scoresbysund",
	"Africa/El_Aaiun", "Asia/Manila", "Pacific/Fakaofo", "Etc/GMT+12", "Pacific/Pago_Pago",
}

// TestBoundariesAgreeWithTheClocks compares Boundaries with what the clocks show, over random zones and
// times, most of them near a change of the clocks.
func TestBoundariesAgreeWithTheClocks(t *testing.T) {
	first, last := micros(t, "1970-01-01T00:00:00Z"), micros(t, "2100-12-31T00:00:00Z")
	rng := rand.New(rand.NewPCG(1, 2))
	for range traces(3000) {
		w := calendar(t, limit.Period(1+rng.IntN(3)), zones[rng.IntN(len(zones))])
		now := first + rng.Int64N(last-first)
		if _, end := time.UnixMicro(now).In(w.Zone).ZoneBounds(); !end.IsZero() && rng.IntN(4) > 0 {
			now = end.UnixMicro() + rng.Int64N(4*86_400_000_000) - 2*86_400_000_000
		}
		got, want := w.Boundaries(now), scan(w, now)
		if got != want || !slices.IsSorted(got[:]) || now < got[1] || now >= got[2] {
			t.Fatalf("%s of %s at %s: got %s, want %s", w.Period, w.Zone, stamp(w, now), stamp(w, got[:]...), stamp(w, want[:]...))
		}
	}
}

func BenchmarkBoundaries(b *testing.B) {
	for _, zone := range []string{"UTC", "Asia/Shanghai", "Europe/Paris"} {
		for _, period := range []limit.Period{limit.Day, limit.Week, limit.Month} {
			b.Run(zone+"/"+period.String(), func(b *testing.B) {
				w, now := calendar(b, period, zone), int64(vectorStart)
				for b.Loop() {
					now += 1_000_000
					w.Boundaries(now)
				}
			})
		}
	}
}
