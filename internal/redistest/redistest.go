// Package redistest gives tests private redis-server processes, and faults between a client and
// a server: [Start] runs a server of the test's own, [NewProxy] stands between it and a client and
// delays, loses, holds or resets what passes, [NewStub] answers every command with fixed bytes.
//
// Everything listens on loopback only, keeps its files in a temporary directory, and is stopped,
// joined and removed by the test's Cleanup; a server also dies with the test binary. The package
// speaks the little RESP it needs by itself and imports no Redis client library.
package redistest

import (
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are picked below the range from which Linux takes the ports of outgoing connections
// (32768 and up). From inside that range a client that redials a dead server could be given the
// server's own port, and so connect to itself or keep the server from coming back. The ports 10000
// higher, which a Redis Cluster node takes for its bus, stay below that range too, and clear of
// the ports picked here.
const (
	firstPort = 11000
	portCount = 10000
	portTries = 20 // ports tried before giving up
)

// randomPort picks a port that may be taken: who listens on it must be ready to try another.
func randomPort() int { return firstPort + rand.IntN(portCount) }

// loopback is the TCP address of port on this machine.
func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// network names the network of an address: one that starts with / is a Unix socket, as it is in
// the sidecar's config.
func network(addr string) string {
	if len(addr) > 0 && addr[0] == '/' {
		return "unix"
	}
	return "tcp"
}
