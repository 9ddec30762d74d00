package arch_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNamedTestsExist: every test that a page of docs names is there, as "TestName" in any package
// or as "internal/limit.TestName" in that one.
func TestNamedTestsExist(t *testing.T) {
	tests := testsBelow(t, repoRoot)
	pages, err := filepath.Glob(filepath.Join(repoRoot, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		named += len(namedTests(string(text)))
		for _, missing := range missingTests(string(text), tests) {
			t.Errorf("%s:%s", page, missing)
		}
	}
	if named == 0 {
		t.Error("no page names a test: the search is broken")
	}
}

func TestMissingTests(t *testing.T) {
	tests := map[string]bool{"TestA": true, "internal/x.TestA": true, "FuzzB": true, "internal/y.FuzzB": true}
	for text, want := range map[string]string{
		"`TestA` and internal/x.TestA, FuzzB.": "",
		"Tests, a Test, testA, MyTestB, TestA": "",
		"`TestA`\n(`TestC`)":                   "2: there is no TestC",
		"internal/y.TestA | internal/x.FuzzB":  "1: there is no internal/y.TestA, 1: there is no internal/x.FuzzB",
	} {
		if got := strings.Join(missingTests(text, tests), ", "); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// missingTests lists, as "line: what", the tests that text names and that are not among tests.
func missingTests(text string, tests map[string]bool) []string {
	var missing []string
	for i, line := range strings.Split(text, "\n") {
		for _, name := range namedTests(line) {
			if !tests[name] {
				missing = append(missing, fmt.Sprintf("%d: there is no %s", i+1, name))
			}
		}
	}
	return missing
}

func namedTests(text string) []string {
	return regexp.MustCompile(`\b(?:(?:cmd|internal)/\w+\.)?(?:Test|Fuzz)[A-Z]\w*`).FindAllString(text, -1)
}

// testsBelow returns the names of the tests and fuzz targets below root, each by itself and with
// its folder in front.
func testsBelow(t *testing.T, root string) map[string]bool {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w*)\(`)
	tests := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, match := range declared.FindAllSubmatch(text, -1) {
			tests[string(match[1])] = true
			tests[filepath.ToSlash(folder)+"."+string(match[1])] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}
