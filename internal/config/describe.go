package config

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// description is text in two columns that is being written.
type description struct{ strings.Builder }

// title begins a section.
func (d *description) title(indent int, text string) {
	fmt.Fprintf(d, "%s%s\n", strings.Repeat("  ", indent), text)
}

// line writes a setting, unless its value is empty.
func (d *description) line(indent int, name, format string, args ...any) {
	if text := fmt.Sprintf(format, args...); text != "" {
		fmt.Fprintf(d, "%s%-18s%s\n", strings.Repeat("  ", indent), name, oneLine(text))
	}
}

// Describe writes what was understood of the file, for people to read. It ignores errors of w.
func (c *Config) Describe(w io.Writer) {
	var d description
	c.describeSettings(&d)
	d.title(0, "limits")
	for i, l := range c.Rules.Limits {
		d.limit(l, c.written[i])
	}
	d.title(0, "policies")
	for _, p := range c.Rules.Policies {
		names := make([]string, len(p.Limits))
		for i, l := range p.Limits {
			names[i] = l.Name
		}
		d.line(1, p.Name, "%s", strings.Join(names, ", "))
	}
	if len(c.Rules.Policies) == 0 {
		d.title(1, "none: every limit is asked by its own name")
	}
	_, _ = io.WriteString(w, d.String())
}

func (c *Config) describeSettings(d *description) {
	d.title(0, "listen")
	d.line(1, "http", "%s", c.Listen.HTTP)
	if c.Listen.Unix != "" {
		d.line(1, "unix", "%s, mode %04o", c.Listen.Unix, c.Listen.UnixMode)
	}
	d.line(1, "admin", "%s", c.Listen.Admin)
	d.line(1, "metrics", "%s", c.Listen.Metrics)
	d.title(0, "store")
	if c.Redis == nil {
		d.title(1, "embedded: this process alone, without Redis")
	} else {
		c.Redis.describe(d)
		d.line(1, "breaker", "opens at %d failures in a row or within %s, for %s", c.Breaker.Failures, span(c.Breaker.Window), span(c.Breaker.OpenFor))
	}
	d.line(1, "local", "%d keys, asks again after %s", c.Local.MaxKeys, span(c.Local.Recheck))
	d.line(1, "nodes", "at least %d", c.Nodes)
	d.line(0, "shutdown", "within %s", span(c.ShutdownTimeout))
	d.line(0, "headers", "%s%s", draft11, optional(c.Headers.XRateLimit, " and X-RateLimit"))
	d.line(0, "hashed attributes", "%s", strings.Join(c.Hashed, ", "))
	d.line(0, "secret file", "%s", c.SecretFile)
	d.line(0, "tickets", "may be settled for at least %s", span(c.Rules.TicketTTL))
	d.line(0, "request ids", "a grant is remembered for %s", span(c.Rules.RequestIDTTL))
}

func (r *Redis) describe(d *description) {
	d.line(1, "redis", "%s, mode %s", r.Addr, r.Mode)
	d.line(1, "username", "%s", r.Username)
	d.line(1, "password file", "%s", r.PasswordFile)
	if r.TLS != nil {
		d.title(1, "tls")
		d.line(2, "ca file", "%s", cmp.Or(r.TLS.CAFile, "none: the system's roots"))
		d.line(2, "cert file", "%s", r.TLS.CertFile)
		d.line(2, "key file", "%s", r.TLS.KeyFile)
		d.line(2, "server name", "%s", r.TLS.ServerName)
	}
	d.line(1, "keys", "begin with %s:", r.KeyPrefix)
	d.line(1, "timeout", "%s", span(r.Timeout))
}

func (d *description) limit(l *limit.Limit, written writtenLimit) {
	d.title(1, l.Name)
	d.line(2, "algorithm", "%s, state %s", l.Settings.Algorithm, cmp.Or(written.kind.stored, l.State.String()))
	written.numbers.describe(d, &l.Settings)
	if hold := l.Settings.Hold; hold > 0 {
		d.line(2, "mode", "leased, each lease for %s", span(time.Duration(hold)*time.Microsecond))
	}
	d.line(2, "counts", "%s, %d when the request does not say%s", l.Unit, l.DefaultCost,
		optional(l.Settings.Algorithm == limit.ConcurrencyAlgorithm, "; one slot, however many"))
	if len(l.Key) == 0 {
		d.line(2, "key", "none: one bucket for all")
	}
	d.line(2, "key", "%s", strings.Join(l.Key, ", "))
	d.line(2, "colocate", "%s", strings.Join(l.Colocate, ", "))
	d.line(2, "when", "%s", conditions(l.When))
	d.line(2, "on redis failure", "%s", l.OnRedisFailure)
	d.line(2, "shadow", "%s", optional(l.Shadow, "decides and counts, never denies"))
	for i, o := range l.Overrides {
		d.line(2, "override", "%s: %s", conditions(o.When), written.overrides[i].describe(o))
	}
}

func (o writtenOverride) describe(override limit.Override) string {
	switch {
	case override.Exempt:
		return "exempt"
	case o.deny:
		return "denied"
	case override.Settings.Capacity() == 0:
		return "nothing passes"
	}
	return o.numbers.summary(&override.Settings)
}

func conditions(when []limit.Match) string {
	texts := make([]string, len(when))
	for i, m := range when {
		texts[i] = fmt.Sprintf("%s is %#q", m.Attribute, m.Pattern)
	}
	return strings.Join(texts, " and ")
}

// span writes a time in the largest unit that holds it whole.
func span(d time.Duration) string { return limit.FormatMicros(d.Microseconds()) }

func optional(on bool, text string) string {
	if on {
		return text
	}
	return ""
}
