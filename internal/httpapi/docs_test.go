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
	bodies := regexp.MustCompile(`-d '([^']*)'`).FindAllSubmatch(text, -1)
	if len(bodies) == 0 {
		t.Error("no example of a request was found")
	}
	for _, body := range bodies {
		_, errs, _, err := httpapi.ParseCheck(body[1])
		if err != nil || slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
			t.Errorf("%s: %v, %v", body[1], err, errs)
		}
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
