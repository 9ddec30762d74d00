package yardstick

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"
)

// Config says how to serve. Unix is the path of a Unix socket.
type Config struct {
	Answer  Answer
	Limiter Limiter // nil: nothing is decided
	Unix    string
}

// Serve answers on a loopback port and on the Unix socket until ctx ends, and writes "ready" and its
// address to out when it listens.
func Serve(ctx context.Context, cfg Config, out io.Writer) error {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("yardstick: listen: %w", err)
	}
	unix, err := net.Listen("unix", cfg.Unix)
	if err != nil {
		tcp.Close()
		return fmt.Errorf("yardstick: listen: %w", err)
	}
	server := &fasthttp.Server{
		Handler:               cfg.handler(),
		NoDefaultServerHeader: true,
		NoDefaultDate:         !cfg.Answer.has("Date"),
	}
	group, failed := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Serve(tcp) })
	group.Go(func() error { return server.Serve(unix) })
	group.Go(func() error {
		<-failed.Done()
		return server.Shutdown()
	})
	fmt.Fprintln(out, "ready", tcp.Addr())
	return group.Wait()
}

// handler gives the answer. Content-Type has its own place in fasthttp, and Date is its own affair.
func (c Config) handler() fasthttp.RequestHandler {
	body, contentType := []byte(c.Answer.Body), ""
	var headers []struct{ name, value []byte }
	for _, h := range c.Answer.Headers {
		switch strings.ToLower(h[0]) {
		case "content-type":
			contentType = h[1]
		case "date":
		default:
			headers = append(headers, struct{ name, value []byte }{[]byte(h[0]), []byte(h[1])})
		}
	}
	return func(ctx *fasthttp.RequestCtx) {
		question := ctx.PostBody()
		if c.Limiter != nil {
			if err := Decide(ctx, c.Limiter, question); err != nil {
				ctx.Error(err.Error(), fasthttp.StatusServiceUnavailable)
				return
			}
		}
		ctx.SetStatusCode(c.Answer.Status)
		ctx.SetContentType(contentType)
		for i := range headers {
			ctx.Response.Header.SetCanonical(headers[i].name, headers[i].value) // the name as it was written
		}
		ctx.Response.SetBodyRaw(body)
	}
}

func (a Answer) has(name string) bool {
	for _, h := range a.Headers {
		if strings.EqualFold(h[0], name) {
			return true
		}
	}
	return false
}
