package config_test

import (
	"io/fs"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/config"
)

// TestNeedsRestartKnowsEverySetting changes each field of a Config alone, so that a new one is
// either named or in the list of those that act at once.
func TestNeedsRestartKnowsEverySetting(t *testing.T) {
	live := []string{"Nodes", "OnRedisFailure", "Hashed", "Rules", "Warnings", "written"}
	leaf := func(v reflect.Value) {
		switch v.Interface().(type) {
		case string, config.RedisMode:
			v.SetString("other")
		case bool:
			v.SetBool(!v.Bool())
		case int, time.Duration:
			v.SetInt(v.Int() + 1)
		case fs.FileMode:
			v.SetUint(v.Uint() + 1)
		default:
			t.Fatalf("a setting of the type %v", v.Type())
		}
	}
	full := func() *config.Config {
		return parse(t, "redis: {addrs: [127.0.0.1:6379], tls: {}}\nlimits: [{name: a, rate: 10/s}]")
	}
	var got []string
	var walk func(path []int, typ reflect.Type)
	walk = func(path []int, typ reflect.Type) {
		for i := range typ.NumField() {
			field, at := typ.Field(i), append(slices.Clone(path), i)
			inner := field.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			switch {
			case len(path) == 0 && slices.Contains(live, field.Name):
				continue
			case inner.Kind() == reflect.Struct:
				walk(at, inner)
				continue
			}
			old, new := full(), full()
			leaf(reflect.ValueOf(new).Elem().FieldByIndex(at))
			keys := config.NeedsRestart(old, new)
			if len(keys) != 1 {
				t.Errorf("a change of %s alone is called %q", field.Name, keys)
			}
			got = append(got, keys...)
		}
	}
	walk(nil, reflect.TypeFor[config.Config]())
	want := []string{
		"listen.http", "listen.unix", "listen.unix_mode", "listen.admin", "listen.metrics", "listen.allow_remote",
		"redis.addrs", "redis.mode", "redis.username", "redis.password_file", "redis.tls.ca_file", "redis.tls.cert_file",
		"redis.tls.key_file", "redis.tls.server_name", "redis.key_prefix", "redis.timeout", "breaker.failures",
		"breaker.window", "breaker.open_for", "local.max_keys", "local.recheck", "shutdown_timeout",
		"headers.x_ratelimit", "tickets.secret_file",
	}
	if !slices.Equal(got, want) {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
}

func TestNeedsRestart(t *testing.T) {
	const (
		limits = "limits: [{name: a, rate: 10/s}]\n"
		redis  = limits + "redis: {addrs: [127.0.0.1:6379]}\n"
		tls    = limits + "redis: {addrs: [127.0.0.1:6379], tls: {ca_file: /ca}}\n"
	)
	tests := []struct {
		name     string
		old, new string
		want     []string
	}{
		{"nothing", redis, redis, nil},
		{"a default written out", limits, limits + "listen: {http: 127.0.0.1:7400}", nil},
		{"limits", redis, redis + "policies: {p: {limits: [a]}}", nil},
		{"what acts at once", redis, redis + "nodes: 3\non_redis_failure: open\nattributes: {user: {hash: true}}", nil},
		{"Redis comes", limits, tls, []string{"redis"}},
		{"Redis goes", tls, limits, []string{"redis"}},
		{"TLS comes", redis, tls, []string{"redis.tls"}},
		{"several", redis, limits + "redis: {addrs: [127.0.0.1:6380], timeout: 20ms}\nlocal: {recheck: 2s}",
			[]string{"redis.addrs", "redis.timeout", "local.recheck"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := config.NeedsRestart(parse(t, tt.old), parse(t, tt.new)); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
