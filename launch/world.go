package launch

import (
	"context"
	"net"
)

// A world is what a launcher has around it. There is one that is real; tests have another, in virtual
// time, in which machines can be killed at any moment.
type world interface {
	// kernel is that of the host that this launcher is on.
	kernel(cfg Config, run string) (kernel, error)

	// service opens the service of an attempt. It may take as long as a network does.
	service(cfg Config, here *crew, attempt int) (service, error)

	// listen and connect are the network between launchers.
	listen(address string) (net.Listener, error)
	connect(ctx context.Context, address string) (net.Conn, error)
}

// reality is the world outside of tests.
type reality struct{}

func (reality) kernel(cfg Config, run string) (kernel, error) { return newLocal(cfg, run) }

func (reality) service(cfg Config, here *crew, attempt int) (service, error) {
	if cfg.external() {
		return openExternal(cfg, here, attempt)
	}
	return openHosted(cfg)
}

func (reality) listen(address string) (net.Listener, error) { return net.Listen("tcp", address) }

func (reality) connect(ctx context.Context, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}
