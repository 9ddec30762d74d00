package redistest_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

// TestSetClock sets a server's clock forth and back; scripts see it, and it goes on.
func TestSetClock(t *testing.T) {
	server := redistest.Start(t, redistest.WithClock())
	now := func() time.Time {
		t.Helper()
		reply := server.Do(t, "EVAL", "return redis.call('TIME')", "0").([]any)
		seconds, err := strconv.ParseInt(reply[0].(string), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return time.Unix(seconds, 0)
	}
	if off := time.Until(now()); off < -2*time.Second || off > 2*time.Second {
		t.Errorf("at first the clock is off by %v", off)
	}
	for _, at := range []time.Time{
		time.Date(2028, 2, 29, 23, 59, 58, 0, time.UTC), time.Date(2025, 10, 26, 0, 59, 59, 0, time.UTC), time.Now(),
	} {
		server.SetClock(at)
		if off := now().Sub(at); off < -time.Second || off > 5*time.Second {
			t.Errorf("set to %v, the clock shows %v", at, now())
		}
	}
	if reply := server.Do(t, "SET", "k", "v", "PX", "100"); reply != "OK" {
		t.Fatal(reply)
	}
	for deadline := time.Now().Add(5 * time.Second); server.Do(t, "EXISTS", "k").(int64) == 1; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a key did not expire")
		}
	}
}
