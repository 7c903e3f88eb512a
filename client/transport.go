package client

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/serry-dev/serry/wire/back"
	"github.com/serry-dev/serry/wire/rpc"
)

// A Transport makes unary calls to a service. Several members may share one.
type Transport interface {
	// Call sends a request and waits for its end. An error says that the call may not have reached
	// the service, or its answer not us; whatever the service answered is in the status.
	Call(ctx context.Context, path string, body []byte) (reply []byte, st rpc.Status, err error)

	// Close ends the calls that are under way.
	Close() error
}

// DialOptions say how to reach a service. The zero value means plain text over the network.
type DialOptions struct {
	TLS  *tls.Config // nil: plain text
	Gzip bool        // compress requests, and ask for compressed replies

	// Connect makes the connections, in place of the network. The address is one of those of Dial, or
	// the one by which the service calls its leader.
	Connect func(ctx context.Context, address string) (net.Conn, error)
}

// Dial makes a Transport to a service that need not be there yet. It keeps one connection, and makes
// another when that breaks. Several addresses, with commas between them, are those of servers of one
// service: whichever leads is found. Proxies that the environment names are not used.
//
// To a server of serry the transport speaks serry's own stream (package stream). To any other server, and if
// Gzip is set, it speaks HTTP/2.
func Dial(address string, o DialOptions) (Transport, error) {
	addresses := split(address)
	if err := check(addresses); err != nil && o.Connect == nil {
		return nil, err
	}
	n := &network{addresses: addresses, options: back.Options{TLS: o.TLS, Gzip: o.Gzip, Connect: o.Connect}}
	n.life, n.end = context.WithCancel(context.Background())
	if o.Gzip {
		return n, nil
	}
	return newLine(addresses, o, n), nil
}
