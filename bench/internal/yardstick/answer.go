// Package yardstick is what the sidecar is measured against: an HTTP server that gives the very answer
// that a sidecar gave, to every question, after it has decided nothing, or has decided with one call to
// Redis as an application would do by itself. It keeps connections to that Redis.
package yardstick

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// patience bounds the wait for one answer.
const patience = 10 * time.Second

// Answer is one answer over HTTP/1.1.
type Answer struct {
	Status  int
	Headers [][2]string // in order and as they were written, without Content-Length; Date has no value
	Body    string
}

// Record asks a server one question over a connection of its own, and returns the answer.
func Record(address, path string, question []byte) (Answer, error) {
	conn, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return Answer{}, fmt.Errorf("yardstick: record: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return Answer{}, fmt.Errorf("yardstick: record: %w", err)
	}
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		path, len(question), question)
	if err != nil {
		return Answer{}, fmt.Errorf("yardstick: record: %w", err)
	}
	return readAnswer(bufio.NewReader(conn))
}

// readAnswer reads by hand what net/http would hide: the order of headers and the case of their names.
func readAnswer(r *bufio.Reader) (Answer, error) {
	lines := textproto.NewReader(r)
	first, err := lines.ReadLine()
	if err != nil {
		return Answer{}, fmt.Errorf("yardstick: read an answer: %w", err)
	}
	var a Answer
	if _, err := fmt.Sscanf(first, "HTTP/1.1 %d ", &a.Status); err != nil {
		return Answer{}, fmt.Errorf("yardstick: read an answer: %q: %w", first, err)
	}
	length := -1
	for {
		line, err := lines.ReadLine()
		if err != nil {
			return Answer{}, fmt.Errorf("yardstick: read an answer: %w", err)
		}
		if line == "" {
			break
		}
		name, value, _ := strings.Cut(line, ": ")
		switch strings.ToLower(name) {
		case "content-length":
			if length, err = strconv.Atoi(value); err != nil {
				return Answer{}, fmt.Errorf("yardstick: read an answer: %w", err)
			}
			continue
		case "date":
			value = ""
		}
		a.Headers = append(a.Headers, [2]string{name, value})
	}
	if length < 0 {
		return Answer{}, fmt.Errorf("yardstick: read an answer: it has no Content-Length")
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(r, body); err != nil {
		return Answer{}, fmt.Errorf("yardstick: read an answer: %w", err)
	}
	a.Body = string(body)
	return a, nil
}

// Equal reports whether the answers are the same but for their dates.
func (a Answer) Equal(b Answer) bool {
	return a.Status == b.Status && a.Body == b.Body && slices.Equal(a.Headers, b.Headers)
}

// Write writes the answer to a file, from which ReadFile reads it.
func (a Answer) Write(file string) error {
	text, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("yardstick: write an answer: %w", err)
	}
	return os.WriteFile(file, text, 0o600)
}

// ReadFile reads an answer that was written to a file.
func ReadFile(file string) (Answer, error) {
	var a Answer
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err != nil {
		return Answer{}, fmt.Errorf("yardstick: read an answer: %w", err)
	}
	return a, nil
}
