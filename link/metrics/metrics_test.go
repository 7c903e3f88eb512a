package metrics_test

import (
	"errors"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/link/gauge"
	"github.com/serry-dev/serry/link/metrics"
)

// The metrics of a process tell how its links are, and what moved on those that are gone, too.
func TestCollector(t *testing.T) {
	clause.Cite(t, "CL-TRN-34")
	host, err := gauge.Listen(t.Context(), "127.0.0.1:0", link.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close(t.Context())
	n, l, err := gauge.Dial(t.Context(), host.Addresses()[0], link.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close(t.Context())
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics.Collector{Net: n})
	if _, err := gauge.New(l).Stream(t.Context(), link.Collective, 100_000, 1); err != nil {
		t.Fatal(err)
	}
	const bytesSent = `serry_link_bytes_total{direction="sent"}`
	before := page(t, registry)
	if before[bytesSent] < 100_000 || before[`serry_links{state="up"}`] != 1 {
		t.Errorf("the page of a link that is up says %v; want 1 up and 100,000 bytes", before)
	}
	l.Shutdown(errors.New("enough"))
	after := page(t, registry)
	for name, want := range map[string]float64{
		`serry_links{state="up"}`: 0, `serry_links{state="forming"}`: 0, `serry_links{state="suspected"}`: 0,
		`serry_link_losses_total{source="self"}`: 1, `serry_link_losses_total{source="link"}`: 0,
		`serry_link_losses_total{source="service"}`: 0, `serry_link_losses_total{source="launcher"}`: 0,
		`serry_link_strays_total`: 0, `serry_link_skipped_total`: 0,
	} {
		if got, ok := after[name]; !ok || got != want {
			t.Errorf("%s = %v, %v; want %v", name, got, ok, want)
		}
	}
	if after[bytesSent] < before[bytesSent] {
		t.Errorf("%s fell from %v to %v with the link", bytesSent, before[bytesSent], after[bytesSent])
	}
}

// page reads what a Prometheus server sees.
func page(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(g, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if answer.Code != 200 {
		t.Fatalf("the page answers %d: %s", answer.Code, answer.Body)
	}
	all := make(map[string]float64)
	for line := range strings.Lines(answer.Body.String()) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseFloat(number, 64); err == nil {
			all[name] = v
		}
	}
	return all
}
