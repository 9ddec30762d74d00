package limit

// leasedWindow is the arithmetic of a fixed window of which nodes hold tokens on lease. What is out counts
// as charged. No lease lasts longer than its window, so a new one begins with nothing out.
// lua/leased_window.lua mirrors it: change both, and testdata/leased_window.json, together.
type leasedWindow Settings

func (r *leasedWindow) fixed() *fixedWindow { return (*fixedWindow)(&r.Window) }

func (r *leasedWindow) decide(s *State, now, cost int64) (wait int64, moved bool) {
	moved = r.advance(s, now)
	switch {
	case cost > r.Window.Limit:
		return Never, moved
	case s.Window.Count <= r.Window.Limit-cost:
		return 0, moved
	}
	return s.Window.End - now, moved
}

// advance brings the window to now, and reports whether the clock was set back.
func (r *leasedWindow) advance(s *State, now int64) (moved bool) {
	moved = r.fixed().advance(&s.Window, now)
	l := &s.Lease
	if s.Window.Serial == 0 {
		*l = LeaseState{}
		return moved
	}
	if now < l.At {
		moved = true
		l.stepBack(now / r.Hold)
	}
	for l.out() > 0 && (l.Slot+1)*r.Hold <= now {
		l.turn()
	}
	l.Slot, l.At = now/r.Hold, now
	return moved
}

func (r *leasedWindow) charge(s *State, now, cost int64, id string) {
	if s.Window.Serial == 0 {
		s.Lease = LeaseState{Epoch: now, Slot: now / r.Hold, At: now}
	}
	r.fixed().charge(s, now, cost, id)
}

func (r *leasedWindow) report(s *State, now int64) (left, reset int64) {
	return r.fixed().report(s, now)
}

func (r *leasedWindow) mark(s *State, now int64) int64 { return r.fixed().mark(s, now) }

func (r *leasedWindow) until(s *State) int64 { return s.Window.End }

func (r *leasedWindow) list(*State, int64) []Listed { return nil }

func (r *leasedWindow) settle(s *State, now int64, p *Payment) (changed, ok bool) {
	w := &s.Window
	moved := r.advance(s, now)
	more := p.Actual - p.Charged
	if more == 0 || p.Charged > 0 && (w.Serial == 0 || w.Serial != p.Mark) {
		return moved, true
	}
	if w.Count > MaxNumber-more {
		return false, false
	}
	r.charge(s, now, max(more, s.Lease.out()-w.Count), "")
	return true, true
}

func (r *leasedWindow) seed(now, left, reset int64) State {
	s := r.fixed().seed(now, left, reset)
	if s.Window.Serial != 0 {
		s.Lease = LeaseState{Epoch: now, Slot: now / r.Hold, At: now}
	}
	return s
}

func (r *leasedWindow) takeBack(s *State, now int64, reports []LeaseReport) (changed bool) {
	changed = r.advance(s, now)
	if s.Window.Serial == 0 {
		return changed
	}
	for i := range reports {
		if unused, ok := s.Lease.take(&reports[i]); ok {
			s.Window.Count -= unused
			changed = true
		}
	}
	return changed
}

func (r *leasedWindow) lend(s *State, now, want int64) (lease Lease, changed bool) {
	changed = r.advance(s, now)
	n := min(want, r.Window.Limit-s.Window.Count)
	if n <= 0 {
		return Lease{}, changed
	}
	r.charge(s, now, n, "")
	return s.Lease.lend(n, min(r.Hold, s.Window.End-now)), true
}

// forget leaves what is out on lease alone in its window, under another serial: nothing that was charged
// before is given back to it.
func (r *leasedWindow) forget(s *State, now int64) (kept bool) {
	r.advance(s, now)
	w := &s.Window
	if s.Lease.out() == 0 {
		return false
	}
	w.Count, w.Serial = s.Lease.out(), max(now, w.Serial+1)
	return true
}
