package chaos_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

// smallRules are limits that a test can use up. Nothing refills within a test.
const smallRules = `
limits:
  - {name: local, algorithm: token_bucket, rate: 1/h, burst: 100, key: [user], on_redis_failure: local}
  - {name: open, algorithm: token_bucket, rate: 1/h, burst: 3, key: [user], on_redis_failure: open}
  - {name: closed, algorithm: token_bucket, rate: 1/h, burst: 3, key: [user], on_redis_failure: closed}
`

func smallQuestion(limit, user string, cost int) string {
	return fmt.Sprintf(`{"limit":%q,"key":%q,"cost":%d}`, limit, user, cost)
}

// mustAsk asks and returns the answer, which must have come.
func (s *sidecar) mustAsk(body string) answer {
	s.t.Helper()
	a, err := s.ask(body)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

// TestCutOffNodes pins what sidecars that are cut off from Redis admit together under the policy
// local: at most what was left, and one largest cost each.
func TestCutOffNodes(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			shareMachine(t)
			const limit, used, largest = 100, 50, 3
			f := formOf()
			f.timeout = time.Second // nothing but the cut must degrade
			server := redistest.Start(t)
			var sidecars []*sidecar
			for range nodes {
				sidecars = append(sidecars, startSidecar(t, redisAt(f, server.Addr())+smallRules))
			}
			for i := range used {
				if a := sidecars[i%nodes].mustAsk(smallQuestion("local", "half-used", 1)); !a.body.Allowed || !a.shared() {
					t.Fatalf("before the cut: %+v", a)
				}
			}
			for _, s := range sidecars {
				s.await("all nodes know each other", func() bool { return s.metrics()["tidegate_nodes"] == float64(nodes) })
				s.mustAsk(smallQuestion("local", "half-used", 0))
			}
			server.Kill()
			for user, left := range map[string]int{"fresh": limit, "half-used": limit - used} {
				admitted := flood(t, sidecars, user, largest)
				if most := left + nodes*largest; admitted > most {
					t.Errorf("%s: %d nodes admitted %d, want at most %d", user, nodes, admitted, most)
				}
				if least := nodes * (left/nodes - largest); admitted < least {
					t.Errorf("%s: %d nodes admitted %d, want at least %d", user, nodes, admitted, least)
				}
			}
		})
	}
}

// flood asks every sidecar for far more than there is, in costs up to the largest, and returns
// what was admitted.
func flood(t *testing.T, sidecars []*sidecar, user string, largest int) int {
	t.Helper()
	var mu sync.Mutex
	admitted := 0
	var group sync.WaitGroup
	for _, s := range sidecars {
		for client := range 4 {
			group.Go(func() {
				for i := range 25 {
					cost := (i+client)%largest + 1
					a, err := s.ask(smallQuestion("local", user, cost))
					if err != nil || !a.body.Degraded || a.body.Tier != "fallback" {
						t.Errorf("after the cut: %+v, %v", a, err)
						return
					}
					if a.body.Allowed {
						mu.Lock()
						admitted += cost
						mu.Unlock()
					}
				}
			})
		}
	}
	group.Wait()
	return admitted
}

// TestUsedUpThenCut pins what becomes of a limit that Redis said is used up: open denies for as
// long as that answer is younger than a second, then allows; closed never admits.
func TestUsedUpThenCut(t *testing.T) {
	shareMachine(t)
	f := formOf()
	f.timeout = 300 * time.Millisecond
	server := redistest.Start(t)
	s := startSidecar(t, redisAt(f, server.Addr())+smallRules)
	s.awaitRedis()
	var asked, answered time.Time // the last answer of Redis to either
	for _, limit := range []string{"open", "closed"} {
		for i := range 4 {
			asked = time.Now()
			a := s.mustAsk(smallQuestion(limit, "u", 1))
			answered = time.Now()
			if want := i < 3; a.body.Allowed != want || a.body.Degraded {
				t.Fatalf("%s, request %d: %+v", limit, i, a)
			}
		}
	}
	server.Kill()
	denied, allowed := 0, 0
	for time.Since(asked) < 1500*time.Millisecond {
		sent := time.Now()
		a := s.mustAsk(smallQuestion("open", "u", 1))
		switch {
		case a.status == http.StatusTooManyRequests:
			denied++
			if age := sent.Sub(answered); age > time.Second || allowed > 0 {
				t.Errorf("open: denied by an answer at least %v old, after %d were allowed: %+v", age, allowed, a)
			}
		case a.status == http.StatusOK && a.body.Degraded && a.body.Tier == "fallback":
			allowed++
		default:
			t.Errorf("open: %+v", a)
		}
		if a := s.mustAsk(smallQuestion("closed", "u", 1)); a.status != http.StatusTooManyRequests && a.status != http.StatusServiceUnavailable {
			t.Errorf("closed, used up: %+v", a)
		}
		if a := s.mustAsk(smallQuestion("closed", "other", 1)); a.status != http.StatusServiceUnavailable {
			t.Errorf("closed, never used: %+v", a)
		}
		time.Sleep(pollPace)
	}
	if denied == 0 || allowed == 0 {
		t.Errorf("open: %d were denied, %d allowed", denied, allowed)
	}
}
