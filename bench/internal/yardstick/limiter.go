package yardstick

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/go-faster/jx"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Each key has a bucket of Burst tokens, of which one comes back every refillEvery. So large a bucket
// never denies, and so slow a one always has a state in Redis once it has been asked about.
const (
	Burst       = 1_000_000
	refillEvery = 10 * time.Second
)

// poolSize is the connections to Redis: as many as there are clients where ratios are taken. Fewer were
// slower, more were not faster.
const poolSize = 64

// bucketScript is a token bucket as applications keep it: one key, one call, Redis's clock.
//
//go:embed bucket.lua
var bucketScript string

// Limiter decides about one key. It is called concurrently.
type Limiter func(ctx context.Context, key string) (allowed bool, err error)

// Connect returns a client of the Redis at an address, that sends nothing twice. An address that begins
// with / is the path of a Unix socket.
func Connect(address string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: address, PoolSize: poolSize, MaxRetries: -1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// ByScript decides with one EVALSHA for each question.
func ByScript(ctx context.Context, client *redis.Client) (Limiter, error) {
	script := redis.NewScript(bucketScript)
	if err := script.Load(ctx, client).Err(); err != nil {
		return nil, fmt.Errorf("yardstick: load the script: %w", err)
	}
	return func(ctx context.Context, key string) (bool, error) {
		reply, err := client.EvalSha(ctx, script.Hash(), []string{"bucket:" + key}, Burst, refillEvery.Microseconds(), 1).Int64Slice()
		if err != nil {
			return false, err
		}
		return reply[0] == 1, nil
	}, nil
}

// ByLibrary decides with go-redis/redis_rate.
func ByLibrary(client *redis.Client) Limiter {
	limiter := redis_rate.NewLimiter(client)
	limit := redis_rate.Limit{Rate: 1, Period: refillEvery, Burst: Burst}
	return func(ctx context.Context, key string) (bool, error) {
		result, err := limiter.Allow(ctx, key, limit)
		if err != nil {
			return false, err
		}
		return result.Allowed > 0, nil
	}
}

// Decide asks the limiter about the key that a question names. A denial is an error: the benchmark asks
// for none.
func Decide(ctx context.Context, limiter Limiter, question []byte) error {
	key, err := KeyOf(question)
	if err != nil {
		return err
	}
	allowed, err := limiter(ctx, key)
	if err != nil {
		return fmt.Errorf("yardstick: decide: %w", err)
	}
	if !allowed {
		return errors.New("yardstick: decide: denied")
	}
	return nil
}

// KeyOf returns the key that a question names in its short form, {"limit": …, "key": …}.
func KeyOf(question []byte) (string, error) {
	key, found := "", false
	err := jx.DecodeBytes(question).ObjBytes(func(d *jx.Decoder, name []byte) (err error) {
		if string(name) != "key" {
			return d.Skip()
		}
		found = true
		key, err = d.Str()
		return err
	})
	if err != nil {
		return "", fmt.Errorf("yardstick: read a question: %w", err)
	}
	if !found {
		return "", errors.New("yardstick: read a question: it names no key")
	}
	return key, nil
}
