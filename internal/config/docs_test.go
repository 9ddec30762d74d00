package config_test

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/limit"
)

const manual = "../../docs/config.md"

// settingsOff finds the settings that the example has switched off: a # with no space after it,
// or with the two or more of an indented key.
var settingsOff = regexp.MustCompile(`(?m)^( *)#((?:  )*[a-z])`)

func TestExampleLoadsWithEverythingOn(t *testing.T) {
	on := settingsOff.ReplaceAll(config.BuiltinYAML, []byte("$1$2"))
	if bytes.Count(on, []byte("\n")) != bytes.Count(config.BuiltinYAML, []byte("\n")) || bytes.Equal(on, config.BuiltinYAML) {
		t.Fatal("nothing was switched on")
	}
	c, err := config.Parse("example.yaml", on)
	if err != nil {
		t.Fatal(err)
	}
	if c.Redis == nil || c.Redis.TLS == nil || c.Listen.Unix == "" || c.Listen.Metrics == "" || c.SecretFile == "" || len(c.Hashed) == 0 {
		t.Errorf("something stayed off: %+v", c)
	}
	// What the example shows beside a setting is the setting's default.
	plain := parse(t, "limits: [{name: a, rate: 10/s}]\nredis: {addrs: [127.0.0.1:6379]}")
	if c.Redis.Mode != plain.Redis.Mode || c.Redis.KeyPrefix != plain.Redis.KeyPrefix || c.Redis.Timeout != plain.Redis.Timeout ||
		c.Breaker != plain.Breaker || c.Local != plain.Local || c.Nodes != plain.Nodes || c.ShutdownTimeout != plain.ShutdownTimeout ||
		c.Headers != plain.Headers || c.Rules.TicketTTL != plain.Rules.TicketTTL || c.Rules.RequestIDTTL != plain.Rules.RequestIDTTL || c.OnRedisFailure != plain.OnRedisFailure || c.Listen.HTTP != plain.Listen.HTTP ||
		c.Listen.Admin != plain.Listen.Admin || c.Listen.UnixMode != plain.Listen.UnixMode {
		t.Errorf("the example shows other values than the defaults: %+v", c)
	}
}

// TestEveryKeyIsDocumented asks the reader itself for its keys: the message about an unknown key
// lists all that the block takes, for a limit and its overrides by each algorithm.
func TestEveryKeyIsDocumented(t *testing.T) {
	var limits []string
	for _, a := range limit.Algorithms() {
		limits = append(limits, fmt.Sprintf("{algorithm: %s, zzzzzzzz: 1, overrides: [{zzzzzzzz: 1}]}", a))
	}
	text := `{zzzzzzzz: 1,
listen: {zzzzzzzz: 1}, breaker: {zzzzzzzz: 1}, local: {zzzzzzzz: 1}, headers: {zzzzzzzz: 1}, tickets: {zzzzzzzz: 1},
redis: {zzzzzzzz: 1, tls: {zzzzzzzz: 1}}, attributes: {a: {zzzzzzzz: 1}},
limits: [{zzzzzzzz: 1, refill: {zzzzzzzz: 1}}, ` + strings.Join(limits, ", ") + `],
policies: {a: {zzzzzzzz: 1}}}`
	docs, err := os.ReadFile(manual)
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`unknown key "zzzzzzzz": .* takes (.*)`)
	blocks, keys := 0, 0
	for _, found := range list.FindAllStringSubmatch(refused(t, text), -1) {
		blocks++
		for _, key := range strings.Split(strings.ReplaceAll(found[1], " and ", ", "), ", ") {
			keys++
			if !bytes.Contains(docs, []byte("`"+key+"`")) {
				t.Errorf("%s does not name `%s`", manual, key)
			}
			if !regexp.MustCompile(`\b` + key + `:`).Match(config.BuiltinYAML) {
				t.Errorf("example.yaml does not show %s", key)
			}
		}
	}
	if want := strings.Count(text, "zzzzzzzz"); blocks != want || keys < 50 {
		t.Errorf("%d blocks with %d keys were listed, want %d blocks and at least 50 keys", blocks, keys, want)
	}
}

// TestEveryAlgorithmIsShown: the example has a limit of each, and the manual names it.
func TestEveryAlgorithmIsShown(t *testing.T) {
	docs, err := os.ReadFile(manual)
	if err != nil {
		t.Fatal(err)
	}
	shown := map[limit.Algorithm]bool{}
	for _, l := range config.Builtin().Rules.Limits {
		shown[l.Settings.Algorithm] = true
	}
	for _, a := range limit.Algorithms() {
		if !shown[a] || !bytes.Contains(docs, []byte("`"+a.String()+"`")) {
			t.Errorf("%s is not in the example, or not in %s", a, manual)
		}
	}
}

func TestManualExamplesLoad(t *testing.T) {
	docs, err := os.ReadFile(manual)
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(docs, -1)
	if len(examples) == 0 {
		t.Fatal("no YAML in the manual")
	}
	for _, example := range examples {
		if _, err := config.Parse("config.md", example[1]); err != nil {
			t.Errorf("%v\nin\n%s", err, example[1])
		}
	}
}

// TestReadmeExamplesHaveNoWarnings: a newcomer's first file is one that is meant just so.
func TestReadmeExamplesHaveNoWarnings(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(readme, -1)
	if len(examples) == 0 {
		t.Fatal("no YAML in the README")
	}
	for _, example := range examples {
		c, err := config.Parse("README.md", example[1])
		if err != nil {
			t.Fatalf("%v\nin\n%s", err, example[1])
		}
		if len(c.Warnings) > 0 {
			t.Errorf("warnings %v\nin\n%s", c.Warnings, example[1])
		}
	}
}
