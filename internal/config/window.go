package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // so that a limit's timezone is known where the system has no time zones, as in a container

	"github.com/tidegate/tidegate/internal/limit"
)

// window is what a limit or an override says of its limit over a span of time. At most one of span
// and period is set.
type window struct {
	algorithm limit.Algorithm
	limit     setting[int64]
	span      setting[int64]          // in µs
	period    setting[limit.Period]   // fixed_window alone
	zone      setting[*time.Location] // of period; left out: UTC
}

// longLog is the limit above which a sliding_window_log is warned of: it keeps an entry for each
// request, in Redis and for each key.
const longLog = 10_000

// readWindow reads the settings of a window.
func readWindow(m *mapping, a limit.Algorithm) window {
	w := window{algorithm: a}
	readSetting(m, "limit", w.readLimit, &w.limit)
	readSetting(m, "window", micros, &w.span)
	if a != limit.FixedWindowAlgorithm {
		return w
	}
	readSetting(m, "period", readPeriod, &w.period)
	readSetting(m, "timezone", readZone, &w.zone)
	switch {
	case m.has("window") && m.has("period"):
		m.src.refuse(m.placeOf("period"), "period replaces window: write one of the two")
	case m.has("window") && m.has("timezone"):
		m.src.refuse(m.placeOf("timezone"), "timezone means nothing beside window: write period: day instead of window, or take it out")
	}
	return w
}

func (w window) readLimit(v value) (int64, bool) {
	n, ok := v.whole()
	if w.algorithm == limit.SlidingWindowLogAlgorithm && n > longLog {
		v.src.warn(v.at, "sliding_window_log keeps an entry for each of up to %d requests: write algorithm: sliding_window, unless it must be exact", n)
	}
	return n, ok
}

func readPeriod(v value) (limit.Period, bool) {
	periods := []limit.Period{limit.Day, limit.Week, limit.Month}
	var names []string
	for _, p := range periods {
		names = append(names, p.String())
	}
	word, ok := v.choice(names)
	if !ok {
		return 0, false
	}
	return periods[slices.Index(names, word)], true
}

// readZone reads the name of a time zone. Equal names in one file are one zone.
func readZone(v value) (*time.Location, bool) {
	name, ok := v.nonEmpty()
	if !ok {
		return nil, false
	}
	if zone := v.src.zones[name]; zone != nil {
		return zone, true
	}
	zone, err := time.LoadLocation(name)
	if err != nil || machineZone(name) {
		v.src.refuse(v.at, "%s is %s, which is no time zone: write an IANA name, such as Europe/Paris, or UTC", v.name, v.shown())
		return nil, false
	}
	if v.src.zones == nil {
		v.src.zones = map[string]*time.Location{}
	}
	v.src.zones[name] = zone
	return zone, true
}

// machineZone reports whether name is no IANA name, but one that some systems know: of the
// machine's own zone, which differs from node to node, or of zones that count leap seconds.
func machineZone(name string) bool {
	return slices.Contains([]string{"Local", "localtime", "posixrules"}, name) || strings.HasPrefix(name, "right/") || strings.HasPrefix(name, "posix/")
}

func (w window) missing(m *mapping) {
	if m.lacks("limit") {
		m.src.refuse(m.at, "%s has no limit: write limit: 100", w.algorithm)
	}
	switch {
	case w.algorithm == limit.FixedWindowAlgorithm && m.lacks("window") && m.lacks("period"):
		m.src.refuse(m.at, "%s has neither window nor period: write window: 1m, or period: day", w.algorithm)
	case w.algorithm != limit.FixedWindowAlgorithm && m.lacks("window"):
		m.src.refuse(m.at, "%s has no window: write window: 1m", w.algorithm)
	}
}

func (w window) override(m *mapping) numbers {
	readSetting(m, "limit", w.readLimit, &w.limit)
	for _, key := range []string{"window", "period", "timezone"} {
		m.refuses(key, key+" cannot differ in an override, for it would count in another state: write a limit of its own, with when")
	}
	return w
}

func (w window) denied() numbers {
	w.limit.val = 0
	return w
}

func (w window) build(src *source, at pos) (limit.Settings, bool) {
	var built limit.Settings
	var err error
	switch {
	case w.period.set():
		zone := time.UTC
		if w.zone.set() {
			zone = w.zone.val
		}
		built, err = limit.NewCalendarWindow(w.limit.val, w.period.val, zone)
	case w.algorithm == limit.FixedWindowAlgorithm:
		built, err = limit.NewFixedWindow(w.limit.val, w.span.val)
	case w.algorithm == limit.SlidingWindowLogAlgorithm:
		built, err = limit.NewSlidingWindowLog(w.limit.val, w.span.val)
	default:
		built, err = limit.NewSlidingWindow(w.limit.val, w.span.val)
	}
	switch {
	case errors.Is(err, limit.ErrTooCoarse):
		src.refuse(at, "a limit of %d in %s is too large for the arithmetic of sliding_window: write algorithm: fixed_window, or a lower limit",
			w.limit.val, limit.FormatMicros(w.span.val))
	case err != nil:
		src.refuse(at, "%v: write other numbers", err)
	}
	return built, err == nil
}

func (w window) describe(d *description, s *limit.Settings) {
	d.line(2, "limit", "%d%s", w.limit.val, optional(w.limit.val == 0, ": nothing passes"))
	switch {
	case w.period.set():
		d.line(2, "period", "%s in %s", s.Window.Period, s.Window.Zone)
	case w.algorithm == limit.FixedWindowAlgorithm:
		d.line(2, "window", "%s from its first request", limit.FormatMicros(w.span.val))
	default:
		d.line(2, "window", "%s", limit.FormatMicros(w.span.val))
	}
	d.line(2, "arithmetic", "%s", coarseness(s))
}

func (w window) summary(s *limit.Settings) string {
	text := fmt.Sprintf("limit %d", w.limit.val)
	if unit := coarseness(s); unit != "" {
		text += ", arithmetic " + unit
	}
	return text
}

// coarseness says in which unit a sliding window's time is counted, unless it is 1µs.
func coarseness(s *limit.Settings) string {
	if s.Window.Unit <= 1 {
		return ""
	}
	return "in units of " + limit.FormatMicros(s.Window.Unit)
}
