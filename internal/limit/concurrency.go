package limit

// concurrency is the arithmetic of concurrency.
type concurrency Slots

func (r *concurrency) decide(s *State, now, cost int64) (wait int64, moved bool) { return 0, false }
func (r *concurrency) charge(s *State, now, cost int64, id string)               {}
func (r *concurrency) report(s *State, now int64) (left, reset int64)            { return 0, 0 }
func (r *concurrency) mark(s *State, now int64) int64                            { return 0 }
func (r *concurrency) until(s *State) int64                                      { return 0 }
func (r *concurrency) settle(s *State, now int64, p *Payment) (changed, ok bool) { return false, true }
func (r *concurrency) list(s *State, now int64) []Listed                         { return nil }
func (r *concurrency) seed(now, left, reset int64) State                         { return State{} }
func (r *concurrency) renew(s *State, now int64, id string) (held bool)          { return false }
