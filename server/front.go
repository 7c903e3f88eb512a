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

// A transport reads calls from connections and hands them to a handler. It is the server of package front, with
// its numbers on the metrics page.
type transport struct{ *front.Server }

// newTransport makes a transport. Connections that begin with the preface of serry's own stream go to
// streams. Both protocols share one port, and the acceptor tells them apart, by what TLS has agreed on or else
// by the first bytes.
func newTransport(cfg Config, h rpc.Handler, m rpc.Methods, streams func(net.Conn)) transport {
	return transport{front.New(front.Config{
		Handler: h, Methods: m, TLS: cfg.TLS, Log: cfg.Log,
		StrangerBytes: cfg.Limits.StrangerBytes,
		Refused:       newRefusals(cfg.Log).add, Others: []conn.Protocol{stream.Accept(streams)},
	})}
}

// serve takes connections until l fails, which is an error, or until shutdown is called; then it returns nil.
func (t transport) serve(l net.Listener) error {
	if err := t.Serve(l); !errors.Is(err, front.ErrServerClosed) {
		return err
	}
	return nil
}

// shutdown lets connections become idle until ctx ends, and closes everything. The owner has answered all calls
// before, if the service ends; if it goes on elsewhere, calls that wait keep their connections until ctx ends.
func (t transport) shutdown(ctx context.Context) {
	if t.Shutdown(ctx) != nil {
		// ctx has ended: whatever is left is closed, and the error says nothing new.
		_ = t.Close()
	}
}

// Describe implements [prometheus.Collector].
func (t transport) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(t, ch) }

// Collect implements [prometheus.Collector].
func (t transport) Collect(ch chan<- prometheus.Metric) {
	p, st := page{"serry_front_", ch}, t.Stats()
	p.counter("accepted_total", "Connections accepted.", st.Accepted)
	p.counter("read_bytes_total", "Bytes read from connections.", st.BytesRead)
	p.counter("written_bytes_total", "Bytes written to connections.", st.BytesWritten)
	p.counter("flushes_total", "Writes of replies that had gathered.", st.Flushes)
	p.counter("partial_writes_total", "Writes that a socket did not take whole.", st.PartialWrites)
	p.gauge("calls_open", "Calls that have no reply yet.", float64(st.Waiting))
	for limit, n := range st.Refused {
		p.counter("refused_total", "What was refused, by the limit that was met.", n, "limit", limit)
	}
	for code, n := range st.Errors {
		p.counter("protocol_errors_total", "Breaches of HTTP/2, by error code.", n, "code", code)
	}
}
