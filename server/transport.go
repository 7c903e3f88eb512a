package server

import (
	"context"
	"net"

	"github.com/serry-dev/serry/wire/front"
	"github.com/serry-dev/serry/wire/rpc"
)

// A transport reads calls from connections and hands them to a handler.
type transport interface {
	// serve takes connections until l fails or shutdown is called; then it returns nil.
	serve(l net.Listener) error

	// shutdown lets the calls in progress end until ctx does, and closes everything.
	shutdown(ctx context.Context)
}

// newTransport is the one place that knows which transports there are.
func newTransport(cfg Config, h rpc.Handler, m rpc.Methods) transport {
	refused := newRefusals(cfg.Log)
	if cfg.Transport == GRPC {
		return newGRPC(h, m, cfg.TLS, refused)
	}
	return newFront(front.Config{Handler: h, Methods: m, TLS: cfg.TLS, Log: cfg.Log, Refused: refused.add})
}
