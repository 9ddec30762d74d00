package config

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// The bounds of nesting, far above what a config needs. They keep the parser, whose time and
// memory grow with the square of the depth, from running away.
const (
	maxDepth  = 32  // of [ and {
	maxIndent = 200 // columns, of what a line begins with and of every -
)

// pos is a place in a file; both numbers count from 1, col in characters.
type pos struct{ line, col int }

// source is the file being read, with the problems and warnings found so far.
type source struct {
	name     string
	lines    []string
	problems Errors
	warnings []Warning
	zones    map[string]*time.Location // those that the file names so far, by name
}

func (s *source) refuse(at pos, format string, args ...any) {
	s.problems = append(s.problems, s.problem(at, format, args...))
}

func (s *source) warn(at pos, format string, args ...any) {
	s.warnings = append(s.warnings, Warning(s.problem(at, format, args...)))
}

// problem keeps its position inside the file: the parser's is one line too far at times, as
// where the file ends too early. Whatever the text quotes, it stays one line that prints.
func (s *source) problem(at pos, format string, args ...any) Problem {
	line := min(max(at.line, 1), max(len(s.lines), 1))
	last := 1
	if line <= len(s.lines) {
		last = utf8.RuneCountInString(s.lines[line-1]) + 1
	}
	return Problem{File: s.name, Line: line, Col: min(max(at.col, 1), last), Text: oneLine(fmt.Sprintf(format, args...))}
}

func (s *source) sortedWarnings() []Warning {
	slices.SortStableFunc(s.warnings, func(a, b Warning) int { return byPosition(Problem(a), Problem(b)) })
	return s.warnings
}

// parse reads data as one YAML document that holds a mapping, and returns that.
func (s *source) parse(data []byte) (*mapping, bool) {
	if len(data) > maxFile {
		s.refuse(pos{1, 1}, "the file is larger than 4 MiB: write fewer limits, with globs and overrides")
		return nil, false
	}
	text := bytes.TrimPrefix(data, []byte("\uFEFF"))
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	text = bytes.ReplaceAll(text, []byte("\r"), []byte("\n"))
	s.lines = strings.Split(string(text), "\n")
	if !s.isUTF8() {
		return nil, false
	}
	tokens := lexer.Tokenize(string(text))
	if !s.screen(tokens) {
		return nil, false
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		s.refuseSyntax(err)
		return nil, false
	}
	return s.document(file)
}

func (s *source) isUTF8() bool {
	for i, line := range s.lines {
		if utf8.ValidString(line) {
			continue
		}
		col := 1
		for at, r := range line {
			if _, width := utf8.DecodeRuneInString(line[at:]); r == utf8.RuneError && width == 1 {
				s.refuse(pos{i + 1, col}, "the byte 0x%02X is not UTF-8: save the file as UTF-8", line[at])
				return false
			}
			col++
		}
	}
	return true
}

// screen refuses what a config has no use for, and what the parser would take too long over.
func (s *source) screen(tokens token.Tokens) bool {
	depth, line := 0, 0
	for _, t := range tokens {
		at := tokenPos(t)
		first := at.line != line && t.Type != token.CommentType
		line = at.line
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		}
		if name, instead := unusedFeature(t.Type); name != "" {
			s.refuse(at, "%s has no meaning in this file: %s", name, instead)
		}
		if depth > maxDepth || depth <= 0 && at.col > maxIndent && (first || t.Type == token.SequenceEntryType) {
			s.refuse(at, "this is nested too deeply: no setting lies below %d levels or %d columns", maxDepth, maxIndent)
			return false
		}
	}
	return len(s.problems) == 0
}

// unusedFeature names a feature of YAML that would make a config harder to read, not easier, and
// says what to write instead. The name is empty for every other token.
func unusedFeature(t token.Type) (name, instead string) {
	switch t {
	case token.AnchorType:
		return "an anchor (&)", "write the value out; a text that begins with & goes in quotes"
	case token.AliasType:
		return "an alias (*)", `write the value out; a glob that begins with * goes in quotes, such as "*"`
	case token.MergeKeyType:
		return "a merge key (<<)", "write the keys out"
	case token.TagType:
		return "a tag (!)", "write the plain value; a text that begins with ! goes in quotes"
	case token.MappingKeyType:
		return "a complex key (?)", "write key: value; a text that begins with ? goes in quotes"
	case token.DirectiveType:
		return "a directive (%)", "take it out; a text that begins with % goes in quotes"
	}
	return "", ""
}

func (s *source) refuseSyntax(err error) {
	at, text := pos{1, 1}, err.Error()
	var syntax yaml.Error
	if errors.As(err, &syntax) {
		text = syntax.GetMessage()
		if t := syntax.GetToken(); t != nil {
			at = tokenPos(t)
		}
	}
	if strings.Contains(text, `'`+"\t"+`'`) {
		s.refuse(at, "a tab cannot stand here: indent with spaces")
		return
	}
	s.refuse(at, "this is not YAML (%s): look for wrong indentation, brackets or quotes", text)
}

func (s *source) document(file *ast.File) (*mapping, bool) {
	var bodies []ast.Node
	for _, doc := range file.Docs {
		if doc.Body != nil {
			bodies = append(bodies, doc.Body)
		}
	}
	if len(bodies) == 0 {
		s.refuse(pos{1, 1}, "the file is empty: write limits, with at least one limit")
		return nil, false
	}
	for _, second := range bodies[1:] {
		s.refuse(nodePos(second), "a second document begins here: put everything into one, without ---")
	}
	root := value{src: s, name: "the file", at: nodePos(bodies[0]), node: bodies[0]}
	return root.mapping()
}

func tokenPos(t *token.Token) pos {
	if t == nil || t.Position == nil {
		return pos{1, 1}
	}
	return pos{t.Position.Line, t.Position.Column}
}

// nodePos returns where a node begins; a block mapping's own token is its first colon.
func nodePos(n ast.Node) pos {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return tokenPos(n.Values[0].Key.GetToken())
		}
	case *ast.MappingValueNode:
		return tokenPos(n.Key.GetToken())
	}
	return tokenPos(n.GetToken())
}
