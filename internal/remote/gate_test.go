package remote_test

import (
	"slices"
	"sync"
)

// gate lets every call through, and keeps how they ended.
type gate struct {
	told func(error) // nil: nobody is

	mu   sync.Mutex
	ends []error // guarded by mu
}

func (g *gate) Allow() (done func(error), err error) {
	return func(err error) {
		g.mu.Lock()
		g.ends = append(g.ends, err)
		g.mu.Unlock()
		if g.told != nil {
			g.told(err)
		}
	}, nil
}

// all returns how the calls ended so far.
func (g *gate) all() []error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.ends)
}
