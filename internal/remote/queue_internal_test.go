package remote

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// station is a queue whose flights a test handles by itself.
type station struct {
	*testing.T
	queue queue
	mu    sync.Mutex
	seen  sightings // guarded by mu
}

// sightings is what the timer of a queue has brought about.
type sightings struct {
	ticked  int       // how often it has run out
	gone    []*item   // whose waits have ended
	flights []*flight // that were let leave, boarded
	lost    []*flight // that nobody was found waiting for
}

// look returns them when all is quiet.
func (s *station) look() sightings {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

func newStation(t *testing.T, turns int) *station {
	s := &station{T: t}
	s.queue.init(turns, timeoutInTest, func() {
		gone, abandoned, next := s.queue.tick(time.Now())
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen.ticked++
		s.seen.gone, s.seen.lost = append(s.seen.gone, gone...), append(s.seen.lost, abandoned...)
		for _, i := range gone {
			i.fail(limit.ErrUnavailable)
		}
		if next != nil {
			s.board(next)
			s.seen.flights = append(s.seen.flights, next)
		}
	})
	return s
}

const timeoutInTest = 50 * time.Millisecond

func (s *station) board(f *flight) *flight {
	if f != nil && !s.queue.board(f, func(error) {}) {
		s.Error("a flight without a question")
	}
	return f
}

// join adds n questions, to be answered within timeoutInTest, and returns the flight that leaves with them.
func (s *station) join(n int) (*ask, *flight) {
	a := newAsk().(*ask)
	requests, decisions := make([]limit.Request, n), make([]*limit.Decision, n)
	for i := range requests {
		requests[i].Charges, decisions[i] = make([]limit.Charge, 1), new(limit.Decision)
	}
	a.fill(requests, decisions, time.Now().Add(timeoutInTest))
	return a, s.board(s.queue.join(a, time.Now()))
}

// land ends a flight, answers its questions, and returns the one that leaves in its place.
func (s *station) land(f *flight) *flight {
	s.queue.end(f)
	next := s.board(s.queue.land(f, time.Now(), true))
	for _, i := range f.items {
		if !i.left {
			i.answered()
		}
	}
	return next
}

func (s *station) wantAboard(f *flight, n int) {
	s.Helper()
	if f == nil || len(f.items) != n {
		s.Fatalf("got %+v, want a flight with %d questions", f, n)
	}
}

// TestGathering: a lone question leaves at once; what arrives while its call is under way leaves
// together, when that ends, whatever it was waiting for.
func TestGathering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 32)
		for range 3 {
			_, f := s.join(1)
			s.wantAboard(f, 1)
			time.Sleep(500 * time.Microsecond)
			var asks []*ask
			for range 40 {
				a, other := s.join(1)
				if other != nil {
					t.Fatal("a second call leaves although the first is not slow")
				}
				asks = append(asks, a)
			}
			next := s.land(f)
			s.wantAboard(next, 40)
			if s.land(next) != nil {
				t.Fatal("a call leaves for nobody")
			}
			for _, a := range asks {
				<-a.done
			}
			time.Sleep(time.Second)
		}
		if seen := s.look(); seen.ticked > 3*3 || len(seen.flights) > 0 || len(seen.gone) > 0 {
			t.Errorf("the timer ran out %d times; %d further calls, %d gone", seen.ticked, len(seen.flights), len(seen.gone))
		}
	})
}

// TestSlowCallHoldsNobodyUp: when a call is out for twice as long as is usual, at least 1ms, those who wait
// leave beside it; a third call only when the second is late by twice as much.
func TestSlowCallHoldsNobodyUp(t *testing.T) {
	for _, usual := range []time.Duration{100 * time.Microsecond, 2 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			s := newStation(t, 32)
			for range 100 {
				_, f := s.join(1)
				time.Sleep(usual)
				s.land(f)
			}
			patience := max(2*usual, time.Millisecond)
			_, slow := s.join(1)
			start := time.Now()
			time.Sleep(patience / 2)
			s.join(1)
			s.join(1)
			time.Sleep(patience/2 - time.Nanosecond)
			if seen := s.look(); len(seen.flights) > 0 {
				t.Fatalf("usual %v: a second call leaves before %v", usual, patience)
			}
			time.Sleep(time.Nanosecond)
			seen := s.look()
			if len(seen.flights) != 1 || time.Since(start) != patience {
				t.Fatalf("usual %v: %d further calls after %v, want 1", usual, len(seen.flights), patience)
			}
			s.wantAboard(seen.flights[0], 2)
			s.join(1)
			time.Sleep(2*patience - time.Nanosecond)
			if seen = s.look(); len(seen.flights) != 1 {
				t.Fatalf("usual %v: a third call leaves too early", usual)
			}
			time.Sleep(time.Nanosecond)
			if seen = s.look(); len(seen.flights) != 2 {
				t.Fatalf("usual %v: no third call", usual)
			}
			if _, f := s.join(1); f != nil {
				t.Errorf("usual %v: a fourth call leaves at once", usual)
			}
			for _, f := range append(seen.flights[:2:2], slow) {
				s.land(f)
			}
		})
	}
}

