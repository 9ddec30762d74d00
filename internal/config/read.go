package config

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/tidegate/tidegate/internal/limit"
)

// value is one node of the file. Its readers return what it holds, or refuse it and return false.
type value struct {
	src  *source
	name string // what messages call it
	at   pos
	node ast.Node
}

// mapping is a YAML mapping whose keys are being asked for. What nobody has asked for when it is
// closed is an unknown key.
type mapping struct {
	src      *source
	name     string // what messages call it; empty for the whole file
	at       pos
	entries  []entry
	known    []string
	refusals []refusal // keys that mean something, but not here
}

type entry struct {
	key   string
	at    pos
	value value
}

// read sets into to what the value of key holds. It leaves into alone when the key is not there
// or its value is refused.
func read[T any](m *mapping, key string, reader func(value) (T, bool), into *T) {
	if v, ok := m.get(key); ok {
		if got, ok := reader(v); ok {
			*into = got
		}
	}
}

// scalar returns a scalar's text, quoted or not; want says what to write instead of anything else.
func (v value) scalar(want string) (string, bool) {
	switch n := v.node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	v.src.refuse(v.at, "%s is %s: write %s", v.name, v.shown(), want)
	return "", false
}

// nonEmpty returns a text that is not empty.
func (v value) nonEmpty() (string, bool) {
	text, ok := v.scalar("a text")
	if ok && text == "" {
		v.src.refuse(v.at, "%s is empty: write a value, or leave it out", v.name)
		return "", false
	}
	return text, ok
}

// whole returns a whole number from 0 to 2^53.
func (v value) whole() (int64, bool) {
	const want = "a whole number in digits alone, such as 1000"
	text, ok := v.scalar(want)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case v.quoted():
		v.src.refuse(v.at, "%s is %s: write a whole number without quotes", v.name, v.shown())
	case strings.HasPrefix(text, "-"):
		v.src.refuse(v.at, "%s is %s: write 0 or more", v.name, v.shown())
	case !allDigits(text):
		v.src.refuse(v.at, "%s is %s: write %s", v.name, v.shown(), want)
	case text[0] == '0' && text != "0":
		v.src.refuse(v.at, "%s is %s, which some read as octal: write it without the 0 in front", v.name, v.shown())
	case err != nil || n > limit.MaxNumber:
		v.src.refuse(v.at, "%s is %s, which is above 2^53: write at most %d", v.name, v.shown(), int64(limit.MaxNumber))
	default:
		return n, true
	}
	return 0, false
}

func allDigits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// count reads a number of things: from 1 to a thousand million.
func count(v value) (int, bool) {
	const most = 1_000_000_000
	n, ok := v.whole()
	if ok && (n < 1 || n > most) {
		v.src.refuse(v.at, "%s is %d: write 1 to %d, or leave it out for the default", v.name, n, most)
		return 0, false
	}
	return int(n), ok
}

// flag returns true or false.
func (v value) flag() (bool, bool) {
	if n, ok := v.node.(*ast.BoolNode); ok {
		return n.Value, true
	}
	v.src.refuse(v.at, "%s is %s: write true or false, without quotes", v.name, v.shown())
	return false, false
}

// duration returns a time above zero, written as a whole number and a unit.
func (v value) duration() (time.Duration, bool) {
	const want = "a whole number and a unit (us, ms, s, m, h, d), such as 50ms or 10s"
	text, ok := v.scalar(want)
	if !ok {
		return 0, false
	}
	number := text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
	switch us, err := limit.ParseInterval(text); {
	case strings.HasPrefix(text, "-"), number != "" && strings.Trim(number, "0") == "" && !strings.Contains(text, "."):
		v.src.refuse(v.at, "%s is %s: write a time above zero, such as 50ms or 10s", v.name, v.shown())
	case allDigits(text):
		v.src.refuse(v.at, "%s is %s, without a unit (us, ms, s, m, h, d): write it as 50ms or 10s", v.name, v.shown())
	case err != nil || number == "":
		v.src.refuse(v.at, "%s is %s: write %s, at most 100 years", v.name, v.shown(), want)
	default:
		return time.Duration(us) * time.Microsecond, true
	}
	return 0, false
}

// micros reads a time above zero in µs.
func micros(v value) (int64, bool) {
	d, ok := v.duration()
	return d.Microseconds(), ok
}

