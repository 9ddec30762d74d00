package httpapi_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/httpapi"
)

// The examples of the API's documentation are valid, and its table of errors is complete.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	bodies := regexp.MustCompile(`(/v1/[a-z]+) -d (?:'([^']*)'|"((?:[^"\\]|\\.)*)")`).FindAllSubmatch(text, -1)
	asked := map[string]bool{}
	for _, match := range bodies {
		path, body := string(match[1]), match[2]
		if len(body) == 0 { // as the shell reads it
			body = []byte(strings.NewReplacer(`\"`, `"`, `$TICKET`, "a-ticket").Replace(string(match[3])))
		}
		asked[path] = true
		var errs []error
		if path == "/v1/check" {
			_, errs, _, err = httpapi.ParseCheck(body)
		} else {
			_, _, err = httpapi.ParseSettlement(path, body)
		}
		if err != nil || slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
			t.Errorf("%s: %v, %v", body, err, errs)
		}
	}
	if len(asked) != 3 {
		t.Errorf("there are examples of %v alone", asked)
	}
	answers := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(text, -1)
	if len(answers) == 0 {
		t.Error("no example of an answer was found")
	}
	for _, answer := range answers {
		if !json.Valid(answer[1]) {
			t.Errorf("no JSON: %s", answer[1])
		}
	}
	var source []byte
	for _, file := range []string{"problem.go", "../problem/problem.go"} {
		more, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source = append(source, more...)
	}
	codes := regexp.MustCompile(`Status: (\d+), Code: "([a-z-]+)"`).FindAllSubmatch(source, -1)
	if len(codes) < 10 {
		t.Errorf("only %d codes were found", len(codes))
	}
	for _, code := range codes {
		if row := "| " + string(code[1]) + " | `" + string(code[2]) + "` |"; !strings.Contains(string(text), row) {
			t.Errorf("the table of errors lacks a row %q", row)
		}
	}
}
