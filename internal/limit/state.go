package limit

// State is what a store keeps under one key. Which part is in use is the algorithm's; the zero State
// is that of a key that was never used. A copy of a State shares the memory of its entries, which
// therefore are never changed in place: Decide only leaves out those at the beginning, Charge puts one
// behind the last, and of two copies one alone may be charged; whoever changes others makes new ones.
type State struct {
	Bucket  BucketState // of token_bucket and leaky_bucket
	Window  WindowState // of fixed_window and sliding_window
	Lease   LeaseState  // of leased limits, beside Bucket or Window
	Entries []Entry     // of sliding_window_log, leaky_bucket_log and concurrency, in the order of At
}

// WindowState is the stored state of a window that is counted. Times are µs since 1970. The zero
// state is that of a window that was never used.
type WindowState struct {
	Count    int64 // charged in the current window
	Previous int64 // sliding_window: charged in the window before
	Start    int64 // sliding_window: when the current window began
	End      int64 // fixed_window: when the current window ends
	Serial   int64 // names the current window: when it began, had the clock never been set back; 0 means absent
}

// Entry is one request in a log, or the holder of a slot. Times are µs since 1970.
type Entry struct {
	At    int64  // when it was charged (sliding_window_log), has drained (leaky_bucket_log) or expires (concurrency)
	Sum   int64  // the costs of all entries up to this one, its own included, since the log was last empty; of the logs
	Cost  int64  // of the logs
	Start int64  // when it was charged
	Short int64  // leaky_bucket_log: by how much At is rounded up, in 1/Per µs
	Per   int64  // leaky_bucket_log: the settings' Tokens at the time of writing
	ID    string // of the decision; empty where nothing needs one
}

// Payment is what becomes of one charge when its ticket is settled.
type Payment struct {
	Charged int64  // what was charged
	Actual  int64  // what is to be charged in the end
	Mark    int64  // what Mark returned when it was charged
	ID      string // of the decision that was charged
}

// Listed is one holder of a slot, or one request that waits in a leaky bucket. Times are µs from now.
type Listed struct {
	Cost int64 // of a waiting request
	Age  int64 // since it was charged
	Due  int64 // until the slot expires, or the request has drained
}

// maxListed is how many entries List returns at most.
const maxListed = 100

// rule is the arithmetic of one algorithm with its numbers. The methods are those of Settings.
type rule interface {
	decide(s *State, now, cost int64) (wait int64, moved bool)
	charge(s *State, now, cost int64, id string)
	report(s *State, now int64) (left, reset int64)
	mark(s *State, now int64) int64
	until(s *State) int64
	settle(s *State, now int64, p *Payment) (changed, ok bool)
	list(s *State, now int64) []Listed
	seed(now, left, reset int64) State
}

func (s *Settings) rule() rule {
	if s.Hold > 0 {
		return s.leasing()
	}
	switch s.Algorithm {
	case LeakyBucketLogAlgorithm:
		return (*leakyBucketLog)(&s.Bucket)
	case SlidingWindowLogAlgorithm:
		return (*slidingWindowLog)(&s.Window)
	case SlidingWindowAlgorithm:
		return (*slidingWindow)(&s.Window)
	case FixedWindowAlgorithm:
		return (*fixedWindow)(&s.Window)
	case ConcurrencyAlgorithm:
		return (*concurrency)(&s.Slots)
	default:
		return (*bucketRule)(&s.Bucket)
	}
}

// Decide brings a state to now and says how long, in µs, cost must still wait: 0 when it passes,
// Never when it cannot. Waiting exactly that long passes. moved says that the state must be stored
// (through Charge with a cost of 0) even if nothing is charged. A cost of 0 passes unless the limit is
// in debt.
func (s *Settings) Decide(st *State, now, cost int64) (wait int64, moved bool) {
	return s.rule().decide(st, now, cost)
}

// Charge takes cost from the state that Decide brought to now, and makes it ready to be stored. It
// does not ask whether the cost passes. id names the decision where something may later be settled.
func (s *Settings) Charge(st *State, now, cost int64, id string) {
	s.rule().charge(st, now, cost, id)
}

