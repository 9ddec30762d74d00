// Package delay is a TCP proxy that makes a server far away: what goes through it arrives later, and
// nothing is held back for any other reason. Proxies keep no state but what is under way.
package delay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/tidegate/tidegate/bench/internal/load"
)

// underWay is how many reads one direction of a connection may have in flight: at 64 KB each far more
// than a link of some milliseconds carries here.
const underWay = 4096

// Serve passes every connection to listener on to address until ctx ends, each direction late by oneWay.
// It returns when all connections have ended.
func Serve(ctx context.Context, listener net.Listener, address string, oneWay time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		near, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("delay: accept: %w", err)
		}
		far, err := net.Dial("tcp", address)
		if err != nil {
			near.Close() // the client sees what it would see without a proxy
			continue
		}
		group.Go(func() { link(ctx, near, far, oneWay) })
	}
}

// link carries both directions until either ends.
func link(ctx context.Context, near, far net.Conn, oneWay time.Duration) {
	cut := func() {
		_ = near.Close()
		_ = far.Close()
	}
	stop := context.AfterFunc(ctx, cut)
	defer stop()
	defer cut()
	var group sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		parcels := make(chan parcel, underWay)
		group.Go(func() { take(way[0], parcels, oneWay) })
		group.Go(func() {
			hand(way[1], parcels)
			cut()
			for range parcels { // until the reader has seen the cut
			}
		})
	}
	group.Wait()
}

// parcel is bytes and when they are to arrive.
type parcel struct {
	data []byte
	due  time.Time
}

// take reads what comes, and says when it is due.
func take(from io.Reader, parcels chan<- parcel, late time.Duration) {
	defer close(parcels)
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			parcels <- parcel{append([]byte(nil), buffer[:n]...), time.Now().Add(late)}
		}
		if err != nil {
			return
		}
	}
}

// hand writes each parcel when it is due.
func hand(to io.Writer, parcels <-chan parcel) {
	for p := range parcels {
		load.Pause(time.Until(p.due))
		if _, err := to.Write(p.data); err != nil {
			return
		}
	}
}
