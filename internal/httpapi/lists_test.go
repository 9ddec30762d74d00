package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// The status lists who holds slots and what waits: ages rounded down, waits up, and always an array
// for these two algorithms when the state is known.
func TestStatusLists(t *testing.T) {
	slots, err := limit.NewConcurrency(5, time.Hour.Microseconds())
	if err != nil {
		t.Fatal(err)
	}
	log, err := limit.NewLeakyBucketLog(limit.Rate{Tokens: 1, Micros: 1_000_000}, 5)
	if err != nil {
		t.Fatal(err)
	}
	listed := []limit.Listed{{Cost: 3, Age: 1999, Due: 1001}, {Cost: 1, Age: 0, Due: 0}, {Cost: 2, Age: -1, Due: -1}}
	const (
		holders = `,"holders":[{"age_ms":1,"expires_in_ms":2},{"age_ms":0,"expires_in_ms":0},{"age_ms":0,"expires_in_ms":0}]`
		waiting = `,"waiting":[{"cost":3,"due_in_ms":2},{"cost":1,"due_in_ms":0},{"cost":2,"due_in_ms":0}]`
	)
	tests := []struct {
		name     string
		settings *limit.Settings
		lists    [][]limit.Listed
		known    bool
		want     string
	}{
		{"slots", &slots, [][]limit.Listed{listed}, true, holders},
		{"a log", &log, [][]limit.Listed{listed}, true, waiting},
		{"no slot is held", &slots, [][]limit.Listed{nil}, true, `,"holders":[]`},
		{"nothing waits", &log, [][]limit.Listed{nil}, true, `,"waiting":[]`},
		{"another algorithm", nil, [][]limit.Listed{nil}, true, ``},
		{"an unknown state", &slots, [][]limit.Listed{nil}, false, ``},
		{"no lists", &slots, nil, true, ``},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, nil)
			s.store.change = func(d *limit.Decision) {
				if d.Lists = tt.lists; tt.settings != nil {
					d.Verdicts[0].Settings = tt.settings
				}
				d.Verdicts[0].Known, d.Ticket = tt.known, "a ticket that nobody asked for"
			}
			got := s.do(t, "GET", "/v1/status?limit=per-user&user=u", "")
			_, rest, _ := strings.Cut(got.body, `"limits":[{`)
			if tt.known {
				_, rest, _ = strings.Cut(rest, `"reset_after_ms":0`)
			} else {
				_, rest, _ = strings.Cut(rest, `"limit":5`)
			}
			if got.status != 200 || rest != tt.want+`}]}` || strings.Contains(got.body, "ticket") {
				t.Errorf("got %s\nwant at the end %s", got, tt.want)
			}
		})
	}
}

// The status of slots that are held, from the store itself; it gives no ticket, and neither takes a
// slot nor lists anything in the answer of a check.
func TestStatusOfSlots(t *testing.T) {
	s := startReal(t, nil)
	for range 2 {
		got := s.check(t, `{"policy":"stream","attributes":{"user":"u"},"cost":{"tokens":10}}`)
		if got.status != 200 || strings.Contains(got.body, "holders") {
			t.Fatalf("got %s", got)
		}
	}
	for range 3 {
		got := s.do(t, "GET", "/v1/status?policy=stream&user=u&ticket=true", "")
		d := decode[decision](t, got.body)
		if got.status != 200 || strings.Contains(got.body, `"ticket"`) || d.left() != "[980 0]" || len(d.Limits[1].Holders) != 2 || d.Limits[0].Holders != nil {
			t.Errorf("got %s", got)
		}
		for _, raw := range d.Limits[1].Holders {
			h := decode[struct {
				Age     int64 `json:"age_ms"`
				Expires int64 `json:"expires_in_ms"`
			}](t, string(raw))
			if h.Age < 0 || h.Age > 60_000 || h.Age+h.Expires < 3_600_000-1 || h.Age+h.Expires > 3_600_000+1 {
				t.Errorf("got %s, want an age and what is left of an hour", raw)
			}
		}
	}
	if got := s.do(t, "GET", "/v1/status?limit=streams&user=v", ""); !strings.Contains(got.body, `"holders":[]`) {
		t.Errorf("got %s, want an empty list", got)
	}
	denied := s.check(t, `{"policy":"stream","attributes":{"user":"u"},"cost":{"tokens":10},"ticket":true}`)
	if denied.status != 429 || strings.Contains(denied.body, `"ticket"`) {
		t.Errorf("got %s, want a denial without a ticket", denied)
	}
}

