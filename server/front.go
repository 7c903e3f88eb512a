package server

import (
	"context"
	"errors"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/serry-dev/serry/wire/conn"
	"github.com/serry-dev/serry/wire/front"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
)

// A transport reads calls from connections and hands them to a handler. It is the server of package
// front, with its numbers on the metrics page.
type transport struct {
	*front.Server
	shape frontShape
}

// frontShape names the metrics of package front.
type frontShape struct {
	accepted, read, written, flushes, partial *prometheus.Desc
	open, refused, errors                     *prometheus.Desc
}

// newTransport makes a transport. Connections that begin with the preface of serry's own stream go to
// streams.
func newTransport(cfg Config, h rpc.Handler, m rpc.Methods, streams func(net.Conn)) *transport {
	server := front.New(front.Config{
		Handler: h, Methods: m, TLS: cfg.TLS, Log: cfg.Log,
		Refused: newRefusals(cfg.Log).add, Others: []conn.Protocol{stream.Accept(streams)},
	})
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("serry_front_"+name, help, labels, nil)
	}
	return &transport{server, frontShape{
		accepted: d("accepted_total", "Connections accepted."),
		read:     d("read_bytes_total", "Bytes read from connections."),
		written:  d("written_bytes_total", "Bytes written to connections."),
		flushes:  d("flushes_total", "Writes of replies that had gathered."),
		partial:  d("partial_writes_total", "Writes that a socket did not take whole."),
		open:     d("calls_open", "Calls that have no reply yet."),
		refused:  d("refused_total", "What was refused, by the limit that was met.", "limit"),
		errors:   d("protocol_errors_total", "Breaches of HTTP/2, by error code.", "code"),
	}}
}

// serve takes connections until l fails or shutdown is called; then it returns nil.
func (t *transport) serve(l net.Listener) error {
	if err := t.Serve(l); !errors.Is(err, front.ErrServerClosed) {
		return err
	}
	return nil
}

// shutdown lets the calls in progress end until ctx does, and closes everything.
func (t *transport) shutdown(ctx context.Context) {
	if t.Shutdown(ctx) != nil {
		// Its listeners and connections are closed whatever it returns.
		_ = t.Close()
	}
}

// Describe implements [prometheus.Collector].
func (t *transport) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(t, ch) }

// Collect implements [prometheus.Collector].
func (t *transport) Collect(ch chan<- prometheus.Metric) {
	st := t.Stats()
	send := func(d *prometheus.Desc, kind prometheus.ValueType, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, float64(n), labels...)
	}
	send(t.shape.accepted, prometheus.CounterValue, st.Accepted)
	send(t.shape.read, prometheus.CounterValue, st.BytesRead)
	send(t.shape.written, prometheus.CounterValue, st.BytesWritten)
	send(t.shape.flushes, prometheus.CounterValue, st.Flushes)
	send(t.shape.partial, prometheus.CounterValue, st.PartialWrites)
	send(t.shape.open, prometheus.GaugeValue, uint64(st.Waiting))
	for limit, n := range st.Refused {
		send(t.shape.refused, prometheus.CounterValue, n, limit)
	}
	for code, n := range st.Errors {
		send(t.shape.errors, prometheus.CounterValue, n, code)
	}
}
