package load

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// statusFailure is the least status that counts as a failure, as wrk has it.
const statusFailure = 400

// Closed runs the load without wrk, which speaks TCP only. Each connection has a goroutine; all have
// ended on return. A connection that breaks is not replaced, and counts in Broken.
func Closed(ctx context.Context, deck Deck, run Run) (Result, error) {
	requests := make([][]byte, len(deck))
	for i, body := range deck {
		requests[i] = fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			Path, len(body), body)
	}
	var dialer net.Dialer
	clients := make([]client, run.Connections)
	for i := range clients {
		conn, err := dialer.DialContext(ctx, run.Network, run.Address)
		if err != nil {
			return Result{}, fmt.Errorf("load: %w", err)
		}
		defer conn.Close()
		clients[i] = client{conn: conn, next: run.Skip + i*len(requests)/len(clients)}
	}
	ctx, cancel := context.WithTimeout(ctx, run.For)
	defer cancel()
	began := time.Now()
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() { clients[i].loop(ctx, requests) })
	}
	group.Wait()
	return gather(clients, time.Since(began))
}

// client is one connection and what came over it.
type client struct {
	conn     net.Conn
	next     int // the number of its next request
	waits    []time.Duration
	failures int64
	broken   error
}

func (c *client) loop(ctx context.Context, requests [][]byte) {
	replies := bufio.NewReader(c.conn)
	var reply fasthttp.Response
	for ctx.Err() == nil {
		asked := time.Now()
		if _, c.broken = c.conn.Write(requests[c.next%len(requests)]); c.broken != nil {
			return
		}
		if c.broken = reply.Read(replies); c.broken != nil {
			return
		}
		c.waits = append(c.waits, time.Since(asked))
		if reply.StatusCode() >= statusFailure {
			c.failures++
		}
		c.next++
	}
}

func gather(clients []client, took time.Duration) (Result, error) {
	result := Result{Took: took}
	var waits []time.Duration
	for _, c := range clients {
		waits = append(waits, c.waits...)
		result.Failures += c.failures
		if c.broken != nil {
			result.Broken++
		}
	}
	if len(waits) == 0 {
		return Result{}, fmt.Errorf("load: no answer within %v", took)
	}
	slices.Sort(waits)
	result.Answers = int64(len(waits))
	result.P50, result.P99 = percentile(waits, 50), percentile(waits, 99)
	return result, nil
}

// percentile returns the least of the sorted waits that at least percent of them do not exceed.
func percentile(sorted []time.Duration, percent int) time.Duration {
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}
