package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// dialTimeout bounds the wait of Dial.
const dialTimeout = 10 * time.Second

// maxDepth is how deep arrays may be nested in a reply.
const maxDepth = 32

var errSyntax = errors.New("not RESP2")

// ReplyError is an error reply of a server, without the leading minus: "WRONGTYPE Operation …".
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// Conn is one connection that speaks RESP2. Its methods must not be called concurrently, except
// for Close.
//
// Replies are typed: a status or a bulk string is a string, an integer an int64, a null is nil, an
// array is []any of these, and an error reply is a [ReplyError]. An error reply is a reply: the
// error result is for connections that fail.
type Conn struct {
	conn net.Conn
	in   *bufio.Reader
}

// Dial connects to addr, host:port or the path of a Unix socket, within 10 s.
func Dial(addr string) (*Conn, error) {
	c, err := net.DialTimeout(network(addr), addr, dialTimeout)
	if err != nil {
		return nil, fmt.Errorf("redistest: dial: %w", err)
	}
	return NewConn(c), nil
}

// NewConn speaks RESP2 over c, a TLS connection for instance, and takes ownership of it.
func NewConn(c net.Conn) *Conn { return &Conn{conn: c, in: bufio.NewReader(c)} }

// Do sends one command and returns its reply. It waits as long as the deadline allows, for ever
// without one.
func (c *Conn) Do(args ...string) (any, error) {
	if err := c.Send(args...); err != nil {
		return nil, err
	}
	return c.Receive()
}

// Send sends one command and does not wait for the reply: commands can be pipelined.
func (c *Conn) Send(args ...string) error {
	if _, err := c.conn.Write(appendCommand(nil, args)); err != nil {
		return fmt.Errorf("redistest: send: %w", err)
	}
	return nil
}

// Receive returns the next reply.
func (c *Conn) Receive() (any, error) {
	reply, err := readReply(c.in, maxDepth)
	if err != nil {
		return nil, fmt.Errorf("redistest: receive: %w", err)
	}
	return reply, nil
}

// SetDeadline bounds all later calls; the zero time means no bound.
func (c *Conn) SetDeadline(at time.Time) error { return c.conn.SetDeadline(at) }

// Close closes the connection. A call that waits returns an error.
func (c *Conn) Close() error { return c.conn.Close() }

// Bulk encodes s as a bulk string, for the replies of a [Stub].
func Bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

func appendCommand(b []byte, args []string) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(args))
	for _, arg := range args {
		b = append(b, Bulk(arg)...)
	}
	return b
}

// readReply reads one reply in which arrays are nested at most depth deep. The end of the input
// is io.EOF before the first byte and io.ErrUnexpectedEOF after it.
func readReply(in *bufio.Reader, depth int) (any, error) {
	line, err := readLine(in)
	if err != nil {
		return nil, err
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return ReplyError(rest), nil
	case ':':
		n, err := strconv.ParseInt(rest, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%w: integer %q", errSyntax, rest)
		}
		return n, nil
	case '$':
		return readBulk(in, rest)
	case '*':
		return readArray(in, rest, depth)
	}
	return nil, fmt.Errorf("%w: line %q", errSyntax, line)
}

// readLine reads a line of at least one byte, without its CRLF.
func readLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err == io.EOF && line != "" {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return "", err
	}
	text, ok := strings.CutSuffix(line, "\r\n")
	if !ok || text == "" {
		return "", fmt.Errorf("%w: line %q", errSyntax, line)
	}
	return text, nil
}

// readLength parses the length of a bulk string or array; -1 is a null.
func readLength(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < -1 {
		return 0, fmt.Errorf("%w: length %q", errSyntax, s)
	}
	return n, nil
}

func readBulk(in *bufio.Reader, length string) (any, error) {
	n, err := readLength(length)
	if err != nil || n < 0 {
		return nil, err
	}
	// The length is the peer's word: memory is taken as bytes arrive.
	var text bytes.Buffer
	if _, err := io.CopyN(&text, in, int64(n)); err != nil {
		return nil, endsEarly(err)
	}
	var end [2]byte
	if _, err := io.ReadFull(in, end[:]); err != nil {
		return nil, endsEarly(err)
	}
	if string(end[:]) != "\r\n" {
		return nil, fmt.Errorf("%w: bulk string of %d ends with %q", errSyntax, n, end)
	}
	return text.String(), nil
}

func readArray(in *bufio.Reader, length string, depth int) (any, error) {
	n, err := readLength(length)
	if err != nil || n < 0 {
		return nil, err
	}
	if depth == 0 {
		return nil, fmt.Errorf("%w: arrays nested more than %d deep", errSyntax, maxDepth)
	}
	array := []any{}
	for range n {
		element, err := readReply(in, depth-1)
		if err != nil {
			return nil, endsEarly(err)
		}
		array = append(array, element)
	}
	return array, nil
}

// endsEarly is err, but for an end of input inside a reply.
func endsEarly(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readCommand reads one command, an array of at least one bulk string, as clients send it.
func readCommand(in *bufio.Reader) ([]string, error) {
	request, err := readReply(in, 1)
	if err != nil {
		return nil, err
	}
	elements, _ := request.([]any)
	if len(elements) == 0 {
		return nil, fmt.Errorf("%w: command %v", errSyntax, request)
	}
	command := make([]string, len(elements))
	for i, element := range elements {
		text, ok := element.(string)
		if !ok {
			return nil, fmt.Errorf("%w: argument %v", errSyntax, element)
		}
		command[i] = text
	}
	return command, nil
}
