package local

import "container/heap"

// expiryHeap orders states by when they are due, the earliest first.
type expiryHeap []*state

// Len, Less, Swap, Push and Pop are heap.Interface.
func (h expiryHeap) Len() int           { return len(h) }
func (h expiryHeap) Less(i, j int) bool { return h[i].due < h[j].due }
func (h expiryHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push appends a *state.
func (h *expiryHeap) Push(x any) {
	s := x.(*state)
	s.place = len(*h)
	*h = append(*h, s)
}

// Pop removes the last state, which then has no place.
func (h *expiryHeap) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	s.place = -1
	return s
}

func (h *expiryHeap) push(s *state)   { heap.Push(h, s) }
func (h *expiryHeap) remove(s *state) { heap.Remove(h, s.place) }

func (h *expiryHeap) move(s *state, due int64) {
	s.due = due
	heap.Fix(h, s.place)
}
