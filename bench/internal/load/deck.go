// Package load puts questions to a server and says how fast and how soon they were answered: in a
// closed loop with wrk over TCP or with a client of its own over a Unix socket, and at a constant
// arrival rate with vegeta.
package load

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
)

// Path is where every question goes.
const Path = "/v1/check"

// Deck is the bodies of questions in the order in which they are asked; after the last comes the first
// again. The same deck makes the same load whoever asks.
type Deck [][]byte

// draws is the length of a deck of random keys: long enough that of 100,000 keys asked evenly 19 in 20
// appear.
const draws = 300_000

// seed makes every run of the benchmark draw the same keys.
const seed = 20_260_101

// One returns a deck of a single question.
func One(body string) Deck { return Deck{[]byte(body)} }

// Uniform returns a deck that asks format, which holds one verb for a number, about keys, each as likely
// as the others.
func Uniform(format string, keys int) Deck {
	rng := rand.New(rand.NewPCG(seed, uint64(keys)))
	return drawn(format, keys, func() int { return rng.IntN(keys) })
}

// Zipf returns a deck in which the k-th of keys is asked about in proportion to 1/k^1.1: the first makes
// about a tenth of all, the first hundred more than half.
func Zipf(format string, keys int) Deck {
	zipf := rand.NewZipf(rand.New(rand.NewPCG(seed, uint64(keys))), 1.1, 1, uint64(keys-1))
	return drawn(format, keys, func() int { return int(zipf.Uint64()) })
}

// drawn makes each body once, however often it is asked.
func drawn(format string, keys int, draw func() int) Deck {
	bodies := make([][]byte, keys)
	for key := range bodies {
		bodies[key] = fmt.Appendf(nil, format, key)
	}
	deck := make(Deck, draws)
	for i := range deck {
		deck[i] = bodies[draw()]
	}
	return deck
}

// Batches returns a deck of questions of size each, which asks about every one of keys in turn; size
// divides keys. format is one of the questions.
func Batches(format string, keys, size int) Deck {
	deck := make(Deck, keys/size)
	for i := range deck {
		body := []byte(`{"checks":[`)
		for j := range size {
			if j > 0 {
				body = append(body, ',')
			}
			body = fmt.Appendf(body, format, i*size+j)
		}
		deck[i] = append(body, "]}"...)
	}
	return deck
}

// Write writes the deck to a file, a body a line, as the script of wrk reads it.
func (d Deck) Write(file string) error {
	return os.WriteFile(file, append(bytes.Join(d, []byte("\n")), '\n'), 0o600)
}
