package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// An observed is what the pages of --metrics-listen are about: a server, a node of several, or a relay.
type observed interface {
	Metrics() prometheus.Gatherer
	Ready() error // whether a call would be answered now, or why not
}

// health serves the pages of --metrics-listen (DLV-30): /metrics, /livez, which answers as long as the process runs,
// and /readyz. They are open before the service is: a server that waits for its majority is alive, and not ready.
// A restart would not help it.
type health struct {
	http    *http.Server
	process *prometheus.Registry     // what every process shows
	opening *prometheus.Registry     // what a server shows beside, until its store is open
	about   atomic.Pointer[observed] // or nil: the store is not open yet
}

// healthTimeout is how long a reader of a page may take for its request.
const healthTimeout = 10 * time.Second

// openHealth serves the pages on addr until they are closed. Without an address there are none.
func openHealth(addr string, log *slog.Logger) (*health, error) {
	h := &health{process: prometheus.NewRegistry(), opening: prometheus.NewRegistry()}
	h.process.MustRegister(
		constant("serry_build_info", "The version of serry, as a label.", 1, prometheus.Labels{"version": build().Serry}),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	h.opening.MustRegister(
		constant("serry_leader", "1 where this server leads.", 0, nil),
		constant("serry_term", "Number of the leadership; 0 for a server without a journal.", 0, nil),
		constant("serry_relay_down", "1 while the service is out of reach.", 1, nil),
	)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", h.metrics)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", h.ready)
	h.http = &http.Server{
		Handler: mux, ReadTimeout: healthTimeout, WriteTimeout: healthTimeout,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	if addr == "" {
		return h, nil
	}
	l, err := listen(addr)
	if err != nil {
		return nil, err
	}
	log.Info("serving metrics", "address", printed(l))
	go func(l net.Listener) {
		if err := h.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics page ended", "err", err)
		}
	}(l)
	return h, nil
}

// constant is a metric that does not change.
func constant(name, help string, v float64, labels prometheus.Labels) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels})
	g.Set(v)
	return g
}

// of says what the pages are about from now on.
func (h *health) of(o observed) { h.about.Store(&o) }

func (h *health) close() { _ = h.http.Close() } // nothing waits for what is cut off

func (h *health) metrics(w http.ResponseWriter, r *http.Request) {
	all := prometheus.Gatherers{h.process, h.opening}
	if o := h.about.Load(); o != nil {
		all[1] = (*o).Metrics()
	}
	promhttp.HandlerFor(all, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

func (h *health) ready(w http.ResponseWriter, _ *http.Request) {
	err := errors.New("the store is not open yet")
	if o := h.about.Load(); o != nil {
		err = (*o).Ready()
	}
	if err != nil {
		http.Error(w, printable(err.Error()), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
