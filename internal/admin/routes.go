package admin

import (
	"log/slog"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tidegate/tidegate/internal/problem"
)

// handler serves the whole plane. Browsers are kept from carrying a foreign page's requests to
// it, since it needs no token on loopback.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	s.addMetricsRoutes(mux)
	mux.Handle("/version", only(s.serveVersion, http.MethodGet))
	mux.Handle("/v1/reset", only(s.serveReset, http.MethodPost))
	mux.Handle("/debug/pprof/", only(pprof.Index, http.MethodGet))
	mux.Handle("/debug/pprof/cmdline", only(pprof.Cmdline, http.MethodGet))
	mux.Handle("/debug/pprof/profile", only(pprof.Profile, http.MethodGet))
	mux.Handle("/debug/pprof/symbol", only(pprof.Symbol, http.MethodGet, http.MethodPost))
	mux.Handle("/debug/pprof/trace", only(pprof.Trace, http.MethodGet))
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(http.HandlerFunc(serveForeign))
	return common(guard.Handler(mux))
}

// metricsHandler serves what may be reached from outside the pod.
func (s *Server) metricsHandler() http.Handler {
	mux := http.NewServeMux()
	s.addMetricsRoutes(mux)
	return common(mux)
}

func (s *Server) addMetricsRoutes(mux *http.ServeMux) {
	metrics := promhttp.HandlerFor(s.cfg.Gatherer, promhttp.HandlerOpts{
		ErrorLog:      slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelError),
		ErrorHandling: promhttp.ContinueOnError,
	})
	mux.Handle("/metrics", only(metrics.ServeHTTP, http.MethodGet))
	mux.Handle("/livez", only(serveLive, http.MethodGet))
	mux.Handle("/readyz", only(s.serveReady, http.MethodGet))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, problem.Problem{Status: http.StatusNotFound, Code: "not-found", Detail: "there is nothing at this path"})
	})
}

// only answers 405 to every method but the given ones, and HEAD where GET is one of them.
func only(next http.HandlerFunc, methods ...string) http.Handler {
	if slices.Contains(methods, http.MethodGet) {
		methods = append(methods, http.MethodHead)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(methods, r.Method) {
			w.Header().Set("Allow", strings.Join(methods, ", "))
			writeProblem(w, problem.Problem{Status: http.StatusMethodNotAllowed, Code: "method-not-allowed", Detail: "use " + methods[0]})
			return
		}
		next(w, r)
	})
}

// common sets the headers that every answer has: no cache may keep what is true now only.
func common(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

func serveForeign(w http.ResponseWriter, _ *http.Request) {
	writeProblem(w, problem.Problem{Status: http.StatusForbidden, Code: "cross-origin", Detail: "a browser sent this for a page of another origin"})
}

func serveLive(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, struct {
		Status string `json:"status"`
	}{"ok"})
}

// serveReady answers 200 from listening until Drain. The store's and the config's troubles are
// detail: they must not take every pod out of service at once.
func (s *Server) serveReady(w http.ResponseWriter, _ *http.Request) {
	health := s.cfg.Health()
	answer := struct {
		Status string       `json:"status"`
		Store  StoreHealth  `json:"store"`
		Config ConfigHealth `json:"config"`
	}{"ok", health.Store, health.Config}
	if !health.Store.Reachable || health.Config.Error != "" {
		answer.Status = "degraded"
	}
	status := http.StatusOK
	if s.draining.Load() {
		answer.Status, status = "shutting_down", http.StatusServiceUnavailable
	}
	writeJSON(w, status, answer)
}

func (s *Server) serveVersion(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.cfg.Build)
}
