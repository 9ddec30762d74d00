package limit

// slidingWindowLog is the arithmetic of sliding_window_log.
type slidingWindowLog Window

func (r *slidingWindowLog) decide(s *State, now, cost int64) (wait int64, moved bool) {
	return 0, false
}
func (r *slidingWindowLog) charge(s *State, now, cost int64, id string)    {}
func (r *slidingWindowLog) report(s *State, now int64) (left, reset int64) { return 0, 0 }
func (r *slidingWindowLog) mark(s *State, now int64) int64                 { return 0 }
func (r *slidingWindowLog) until(s *State) int64                           { return 0 }
func (r *slidingWindowLog) settle(s *State, now int64, p *Payment) (changed, ok bool) {
	return false, true
}
func (r *slidingWindowLog) list(s *State, now int64) []Listed { return nil }
func (r *slidingWindowLog) seed(now, left, reset int64) State { return State{} }
