// Package metrics shows the figures of links to a Prometheus server.
//
// A program registers a [Collector] for its [link.Net] and serves the registry as it likes. The figures are of the whole
// process: a series for each peer would make pages grow with the job. serry links tells of single links.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/serry-dev/serry/link"
)

// A Collector asks a Net for its figures when a page is read. People have alerts on the names and labels, so those
// do not change.
type Collector struct{ Net *link.Net }

// Describe implements [prometheus.Collector].
func (c Collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements [prometheus.Collector].
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	t := c.Net.Totals()
	p := page(ch)
	for state, n := range map[string]int{"forming": t.Forming, "up": t.Up - t.Suspected, "suspected": t.Suspected} {
		p.show("serry_links", "Links of this process by state.", prometheus.GaugeValue, float64(n), "state", state)
	}
	p.show("serry_link_silence_max_seconds", "Of all peers the longest since it was last heard.", prometheus.GaugeValue, t.Silent.Seconds())
	for source, n := range t.Losses {
		p.counter("serry_link_losses_total", "Links that went down, by who found it.", n, "source", sourceLabel(source))
	}
	p.counter("serry_link_bytes_total", "Bytes of payloads.", t.BytesSent, "direction", "sent")
	p.counter("serry_link_bytes_total", "Bytes of payloads.", t.BytesRecv, "direction", "received")
	p.counter("serry_link_frames_total", "Frames of all kinds.", t.FramesSent, "direction", "sent")
	p.counter("serry_link_frames_total", "Frames of all kinds.", t.FramesRecv, "direction", "received")
	p.counter("serry_link_retransmits_total", "Packets that the system sent again.", t.Retransmit)
	p.counter("serry_link_strays_total", "Messages that no stream wanted.", t.Strays)
	p.counter("serry_link_skipped_total", "Frames of unknown types.", t.Skipped)
}

// sourceLabel is a source in one word.
func sourceLabel(s link.Source) string {
	if s == link.FromSelf {
		return "self"
	}
	return s.String()
}

// A page takes the metrics of one reading.
type page chan<- prometheus.Metric

// counter shows a number that only rises.
func (p page) counter(name, help string, n uint64, labels ...string) {
	p.show(name, help, prometheus.CounterValue, float64(n), labels...)
}

// show shows a number. labels are a name and its value, or none.
func (p page) show(name, help string, kind prometheus.ValueType, v float64, labels ...string) {
	var constant prometheus.Labels
	if len(labels) > 0 {
		constant = prometheus.Labels{labels[0]: labels[1]}
	}
	p <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, constant), kind, v)
}
