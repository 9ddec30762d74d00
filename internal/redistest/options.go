package redistest

import (
	"fmt"
	"strings"
)

// An Option changes how [Start] runs a server.
type Option func(*settings)

type settings struct {
	args     []string
	password string
	users    []string
	certs    *Certificates
	ownClock bool
	pickPort func() int
}

// WithArgs adds arguments to the command line of redis-server, such as "--maxmemory", "10mb". They
// win over what Start sets, and stay over a Restart.
func WithArgs(args ...string) Option {
	return func(s *settings) { s.args = append(s.args, args...) }
}

// WithPassword makes the default user need password (requirepass). A password set later with
// CONFIG SET requirepass is forgotten by Restart.
func WithPassword(password string) Option {
	return func(s *settings) { s.password = password }
}

// WithUsers adds ACL users. A rule is what follows "user" in an ACL file, such as
// "alice on >secret ~rl:* +@all"; one for "default" restricts the default user.
func WithUsers(rules ...string) Option {
	return func(s *settings) { s.users = append(s.users, rules...) }
}

// WithTLS makes the TCP port speak TLS alone, with certs, and ask for a client certificate of the
// same CA ([WithArgs] "--tls-auth-clients", "no" makes it optional). The Unix socket stays plain.
func WithTLS(certs *Certificates) Option {
	return func(s *settings) { s.certs = certs }
}

// controlUser is the ACL user that Server.Do logs in as, so that a test may change or lock the
// default user and still inspect the server.
const controlUser = "redistest"

// config is the text of the server's config file.
func (s *settings) config(dir, socket string, port int) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("bind 127.0.0.1")
	line("unixsocket %s", socket)
	line("unixsocketperm 700")
	line("dir %s", dir)
	line(`save ""`)
	line("appendonly no")
	line("daemonize no")
	line(`logfile ""`)
	line("user %s on nopass ~* &* +@all", controlUser)
	for _, rule := range s.users {
		line("user %s", rule)
	}
	if s.password != "" {
		line("requirepass %q", s.password)
	}
	if s.certs == nil {
		line("port %d", port)
		return b.String()
	}
	line("port 0")
	line("tls-port %d", port)
	line("tls-ca-cert-file %s", s.certs.CAFile)
	line("tls-cert-file %s", s.certs.ServerCertFile)
	line("tls-key-file %s", s.certs.ServerKeyFile)
	return b.String()
}
