package limit_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

func TestConclude(t *testing.T) {
	plain, shadow := &limit.Limit{Name: "plain"}, &limit.Limit{Name: "shadow", Shadow: true}
	passes := limit.Verdict{Limit: plain, Allowed: true}
	waits := func(l *limit.Limit, d time.Duration) limit.Verdict { return limit.Verdict{Limit: l, RetryAfter: d} }
	tests := []struct {
		name     string
		verdicts []limit.Verdict
		want     limit.Decision
	}{
		{"no limit applies", nil, limit.Decision{Allowed: true}},
		{"all pass", []limit.Verdict{passes, passes}, limit.Decision{Allowed: true}},
		{"one denies", []limit.Verdict{passes, waits(plain, 3)}, limit.Decision{RetryAfter: 3}},
		{"the longest wait", []limit.Verdict{waits(plain, 3), waits(plain, 5), waits(plain, 4)}, limit.Decision{RetryAfter: 5}},
		{"never has no wait", []limit.Verdict{waits(plain, 3), {Limit: plain, Never: true}}, limit.Decision{Never: true}},
		{"never first", []limit.Verdict{{Limit: plain, Never: true}, waits(plain, 3)}, limit.Decision{Never: true}},
		{"a shadow does not deny", []limit.Verdict{passes, waits(shadow, 9)}, limit.Decision{Allowed: true}},
		{"a shadow's never neither", []limit.Verdict{{Limit: shadow, Never: true}}, limit.Decision{Allowed: true}},
		{"a shadow's wait does not count", []limit.Verdict{waits(plain, 3), waits(shadow, 9), {Limit: shadow, Never: true}}, limit.Decision{RetryAfter: 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := limit.Decision{Verdicts: tt.verdicts, Allowed: !tt.want.Allowed, Never: true, RetryAfter: 99}
			d.Conclude()
			if d.Allowed != tt.want.Allowed || d.Never != tt.want.Never || d.RetryAfter != tt.want.RetryAfter {
				t.Errorf("got %+v, want %+v", d, tt.want)
			}
		})
	}
}

func TestDecisionReset(t *testing.T) {
	d := limit.Decision{Allowed: true, Tier: limit.TierRedis, Err: io.EOF, Verdicts: make([]limit.Verdict, 3)}
	d.Reset()
	if d.Allowed || d.Tier != limit.TierNone || d.Err != nil || len(d.Verdicts) != 0 || cap(d.Verdicts) != 3 {
		t.Errorf("got %+v", d)
	}
}

func TestNames(t *testing.T) {
	tests := []struct{ got, want string }{
		{limit.TierNone.String(), "none"}, {limit.TierLocal.String(), "local"}, {limit.TierLease.String(), "lease"},
		{limit.TierRedis.String(), "redis"}, {limit.TierEmbedded.String(), "embedded"}, {limit.TierFallback.String(), "fallback"},
		{limit.TokenBucketAlgorithm.String(), "token_bucket"}, {limit.HashState.String(), "hash"}, {limit.StringState.String(), "string"},
		{limit.FailLocal.String(), "local"}, {limit.FailOpen.String(), "open"}, {limit.FailClosed.String(), "closed"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

func TestStoreErrorIsUnavailable(t *testing.T) {
	err := error(&limit.StoreError{Failure: limit.FailureTimeout, Err: io.EOF})
	if !errors.Is(err, limit.ErrUnavailable) || !errors.Is(err, io.EOF) || errors.Is(err, limit.ErrWrongType) {
		t.Errorf("%v matches the wrong errors", err)
	}
	if got, want := err.Error(), "limit: store: timeout: EOF"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCapacityAndWindow(t *testing.T) {
	tests := []struct {
		rate   string
		burst  int64
		window time.Duration
	}{
		{"100/s", 200, 2 * time.Second},
		{"1/3s", 1, 3 * time.Second},
		{"3/s", 1, 333_334 * time.Microsecond},
		{"1/s", 0, 0},
		{"0/s", 5, 0},
	}
	for _, tt := range tests {
		s := settingsOf(t, tt.rate, tt.burst)
		if tt.rate == "0/s" {
			tt.burst = 0
		}
		if s.Capacity() != tt.burst || s.Span() != tt.window {
			t.Errorf("%s, burst %d: got %d in %v, want %v", tt.rate, tt.burst, s.Capacity(), s.Span(), tt.window)
		}
	}
}
