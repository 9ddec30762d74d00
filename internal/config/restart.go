package config

import (
	"slices"
	"strings"
)

// NeedsRestart returns the settings that differ between the two configs and act only after a
// restart, by their keys in the file: redis.timeout, or redis alone when the whole block has come
// or gone. All others can act at once: limits, policies, attributes, nodes, on_redis_failure,
// tickets.ttl and request_id_ttl.
// What stands in the files that a config names is not compared.
func NeedsRestart(started, now *Config) []string {
	before, after := startSettings(started), startSettings(now)
	var keys []string
	for i, s := range before {
		within := func(block string) bool { return strings.HasPrefix(s.key, block+".") }
		if s != after[i] && !slices.ContainsFunc(keys, within) {
			keys = append(keys, s.key)
		}
	}
	return keys
}

// startSetting is a setting that is read when the sidecar starts; its value is comparable.
type startSetting struct {
	key   string
	value any
}

// startSettings lists them all, with a block that may be absent before what is in it.
func startSettings(c *Config) []startSetting {
	redis, tls := Redis{}, TLS{}
	if c.Redis != nil {
		redis = *c.Redis
	}
	if redis.TLS != nil {
		tls = *redis.TLS
	}
	return []startSetting{
		{"listen.http", c.Listen.HTTP},
		{"listen.unix", c.Listen.Unix},
		{"listen.unix_mode", c.Listen.UnixMode},
		{"listen.admin", c.Listen.Admin},
		{"listen.metrics", c.Listen.Metrics},
		{"listen.allow_remote", c.Listen.AllowRemote},
		{"redis", c.Redis != nil},
		{"redis.addrs", redis.Addr},
		{"redis.mode", redis.Mode},
		{"redis.username", redis.Username},
		{"redis.password_file", redis.PasswordFile},
		{"redis.tls", redis.TLS != nil},
		{"redis.tls.ca_file", tls.CAFile},
		{"redis.tls.cert_file", tls.CertFile},
		{"redis.tls.key_file", tls.KeyFile},
		{"redis.tls.server_name", tls.ServerName},
		{"redis.key_prefix", redis.KeyPrefix},
		{"redis.timeout", redis.Timeout},
		{"breaker.failures", c.Breaker.Failures},
		{"breaker.window", c.Breaker.Window},
		{"breaker.open_for", c.Breaker.OpenFor},
		{"local.max_keys", c.Local.MaxKeys},
		{"local.recheck", c.Local.Recheck},
		{"tickets.secret_file", c.SecretFile},
		{"shutdown_timeout", c.ShutdownTimeout},
		{"headers.x_ratelimit", c.Headers.XRateLimit},
	}
}
