package launch

import (
	"context"
	"errors"
	"net"
	"syscall"
)

// A world is what a launcher has around it. There is one that is real; tests have another, in virtual
// time, in which machines can be killed at any moment.
type world interface {
	// kernel is that of the host that this launcher is on.
	kernel(cfg Config, run string) (kernel, error)

	// service opens the service of an attempt. It may take as long as a network does.
	service(cfg Config, here *crew, attempt int) (service, error)

	// listen and connect are the network between launchers. To listen is to do so at the address that the
	// others know this host by.
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

func (reality) listen(address string) (net.Listener, error) { return listenAt(address) }

// listenAt listens at an address of this host and no other, so that networks which the job does not use
// cannot reach it. It listens at all addresses where this host does not know the one that the others dial:
// behind a translated address, or where a file of this host gives its own name a loopback address, as some
// distributions do.
func listenAt(address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if at, err := net.ResolveTCPAddr("tcp", address); err != nil || at.IP.IsLoopback() && host != "localhost" && net.ParseIP(host) == nil {
		return net.Listen("tcp", net.JoinHostPort("", port))
	}
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		return net.Listen("tcp", net.JoinHostPort("", port))
	}
	return l, err
}

func (reality) connect(ctx context.Context, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}
