package back

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"github.com/serry-dev/serry/wire/conn"
)

// Options say how to connect. The zero value means plain text over the network.
type Options struct {
	TLS  *tls.Config // nil: plain text
	Gzip bool        // compress requests where that helps, and take compressed replies

	// Connect makes the connection below TLS, in place of the network. The address is as given to Dial.
	Connect func(ctx context.Context, address string) (net.Conn, error)
}

// Dial connects to an address, as [conn.Dial] does, and returns once the server has greeted.
func Dial(ctx context.Context, address string, o Options) (*Conn, error) {
	nc, err := conn.Dial(ctx, address, "h2", conn.DialOptions{TLS: o.TLS, Connect: o.Connect})
	if err != nil {
		return nil, err
	}
	c := New(nc, nc.Authority(), o)
	select {
	case <-c.greeted:
		return c, nil
	case <-c.ended:
		err = fmt.Errorf("no HTTP/2 server answers there: %w", c.Err())
	case <-ctx.Done():
		err = fmt.Errorf("the server says nothing: %w", context.Cause(ctx))
	}
	c.Close()
	return nil, err
}
