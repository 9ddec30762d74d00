// Package arch_test checks what the compiler does not: which package may import which, that
// the Lua files are Lua 5.1, that no unfinished mark is left, and how the scripts that install
// things behave. It holds tests only.
package arch_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module      = "github.com/tidegate/tidegate"
	redisClient = "github.com/redis/" // every client of that vendor
)

// rule says what the non-test code of one package may import.
type rule struct {
	pkg     string   // folder below the root of the module; "x/..." is x and all below it
	below   []string // folders of the module's own packages that it may import
	stdOnly bool     // nothing from other modules
	redis   bool     // the Redis client too
}

// rules is the layout of the project: imports go downward only. redistest and vectors stand below
// nobody, so only tests can use it. A package without a rule is a violation.
func rules() []rule {
	return []rule{
		{pkg: "cmd/...", below: []string{
			"internal/admin", "internal/breaker", "internal/config", "internal/httpapi", "internal/limit",
			"internal/limiter", "internal/local", "internal/remote", "internal/resp", "internal/rls", "lua",
		}},
		{pkg: "internal/httpapi", below: []string{"internal/limiter", "internal/limit", "internal/problem"}},
		{pkg: "internal/rls", below: []string{"internal/limiter", "internal/limit"}},
		{pkg: "internal/resp", below: []string{"internal/limiter", "internal/limit"}},
		{pkg: "internal/admin", below: []string{"internal/limiter", "internal/limit", "internal/problem"}},
		{pkg: "internal/problem", below: []string{"internal/limit"}},
		{pkg: "internal/limiter", below: []string{"internal/local", "internal/breaker", "internal/limit"}},
		{pkg: "internal/breaker", below: []string{"internal/limit"}},
		{pkg: "internal/local", below: []string{"internal/limit"}},
		{pkg: "internal/remote", below: []string{"internal/limit", "lua"}, redis: true},
		{pkg: "internal/config", below: []string{"internal/limit"}},
		{pkg: "internal/limit", stdOnly: true},
		{pkg: "internal/redistest"},
		{pkg: "internal/vectors", below: []string{"internal/limit"}},
		{pkg: "lua", stdOnly: true},
		{pkg: "client/..."},
		{pkg: "examples/...", below: []string{"client"}},
		{pkg: "bench/...", below: []string{"client"}},
		{pkg: "docs/plots", below: []string{"internal/limit"}},
	}
}

func TestImportDirections(t *testing.T) {
	imports := importsBelow(t, repoRoot)
	if len(imports["internal/limit"]) == 0 {
		t.Fatal("no import of internal/limit was found: the search is broken")
	}
	for _, v := range violations(rules(), imports) {
		t.Error(v)
	}
}

func TestViolations(t *testing.T) {
	const limit, remote = module + "/internal/limit", module + "/internal/remote"
	tests := []struct {
		name    string
		pkg     string
		imports []string
		want    []string
	}{
		{"std is free", "internal/limit", []string{"time", "math/bits"}, nil},
		{"downward", "internal/limiter", []string{limit, module + "/internal/local"}, nil},
		{"cmd sees everything", "cmd/sidecar", []string{remote, module + "/internal/config"}, nil},
		{"other modules", "internal/httpapi", []string{"github.com/valyala/fasthttp"}, nil},
		{"remote has the Redis client", "internal/remote", []string{"github.com/redis/go-redis/v9", module + "/lua"}, nil},
		{"below a /... rule", "examples/go/basic", []string{module + "/client"}, nil},
		{"upward", "internal/limit", []string{remote}, []string{"internal/limit must not import internal/remote"}},
		{"sideways", "internal/httpapi", []string{remote}, []string{"internal/httpapi must not import internal/remote"}},
		{"config is for cmd", "internal/limiter", []string{module + "/internal/config"},
			[]string{"internal/limiter must not import internal/config"}},
		{"config sees limit only", "internal/config", []string{module + "/internal/local"},
			[]string{"internal/config must not import internal/local"}},
		{"cmd is for nobody", "internal/admin", []string{module + "/cmd/sidecar"},
			[]string{"internal/admin must not import cmd/sidecar"}},
		{"redistest is for tests", "cmd/sidecar", []string{module + "/internal/redistest"},
			[]string{"cmd/sidecar must not import internal/redistest"}},
		{"a folder below an allowed one", "internal/local", []string{limit + "/codec"},
			[]string{"internal/local must not import internal/limit/codec"}},
		{"limit imports std only", "internal/limit", []string{"golang.org/x/time/rate"},
			[]string{"internal/limit must not import golang.org/x/time/rate: std only"}},
		{"a second Redis client", "internal/breaker", []string{"github.com/redis/go-redis/v9"},
			[]string{"internal/breaker must not import github.com/redis/go-redis/v9: only internal/remote talks to Redis"}},
		{"client stays outside", "client", []string{limit}, []string{"client must not import internal/limit"}},
		{"no rule", "internal/shiny", nil, []string{"internal/shiny has no rule: say in rules what it may import"}},
		{"two at once, in order", "internal/limit", []string{remote, module + "/lua"},
			[]string{"internal/limit must not import internal/remote", "internal/limit must not import lua"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := violations(rules(), map[string][]string{tt.pkg: tt.imports})
			if !slices.Equal(got, tt.want) {
				t.Errorf("violations of %s importing %q\n got %q\nwant %q", tt.pkg, tt.imports, got, tt.want)
			}
		})
	}
}

