package server

import (
	"context"
	"errors"
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
	if cfg.Transport == GRPC {
		return newGRPC(h, m, cfg.TLS, newRefusals(cfg.Log))
	}
	return frontTransport{front.New(front.Config{Handler: h, Methods: m, TLS: cfg.TLS, Log: cfg.Log})}
}

// frontTransport is the lean transport of package front.
type frontTransport struct{ *front.Server }

func (t frontTransport) serve(l net.Listener) error {
	if err := t.Serve(l); !errors.Is(err, front.ErrServerClosed) {
		return err
	}
	return nil
}

func (t frontTransport) shutdown(ctx context.Context) {
	if t.Shutdown(ctx) != nil {
		// Its listeners and connections are closed whatever it returns.
		_ = t.Close()
	}
}
