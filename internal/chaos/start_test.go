package chaos_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

// firstAnswer is how soon after its start a sidecar answers, in the strict form.
const firstAnswer = 200 * time.Millisecond

// TestStartWithoutRedis pins that a sidecar starts, listens and answers by policy without Redis,
// however Redis is away, trips by itself, and finds Redis when it comes.
func TestStartWithoutRedis(t *testing.T) {
	f := formOf()
	for _, fault := range networkFaults() {
		switch fault.name {
		case "killed", "refused", "frozen (SIGSTOP)", "black hole", "slow by 2 s":
		default:
			continue
		}
		t.Run(fault.name, func(t *testing.T) {
			shareMachine(t)
			s := &stage{T: t, server: redistest.Start(t)}
			s.proxy = redistest.NewProxy(t, s.server.Addr())
			fault.begin(s)
			s.sidecar = startSidecar(t, redisAt(f, s.proxy.Addr())+rules)
			var group sync.WaitGroup
			for _, q := range questions() {
				group.Go(func() {
					a, err := s.sidecar.ask(fmt.Sprintf(q.body, 1))
					if took := time.Since(s.sidecar.started); *strict && took > firstAnswer {
						t.Errorf("%s: the first answer came %v after the start", q.name, took)
					} else {
						t.Logf("%s: the first answer came %v after the start", q.name, took)
					}
					want := http.StatusOK
					if q.closed {
						want = http.StatusServiceUnavailable
					}
					if err != nil || a.status != want || a.status == http.StatusOK && !a.body.Degraded {
						t.Errorf("%s: status %d %+v, %v, want %d and degraded", q.name, a.status, a.body, err, want)
					}
				})
			}
			group.Wait()
			s.sidecar.await("the breaker is open", func() bool { return s.sidecar.metrics()["tidegate_breaker_state"] == 2 })
			fault.end(s)
			end := time.Now()
			s.sidecar.await("an answer is of Redis", func() bool {
				a, err := s.sidecar.ask(fmt.Sprintf(questions()[1].body, 1))
				return err == nil && a.shared()
			})
			if back := time.Since(end); back > f.openFor+time.Second+f.slack {
				t.Errorf("Redis was back after %v", back)
			}
		})
	}
}

// ask puts one question over a connection of its own.
func (s *sidecar) ask(body string) (answer, error) {
	c, err := dial(s.addr)
	if err != nil {
		return answer{}, err
	}
	defer c.Close()
	var a answer
	err = c.exchange(request(body), &a)
	return a, err
}

// TestHangUps pins that clients that hang up do not speak against Redis: 200 of them, several
// times, leave the breaker closed.
func TestHangUps(t *testing.T) {
	shareMachine(t)
	f := formOf()
	f.timeout = 2 * time.Second // the crowd alone must not be late
	s := newStage(t, f)
	for range 5 {
		var group sync.WaitGroup
		for user := range 200 {
			group.Go(func() {
				c, err := dial(s.sidecar.addr)
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				if _, err := c.Write(request(fmt.Sprintf(questions()[user%6].body, user))); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Millisecond)
			})
		}
		group.Wait()
	}
	a, err := s.sidecar.ask(fmt.Sprintf(questions()[1].body, 1))
	m := s.sidecar.metrics()
	if kinds := m.errorKinds(nil); err != nil || !a.shared() || m["tidegate_breaker_state"] != 0 || len(kinds) > 0 {
		t.Errorf("after the hang-ups: %+v, %v; breaker_state %v, errors %v", a, err, m["tidegate_breaker_state"], kinds)
	}
}
