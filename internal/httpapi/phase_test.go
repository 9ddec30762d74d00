package httpapi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/httpapi"
)

// A connection that is not used is closed without a word.
func TestIdleConnectionIsClosed(t *testing.T) {
	bothWays(t, func(c *httpapi.Config) { c.IdleTimeout = 100 * time.Millisecond }, func(t *testing.T, s *sidecar, dial func() *rawConn) {
		c := dial()
		c.say(askRaw)
		if got := c.read(t); got.status != 200 {
			t.Fatalf("got %s", got)
		}
		c.wantClosed(t)
	})
}

// A client that takes no answers does not stay.
func TestClientThatReadsNothing(t *testing.T) {
	many := post("/v1/check", `{"checks":[`+strings.Repeat(`{"limit":"all"},`, 99)+`{"limit":"all"}]}`)
	bothWays(t, func(c *httpapi.Config) { c.WriteTimeout = 200 * time.Millisecond }, func(t *testing.T, s *sidecar, dial func() *rawConn) {
		c := dial()
		if err := c.SetWriteDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		for started := time.Now(); ; {
			if _, err := c.Write([]byte(many)); err != nil {
				if time.Since(started) > 20*time.Second {
					t.Errorf("still there after %v: %v", time.Since(started), err)
				}
				return
			}
		}
	})
}
