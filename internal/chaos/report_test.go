package chaos_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// report is the results of the faults, in the order of the suite.
type report struct {
	form form
	mu   sync.Mutex
	rows map[string]string // by fault; guarded by mu
}

func newReport(f form) *report { return &report{form: f, rows: map[string]string{}} }

func (rep *report) add(r *run) {
	rep.mu.Lock()
	defer rep.mu.Unlock()
	rep.rows[r.fault.name] = r.row()
}

// row is the run as a row of the table.
func (r *run) row() string {
	var shared, fallback, closed, foreign int
	for i := range r.answers {
		switch a := &r.answers[i]; {
		case a.sent < r.begin || a.sent >= r.end:
		case a.body.Code == "wrong-type":
			foreign++
		case a.status == 503:
			closed++
		case a.body.Degraded:
			fallback++
		default:
			shared++
		}
	}
	var errors []string
	for kind, n := range r.after.errorKinds(r.before) {
		errors = append(errors, fmt.Sprintf("%s %d", kind, n))
	}
	slices.Sort(errors)
	waits := r.waits()
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000) }
	states := []string{"closed", "half-open", "open"}
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %s | %s | %s | %s | %s | %s | %.0f | %.0f |\n",
		r.fault.name, shared, fallback, closed, foreign,
		ms(percentile(waits, 0.5)), ms(percentile(waits, 0.999)), ms(waits[len(waits)-1]), ms(r.recovered),
		states[int(r.during["tidegate_breaker_state"])], strings.Join(errors, ", "),
		r.grown("tidegate_ambiguous_total"), r.grown("tidegate_expired_calls_total"))
}

// grown returns by how much a metric has grown since before the fault.
func (r *run) grown(metric string) float64 { return r.after[metric] - r.before[metric] }

// write writes the table to the file of -report, if one is named.
func (rep *report) write(t *testing.T) {
	if *reportFile == "" {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d requests/s, each fault for %v, redis.timeout %v, breaker.open_for %v. Answers are those to the requests of the fault's time; waits, in ms, those from its beginning to a second after its end; back is the time from its end to the first answer of Redis, in ms.\n\n",
		rep.form.rate, rep.form.fault, rep.form.timeout, rep.form.openFor)
	b.WriteString("| fault | by Redis | without (open, local) | 503 (closed) | 503 (wrong type) | p50 | p99.9 | worst | back | breaker | errors | in doubt | expired |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, f := range faults() {
		b.WriteString(rep.rows[f.name])
	}
	if err := os.WriteFile(*reportFile, []byte(b.String()), 0o644); err != nil {
		t.Error(err)
	}
}