// TestImportsBelow pins what counts: non-test files under any build tag, but no testdata and
// no nested module.
func TestImportsBelow(t *testing.T) {
	root := t.TempDir()
	for file, text := range map[string]string{
		"a/a.go":             "package a\nimport \"fmt\"",
		"a/tagged.go":        "//go:build never\n\npackage a\nimport r \"github.com/redis/go-redis/v9\"",
		"a/a_test.go":        "package a\nimport \"testing\"",
		"a/testdata/x.go":    "package x\nimport \"os\"",
		"only/only_test.go":  "package only\nimport \"testing\"",
		"nested/go.mod":      "module nested",
		"nested/n.go":        "package n\nimport \"os\"",
		"nested/deep/d.go":   "package d\nimport \"os\"",
		".hidden/h.go":       "package h\nimport \"os\"",
		"a/deeper/deeper.go": "package deeper",
	} {
		write(t, filepath.Join(root, file), text, 0o644)
	}
	got := fmt.Sprint(importsBelow(t, root))
	want := fmt.Sprint(map[string][]string{"a": {"fmt", "github.com/redis/go-redis/v9"}, "a/deeper": {}})
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// violations lists what breaks the rules in imports (folder of a package → its import paths),
// one sentence each, ordered by package and then by import as given.
func violations(rules []rule, imports map[string][]string) []string {
	var found []string
	for _, pkg := range slices.Sorted(maps.Keys(imports)) {
		i := slices.IndexFunc(rules, func(r rule) bool { return r.covers(pkg) })
		if i < 0 {
			found = append(found, pkg+" has no rule: say in rules what it may import")
			continue
		}
		for _, imp := range imports[pkg] {
			if reason, ok := rules[i].allows(imp); !ok {
				found = append(found, fmt.Sprintf("%s must not import %s%s", pkg, strings.TrimPrefix(imp, module+"/"), reason))
			}
		}
	}
	return found
}

func (r rule) covers(pkg string) bool {
	if tree, ok := strings.CutSuffix(r.pkg, "/..."); ok {
		return pkg == tree || strings.HasPrefix(pkg, tree+"/")
	}
	return pkg == r.pkg
}

// allows reports whether the rule permits the import path imp, and if not, what to say after
// the plain refusal.
func (r rule) allows(imp string) (reason string, ok bool) {
	host, _, _ := strings.Cut(imp, "/")
	folder, own := strings.CutPrefix(imp, module+"/")
	switch {
	case own:
		return "", slices.Contains(r.below, folder)
	case !strings.Contains(host, "."): // the standard library
		return "", true
	case r.stdOnly:
		return ": std only", false
	case strings.HasPrefix(imp, redisClient):
		return ": only internal/remote talks to Redis", r.redis
	}
	return "", true
}

// importsBelow maps each folder with non-test Go files to their import paths, in order and
// without repeats. It parses the files itself, so a build tag or a type error hides nothing.
func importsBelow(t *testing.T, root string) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if file != root && outsideModule(file) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, path.Dir(filepath.ToSlash(file)))
		if err != nil {
			return err
		}
		paths := append([]string{}, found[folder]...)
		for _, spec := range parsed.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			paths = append(paths, imp)
		}
		slices.Sort(paths)
		found[folder] = slices.Compact(paths)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// outsideModule reports whether the go command would not look into folder.
func outsideModule(folder string) bool {
	name := filepath.Base(folder)
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "vendor" {
		return true
	}
	_, err := os.Stat(filepath.Join(folder, "go.mod"))
	return err == nil
}
