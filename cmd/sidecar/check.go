package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const checkHelp = `Usage: sidecar check [flags] NAME key=value…
       sidecar check --ready [--admin HOST:PORT]

Asks a running sidecar whether a request with these attributes may go ahead, charges it, and
prints the answer's JSON. NAME is a policy, or else a limit.

Exit code: 0 allowed, 1 denied, 2 there is no decision. With --ready: 0 ready, 1 not.

  sidecar check chat tenant=acme user=u42
  sidecar check --cost requests=1 --cost tokens=1200 chat tenant=acme user=u42
  sidecar check --cost 0 requests-per-user user=u42     # what is left, charging nothing

Flags:
`

// exitDenied is check's exit code for a request that may not go ahead, or a sidecar not ready.
const exitDenied = 1

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 16 << 20

// question is what check asks, and whom.
type question struct {
	addr, unix, admin string
	timeout           time.Duration
	ready             bool
	policy, limit     string
	name              string // a policy, or else a limit
	attributes        map[string]string
	amount            *int64           // the cost without a unit
	costs             map[string]int64 // the cost by unit
}

func runCheck(ctx context.Context, args []string, stdout io.Writer) error {
	q, err := parseCheck(args, stdout)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	if q.ready {
		return q.askReady(ctx, stdout)
	}
	status, answer, err := q.askNamed(ctx)
	if err != nil {
		return &exitError{code: exitUsage, err: fmt.Errorf("check: %w", err)}
	}
	if _, err := fmt.Fprintf(stdout, "%s\n", bytes.TrimSpace(answer)); err != nil {
		return &exitError{code: exitUsage, err: fmt.Errorf("check: write: %w", err)}
	}
	switch status {
	case http.StatusOK:
		return nil
	case http.StatusTooManyRequests:
		return &exitError{code: exitDenied}
	default:
		return &exitError{code: exitUsage, err: fmt.Errorf("check: the sidecar answered %d %s", status, http.StatusText(status))}
	}
}

func parseCheck(args []string, stdout io.Writer) (*question, error) {
	q := &question{attributes: map[string]string{}, costs: map[string]int64{}}
	flags := newFlags("check")
	flags.StringVar(&q.addr, "addr", "127.0.0.1:7400", "`HOST:PORT` of the sidecar's API")
	flags.StringVar(&q.unix, "unix", "", "`PATH` of its Unix socket, in place of --addr")
	flags.StringVar(&q.policy, "policy", "", "ask this policy, and no limit; then there is no NAME")
	flags.StringVar(&q.limit, "limit", "", "ask this limit, and no policy; then there is no NAME")
	flags.Func("cost", "what the request costs, as `N|unit=N`; repeat it for several units (default 1 request)", q.addCost)
	flags.DurationVar(&q.timeout, "timeout", time.Second, "how long to wait for the answer")
	flags.BoolVar(&q.ready, "ready", false, "ask whether the sidecar is ready, for a container's health check")
	flags.StringVar(&q.admin, "admin", "127.0.0.1:7402", "`HOST:PORT` of the admin listener, for --ready")
	others, err := parse(flags, checkHelp, args, stdout)
	if err != nil {
		return nil, err
	}
	if q.ready {
		if len(others) > 0 {
			return nil, usageError("check: --ready takes no further arguments")
		}
		return q, nil
	}
	return q, q.complete(others)
}

// addCost reads one --cost.
func (q *question) addCost(text string) error {
	unit, number, named := strings.Cut(text, "=")
	if !named {
		number = text
	}
	amount, err := strconv.ParseInt(number, 10, 64)
	if err != nil || amount < 0 {
		return fmt.Errorf("%q is neither a whole number from 0 up nor unit=number", text)
	}
	if q.amount != nil || !named && len(q.costs) > 0 {
		return fmt.Errorf("give either one number or a number for each unit")
	}
	if !named {
		q.amount = &amount
		return nil
	}
	if _, ok := q.costs[unit]; ok {
		return fmt.Errorf("unit %q is there twice", unit)
	}
	q.costs[unit] = amount
	return nil
}

// complete takes the name and the attributes from the arguments that are no flags.
func (q *question) complete(others []string) error {
	if q.policy != "" && q.limit != "" {
		return usageError("check: give --policy or --limit, not both")
	}
	if q.policy == "" && q.limit == "" {
		if len(others) == 0 || strings.Contains(others[0], "=") {
			return usageError("check: name a policy or a limit; see sidecar check -h")
		}
		q.name, others = others[0], others[1:]
	}
	for _, pair := range others {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return usageError("check: %q is no attribute; write key=value", pair)
		}
		if !utf8.ValidString(pair) {
			return usageError("check: attribute %q is not UTF-8, which JSON cannot carry", name)
		}
		if _, ok := q.attributes[name]; ok {
			return usageError("check: attribute %q is there twice", name)
		}
		q.attributes[name] = value
	}
	return nil
}

// askNamed asks the policy or the limit; a plain name as a policy first.
func (q *question) askNamed(ctx context.Context) (status int, answer []byte, err error) {
	client := q.client()
	defer client.CloseIdleConnections()
	if q.name == "" {
		return q.ask(ctx, client, q.policy, q.limit)
	}
	status, answer, err = q.ask(ctx, client, q.name, "")
	if err == nil && status == http.StatusNotFound {
		return q.ask(ctx, client, "", q.name)
	}
	return status, answer, err
}

func (q *question) ask(ctx context.Context, client *http.Client, policy, limit string) (status int, answer []byte, err error) {
	body, err := json.Marshal(struct {
		Policy     string            `json:"policy,omitempty"`
		Limit      string            `json:"limit,omitempty"`
		Attributes map[string]string `json:"attributes,omitempty"`
		Cost       any               `json:"cost,omitempty"`
	}{policy, limit, q.attributes, q.cost()})
	if err != nil {
		return 0, nil, fmt.Errorf("encode: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+q.host()+"/v1/check", bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	return send(client, request)
}

// cost is the JSON value of cost, or nil when none was given.
func (q *question) cost() any {
	switch {
	case q.amount != nil:
		return *q.amount
	case len(q.costs) > 0:
		return q.costs
	default:
		return nil
	}
}

// askReady prints what /readyz says.
func (q *question) askReady(ctx context.Context, stdout io.Writer) error {
	client := newClient("tcp", q.admin)
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+q.admin+"/readyz", nil)
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	status, answer, err := send(client, request)
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	if _, err := fmt.Fprintf(stdout, "%s\n", bytes.TrimSpace(answer)); err != nil {
		return fmt.Errorf("check: write: %w", err)
	}
	if status != http.StatusOK {
		return &exitError{code: exitDenied}
	}
	return nil
}

// host is the HTTP host of the question; a Unix socket has none, so it is given a name.
func (q *question) host() string {
	if q.unix != "" {
		return "sidecar"
	}
	return q.addr
}

func (q *question) client() *http.Client {
	if q.unix != "" {
		return newClient("unix", q.unix)
	}
	return newClient("tcp", q.addr)
}

// newClient returns a client that only ever talks to one address, whatever the environment says
// of proxies.
func newClient(network, addr string) *http.Client {
	var dialer net.Dialer
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, addr)
		},
	}}
}

func send(client *http.Client, request *http.Request) (status int, answer []byte, err error) {
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return 0, nil, fmt.Errorf("read: %w", err)
	}
	return response.StatusCode, answer, nil
}
