package load

import (
	"testing"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

func TestParseWrk(t *testing.T) {
	const report = "bench: answers=53105 micros=1002841 p50=900 p99=4219 failures=12 connect=1 read=2 write=3 timeout=4\n"
	const output = "Running 1s test @ http://127.0.0.1:7400/v1/check\n  1 threads and 64 connections\n" +
		"    Latency     1.01ms  713.32us  11.14ms   94.14%\n  Non-2xx or 3xx responses: 53103\nRequests/sec:  52954.56\n"
	want := Result{Answers: 53105, Failures: 12, Broken: 10, Took: 1002841 * time.Microsecond,
		P50: 900 * time.Microsecond, P99: 4219 * time.Microsecond}
	if got, err := parseWrk(output + report); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, bad := range []string{
		"", output, "bench: answers=1\n",
		"bench: answers=0 micros=1002841 p50=900 p99=4219 failures=12 connect=1 read=2 write=3 timeout=4\n",
		"bench: answers=x micros=1002841 p50=900 p99=4219 failures=12 connect=1 read=2 write=3 timeout=4\n",
	} {
		if got, err := parseWrk(bad); err == nil {
			t.Errorf("%q: got %+v, want an error", bad, got)
		}
	}
}

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, tt := range []struct {
		sorted  []time.Duration
		percent int
		want    time.Duration
	}{
		{hundred, 50, 50}, {hundred, 99, 99}, {hundred, 100, 100}, {hundred[:1], 50, 1}, {hundred[:1], 99, 1},
		{hundred[:3], 50, 2}, {hundred[:10], 99, 10}, {hundred[:2], 0, 1},
	} {
		if got := percentile(tt.sorted, tt.percent); got != tt.want {
			t.Errorf("%d%% of %d: got %d, want %d", tt.percent, len(tt.sorted), got, tt.want)
		}
	}
}

// TestPace: a pace that is late asks what is left at once, and never ends before every question was asked.
func TestPace(t *testing.T) {
	pace := evenly{vegeta.ConstantPacer{Freq: 1000, Per: time.Second}, 10}
	for _, tt := range []struct {
		elapsed time.Duration
		hits    uint64
		stop    bool
	}{{time.Hour, 0, false}, {time.Hour, 9, false}, {time.Hour, 10, true}, {0, 0, false}, {0, 10, true}} {
		if wait, stop := pace.Pace(tt.elapsed, tt.hits); wait != 0 || stop != tt.stop {
			t.Errorf("after %v and %d questions: got %v, %v, want %v", tt.elapsed, tt.hits, wait, stop, tt.stop)
		}
	}
}

// TestSummarize: what left late waited longer than vegeta says.
func TestSummarize(t *testing.T) {
	began := time.Unix(1, 0)
	at := func(seq uint64, left, latency time.Duration, code uint16) *vegeta.Result {
		return &vegeta.Result{Seq: seq, Timestamp: began.Add(left), Latency: latency, Code: code}
	}
	const ms = time.Millisecond
	got, err := summarize([]*vegeta.Result{at(2, 11*ms, 1*ms, 429), at(0, 3*ms, 1*ms, 200), at(1, 4*ms, 3*ms, 200)}, began, 500)
	want := Arrivals{Answers: 3, Failures: 1, Took: 11 * ms, P50: 1 * ms, P99: 3 * ms, DueP50: 3 * ms, DueP99: 6 * ms}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if _, err := summarize(nil, began, 500); err == nil {
		t.Error("no answers, no error")
	}
}
