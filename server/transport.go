package server

import (
	"context"
	"net"

	"github.com/serry-dev/serry/wire/front"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
)

// A transport reads calls from connections and hands them to a handler.
type transport interface {
	// serve takes connections until l fails or shutdown is called; then it returns nil.
	serve(l net.Listener) error

	// shutdown lets the calls in progress end until ctx does, and closes everything.
	shutdown(ctx context.Context)
}

// newTransport is the one place that knows which transports there are. Connections that begin with the
// preface of our own stream go to streams.
func newTransport(cfg Config, h rpc.Handler, m rpc.Methods, streams func(net.Conn, []byte)) transport {
	refused := newRefusals(cfg.Log)
	if cfg.Transport == GRPC {
		return newGRPC(h, m, cfg.TLS, refused, streams)
	}
	return newFront(front.Config{Handler: h, Methods: m, TLS: cfg.TLS, Log: cfg.Log, Refused: refused.add, Other: streams, OtherProtocol: stream.Protocol})
}
