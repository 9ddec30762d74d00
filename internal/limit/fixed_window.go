package limit

// fixedWindow is the arithmetic of fixed_window: a counter, and the time at which its window ends. A
// window begins with the first charge after the last one ended. lua/fixed_window.lua mirrors it: change
// both, and testdata/fixed_window.json, together.
type fixedWindow Window

// end returns when a window that holds now ends at the latest: a span from now, or with the calendar
// period.
func (r *fixedWindow) end(now int64) int64 {
	if r.Period == 0 {
		return now + r.Micros
	}
	return (*Window)(r).Boundaries(now)[2]
}

func (r *fixedWindow) decide(s *State, now, cost int64) (wait int64, moved bool) {
	moved = r.advance(&s.Window, now)
	if cost > r.Limit {
		if !r.Overdraw {
			return Never, moved
		}
		cost = r.Limit
	}
	if s.Window.Count <= r.Limit-cost {
		return 0, moved
	}
	return s.Window.End - now, moved
}

// advance brings the window to now. Only a clock that was set back leaves an end further ahead than
// the latest: it moves there, and the count stays.
func (r *fixedWindow) advance(w *WindowState, now int64) (moved bool) {
	if w.Serial == 0 || now >= w.End {
		*w = WindowState{}
		return false
	}
	latest := r.end(now)
	moved = w.End > latest
	w.End = min(w.End, latest)
	return moved
}

func (r *fixedWindow) charge(s *State, now, cost int64, _ string) {
	w := &s.Window
	if w.Serial == 0 {
		w.Serial, w.End = now, r.end(now)
	}
	w.Count += cost
}

func (r *fixedWindow) report(s *State, now int64) (left, reset int64) {
	left = r.Limit - s.Window.Count
	if s.Window.Serial == 0 {
		return left, 0
	}
	return left, s.Window.End - now
}

func (r *fixedWindow) mark(s *State, _ int64) int64 { return s.Window.Serial }

func (r *fixedWindow) until(s *State) int64 { return s.Window.End }

func (r *fixedWindow) settle(s *State, now int64, p *Payment) (changed, ok bool) {
	w := &s.Window
	moved := r.advance(w, now)
	more := p.Actual - p.Charged
	if more == 0 || p.Charged > 0 && (w.Serial == 0 || w.Serial != p.Mark) {
		return moved, true
	}
	if w.Count > MaxNumber-more {
		return false, false
	}
	r.charge(s, now, max(more, -w.Count), "")
	return true, true
}

func (r *fixedWindow) list(*State, int64) []Listed { return nil }

func (r *fixedWindow) seed(now, left, reset int64) State {
	if left >= r.Limit {
		return State{}
	}
	return State{Window: WindowState{Count: min(r.Limit-left, MaxNumber), Serial: now, End: now + reset}}
}
