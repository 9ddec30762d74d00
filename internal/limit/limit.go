// Package limit is the vocabulary that every tier shares: limits, policies, questions,
// decisions, and the pure arithmetic of every algorithm. It keeps no state, starts no
// goroutine and reads no clock; it imports the standard library only. The arithmetic is the
// executable specification of the Lua scripts, which are tested against it.
//
// All arithmetic is in integers below 2^53, so that Go's int64 and Lua's float64 agree
// exactly. Times are microseconds since 1970, durations microseconds.
package limit

// MaxNumber is the largest number that a limit, a burst or a cost may be: 2^53, up to which
// float64, and so Lua, holds every integer.
const MaxNumber = 1 << 53

// maxFill is the longest time, in microseconds, that a limit may need from empty to full:
// 100 years of 365.25 days.
const maxFill = 36525 * 86_400_000_000

// RequestsUnit is the unit that a limit counts when it names none.
const RequestsUnit = "requests"

// Algorithm says how a limit counts.
type Algorithm uint8

// The algorithms. There is no zero algorithm: Settings always name one. The Lua scripts know them by
// these numbers.
const (
	TokenBucketAlgorithm Algorithm = iota + 1
	LeakyBucketAlgorithm
	LeakyBucketLogAlgorithm
	SlidingWindowLogAlgorithm
	SlidingWindowAlgorithm
	FixedWindowAlgorithm
	ConcurrencyAlgorithm
)

var algorithmNames = [...]string{
	"unknown", "token_bucket", "leaky_bucket", "leaky_bucket_log", "sliding_window_log", "sliding_window", "fixed_window", "concurrency",
}

// String returns the algorithm's name in the config.
func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) {
		return algorithmNames[a]
	}
	return algorithmNames[0]
}

// Algorithms returns every algorithm.
func Algorithms() []Algorithm {
	var all []Algorithm
	for a := TokenBucketAlgorithm; int(a) < len(algorithmNames); a++ {
		all = append(all, a)
	}
	return all
}

// StateForm says how a limit's state lies in Redis.
type StateForm uint8

// The forms of a state.
const (
	HashState   StateForm = iota // a Hash, one field a number; the default
	StringState                  // one String, smaller and faster in large batches
)

// String returns the form's name in the config.
func (f StateForm) String() string {
	if f == StringState {
		return "string"
	}
	return "hash"
}

// FailurePolicy says what a limit answers while Redis does not.
type FailurePolicy uint8

// The failure policies.
const (
	FailLocal  FailurePolicy = iota // decide here with this node's share; the default
	FailOpen                        // allow
	FailClosed                      // refuse with 503
)

// String returns the policy's name in the config.
func (p FailurePolicy) String() string {
	switch p {
	case FailOpen:
		return "open"
	case FailClosed:
		return "closed"
	default:
		return "local"
	}
}

// Limit is one configured limit. It must not be changed once NewRules has taken it.
type Limit struct {
	Name           string
	State          StateForm
	Unit           string   // what a cost counts; never empty
	DefaultCost    int64    // the cost of a request that names none in Unit
	Key            []string // the attributes that make the bucket; empty: one bucket for all
	Colocate       []string // the part of Key that is the hash tag; empty: the whole key is
	When           []Match  // all must match for the limit to apply; empty: always applies
	Settings       Settings
	Overrides      []Override // the first that matches replaces Settings
	OnRedisFailure FailurePolicy
	Shadow         bool // decides and counts, never denies

	index     int       // its place among the limits of its Rules
	id        string    // name~h
	keyHead   string    // what a state's key begins with: up to its values, or its tag
	keyTag    string    // with Colocate: what follows the tag, up to the values
	keyValues []keyPart // Key
	tagValues []keyPart // Colocate
}

// Index returns the limit's place among the Limits of the Rules that have taken it.
func (l *Limit) Index() int { return l.index }

// Override replaces a limit's settings for the requests that it matches.
type Override struct {
	When     []Match
	Exempt   bool // the limit does not apply; Settings are unused
	Settings Settings
}
