package arch_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

const repoRoot = "../.."

func TestLuaFilesAreLua51(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(repoRoot, "lua", "*.lua"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := checkLua(filepath.Base(file), text); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCheckLua(t *testing.T) {
	tests := []struct {
		name, text string
		want       string // part of the error; "" for none
	}{
		{"a module", "local M = {}\nfunction M.take(n) return n % 2 end\nreturn M", ""},
		{"Redis's shebang", "#!lua flags=allow-oom\nreturn redis.call('TIME')", ""},
		{"a name that only contains goto", "local gotos = 1 return gotos", ""},
		{"goto in a string and a comment", "-- goto x\nreturn 'goto ::x::'", ""},
		{"an open block", "if x then", "syntax error"},
		{"the line is that of the file", "#!lua\nlocal x = = 1", "line:2"},
		{"break outside a loop", "break", "break"},
		{"integer division, of 5.3", "return 7 // 2", "syntax error"},
		{"bit operator, of 5.3", "return 7 & 2", "Invalid"},
		{"goto, of 5.2", "local x\n  goto done\n::done::", "line 2: goto is not Lua 5.1"},
		{"label, of 5.2", "::done::", "line 1: :: is not Lua 5.1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := checkLua("test.lua", []byte(tt.text))
			if got := fmt.Sprint(err); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(got, tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// checkLua compiles text, which is one chunk, as Lua 5.1 without running it. The first line may
// be a shebang, as Redis reads it. Besides what the compiler refuses, goto and labels are errors:
// the compiler knows them, Redis does not.
func checkLua(name string, text []byte) error {
	if bytes.HasPrefix(text, []byte("#")) {
		text = append([]byte("--"), text...)
	}
	chunk, err := parse.Parse(bytes.NewReader(text), name)
	if err != nil {
		return err
	}
	if _, err := lua.Compile(chunk, name); err != nil {
		return err
	}
	scanner, lexer := parse.NewScanner(bytes.NewReader(text), name), &parse.Lexer{}
	for {
		tok, err := scanner.Scan(lexer)
		if err != nil {
			return err
		}
		switch tok.Type {
		case parse.EOF:
			return nil
		case parse.TGoto, parse.T2Colon:
			return fmt.Errorf("%s: line %d: %s is not Lua 5.1", name, tok.Pos.Line, tok.Str)
		}
	}
}

func TestNoUnfinishedMarks(t *testing.T) {
	for _, name := range trackedFiles(t) {
		text, err := os.ReadFile(filepath.Join(repoRoot, name))
		if errors.Is(err, fs.ErrNotExist) { // deleted, but not yet in the index
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range unfinishedMarks(text) {
			t.Errorf("%s:%s", name, found)
		}
	}
}

func TestUnfinishedMarks(t *testing.T) {
	// The words are put together here, for this file is searched too.
	todo, fixme := "TO"+"DO", "FIX"+"ME"
	tests := []struct {
		text string
		want string
	}{
		{"// " + todo + ": later\n", "1: unfinished mark " + todo},
		{"a\nb " + fixme + "(me)\n" + todo, "2: unfinished mark " + fixme + ", 3: unfinished mark " + todo},
		{"to do, fix me, " + todo + "S, mas" + todo + "n\n", ""},
		{todo + "\x00", ""}, // not text
	}
	for _, tt := range tests {
		if got := strings.Join(unfinishedMarks([]byte(tt.text)), ", "); got != tt.want {
			t.Errorf("unfinishedMarks(%q) = %q, want %q", tt.text, got, tt.want)
		}
	}
}

// unfinishedMarks lists, as "line: what", the words in text that say its author was not done.
// Data with a NUL byte near its beginning is no text, as for Git.
func unfinishedMarks(text []byte) []string {
	mark := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME)\b`)
	if bytes.IndexByte(text[:min(len(text), 8000)], 0) >= 0 {
		return nil
	}
	var found []string
	for _, at := range mark.FindAllIndex(text, -1) {
		line := 1 + bytes.Count(text[:at[0]], []byte("\n"))
		found = append(found, fmt.Sprintf("%d: unfinished mark %s", line, text[at[0]:at[1]]))
	}
	return found
}

// trackedFiles lists the regular files in Git's index, below repoRoot. Where there is no checkout, as
// in an unpacked archive, it skips the test.
func trackedFiles(t *testing.T) []string {
	t.Helper()
	// The checkout may belong to another user, as it often does in a container.
	list := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z")
	list.Dir, list.Stderr = repoRoot, io.Discard
	out, err := list.Output()
	if err != nil || len(out) == 0 {
		t.Skipf("git lists no tracked files here: %v", err)
	}
	var names []string
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(repoRoot, name))
		if err == nil && info.Mode().IsRegular() {
			names = append(names, name)
		}
	}
	return names
}
