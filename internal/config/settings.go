package config

import (
	"slices"
	"strings"
	"time"
	"unicode"
)

func (c *Config) readRedis(root *mapping) {
	m, ok := root.block("redis")
	if !ok {
		return
	}
	m.later("master_name")
	c.Redis = redisDefaults()
	read(m, "addrs", redisAddress, &c.Redis.Addr)
	read(m, "mode", redisMode, &c.Redis.Mode)
	read(m, "username", value.nonEmpty, &c.Redis.Username)
	read(m, "password_file", filePath, &c.Redis.PasswordFile)
	read(m, "key_prefix", keyPrefix, &c.Redis.KeyPrefix)
	read(m, "timeout", value.duration, &c.Redis.Timeout)
	if v, ok := m.get("tls"); ok {
		c.Redis.TLS = readTLS(v)
		if strings.HasPrefix(c.Redis.Addr, "/") {
			m.src.refuse(v.at, "tls over the Unix socket %s is not possible: leave tls out, or write host:port in addrs", shown(c.Redis.Addr))
		}
	}
	if m.lacks("addrs") {
		m.src.refuse(m.at, "redis has no addrs: write addrs: [127.0.0.1:6379], or leave redis out for the embedded store")
	}
	m.close()
}

// warnOfCuts warns when a request may wait for Redis for longer than a shutdown lasts.
func (c *Config) warnOfCuts(root *mapping) {
	if c.Redis == nil || c.Redis.Timeout < c.ShutdownTimeout {
		return
	}
	key := "redis"
	if root.has("shutdown_timeout") {
		key = "shutdown_timeout"
	}
	root.src.warn(root.placeOf(key), "redis.timeout is %s and shutdown_timeout %s: a request under way at SIGTERM may be cut; write a longer shutdown_timeout",
		span(c.Redis.Timeout), span(c.ShutdownTimeout))
}

func readTLS(v value) *TLS {
	tls := &TLS{}
	m, ok := v.mapping()
	if !ok {
		return nil
	}
	read(m, "ca_file", filePath, &tls.CAFile)
	read(m, "cert_file", filePath, &tls.CertFile)
	read(m, "key_file", filePath, &tls.KeyFile)
	read(m, "server_name", value.nonEmpty, &tls.ServerName)
	if m.has("cert_file") && m.lacks("key_file") || m.has("key_file") && m.lacks("cert_file") {
		m.src.refuse(m.at, "cert_file and key_file go together: write both or neither")
	}
	m.close()
	return tls
}

// redisAddress reads a list of exactly one address.
func redisAddress(v value) (string, bool) {
	addrs, ok := v.list()
	if !ok {
		return "", false
	}
	if len(addrs) != 1 {
		v.src.refuse(v.at, "addrs has %d addresses, and this version takes exactly one: write addrs: [127.0.0.1:6379]", len(addrs))
		return "", false
	}
	text, ok := addrs[0].nonEmpty()
	switch {
	case !ok:
		return "", false
	case strings.HasPrefix(text, "/"):
		return socketPath(addrs[0])
	}
	text, ok = addrs[0].address("1")
	if ok && strings.HasPrefix(text, ":") {
		v.src.refuse(addrs[0].at, "%s has no host: write one, such as 127.0.0.1%s", addrs[0].name, text)
		return "", false
	}
	return text, ok
}

func redisMode(v value) (RedisMode, bool) {
	word, ok := v.choice([]string{string(RedisAuto), string(RedisSingle)}, "sentinel", "cluster")
	return RedisMode(word), ok
}

// keyPrefix reads what begins every key: no braces, for they mark the part of a key that places
// it on a Redis Cluster.
func keyPrefix(v value) (string, bool) {
	text, ok := v.nonEmpty()
	if !ok {
		return "", false
	}
	const extra = "._:-"
	if len(text) > 64 || strings.Trim(strings.ToLower(text), "abcdefghijklmnopqrstuvwxyz0123456789"+extra) != "" {
		v.src.refuse(v.at, "key_prefix is %s: write 1 to 64 letters, digits or any of %s, such as rl", v.shown(), extra)
		return "", false
	}
	return text, true
}

