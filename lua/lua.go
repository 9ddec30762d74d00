// Package lua holds the scripts that run inside Redis.
package lua

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed *.lua
var files embed.FS

// algorithms are the files of the algorithms, by limit.Settings.Number, and 0 for a note.
var algorithms = [...]string{
	"note",
	"token_bucket",
	"token_bucket", // a leaky bucket is a token bucket whose backlog is what its tokens lack
	"leaky_bucket_log",
	"sliding_window_log",
	"sliding_window",
	"fixed_window",
	"concurrency",
	"leased_bucket",
	"leased_window",
}

// Decide returns the script that decides a batch of requests.
func Decide() string { return assemble("decide") }

// Settle returns the script that settles a ticket. A server that knows shebangs runs it even when
// memory is short.
func Settle() string { return assemble("settle") }

// Forget returns the script that makes a leased limit's state as if it were never used. A server that
// knows shebangs runs it even when memory is short.
func Forget() string { return assemble("forget") }

// Heartbeat returns the script that keeps and counts the living nodes of each limit.
func Heartbeat() string { return text("heartbeat") }

// assemble puts a script behind the algorithms. An algorithm is made on its first use in a call,
// since Redis runs the whole text every time; its text knows its number, and whether its states are packed
// into Strings.
func assemble(script string) string {
	var b strings.Builder
	b.WriteString(text("state"))
	fmt.Fprintf(&b, "\nlocal function logs()\n%s\nend\n", text("log"))
	fmt.Fprintf(&b, "\nlocal function leases()\n%s\nend\n", text("lease"))
	b.WriteString("\nlocal function make(number, packed)\n")
	for number, name := range algorithms {
		fmt.Fprintf(&b, "if number == %d then\n%s\nend\n", number, text(name))
	}
	b.WriteString("end\n")
	b.WriteString(text("batch"))
	b.WriteString(text(script))
	return b.String()
}

// text returns a file of this package.
func text(name string) string {
	content, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic("lua: " + err.Error()) // it is embedded
	}
	return string(content)
}
