package limit

// slidingWindow is the arithmetic of sliding_window. It counts what was charged in the current window
// and in the one before, on a grid that begins with the key's first charge, and takes it that the old
// charges were spread evenly: of those, the part counts that a window ending now would still cover.
//
// A cost passes when what it makes of the current count is at most the limit, and
//
//	min(previous, limit) × (units - e) + (count + cost) × units ≤ limit × units
//
// where e is the whole units since the current window began. Every product is below 2^52.
// lua/sliding_window.lua mirrors it: change both, and testdata/sliding_window.json, together.
type slidingWindow Window

func (r *slidingWindow) decide(s *State, now, cost int64) (wait int64, moved bool) {
	moved = r.advance(&s.Window, now)
	if cost > r.Limit {
		if !r.Overdraw {
			return Never, moved
		}
		cost = r.Limit
	}
	return max(0, r.passesAt(&s.Window, cost)-now), moved
}

// advance brings the grid to now. A clock that was set back begins the current window again, with its
// count.
func (r *slidingWindow) advance(w *WindowState, now int64) (moved bool) {
	switch {
	case w.Serial == 0 || now >= r.end(w):
		*w = WindowState{}
	case now < w.Start:
		w.Start, moved = now, true
	case now >= w.Start+r.Micros:
		w.Previous, w.Count = w.Count, 0
		w.Start += r.Micros
		w.Serial += r.Micros
	}
	return moved
}

// end returns when a state says no more than an absent one.
func (r *slidingWindow) end(w *WindowState) int64 {
	if w.Count > 0 {
		return w.Start + 2*r.Micros
	}
	return w.Start + r.Micros
}

// passesAt returns the earliest time, from the beginning of the current window on, at which cost, which
// is at most the limit, passes if nothing else is charged.
func (r *slidingWindow) passesAt(w *WindowState, cost int64) int64 {
	if e, ok := r.opens(min(w.Previous, r.Limit), r.Limit-cost-w.Count); ok {
		return w.Start + e*r.Unit
	}
	if e, ok := r.opens(min(w.Count, r.Limit), r.Limit-cost); ok {
		return w.Start + r.Micros + e*r.Unit
	}
	return w.Start + 2*r.Micros
}

// opens returns how many units of a window must be over before no more of what was charged in the one
// before counts than is free. It is not ok when that much counts up to the window's end. old is at most
// the limit, and so is free.
func (r *slidingWindow) opens(old, free int64) (e int64, ok bool) {
	if old <= free {
		return 0, true
	}
	if free <= 0 {
		return 0, false
	}
	still := free * r.Units / old // for so many units of its time, old × still ÷ units is free
	return r.Units - still, still > 0
}

func (r *slidingWindow) charge(s *State, now, cost int64, _ string) {
	w := &s.Window
	if w.Serial == 0 {
		w.Serial, w.Start = now, now
	}
	w.Count += cost
}

func (r *slidingWindow) report(s *State, now int64) (left, reset int64) {
	w := &s.Window
	left = r.Limit - w.Count
	if w.Previous > 0 {
		e := (now - w.Start) / r.Unit
		left -= ceilDiv(min(w.Previous, r.Limit)*(r.Units-e), r.Units)
	}
	if w.Count > 0 || w.Previous > 0 {
		reset = r.end(w) - now
	}
	return left, reset
}

func (r *slidingWindow) mark(s *State, _ int64) int64 { return s.Window.Serial }

func (r *slidingWindow) until(s *State) int64 { return r.end(&s.Window) }

func (r *slidingWindow) settle(s *State, now int64, p *Payment) (changed, ok bool) {
	w := &s.Window
	moved := r.advance(w, now)
	counter, more := r.charged(w, p), p.Actual-p.Charged
	if more == 0 || counter == nil {
		return moved, true
	}
	if *counter > MaxNumber-more {
		return false, false
	}
	*counter = max(0, *counter+more)
	r.charge(s, now, 0, "")
	return true, true
}

// charged returns the counter that holds what was charged, or is to be charged all of it; nil when that
// window is gone.
func (r *slidingWindow) charged(w *WindowState, p *Payment) *int64 {
	switch {
	case p.Charged == 0:
		return &w.Count
	case w.Serial == 0:
		return nil
	case w.Serial == p.Mark:
		return &w.Count
	case w.Serial-r.Micros == p.Mark:
		return &w.Previous
	}
	return nil
}

func (r *slidingWindow) list(*State, int64) []Listed { return nil }

// seed takes it that all was charged just now: how long ago that was, reset does not tell.
func (r *slidingWindow) seed(now, left, _ int64) State {
	if left >= r.Limit {
		return State{}
	}
	return State{Window: WindowState{Count: min(r.Limit-left, MaxNumber), Serial: now, Start: now}}
}
