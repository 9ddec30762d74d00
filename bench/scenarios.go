package main

import (
	"fmt"

	"github.com/tidegate/tidegate/bench/internal/load"
)

// kind is what a contestant decides with.
type kind string

const (
	sidecar kind = "sidecar"
	bare    kind = "bare"       // nothing is decided: the answer of the scenario's sidecar, again and again
	evalsha kind = "evalsha"    // the same after one EVALSHA
	library kind = "redis_rate" // the same after one call of that library
)

// store is where a contestant keeps its limits.
type store string

const (
	tcpRedis  store = "" // where nothing else is said
	unixRedis store = "Redis on a Unix socket"
	nearRedis store = "Redis through a proxy without delay"
	farRedis  store = "Redis through a proxy, 1 ms away"
	embedded  store = "no Redis"
)

// contestant is a server that is measured.
type contestant struct {
	name   string
	kind   kind
	limits string // of a sidecar: its limits and whatever else its config needs
	store  store
	unix   bool // it is asked over its Unix socket, by a client of the benchmark's own
	sweep  bool // it is measured at every number of connections, for the figures
}

// asksRedis reports whether a contestant needs Redis to decide.
func (c contestant) asksRedis() bool { return c.kind != bare && c.store != embedded }

// scenario is one load that is put to several contestants in turn, again and again.
type scenario struct {
	name        string
	deck        load.Deck
	connections int  // 0: 64
	decisions   int  // in each answer; 0: 1
	ownClient   bool // the load is made by the benchmark's own client and not by wrk, which has no Unix sockets
	short       bool // a second each, as many rounds as the figures have: no ratio is held to anything
	want        outcome
	contestants []contestant // a sidecar first: its answer is what the yardsticks say
}

// outcome is what every answer must be.
type outcome struct {
	result string // allowed or denied
	tier   string // that answers most; redis may answer the rest
}

const (
	oneKey     = `{"limit":"users","key":"u000042"}`
	someKey    = `{"limit":"users","key":"u%06d"}`
	somePolicy = `{"policy":"users","attributes":{"user":"u%06d"}}`

	manyKeys  = 100_000
	batchSize = 50
)

// The limits. A bucket is so large that nothing is denied, and so slow that a key which was asked about
// has a state in Redis while the scenario lasts.
const (
	hashLimit   = "limits:\n  - {name: users, rate: 6/m, burst: 1000000, key: [user]}\n"
	stringLimit = "limits:\n  - {name: users, rate: 6/m, burst: 1000000, key: [user], state: string}\n"
	hotLimit    = "limits:\n  - {name: users, rate: 1000/s, burst: 1000000000, key: [user]}\n"
	deniedLimit = "limits:\n  - {name: users, rate: 1/h, burst: 1, key: [user]}\n"
	leasedLimit = "limits:\n  - {name: users, rate: 1000/s, burst: 1000000000, key: [user], mode: leased}\n"
)

// policyOf is a policy of n limits on a user, each with a bucket of its own.
func policyOf(n int, state string) string {
	limits, names := "limits:\n", ""
	for i := range n {
		limits += fmt.Sprintf("  - {name: limit-%d, rate: %d/m, burst: 1000000, key: [user], state: %s}\n", i, 3+i, state)
		names += fmt.Sprintf("limit-%d, ", i)
	}
	return limits + "policies:\n  users: {limits: [" + names[:len(names)-2] + "]}\n"
}

// The scenarios, in the order in which they are measured.
const (
	deniedName    = "denied locally"
	leasedHotName = "leased, one hot key"
	leasedName    = "leased, 1,000 keys"
	hotName       = "strict, one hot key"
	keysName      = "strict, 100,000 keys"
	zipfName      = "strict, 100,000 keys, Zipf"
	policyName    = "policy, 100,000 users"
	farName       = "Redis 1 ms away"
	checksName    = "50 checks in a question"
	embeddedName  = "embedded store, 100,000 keys"
	socketName    = "Redis on a Unix socket, 100,000 keys"
	networksName  = "TCP and Unix socket"
)

func scenarios() []scenario {
	allowed := outcome{"allowed", "redis"}
	yardstick := contestant{name: "bare", kind: bare}
	keys := load.Uniform(someKey, manyKeys)
	return []scenario{
		{name: deniedName, deck: load.One(oneKey), want: outcome{"denied", "local"}, contestants: []contestant{
			{name: "sidecar", kind: sidecar, limits: deniedLimit, sweep: true}, yardstick}},
		{name: leasedHotName, deck: load.One(oneKey), want: outcome{"allowed", "lease"}, contestants: []contestant{
			{name: "sidecar", kind: sidecar, limits: "leases: {hold: 100ms}\n" + leasedLimit, sweep: true}, yardstick}},
		{name: leasedName, deck: load.Uniform(someKey, 1000), want: outcome{"allowed", "lease"}, contestants: []contestant{
			{name: "sidecar", kind: sidecar, limits: "leases: {hold: 1s}\n" + leasedLimit}, yardstick}},
		{name: hotName, deck: load.One(oneKey), want: allowed, contestants: []contestant{
			{name: "sidecar", kind: sidecar, limits: hotLimit, sweep: true}, yardstick}},
		{name: keysName, deck: keys, want: allowed, contestants: []contestant{
			{name: "sidecar, hash", kind: sidecar, limits: hashLimit, sweep: true},
			{name: "sidecar, string", kind: sidecar, limits: stringLimit},
			{name: "bare", kind: bare, sweep: true}, {name: "one EVALSHA each", kind: evalsha, sweep: true}, {name: "redis_rate", kind: library}}},
		{name: zipfName, deck: load.Zipf(someKey, manyKeys), want: allowed, short: true, contestants: []contestant{
			{name: "sidecar", kind: sidecar, limits: hashLimit}, yardstick}},
		{name: policyName, deck: load.Uniform(somePolicy, manyKeys), want: allowed, contestants: []contestant{
			{name: "four limits, hash", kind: sidecar, limits: policyOf(4, "hash")},
			{name: "one limit, hash", kind: sidecar, limits: policyOf(1, "hash")},
			{name: "four limits, string", kind: sidecar, limits: policyOf(4, "string")},
			{name: "one limit, string", kind: sidecar, limits: policyOf(1, "string")}}},
		{name: farName, deck: keys, connections: 256, want: allowed, contestants: []contestant{
			{name: "1 ms away", kind: sidecar, limits: hashLimit, store: farRedis},
			{name: "no delay", kind: sidecar, limits: hashLimit, store: nearRedis}}},
		{name: checksName, deck: load.Batches(someKey, manyKeys, batchSize), decisions: batchSize, want: allowed, short: true, contestants: []contestant{
			{name: "sidecar", kind: sidecar, limits: hashLimit}, yardstick}},
		{name: embeddedName, deck: keys, want: outcome{"allowed", "embedded"}, short: true, contestants: []contestant{
			{name: "sidecar", kind: sidecar, limits: "local: {max_keys: 200000}\n" + hashLimit, store: embedded}, yardstick}},
		{name: socketName, deck: keys, want: allowed, short: true, contestants: []contestant{
			{name: "sidecar", kind: sidecar, limits: hashLimit, store: unixRedis},
			{name: "one EVALSHA each", kind: evalsha, store: unixRedis}}},
		{name: networksName, deck: load.One(oneKey), want: allowed, ownClient: true, short: true, contestants: []contestant{
			{name: "over TCP", kind: sidecar, limits: hotLimit, sweep: true},
			{name: "over a Unix socket", kind: sidecar, limits: hotLimit, sweep: true, unix: true}}},
	}
}
