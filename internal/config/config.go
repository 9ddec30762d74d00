// Package config turns a YAML file into limits, policies and typed settings. It refuses
// whatever it does not understand, and reports everything that is wrong with a file at once,
// each problem with its position. It starts no goroutine but in Watcher.Run, and reads no file but
// the one it is given: the files that a config names are read by those who use them.
package config

import (
	_ "embed" // for BuiltinYAML
	"fmt"
	"io/fs"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// maxFile is the size in bytes above which a file is refused unread.
const maxFile = 4 << 20

// Config is what a file says, with the documented default wherever it is silent. Nothing in it
// is changed after Parse returns, so it is safe for concurrent use.
type Config struct {
	Listen          Listen
	Redis           *Redis // nil: the embedded store, this process alone
	Breaker         Breaker
	Local           Local
	Nodes           int           // the least number of sidecars that share a limit while Redis is away; default 1
	ShutdownTimeout time.Duration // from SIGTERM to the exit, at most; default 10s
	Headers         Headers
	SecretFile      string              // holds the secret of tickets and keyed hashes; default none: a secret is made up
	OnRedisFailure  limit.FailurePolicy // of the limits that name none; default local
	Hashed          []string            // the attributes of which only a keyed hash leaves the process
	Rules           *limit.Rules
	Warnings        []Warning // in the order of their positions

	written []writtenLimit // beside Rules.Limits: what the file says of each
}

// Listen says where the sidecar can be reached. An address is host:port; port 0 is any free one.
type Listen struct {
	HTTP        string      // the data plane; default 127.0.0.1:7400
	Unix        string      // the data plane on a Unix socket; default none
	UnixMode    fs.FileMode // of the socket; default 0660
	Admin       string      // metrics, health, reset, pprof; default 127.0.0.1:7402
	Metrics     string      // metrics and health alone; default none
	AllowRemote bool        // HTTP and Admin may be addresses that other machines reach; default false
}

// Redis says where the shared store is and how to talk to it.
type Redis struct {
	Addr         string        // host:port, or the path of a Unix socket, which begins with /
	Mode         RedisMode     // default auto
	Username     string        // default none: Redis's default user
	PasswordFile string        // default none: no password
	TLS          *TLS          // default nil: no TLS
	KeyPrefix    string        // begins every key; default rl
	Timeout      time.Duration // from a request's arrival to the end of its wait for Redis; default 50ms
}

// RedisMode says what stands at Redis's address. Both modes mean one server: this version does not
// support a Redis Cluster.
type RedisMode string

// The modes of Redis.
const (
	RedisAuto   RedisMode = "auto"
	RedisSingle RedisMode = "single"
)

// TLS names the files of a TLS connection to Redis, all PEM.
type TLS struct {
	CAFile     string // whom to trust; default none: the system's roots
	CertFile   string // this client's certificate; default none
	KeyFile    string // its key; set exactly when CertFile is
	ServerName string // the name to be found in Redis's certificate; default none: the address's host
}

// Breaker says when calls to Redis stop for a while. It opens when the last Failures calls all
// failed, or when within Window at least Failures failed and they are at least half of all.
type Breaker struct {
	Failures int           // default 5
	Window   time.Duration // default 10s
	OpenFor  time.Duration // until one call is let through as a trial; default 2s
}

// Local bounds the tier in this process.
type Local struct {
	MaxKeys int           // keys kept before the least recently used goes; default 100,000
	Recheck time.Duration // how long a denial may rest on what is known here; default 1s
}

// Headers says how decisions show in response headers.
type Headers struct {
	XRateLimit bool // X-RateLimit-* too; default false
}

// draft11 is the only style of the RateLimit headers that a file may name: that of
// draft-ietf-httpapi-ratelimit-headers-11.
const draft11 = "draft-11"

// defaultKeyPrefix begins every key of the embedded store too.
const defaultKeyPrefix = "rl"

// defaults is the Config of a file that sets nothing.
func defaults() *Config {
	return &Config{
		Listen:          Listen{HTTP: "127.0.0.1:7400", UnixMode: 0o660, Admin: "127.0.0.1:7402"},
		Breaker:         Breaker{Failures: 5, Window: 10 * time.Second, OpenFor: 2 * time.Second},
		Local:           Local{MaxKeys: 100_000, Recheck: time.Second},
		Nodes:           1,
		ShutdownTimeout: 10 * time.Second,
		OnRedisFailure:  limit.FailLocal,
	}
}

// redisDefaults is the Redis of a block that sets nothing but the address.
func redisDefaults() *Redis {
	return &Redis{Mode: RedisAuto, KeyPrefix: defaultKeyPrefix, Timeout: 50 * time.Millisecond}
}

// BuiltinYAML is the config that the sidecar serves when it is given no file. It is the manual
// of every setting, too.
//
//go:embed example.yaml
var BuiltinYAML []byte

// Builtin returns the Config of BuiltinYAML.
func Builtin() *Config {
	c, err := Parse("built-in", BuiltinYAML)
	if err != nil {
		panic(fmt.Sprintf("config: the built-in example is broken: %v", err))
	}
	return c
}

// Load reads the config in the file at path. What is wrong inside the file comes back as
// [Errors]; any other error means that it could not be read.
func Load(path string) (*Config, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// Parse reads the config in data; name is what errors call the file. The error is [Errors], with
// every problem there is: none hides another, but where the YAML itself cannot be read only the
// first is known.
func Parse(name string, data []byte) (*Config, error) {
	c, src := defaults(), &source{name: name}
	written := contents{ticketTTL: time.Hour, requestIDTTL: time.Minute}
	if root, ok := src.parse(data); ok {
		c.read(root, &written)
	}
	if len(src.problems) > 0 {
		return nil, src.problems.sorted()
	}
	prefix := defaultKeyPrefix
	if c.Redis != nil {
		prefix = c.Redis.KeyPrefix
	}
	inForce := make([]*limit.Limit, 0, len(written.limits))
	for _, l := range written.limits {
		inForce = append(inForce, &l.limit)
		c.written = append(c.written, l.written)
	}
	rules, err := limit.NewRules(prefix, c.Hashed, inForce, written.policies)
	if err != nil {
		return nil, fmt.Errorf("config: prepare rules: %w", err)
	}
	rules.TicketTTL, rules.RequestIDTTL = written.ticketTTL, written.requestIDTTL
	c.Rules, c.Warnings = rules, src.sortedWarnings()
	return c, nil
}

// contents is what a file says of its Rules.
type contents struct {
	limits       []*limitEntry
	policies     []*limit.Policy
	ticketTTL    time.Duration
	requestIDTTL time.Duration
}

// read takes every setting of the file.
func (c *Config) read(root *mapping, written *contents) {
	root.later("authorize")
	root.inRequest()
	c.Listen.read(root)
	c.readRedis(root)
	c.Breaker.read(root)
	c.Local.read(root)
	c.Headers.read(root)
	c.readTickets(root, &written.ticketTTL)
	read(root, "request_id_ttl", value.duration, &written.requestIDTTL)
	read(root, "nodes", count, &c.Nodes)
	read(root, "shutdown_timeout", value.duration, &c.ShutdownTimeout)
	c.warnOfCuts(root)
	read(root, "on_redis_failure", failurePolicy, &c.OnRedisFailure)
	hashed := readAttributes(root)
	hold := readHold(root)
	if c.Redis == nil {
		hold = 0 // a node alone has nobody to share with
	}
	written.limits = readLimits(root, c.OnRedisFailure, hold)
	written.policies = readPolicies(root, written.limits)
	root.close()
	c.Hashed = hashed.inUse(root.src, written.limits)
}
