package limit

// leakyBucketLog is the arithmetic of leaky_bucket_log.
type leakyBucketLog TokenBucket

func (r *leakyBucketLog) decide(s *State, now, cost int64) (wait int64, moved bool) { return 0, false }
func (r *leakyBucketLog) charge(s *State, now, cost int64, id string)               {}
func (r *leakyBucketLog) report(s *State, now int64) (left, reset int64)            { return 0, 0 }
func (r *leakyBucketLog) mark(s *State, now int64) int64                            { return 0 }
func (r *leakyBucketLog) until(s *State) int64                                      { return 0 }
func (r *leakyBucketLog) settle(s *State, now int64, p *Payment) (changed, ok bool) {
	return false, true
}
func (r *leakyBucketLog) list(s *State, now int64) []Listed { return nil }
func (r *leakyBucketLog) seed(now, left, reset int64) State { return State{} }
