package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
)

// get returns the value of key, if it is there. One without a value is refused and counts as not
// there.
func (m *mapping) get(key string) (value, bool) {
	m.known = append(m.known, key)
	i := slices.IndexFunc(m.entries, func(e entry) bool { return e.key == key })
	if i < 0 {
		return value{}, false
	}
	e := m.entries[i]
	if _, null := e.value.node.(*ast.NullNode); null {
		m.src.refuse(e.at, "%s has no value: write one, or leave it out", key)
		return value{}, false
	}
	return e.value, true
}

// block returns the mapping that stands under key, if it is there.
func (m *mapping) block(key string) (*mapping, bool) {
	v, ok := m.get(key)
	if !ok {
		return nil, false
	}
	return v.mapping()
}

// has reports whether key is written, whatever its value.
func (m *mapping) has(key string) bool {
	return slices.ContainsFunc(m.entries, func(e entry) bool { return e.key == key })
}

// placeOf returns where the value of the first of keys stands that is there, or where the mapping
// begins when none is.
func (m *mapping) placeOf(keys ...string) pos {
	for _, key := range keys {
		if i := slices.IndexFunc(m.entries, func(e entry) bool { return e.key == key }); i >= 0 {
			return m.entries[i].value.at
		}
	}
	return m.at
}

// refusal is why a mapping does not take a key, and what to write instead: a text, and the keys that
// it names.
type refusal struct {
	key, text string
	instead   []string
}

// refuses says why the mapping does not take a key that is known. Only the first reason counts.
func (m *mapping) refuses(key, text string, instead ...string) {
	m.refusals = append(m.refusals, refusal{key, text, instead})
}

// refusal returns why the mapping does not take key.
func (m *mapping) refusal(key string) (refusal, bool) {
	i := slices.IndexFunc(m.refusals, func(r refusal) bool { return r.key == key })
	if i < 0 {
		return refusal{}, false
	}
	return m.refusals[i], true
}

// later names keys that this version knows of and does not have.
func (m *mapping) later(keys ...string) {
	for _, key := range keys {
		m.refuses(key, "this version does not have "+m.label(key)+": take it out")
	}
}

// inRequest refuses what is written in requests.
func (m *mapping) inRequest() {
	m.refuses("max_wait_ms", "max_wait_ms is no setting: write it into the request, beside its attributes")
}

// close refuses the keys that nobody has asked for.
func (m *mapping) close() {
	for _, e := range m.entries {
		if slices.Contains(m.known, e.key) {
			continue
		}
		if r, ok := m.refusal(e.key); ok {
			m.src.refuse(e.at, "%s", r.text)
		} else if guess, found := nearest(e.key, m.known); found {
			m.src.refuse(e.at, "unknown key %s: did you mean %s?", shown(e.key), guess)
		} else {
			m.src.refuse(e.at, "unknown key %s: %s takes %s", shown(e.key), m.name, listed(m.known, "and"))
		}
	}
}

// label returns the key as messages call it outside of its block.
func (m *mapping) label(key string) string {
	if strings.Contains(m.name, " ") { // "the file", or an entry of a list
		return key
	}
	return m.name + "." + key
}

// lacks reports whether key is missing, and not just misspelt, or said by a key that is refused,
// which close says better. Every key must have been asked for, and every refusal be known.
func (m *mapping) lacks(key string) bool {
	return !m.has(key) && !slices.ContainsFunc(m.entries, func(e entry) bool {
		if slices.Contains(m.known, e.key) {
			return false
		}
		if r, ok := m.refusal(e.key); ok {
			return slices.Contains(r.instead, key)
		}
		guess, _ := nearest(e.key, m.known)
		return guess == key
	})
}

// shown quotes a text for a message, and cuts it where it is long.
func shown(text string) string {
	const most = 64
	if len(text) <= most {
		return fmt.Sprintf("%q", text)
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return fmt.Sprintf("%q…", text[:cut])
}

// plain returns a text as it is, but quoted and cut where it is long or does not print well.
func plain(text string) string {
	if quoted := shown(text); quoted != `"`+text+`"` {
		return quoted
	}
	return text
}

// oneLine returns a text with everything that does not print written as in Go, such as \n.
func oneLine(text string) string {
	var line strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			line.WriteRune(r)
		} else {
			line.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return line.String()
}

// listed writes words as "a, b and c", with the joint given.
func listed(words []string, joint string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " " + joint + " " + words[last]
}

// nearest returns the one of words that is most like text, if one is like it at all: another
// case, - for _, the beginning or more than the end of it, or a slip in at most every third letter.
func nearest(text string, words []string) (string, bool) {
	if len(text) > 64 {
		return "", false
	}
	text = strings.ReplaceAll(strings.ToLower(text), "-", "_")
	best, least := "", max(1, len(text)/3)+1
	for _, word := range words {
		plain := strings.ReplaceAll(strings.ToLower(word), "-", "_")
		slips := distance(text, plain)
		if short := min(len(text), len(plain)); short >= 4 && text[:short] == plain[:short] {
			slips = min(slips, 1)
		}
		if slips < least {
			best, least = word, slips
		}
	}
	return best, best != ""
}

// distance returns how many letters must be put in, taken out, changed or swapped with their
// neighbour to turn a into b.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
