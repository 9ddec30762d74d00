package remote

import "time"

// pace is what the last calls say of the next one: how long it takes, and how much it may carry. One of
// which only most is set knows nothing yet.
type pace struct {
	most   time.Duration // the longest patience
	usual  time.Duration // how long a call is out, on average
	charge time.Duration // what a charge takes in Redis, on average; 0: not known
}

const (
	// leastPatience is the least patience: what a call may take in Redis anyway, and what this process
	// may be late by when the machine is busy.
	leastPatience = time.Millisecond

	// A call is to keep Redis busy for no longer than busyFor: others wait meanwhile.
	busyFor = 500 * time.Microsecond

	firstSize = 128 // charges in a call as long as nothing is known
	leastSize = 16
	mostSize  = 512

	weight = 8 // a call counts for one of so many in an average
)

// patience returns how long a call may be out before others leave beside it: twice as long as is usual. Far from
// Redis, where two calls one after the other might take longer than a caller waits, it is most.
func (p *pace) patience() time.Duration {
	return min(max(2*p.usual, leastPatience), p.most)
}

// size returns how many charges a call may carry.
func (p *pace) size() int {
	if p.charge == 0 {
		return firstSize
	}
	return int(min(max(busyFor/p.charge, leastSize), mostSize))
}

// was takes over how long a call was out.
func (p *pace) was(out time.Duration) {
	// One that was held up says little of the next one.
	average(&p.usual, min(out, 4*p.patience()))
}

// cost takes over how long a call of so many charges took in Redis.
func (p *pace) cost(took time.Duration, charges int) {
	if charges > 0 {
		average(&p.charge, max(1, took/time.Duration(charges)))
	}
}

// average takes d into an average; the first one is the average.
func average(of *time.Duration, d time.Duration) {
	if *of == 0 {
		*of = d
	}
	*of += (d - *of) / weight
}
