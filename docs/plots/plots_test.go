package main

import (
	"bytes"
	"os"
	"testing"
)

// TestFiguresAreCurrent: the figures in the repository are what the arithmetic of today gives.
func TestFiguresAreCurrent(t *testing.T) {
	figures, err := draw()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range figures {
		got, err := os.ReadFile(name)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what is drawn now (error %v): run make plots", name, err)
		}
	}
}

// TestWorst counts by hand.
func TestWorst(t *testing.T) {
	times := []int64{0, 1, 2, 10, 11, 12, 13, 20}
	for length, want := range map[int64]int{1: 1, 2: 2, 3: 3, 4: 4, 10: 4, 11: 5, 12: 5, 13: 6, 21: 8} {
		if got := worst(times, length); got != want {
			t.Errorf("in %d: %d, want %d", length, got, want)
		}
	}
}

// TestBoundsOfTheContestants: on the trace of the figures, the exact window never admits more than
// its limit in any span of its length, the others no more than their pages say.
func TestBoundsOfTheContestants(t *testing.T) {
	all, err := contestants()
	if err != nil {
		t.Fatal(err)
	}
	bounds := []int{200, 110, 110, 200, 199, 100} // beside contestants
	for i, c := range all {
		run := c.replay(trace())
		if got := worst(run.times, window); got > bounds[i] || got < 50 {
			t.Errorf("%s: %d in %ds, want at most %d", c.name, got, window/second, bounds[i])
		}
	}
}
