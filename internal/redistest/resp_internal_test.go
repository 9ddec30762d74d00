package redistest

import (
	"bufio"
	"bytes"
	"slices"
	"strings"
	"testing"
)

func FuzzReadCommand(f *testing.F) {
	f.Add("*1\r\n$4\r\nPING\r\n")
	f.Add("*2\r\n$3\r\nGET\r\n$0\r\n\r\n")
	f.Add("*1\r\n*1\r\n$1\r\na\r\n")
	f.Add("$-1\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		command, err := readCommand(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			return
		}
		again, err := readCommand(bufio.NewReader(bytes.NewReader(appendCommand(nil, command))))
		if err != nil || !slices.Equal(again, command) {
			t.Errorf("%q read again: got %q, %v", command, again, err)
		}
	})
}
