package limit

// slidingWindow is the arithmetic of sliding_window.
type slidingWindow Window

func (r *slidingWindow) decide(s *State, now, cost int64) (wait int64, moved bool) { return 0, false }
func (r *slidingWindow) charge(s *State, now, cost int64, id string)               {}
func (r *slidingWindow) report(s *State, now int64) (left, reset int64)            { return 0, 0 }
func (r *slidingWindow) mark(s *State, now int64) int64                            { return 0 }
func (r *slidingWindow) until(s *State) int64                                      { return 0 }
func (r *slidingWindow) settle(s *State, now int64, p *Payment) (changed, ok bool) {
	return false, true
}
func (r *slidingWindow) list(s *State, now int64) []Listed { return nil }
func (r *slidingWindow) seed(now, left, reset int64) State { return State{} }