// choice returns one of words. Those in later are words that this version does not have.
func (v value) choice(words []string, later ...string) (string, bool) {
	text, ok := v.scalar(listed(words, "or"))
	switch {
	case !ok || slices.Contains(words, text):
		return text, ok
	case slices.Contains(later, text):
		v.src.refuse(v.at, "this version does not have %s %s: write %s", v.name, text, listed(words, "or"))
	default:
		v.src.refuse(v.at, "%s is %s: write %s", v.name, v.shown(), listed(words, "or"))
	}
	return "", false
}

// failurePolicy reads what a limit answers while Redis does not.
func failurePolicy(v value) (limit.FailurePolicy, bool) {
	policies := []limit.FailurePolicy{limit.FailOpen, limit.FailClosed, limit.FailLocal}
	word, ok := v.choice([]string{"open", "closed", "local"})
	for _, p := range policies {
		if p.String() == word {
			return p, ok
		}
	}
	return 0, false
}

// list returns the entries of a sequence.
func (v value) list() ([]value, bool) {
	n, ok := v.node.(*ast.SequenceNode)
	if !ok {
		v.src.refuse(v.at, "%s is %s: write a list, as [a, b] or with a line for each after a dash", v.name, v.shown())
		return nil, false
	}
	values := make([]value, len(n.Values))
	for i, item := range n.Values {
		item = rejoined(item)
		values[i] = value{src: v.src, name: "an entry of " + v.name, at: nodePos(item), node: item}
	}
	return values, true
}

// rejoined undoes a slip of the parser: within braces it takes the host:port of [host:port] for
// a key and its value, where YAML wants a space after the colon.
func rejoined(item ast.Node) ast.Node {
	m, ok := item.(*ast.MappingNode)
	if !ok || m.IsFlowStyle || len(m.Values) != 1 {
		return item
	}
	key, plain := m.Values[0].Key.(ast.ScalarNode)
	val, scalar := m.Values[0].Value.(ast.ScalarNode)
	if !plain || !scalar {
		return item
	}
	from, to := key.GetToken(), val.GetToken()
	text := from.Value + ":"
	start, end := tokenPos(from), tokenPos(to)
	if start.line != end.line || start.col+utf8.RuneCountInString(text) != end.col {
		return item
	}
	whole := from.Clone()
	whole.Type, whole.Value = token.StringType, text+to.Value
	return ast.String(whole)
}

// words returns the entries of a list of texts that are neither empty nor there twice.
func (v value) words() ([]string, []pos, bool) {
	values, ok := v.list()
	var texts []string
	var places []pos
	for _, item := range values {
		text, good := item.nonEmpty()
		if good && slices.Contains(texts, text) {
			v.src.refuse(item.at, "%s names %s twice: remove one", v.name, shown(text))
			good = false
		}
		if ok = ok && good; good {
			texts, places = append(texts, text), append(places, item.at)
		}
	}
	return texts, places, ok
}

// mapping returns the keys and values of a mapping, and refuses a key that is there twice.
func (v value) mapping() (*mapping, bool) {
	var pairs []*ast.MappingValueNode
	switch n := v.node.(type) {
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	default:
		v.src.refuse(v.at, "%s is %s: write a block of key: value", v.name, v.shown())
		return nil, false
	}
	m, first := &mapping{src: v.src, name: v.name, at: v.at}, map[string]int{}
	for _, pair := range pairs {
		key, at := pair.Key.GetToken().Value, tokenPos(pair.Key.GetToken())
		if line, twice := first[key]; twice {
			v.src.refuse(at, "%s is there twice, first in line %d: remove one", shown(key), line)
			continue
		}
		first[key] = at.line
		m.entries = append(m.entries, entry{key, at, value{src: v.src, name: plain(key), at: nodePos(pair.Value), node: pair.Value}})
	}
	return m, true
}

func (v value) quoted() bool {
	n, ok := v.node.(*ast.StringNode)
	return ok && (n.Token.Type == token.SingleQuoteType || n.Token.Type == token.DoubleQuoteType)
}

// shown writes the value for a message: a plain scalar as it stands, a text in quotes with them.
func (v value) shown() string {
	switch n := v.node.(type) {
	case *ast.NullNode:
		return "empty"
	case *ast.SequenceNode:
		return "a list"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a block of keys"
	case *ast.LiteralNode:
		return "a text of lines"
	case ast.ScalarNode:
		text := n.GetToken().Value
		if v.quoted() || plain(text) != text {
			return "the text " + shown(text)
		}
		return text
	}
	return "something else"
}
