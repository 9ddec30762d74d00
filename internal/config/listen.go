package config

import (
	"cmp"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// maxSocketPath is the longest path in bytes that Linux takes for a Unix socket.
const maxSocketPath = 107

// endpoint is an address to listen on.
type endpoint struct {
	name string // of its setting
	may  string // what its callers may do
	at   pos
	text string
	host string // a plain IP address, or a name
	port string // 1 to 65535, or 0 for any free one
}

func (l *Listen) read(root *mapping) {
	m, ok := root.block("listen")
	if !ok {
		return
	}
	m.later("grpc", "resp")
	read(m, "allow_remote", value.flag, &l.AllowRemote)
	http := m.endpoint("http", &l.HTTP)
	http.may = "ask and charge"
	admin := m.endpoint("admin", &l.Admin)
	admin.may = "reset limits and profile the process"
	metrics := m.endpoint("metrics", &l.Metrics)
	read(m, "unix", socketPath, &l.Unix)
	read(m, "unix_mode", fileMode, &l.UnixMode)
	if m.has("unix_mode") && m.lacks("unix") {
		m.src.refuse(m.at, "unix_mode without unix has no effect: name the socket in unix, or take unix_mode out")
	}
	m.close()
	for _, e := range []endpoint{http, admin} {
		e.guard(m.src, l.AllowRemote)
	}
	refuseClashes(m.src, []endpoint{http, admin, metrics})
}

// endpoint reads the address under key into into, and returns it or the default taken apart. The
// endpoint is empty when there is none, or when it was refused.
func (m *mapping) endpoint(key string, into *string) endpoint {
	e := endpoint{name: "listen." + key, at: m.at, text: *into}
	if v, ok := m.get(key); ok {
		e.at = v.at
		if e.text, ok = v.address("0"); !ok {
			return endpoint{}
		}
	}
	*into = e.text
	e.host, e.port, _ = net.SplitHostPort(e.text)
	return e
}

// address reads host:port. The port is a number up to 65535 and at least lowest.
func (v value) address(lowest string) (string, bool) {
	text, ok := v.nonEmpty()
	if !ok {
		return "", false
	}
	host, port, err := net.SplitHostPort(text)
	switch {
	case strings.HasPrefix(text, "/"):
		v.src.refuse(v.at, "%s is the path %s: write host:port here, and a socket's path under unix", v.name, text)
		return "", false
	case err != nil:
		v.src.refuse(v.at, "%s is %s: write host:port, such as 127.0.0.1:7400 or \"[::1]:7400\"", v.name, v.shown())
		return "", false
	case !validHost(host):
		v.src.refuse(v.at, "%s has %s for a host: write an IP address or a name of letters, digits, - and .", v.name, shown(host))
		return "", false
	}
	low, _ := strconv.Atoi(lowest)
	n, err := strconv.Atoi(port)
	if err != nil || n < low || n > 65535 || strconv.Itoa(n) != port {
		v.src.refuse(v.at, "%s has %s for a port: write a number from %s to 65535", v.name, shown(port), lowest)
		return "", false
	}
	return text, true
}

func validHost(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil || host == "" {
		return true
	}
	return len(host) <= 253 && strings.Trim(strings.ToLower(host), "abcdefghijklmnopqrstuvwxyz0123456789-._") == ""
}

// guard refuses an address that other machines may reach, unless the file asks for it.
func (e endpoint) guard(src *source, remoteAllowed bool) {
	switch {
	case e.text == "" || e.isLoopback():
	case remoteAllowed:
		src.warn(e.at, "%s: whoever reaches %s may %s, and this version has no tokens to keep them out", e.name, e.text, e.may)
	default:
		src.refuse(e.at, "%s is %s, which other machines may reach, and this version has no tokens to keep them out: "+
			"write 127.0.0.1:%s, or set listen.allow_remote: true where the network itself is closed", e.name, e.text, e.port)
	}
}

func (e endpoint) isLoopback() bool {
	ip, err := netip.ParseAddr(e.host)
	if err != nil {
		return strings.EqualFold(e.host, "localhost")
	}
	return ip.IsLoopback()
}

// refuseClashes refuses every endpoint whose address one further up in the file takes already.
func refuseClashes(src *source, endpoints []endpoint) {
	slices.SortStableFunc(endpoints, func(a, b endpoint) int {
		return cmp.Or(cmp.Compare(a.at.line, b.at.line), cmp.Compare(a.at.col, b.at.col))
	})
	for i, e := range endpoints {
		taken := slices.IndexFunc(endpoints[:i], e.clashes)
		if taken >= 0 {
			src.refuse(e.at, "%s is %s, and %s is %s: give each its own port", e.name, e.text, endpoints[taken].name, endpoints[taken].text)
		}
	}
}

// clashes reports whether both cannot be listened on at once.
func (e endpoint) clashes(other endpoint) bool {
	if e.text == "" || other.text == "" || e.port != other.port || e.port == "0" {
		return false
	}
	a, b := e.canonicalHost(), other.canonicalHost()
	return a == b || a == "" || b == ""
}

// canonicalHost is the same for hosts that mean the same, and empty for every address at once.
func (e endpoint) canonicalHost() string {
	if strings.EqualFold(e.host, "localhost") {
		return "127.0.0.1"
	}
	ip, err := netip.ParseAddr(e.host)
	switch {
	case err != nil:
		return strings.ToLower(e.host)
	case ip.IsUnspecified():
		return ""
	}
	return ip.Unmap().String()
}

// socketPath reads the path of a Unix socket.
func socketPath(v value) (string, bool) {
	path, ok := v.nonEmpty()
	switch {
	case !ok:
	case !strings.HasPrefix(path, "/"):
		v.src.refuse(v.at, "%s is %s: write a whole path, which begins with /", v.name, v.shown())
		return "", false
	case len(path) > maxSocketPath:
		v.src.refuse(v.at, "%s is a path of %d bytes, more than a socket can have: write at most %d", v.name, len(path), maxSocketPath)
		return "", false
	case strings.ContainsRune(path, 0):
		v.src.refuse(v.at, "%s holds a NUL byte: write a path without", v.name)
		return "", false
	}
	return path, ok
}

// fileMode reads permission bits, which must be in quotes: a bare 0660 is octal to some readers
// of YAML and decimal to others.
func fileMode(v value) (fs.FileMode, bool) {
	const want = "four octal digits in quotes, such as \"0660\""
	text, ok := v.scalar(want)
	if !ok {
		return 0, false
	}
	mode, err := strconv.ParseUint(text, 8, 32)
	if !v.quoted() || len(text) != 4 || text[0] != '0' || err != nil {
		v.src.refuse(v.at, "%s is %s: write %s", v.name, v.shown(), want)
		return 0, false
	}
	return fs.FileMode(mode), true
}
