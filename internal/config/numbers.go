package config

import (
	"slices"
	"strings"

	"github.com/tidegate/tidegate/internal/limit"
)

// setting is what a file says, and where; at is zero when it says nothing.
type setting[T any] struct {
	at  pos
	val T
}

func (s setting[T]) set() bool { return s.at.line > 0 }

// or returns s, or the base where the file does not say s.
func (s setting[T]) or(base setting[T]) setting[T] {
	if s.set() {
		return s
	}
	return base
}

// readSetting is read, and remembers where the value stands.
func readSetting[T any](m *mapping, key string, reader func(value) (T, bool), into *setting[T]) {
	read(m, key, func(v value) (setting[T], bool) {
		val, ok := reader(v)
		return setting[T]{v.at, val}, ok
	}, into)
}

// numbers are what a file says of the numbers of a limit, or of an override on those of its limit.
type numbers interface {
	// missing refuses a limit that lacks a setting. Every key of it must have been asked for.
	missing(m *mapping)
	// override reads the settings of an override; what that leaves out stays as it is here.
	override(m *mapping) numbers
	// denied returns these numbers, but such that nothing passes.
	denied() numbers
	// build returns what requests are decided with. at is the place of a problem that has none of
	// its own.
	build(src *source, at pos) (limit.Settings, bool)
	// describe writes the numbers, of which build has made s, for people to read.
	describe(d *description, s *limit.Settings)
	// summary is describe in a few words. Something passes s.
	summary(s *limit.Settings) string
}

// kind is an algorithm as files write it.
type kind struct {
	algorithm limit.Algorithm
	read      func(*mapping, limit.Algorithm) numbers // reads the settings of a limit
	size      string                                  // the setting that says how much can pass at once
	pace      []string                                // the settings that say in what time, of which a limit has one
	leasable  bool                                    // nodes may take some of it on lease
	stored    string                                  // what holds the state in Redis; empty: the setting state says it
	label     string                                  // what messages call it; set by readKind
}

// kinds are the algorithms, the default first.
var kinds = [...]kind{
	{algorithm: limit.TokenBucketAlgorithm, read: as(readBucket), size: "burst", pace: []string{"rate"}, leasable: true},
	{algorithm: limit.LeakyBucketAlgorithm, read: as(readBucket), size: "burst", pace: []string{"rate"}},
	{algorithm: limit.LeakyBucketLogAlgorithm, read: as(readBucket), size: "capacity", pace: []string{"rate"}, stored: sortedSet},
	{algorithm: limit.SlidingWindowLogAlgorithm, read: as(readWindow), size: "limit", pace: []string{"window"}, stored: sortedSet},
	{algorithm: limit.SlidingWindowAlgorithm, read: as(readWindow), size: "limit", pace: []string{"window"}},
	{algorithm: limit.FixedWindowAlgorithm, read: as(readWindow), size: "limit", pace: []string{"window", "period"}, leasable: true},
	{algorithm: limit.ConcurrencyAlgorithm, read: as(readSlots), size: "limit", pace: []string{"ttl"}, stored: sortedSet},
}

const sortedSet = "sorted set"

// as makes a reader of one type of numbers a reader of numbers.
func as[N numbers](reader func(*mapping, limit.Algorithm) N) func(*mapping, limit.Algorithm) numbers {
	return func(m *mapping, a limit.Algorithm) numbers { return reader(m, a) }
}

// readKind reads the algorithm. It returns a kind that takes the settings of all when it cannot be
// told which one is meant, as where the key is misspelt.
func readKind(m *mapping) kind {
	v, ok := m.get("algorithm")
	if !ok && m.lacks("algorithm") {
		k := kinds[0]
		k.label = k.algorithm.String() + " (the default algorithm)"
		return k
	}
	var word string
	if ok {
		names := make([]string, len(kinds))
		for i, k := range kinds {
			names[i] = k.algorithm.String()
		}
		word, _ = v.choice(names, "paced_queue")
	}
	for _, k := range kinds {
		if k.algorithm.String() == word {
			k.label = word
			return k
		}
	}
	return kind{read: as(readUndecided)}
}

// refuseOthers makes m refuse the settings of other algorithms, and say what this one has instead.
// Its own must have been asked for.
func (k *kind) refuseOthers(m *mapping) {
	for _, key := range []string{"rate", "refill", "burst", "initial", "capacity", "limit", "window", "period", "timezone", "ttl"} {
		if !slices.Contains(m.known, key) {
			advice, instead := k.instead(m, key)
			m.refuses(key, key+" is no setting of "+k.label+": "+advice, instead...)
		}
	}
}

// instead says what to write instead of a setting of another algorithm, and by which settings. It
// names none that m does not take.
func (k *kind) instead(m *mapping, key string) (advice string, settings []string) {
	var size, pace []string
	switch key {
	case "burst", "capacity", "limit":
		size = []string{k.size}
	case "window", "period":
		pace = k.pace
	case "rate", "refill":
		pace = k.pace
		if pace[0] != "rate" {
			size = []string{k.size}
		}
	case "initial":
		return "take it out, for a key begins unused", nil
	case "timezone":
		return "take it out, for it belongs to the period of a fixed_window", nil
	case "ttl":
		return "take it out, for a state that is not in use goes by itself", nil
	}
	pace = slices.DeleteFunc(slices.Clone(pace), func(key string) bool { return !slices.Contains(m.known, key) })
	settings = append(size, pace...)
	switch {
	case len(settings) == 0:
		return "take it out", nil
	case len(size) > 0 && len(pace) > 0:
		return "write " + k.size + " and " + strings.Join(pace, " or "), settings
	}
	return "write " + strings.Join(settings, " or "), settings
}

// undecided are the numbers of a limit whose algorithm is refused: each is read, to find what is
// wrong with it, and nothing is made of them.
type undecided struct{ bucket }

func readUndecided(m *mapping, _ limit.Algorithm) undecided {
	readWindow(m, limit.FixedWindowAlgorithm)
	var capacity, ttl setting[int64]
	readSetting(m, "capacity", value.whole, &capacity)
	readSetting(m, "ttl", micros, &ttl)
	return undecided{readBucket(m, limit.TokenBucketAlgorithm)}
}

func (undecided) missing(*mapping) {}

func (undecided) override(m *mapping) numbers { return readUndecided(m, 0) }