// The backlog of a log, from the store itself: each entry is due when all before it have drained.
func TestStatusOfABacklog(t *testing.T) {
	s := startReal(t, nil)
	for range 2 {
		s.ask(t, 200, `{"limit":"backlog","key":"u"}`)
	}
	got := s.do(t, "GET", "/v1/status?limit=backlog&user=u", "")
	d := decode[decision](t, got.body)
	if got.status != 200 || len(d.Limits[0].Waiting) != 2 {
		t.Fatalf("got %s", got)
	}
	for i, raw := range d.Limits[0].Waiting {
		w := decode[struct {
			Cost int64
			Due  int64 `json:"due_in_ms"`
		}](t, string(raw))
		if most := int64(i+1) * 60_000; w.Cost != 1 || w.Due > most || w.Due < most-20_000 {
			t.Errorf("entry %d: got %s", i, raw)
		}
	}
	if got := s.do(t, "GET", "/v1/status?limit=backlog&user=v", ""); !strings.Contains(got.body, `"waiting":[]`) {
		t.Errorf("got %s, want an empty list", got)
	}
}

// The headers of slots have no window, and those of a long wait or of no hope tell a client not to
// try again by itself.
func TestHeadersOfSlots(t *testing.T) {
	s := startReal(t, nil)
	got := s.check(t, `{"limit":"streams","key":"u"}`)
	wantHeaders(t, got.header, map[string]string{"RateLimit-Policy": `"streams";q=2`, "RateLimit": `"streams";r=1;t=3600`, "X-Should-Retry": ""})
	wantStructured(t, got.header)
	s.ask(t, 200, `{"limit":"streams","key":"u"}`)
	got = s.check(t, `{"limit":"streams","key":"u"}`)
	wantHeaders(t, got.header, map[string]string{
		"RateLimit-Policy": `"streams";q=2`, "RateLimit": `"streams";r=0;t=3600`, "Retry-After": "3600", "X-Should-Retry": "false",
	})
	s.ask(t, 200, `{"limit":"brief","key":"u"}`)
	got = s.check(t, `{"limit":"brief","key":"u"}`)
	wantHeaders(t, got.header, map[string]string{"RateLimit": `"brief";r=0;t=1`, "Retry-After": "1", "X-Should-Retry": ""})
}

// A question of cost 0 reads, and charges nothing.
func TestPeeksChargeNothing(t *testing.T) {
	s := startReal(t, nil)
	for range 10 {
		if d := s.ask(t, 200, `{"policy":"chat","attributes":{"user":"u"},"cost":{"requests":0,"tokens":0}}`); d.left() != "[5 1000]" {
			t.Fatalf("got %s left", d.left())
		}
		if d := s.ask(t, 200, `{"limit":"streams","key":"u","cost":0}`); d.left() != "[2]" || d.Ticket != "" {
			t.Fatalf("got %+v, want no slot and no ticket", d)
		}
	}
	for range 2 {
		s.ask(t, 200, `{"limit":"streams","key":"u"}`)
	}
	s.ask(t, 429, `{"limit":"streams","key":"u"}`)
}

// The numbers of a bucket count down to the denial, and are those of the bucket, not of one emission.
func TestNumbersCountDown(t *testing.T) {
	s := startReal(t, nil)
	for left := 4; left >= 0; left-- {
		d := s.ask(t, 200, `{"limit":"requests","key":"u"}`)
		if d.left() != fmt.Sprint([]int{left}) {
			t.Errorf("got %s left, want %d", d.left(), left)
		}
	}
	got := s.check(t, `{"limit":"requests","key":"u"}`)
	d := decode[decision](t, got.body)
	if got.status != 429 || d.left() != "[0]" || d.Limits[0].RetryAfterMillis > 720_000 || d.Limits[0].RetryAfterMillis < 700_000 {
		t.Errorf("got %s, want that a fifth of an hour must pass", got)
	}
	for range 3 {
		got := s.check(t, `{"limit":"half-minute","key":"u"}`)
		if d := decode[decision](t, got.body); d.Limits[0].ResetAfterMillis > 60_000 || d.Limits[0].RetryAfterMillis > 30_000 {
			t.Errorf("got %s, want no wait above the minute", got)
		}
	}
}