// filePath reads the path of a file, which is not opened here.
func filePath(v value) (string, bool) {
	path, ok := v.nonEmpty()
	if ok && strings.ContainsRune(path, 0) {
		v.src.refuse(v.at, "%s holds a NUL byte: write a path without", v.name)
		return "", false
	}
	return path, ok
}

func (b *Breaker) read(root *mapping) {
	m, ok := root.block("breaker")
	if !ok {
		return
	}
	read(m, "failures", count, &b.Failures)
	read(m, "window", value.duration, &b.Window)
	read(m, "open_for", value.duration, &b.OpenFor)
	m.close()
}

func (l *Local) read(root *mapping) {
	m, ok := root.block("local")
	if !ok {
		return
	}
	read(m, "max_keys", count, &l.MaxKeys)
	read(m, "recheck", value.duration, &l.Recheck)
	m.close()
}

// The bounds of leases.hold: shorter than a call takes would lease nothing, and what a node that dies
// takes along is lost for two of them.
const (
	defaultHold = 100 * time.Millisecond
	minHold     = 10 * time.Millisecond
	maxHold     = time.Minute
)

// readHold reads for how long a node may hold tokens of a leased limit.
func readHold(root *mapping) time.Duration {
	hold := defaultHold
	m, ok := root.block("leases")
	if !ok {
		return hold
	}
	read(m, "hold", func(v value) (time.Duration, bool) {
		d, ok := v.duration()
		if ok && (d < minHold || d > maxHold) {
			v.src.refuse(v.at, "hold is %s: write a time from %s to %s, such as 100ms", span(d), span(minHold), span(maxHold))
			return 0, false
		}
		return d, ok
	}, &hold)
	m.close()
	return hold
}

func (h *Headers) read(root *mapping) {
	m, ok := root.block("headers")
	if !ok {
		return
	}
	if v, ok := m.get("style"); ok {
		v.choice([]string{draft11})
	}
	read(m, "x_ratelimit", value.flag, &h.XRateLimit)
	m.close()
}

func (c *Config) readTickets(root *mapping, ttl *time.Duration) {
	m, ok := root.block("tickets")
	if !ok {
		return
	}
	read(m, "ttl", value.duration, ttl)
	read(m, "secret_file", filePath, &c.SecretFile)
	m.close()
}

// hashedAttribute is an attribute of which only a hash may leave the process.
type hashedAttribute struct {
	name string
	at   pos
}

type hashedAttributes []hashedAttribute

func readAttributes(root *mapping) hashedAttributes {
	m, ok := root.block("attributes")
	if !ok {
		return nil
	}
	var hashed hashedAttributes
	for _, e := range m.entries {
		refuseAttribute(m.src, e.at, e.key)
		settings, ok := e.value.mapping()
		if !ok {
			continue
		}
		var hash bool
		read(settings, "hash", value.flag, &hash)
		settings.close()
		if hash {
			hashed = append(hashed, hashedAttribute{e.key, e.at})
		}
	}
	return hashed
}

// inUse returns the names, and warns of those that no limit reads.
func (h hashedAttributes) inUse(src *source, limits []*limitEntry) []string {
	var names []string
	for _, a := range h {
		names = append(names, a.name)
		if !slices.ContainsFunc(limits, func(l *limitEntry) bool { return slices.Contains(l.attributes(), a.name) }) {
			src.warn(a.at, "no limit uses the attribute %s: is its name right?", shown(a.name))
		}
	}
	return names
}

// refuseAttribute refuses a name that no question could give an attribute.
func refuseAttribute(src *source, at pos, name string) {
	odd := func(r rune) bool { return r == '=' || unicode.IsSpace(r) || !unicode.IsPrint(r) }
	switch {
	case name == "":
		src.refuse(at, "an attribute without a name cannot be asked for: write one, such as user")
	case name == "policy" || name == "limit" || name == "key":
		src.refuse(at, "%s cannot be the name of an attribute, for it has a meaning of its own in a question: write another, such as %s_id", name, name)
	case len(name) > 128 || strings.ContainsFunc(name, odd):
		src.refuse(at, "%s cannot be the name of an attribute: write up to 128 bytes without spaces, control characters and =", shown(name))
	}
}
