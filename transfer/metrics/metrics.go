// Package metrics shows the figures of transfers to a Prometheus server.
//
// A program registers a [Collector] for its [transfer.Engine] and serves the registry as it likes. The figures are of the whole
// process; [transfer.Engine.Why] tells of single transfers.
//
// There is one file, metrics.go.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/serry-dev/serry/transfer"
)

// A Collector asks an Engine for its figures when a page is read. People have alerts on the names and labels, so those
// do not change.
type Collector struct{ Engine *transfer.Engine }

// Describe implements [prometheus.Collector].
func (c Collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements [prometheus.Collector].
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	t := c.Engine.Totals()
	show := func(name, help string, kind prometheus.ValueType, v float64, labels prometheus.Labels) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, labels), kind, v)
	}
	gauge := func(name, help string, v int64) { show(name, help, prometheus.GaugeValue, float64(v), nil) }
	for direction, n := range map[string]int{"send": t.Sends, "receive": t.Receives} {
		show("serry_transfers", "Transfers that have not ended.", prometheus.GaugeValue, float64(n), prometheus.Labels{"direction": direction})
	}
	for o, n := range t.Ended {
		direction := "receive"
		if o.Send {
			direction = "send"
		}
		show("serry_transfers_ended_total", "Transfers that have ended, by how.", prometheus.CounterValue, float64(n),
			prometheus.Labels{"direction": direction, "code": o.Code})
	}
	for path, n := range t.Bytes {
		show("serry_transfer_bytes_total", "Bytes that were received, by how they moved.", prometheus.CounterValue, float64(n),
			prometheus.Labels{"path": string(path)})
	}
	show("serry_transfers_corrected_total", "Sends whose verdict came after their end.", prometheus.CounterValue, float64(t.Corrected), nil)
	gauge("serry_transfers_held", "Sends that have ended, and whose memory a peer may still read.", int64(t.Held))
	gauge("serry_transfer_peers", "Lives that there are transfers with.", int64(t.Peers))
	gauge("serry_transfer_offers", "Offers that are present.", int64(t.Offers))
	gauge("serry_transfer_requests", "Requests of peers that wait for offers or are answered.", int64(t.Requests))
	gauge("serry_transfer_staging_bytes", "Memory that parts of buffers are gathered or received in.", t.Staged)
	gauge("serry_transfer_staging_peak_bytes", "The most of that memory so far.", t.StagedPeak)
	gauge("serry_transfer_staging_waiting", "Parts that wait for that memory.", int64(t.Staging))
}
