package limiter_test

import (
	"errors"
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

func TestForget(t *testing.T) {
	user := func(value string) limit.Attributes { return limit.Attributes{{Name: "user", Value: value}} }
	b := newBench(t, &fakeStore{}, nil)
	if err := b.Forget(t.Context(), "a", user("u")); err != nil {
		t.Fatal(err)
	}
	// Whether the limit applies to the user does not matter: it may have, under other rules.
	if err := b.Forget(t.Context(), "vip", user("u")); err != nil {
		t.Fatal(err)
	}
	b.decide(limit.Query{Limit: "a", HasKey: true, Key: "u"})
	if f := b.store.forgotten; len(f) != 2 || f[0] != b.store.keys[0] || f[1] == f[0] {
		t.Errorf("forgot %q; a request is counted under %q", f, b.store.keys)
	}

	var invalid *limit.InvalidError
	if err := b.Forget(t.Context(), "a", nil); !errors.As(err, &invalid) || invalid.Field != "attributes.user" {
		t.Errorf("without its attribute: %v", err)
	}
	for _, name := range []string{"ab", "", "unknown"} {
		if err := b.Forget(t.Context(), name, user("u")); err == nil {
			t.Errorf("limit %q: no error", name)
		}
	}
	if len(b.store.forgotten) != 2 {
		t.Errorf("a bad question reached the store: %q", b.store.forgotten)
	}
	b.store.err = &limit.StoreError{Failure: limit.FailureTimeout, Err: errors.New("cause")}
	if err := b.Forget(t.Context(), "a", user("u")); !errors.Is(err, limit.ErrUnavailable) {
		t.Errorf("the store's error became %v", err)
	}
}
