package config_test

import (
	"strings"
	"testing"
)

// host:port is one text wherever YAML lets it stand.
func TestAddressForms(t *testing.T) {
	for _, redis := range []string{
		"{addrs: [redis.internal:6379]}", "{addrs: [ redis.internal:6379 ], mode: auto}", "{addrs: ['redis.internal:6379']}", "{mode: auto, addrs: [\n  redis.internal:6379\n]}",
		"\n  addrs: [redis.internal:6379]", "\n  addrs:\n    - redis.internal:6379", "\n  addrs:\n  - \"redis.internal:6379\"",
	} {
		if got := parse(t, "limits: [{name: a, rate: 1/s}]\nredis: "+redis).Redis.Addr; got != "redis.internal:6379" {
			t.Errorf("redis: %s\ngives the address %q", redis, got)
		}
	}
	for _, redis := range []string{"{addrs: [redis.internal: 6379]}", "{addrs: [{redis.internal: 6379}]}"} {
		want := "test.yaml:2:17: an entry of addrs is a block of keys: write a text"
		if got := refused(t, "limits: [{name: a, rate: 1/s}]\nredis: "+redis); got != want {
			t.Errorf("redis: %s\n got %s\nwant %s", redis, got, want)
		}
	}
}

// Without allow_remote only addresses of this machine will do, and any address may be on port 0.
func TestLoopback(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "127.8.9.10", "[::1]", "[::ffff:127.0.0.1]", "localhost", "LOCALHOST"} {
		c := parse(t, `{listen: {http: "`+host+`:0", admin: "`+host+`:0", metrics: ":0"}, limits: [{name: a, rate: 1/s}]}`)
		if c.Listen.HTTP != host+":0" || len(c.Warnings) != 0 {
			t.Errorf("%s: %+v, %v", host, c.Listen, c.Warnings)
		}
	}
	for _, host := range []string{"", "0.0.0.0", "[::]", "10.0.0.1", "128.0.0.1", "[::2]", "[::ffff:10.0.0.1]", "[fe80::1%lo]", "localhost.example.com"} {
		got := refused(t, `{listen: {http: "`+host+`:7400"}, limits: [{name: a, rate: 1/s}]}`)
		if !strings.Contains(got, "which other machines may reach") {
			t.Errorf("%s: %s", host, got)
		}
		c := parse(t, `{listen: {http: "`+host+`:7400", allow_remote: true}, limits: [{name: a, rate: 1/s}]}`)
		if len(c.Warnings) != 1 {
			t.Errorf("%s allowed: warnings %v, want one", host, c.Warnings)
		}
	}
}