// TestFullCallLeaves: when what waits fills a call, that leaves beside the only one under way, and no third. One
// that has not been boarded is none to leave beside: it will take along what waits.
func TestFullCallLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 32)
		_, first := s.join(1)
		if _, f := s.join(firstSize - 1); f != nil {
			t.Fatal("a call leaves that is not full")
		}
		_, second := s.join(1)
		s.wantAboard(second, firstSize)
		if _, f := s.join(3 * firstSize); f != nil {
			t.Fatal("a third call leaves")
		}
		third := s.land(first)
		s.wantAboard(third, firstSize)
		if f := s.land(second); f == nil || len(f.items) != firstSize {
			t.Fatalf("got %+v, want a further full call", f)
		}
		s.land(third)

		s = newStation(t, 32)
		a := newAsk().(*ask)
		a.fill(make([]limit.Request, 1), []*limit.Decision{{}}, time.Now().Add(timeoutInTest))
		empty := s.queue.join(a, time.Now())
		if _, f := s.join(2 * firstSize); f != nil {
			t.Fatal("a call leaves beside one that has yet to be boarded")
		}
		s.wantAboard(s.board(empty), firstSize+1) // the first question has no charge
		for next := s.land(empty); next != nil; next = s.land(next) {
		}
		if s.queue.charges != 0 {
			t.Errorf("%d charges wait in an empty queue", s.queue.charges)
		}
	})
}

// TestFarRedis: where a call takes most of the time that callers have, others leave long before it is back, or
// they would be late.
func TestFarRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 32)
		for range 100 {
			_, f := s.join(1)
			time.Sleep(30 * time.Millisecond)
			s.land(f)
		}
		s.join(1)
		s.join(1)
		time.Sleep(timeoutInTest / 8)
		if seen := s.look(); len(seen.flights) != 1 {
			t.Errorf("%d further calls after an eighth of the timeout, want 1", len(seen.flights))
		}
	})
}

// TestWaitsEndOneByOne: each question leaves its call at its own deadline, the others go on waiting; when
// the last has left, nobody waits for the call.
func TestWaitsEndOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 1)
		_, first := s.join(1)
		time.Sleep(500 * time.Microsecond)
		var asks []*ask
		for range 10 {
			a, _ := s.join(1)
			asks = append(asks, a)
			time.Sleep(time.Millisecond)
		}
		second := s.land(first)
		s.wantAboard(second, 10)
		queued, _ := s.join(2) // behind a call that is never answered, and no turn is free
		begin := asks[0].items[0].deadline
		for i, a := range asks {
			time.Sleep(time.Until(begin.Add(time.Duration(i)*time.Millisecond - time.Nanosecond)))
			if seen := s.look(); len(seen.gone) != i || len(seen.lost) > 0 {
				t.Fatalf("before the deadline of number %d: %d have left, nobody waits for %d calls", i, len(seen.gone), len(seen.lost))
			}
			<-a.done
			if left := time.Until(a.items[0].deadline); left != 0 {
				t.Fatalf("number %d left %v before its deadline", i, left)
			}
		}
		if seen := s.look(); len(seen.lost) != 1 || seen.lost[0] != second || s.queue.end(second) {
			t.Errorf("calls nobody waits for: %v, want the second", seen.lost)
		}
		<-queued.done
		if seen := s.look(); len(seen.gone) != 12 {
			t.Errorf("%d have left, want 12", len(seen.gone))
		}
		if next := s.queue.land(second, time.Now(), false); next != nil {
			t.Errorf("a call leaves for those who are gone")
		}
	})
}

// TestCallsAreSized: a call carries what keeps Redis busy for less than 1ms by the measure of the last
// ones, within bounds; a question of more charges goes alone.
func TestCallsAreSized(t *testing.T) {
	for _, tt := range []struct {
		charge time.Duration // what one takes
		want   int
	}{
		{0, firstSize}, {time.Nanosecond, mostSize}, {5 * time.Microsecond, 100}, {8 * time.Microsecond, 62}, {time.Second, leastSize},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStation(t, 1)
			for range 200 {
				if tt.charge > 0 {
					s.queue.pace.cost(100*tt.charge, 100)
				}
			}
			_, f := s.join(1)
			for range 2 {
				s.join(300) // a question each of one charge
			}
			next := s.land(f)
			s.wantAboard(next, min(tt.want, 600))
			for carried := 0; next != nil; next = s.land(next) {
				if carried += len(next.items); len(next.items) > tt.want {
					t.Errorf("%v a charge: %d in a call, want at most %d", tt.charge, len(next.items), tt.want)
				}
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 1)
		a := newAsk().(*ask)
		requests := []limit.Request{{Charges: make([]limit.Charge, 100)}, {Charges: make([]limit.Charge, 1000)}, {Charges: make([]limit.Charge, 1)}}
		a.fill(requests, []*limit.Decision{{}, {}, {}}, time.Now().Add(timeoutInTest))
		f := s.board(s.queue.join(a, time.Now()))
		for _, want := range []int{100, 1000, 1} {
			s.wantAboard(f, 1)
			if got := len(f.charges); got != want {
				t.Errorf("%d charges in a call, want %d", got, want)
			}
			f = s.land(f)
		}
	})
}