// Report returns what is left of a state from Decide, Charge or Settle (below 0 in debt), and how
// many µs it takes until it is as if unused.
func (s *Settings) Report(st *State, now int64) (left, reset int64) {
	return s.rule().report(st, now)
}

// Mark returns what names the window or the entry that Charge has just charged, for Settle. Of a
// bucket it is the time at which it is full again.
func (s *Settings) Mark(st *State, now int64) int64 { return s.rule().mark(st, now) }

// Until returns the time, in µs since 1970, from which on a state from Charge or Settle says no more
// than an absent one.
func (s *Settings) Until(st *State) int64 { return s.rule().until(st) }

// Settle charges the difference between what was charged and what is to be, or gives it back: to
// the window or entry that was charged, and nowhere when that is gone; to a bucket as it is now, but
// never above its burst. Where nothing was charged, all is charged now. A slot is freed when Actual is
// 0. Settle takes a stored state and brings it to now. changed says that it must be stored. It is not
// ok, and the state is void, when the debt would take more than 100 years or 2^53.
func (s *Settings) Settle(st *State, now int64, p *Payment) (changed, ok bool) {
	return s.rule().settle(st, now, p)
}

// Renew lets the slot of the decision named id last for another TTL from now, and reports whether
// it was still held. It takes a stored state of a concurrency limit and brings it to now.
func (s *Settings) Renew(st *State, now int64, id string) (held bool) {
	return (*concurrency)(&s.Slots).renew(st, now, id)
}

// List returns who holds a slot, or what waits in a leaky_bucket_log, the oldest first, at most 100.
// It is empty for the other algorithms. The state is one from Decide.
func (s *Settings) List(st *State, now int64) []Listed { return s.rule().list(st, now) }

// Out returns how many tokens of a state from Decide, Charge, Settle, TakeBack or Lend are out on lease.
func (s *Settings) Out(st *State) int64 {
	if s.Hold == 0 {
		return 0
	}
	return st.Lease.out()
}

// Seed returns a state of which left is left, and which is as if unused after reset µs: what a node's
// share begins with. left is at most the capacity.
func (s *Settings) Seed(now, left, reset int64) State { return s.rule().seed(now, left, reset) }

// bucketRule is the arithmetic of a token bucket, and of a leaky bucket: the backlog of that is what
// its tokens lack of the burst.
type bucketRule TokenBucket

func (r *bucketRule) bucket() *TokenBucket { return (*TokenBucket)(r) }

func (r *bucketRule) decide(s *State, now, cost int64) (wait int64, moved bool) {
	s.Bucket, wait, moved = r.bucket().Decide(s.Bucket, now, cost)
	return wait, moved
}

func (r *bucketRule) charge(s *State, _, cost int64, _ string) {
	s.Bucket = r.bucket().Charge(s.Bucket, cost)
}

func (r *bucketRule) report(s *State, _ int64) (left, reset int64) {
	return s.Bucket.Tokens, r.bucket().TimeToFull(s.Bucket)
}

func (r *bucketRule) mark(s *State, now int64) int64 {
	return now + r.bucket().TimeToFull(s.Bucket)
}

func (r *bucketRule) until(s *State) int64 { return s.Bucket.Until }

func (r *bucketRule) list(*State, int64) []Listed { return nil }

func (r *bucketRule) settle(s *State, now int64, p *Payment) (changed, ok bool) {
	b := r.bucket()
	absent := s.Bucket.Micros == 0 || now >= s.Bucket.Until
	next, _, moved := b.Decide(s.Bucket, now, 0)
	s.Bucket = next
	more := p.Actual - p.Charged
	switch {
	case more == 0 || absent && more < 0:
		if !absent && moved {
			s.Bucket = b.Charge(next, 0)
		}
		return !absent && moved, true
	case next.Tokens-more < b.Lowest:
		return false, false
	case next.Tokens-more >= b.Burst:
		next.Tokens, next.Rem, more = b.Burst, 0, 0
	}
	s.Bucket = b.Charge(next, more)
	return true, true
}

func (r *bucketRule) seed(now, left, _ int64) State {
	b := r.bucket()
	return State{Bucket: b.Charge(BucketState{Tokens: left, At: now, Micros: b.Micros}, 0)}
}
