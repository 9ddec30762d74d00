package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong in a file.
type Problem struct {
	File string
	Line int    // from 1
	Col  int    // from 1, in characters
	Text string // what is wrong, and what to write instead; one line
}

// String writes the problem as file:line:col: text.
func (p Problem) String() string { return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Col, p.Text) }

// Errors are all the problems of a file, in the order of their positions; there is at least one.
type Errors []Problem

// Error writes one problem a line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, p := range e {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

func (e Errors) sorted() Errors {
	slices.SortStableFunc(e, byPosition)
	return e
}

func byPosition(a, b Problem) int {
	return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
}

// Warning is something in a file that is allowed and probably not meant.
type Warning Problem

// String writes the warning as file:line:col: text.
func (w Warning) String() string { return Problem(w).String() }
