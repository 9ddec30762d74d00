// Command bench measures the sidecar against yardsticks that it runs beside it, and writes a report with
// figures: make bench. It starts every server that it needs, in a temporary folder, and ends each by its
// pid; it reads /proc, so it runs on Linux. Its other modes are those servers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tidegate/tidegate/bench/internal/delay"
	"github.com/tidegate/tidegate/bench/internal/yardstick"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return runBench(ctx, args)
	}
	switch args[0] {
	case modeYardstick:
		return runYardstick(ctx, args[1:])
	case modeProxy:
		return runProxy(ctx, args[1:])
	}
	return runBench(ctx, args)
}

// The modes in which the benchmark runs itself.
const (
	modeYardstick = "yardstick"
	modeProxy     = "proxy"
)

// runYardstick serves a recorded answer until ctx ends.
func runYardstick(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet(modeYardstick, flag.ContinueOnError)
	decides := flags.String("kind", string(bare), "what decides: bare, evalsha or redis_rate")
	answer := flags.String("answer", "", "the `file` of the answer")
	unix := flags.String("unix", "", "the `path` of the Unix socket to listen on")
	redis := flags.String("redis", "", "the `address` of Redis; one that begins with / is a Unix socket")
	if err := flags.Parse(args); err != nil {
		return err
	}
	cfg := yardstick.Config{Unix: *unix}
	var err error
	if cfg.Answer, err = yardstick.ReadFile(*answer); err != nil {
		return err
	}
	if decides := kind(*decides); decides != bare {
		client := yardstick.Connect(*redis)
		defer client.Close()
		if decides == library {
			cfg.Limiter = yardstick.ByLibrary(client)
		} else if cfg.Limiter, err = yardstick.ByScript(ctx, client); err != nil {
			return err
		}
	}
	return yardstick.Serve(ctx, cfg, os.Stdout)
}

// runProxy makes an address far away until ctx ends.
func runProxy(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet(modeProxy, flag.ContinueOnError)
	to := flags.String("to", "", "the `address` that is to be far away")
	oneWay := flags.Duration("one-way", 0, "how late everything arrives, each way")
	if err := flags.Parse(args); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("ready", listener.Addr())
	return delay.Serve(ctx, listener, *to, *oneWay)
}

// plan is how much is measured.
type plan struct {
	rounds      int           // of every scenario, at its own number of connections
	run         time.Duration // of each round; whole seconds, for wrk
	sweepRounds int           // at each other number of connections, a second each
	connections []int         // for the figures
	churn       bool          // whether a million keys come and go, which takes half a minute
}

func fullPlan() plan {
	return plan{rounds: 5, run: 2 * time.Second, sweepRounds: 3, connections: []int{1, 4, 16, 64, 256}, churn: true}
}

// quickPlan shows that everything works, and roughly where the ratios are.
func quickPlan() plan {
	return plan{rounds: 2, run: time.Second, sweepRounds: 1, connections: []int{1, 64}}
}
