package chaos_test

import (
	"maps"
	"testing"
	"time"
)

// TestGivenUpIsNotCharged pins that what is sent to a Redis that stands still, and given up, is
// not charged when Redis goes on and reads it.
func TestGivenUpIsNotCharged(t *testing.T) {
	f := formOf()
	for _, fault := range networkFaults() {
		if fault.name != "frozen (SIGSTOP)" && fault.name != "black hole" {
			continue
		}
		t.Run(fault.name, func(t *testing.T) {
			shareMachine(t)
			s := newStage(t, f)
			warm := startLoad(t, s.sidecar.addr, f.rate, bodies(), users)
			time.Sleep(f.warm)
			warm.end() // nothing is under way when Redis stops
			before := s.charges()

			fault.begin(s)
			l := startLoad(t, s.sidecar.addr, f.rate, bodies(), users)
			time.Sleep(f.fault)
			answers := l.end() // all is given up when Redis goes on
			fault.end(s)
			for i := range answers {
				if a := &answers[i]; a.err != nil || a.shared() {
					t.Fatalf("an answer of Redis, or none: %+v", a)
				}
			}
			s.sidecar.await("the breaker is closed", func() bool { return s.sidecar.metrics()["tidegate_breaker_state"] == 0 })
			if inDoubt := s.sidecar.metrics()["tidegate_ambiguous_total"]; inDoubt == 0 {
				t.Error("no call was in doubt: nothing was tested")
			}
			// What the sidecar sent is read before what is sent now.
			if after := s.charges(); !maps.Equal(before, after) {
				t.Errorf("charged before %v, after %v", before, after)
			}
		})
	}
}

// TestLongOutage pins that Redis is found again as soon after an outage of many failed dials.
func TestLongOutage(t *testing.T) {
	shareMachine(t)
	f := formOf()
	f.openFor = 20 * time.Millisecond
	s := newStage(t, f)
	l := startLoad(t, s.sidecar.addr, f.rate, bodies()[:1], users)
	s.proxy.Refuse(true)
	s.sidecar.await("forty dials have failed", func() bool {
		return s.sidecar.metrics()[`tidegate_redis_errors_total{kind="connection"}`] >= 40
	})
	s.proxy.Refuse(false)
	end := time.Since(l.begin)
	s.sidecar.await("an answer is of Redis again", func() bool { return l.recovered(end) })
	if back := time.Since(l.begin) - end; back > f.openFor+time.Second+f.slack {
		t.Errorf("Redis was back after %v", back)
	} else {
		t.Logf("Redis was back after %v", back)
	}
	l.end()
}
