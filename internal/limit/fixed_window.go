package limit

// fixedWindow is the arithmetic of fixed_window.
type fixedWindow Window

func (r *fixedWindow) decide(s *State, now, cost int64) (wait int64, moved bool) { return 0, false }
func (r *fixedWindow) charge(s *State, now, cost int64, id string)               {}
func (r *fixedWindow) report(s *State, now int64) (left, reset int64)            { return 0, 0 }
func (r *fixedWindow) mark(s *State, now int64) int64                            { return 0 }
func (r *fixedWindow) until(s *State) int64                                      { return 0 }
func (r *fixedWindow) settle(s *State, now int64, p *Payment) (changed, ok bool) { return false, true }
func (r *fixedWindow) list(s *State, now int64) []Listed                         { return nil }
func (r *fixedWindow) seed(now, left, reset int64) State                         { return State{} }
