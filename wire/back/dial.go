package back

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

// Options say how to connect. The zero value means plain text over the network.
type Options struct {
	TLS  *tls.Config // nil: plain text
	Gzip bool        // compress requests where that helps, and take compressed replies

	// Connect makes the connection below, in place of the network. The address is as given to Dial.
	Connect func(ctx context.Context, address string) (net.Conn, error)
}

// Dial connects and returns once the server has spoken. An address is a target as gRPC has them:
// host:port, dns:///host:port, unix:path, unix:///path, ipv4:a:port,b:port or ipv6:..., of which the
// first that can be reached is taken.
func Dial(ctx context.Context, address string, o Options) (*Conn, error) {
	nc, authority, err := reach(ctx, address, o, "h2")
	if err != nil {
		return nil, err
	}
	c := New(nc, authority, o)
	select {
	case <-c.spoken:
		return c, nil
	case <-c.ended:
		err = fmt.Errorf("no server of HTTP/2 is there: %w", c.Err())
	case <-ctx.Done():
		err = fmt.Errorf("the server says nothing: %w", context.Cause(ctx))
	}
	c.Close()
	return nil, err
}

// ErrProtocol says that a server and we have no protocol in common, as far as TLS tells.
var ErrProtocol = errors.New("the server does not offer the protocol")

// Reach connects as [Dial] does and leaves it to the caller to speak. With TLS the server must agree to
// the protocol of that name; one that speaks HTTP/2 instead says so, and the error is ErrProtocol.
func Reach(ctx context.Context, address string, o Options, protocol string) (net.Conn, error) {
	nc, _, err := reach(ctx, address, o, protocol)
	return nc, err
}

func reach(ctx context.Context, address string, o Options, protocol string) (nc net.Conn, authority string, err error) {
	nc, authority, err = connect(ctx, address, o)
	if err != nil {
		return nil, "", err
	}
	giveUpUnheard(nc)
	if o.TLS != nil {
		nc, err = secure(ctx, nc, o.TLS, authority, protocol)
	}
	return nc, authority, err
}

// connect reaches the first of the places that an address names, and says how the server is called.
func connect(ctx context.Context, address string, o Options) (nc net.Conn, authority string, err error) {
	if o.Connect != nil {
		nc, err = o.Connect(ctx, address)
		return nc, address, err
	}
	network, places, err := parse(address)
	if err != nil {
		return nil, "", err
	}
	authority = places[0]
	if network == "unix" {
		authority = "localhost"
	}
	var errs []error
	for _, place := range places {
		nc, err := new(net.Dialer).DialContext(ctx, network, place)
		if err == nil {
			return nc, authority, nil
		}
		errs = append(errs, err)
	}
	return nil, "", errors.Join(errs...)
}

// CheckAddress says whether Dial understands an address.
func CheckAddress(address string) error {
	_, _, err := parse(address)
	return err
}

// parse takes an address apart.
func parse(address string) (network string, places []string, err error) {
	scheme, rest, _ := strings.Cut(address, ":")
	slashes := strings.HasPrefix(rest, "///")
	switch {
	case scheme == "unix":
		path := strings.TrimPrefix(rest, "//")
		if path == "" {
			return "", nil, fmt.Errorf("address %q has no path", address)
		}
		return "unix", []string{path}, nil
	case scheme == "ipv4" || scheme == "ipv6":
		places = strings.Split(strings.TrimPrefix(rest, "///"), ",")
	case slashes && (scheme == "dns" || scheme == "passthrough"):
		places = []string{rest[len("///"):]}
	default:
		places = []string{address}
	}
	for _, place := range places {
		if _, _, err := net.SplitHostPort(place); err != nil || strings.ContainsAny(place, "/ ") {
			return "", nil, fmt.Errorf("address %q: want host:port or unix:path", address)
		}
	}
	return "tcp", places, nil
}

// secure shakes hands. The peer must agree to the protocol.
func secure(ctx context.Context, nc net.Conn, cfg *tls.Config, authority, protocol string) (net.Conn, error) {
	cfg = cfg.Clone()
	cfg.NextProtos = slices.Compact([]string{protocol, "h2"})
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(authority)
	}
	tc := tls.Client(nc, cfg)
	err := tc.HandshakeContext(ctx)
	if err == nil && tc.ConnectionState().NegotiatedProtocol != protocol {
		err = fmt.Errorf("%w %q", ErrProtocol, protocol)
	}
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("tls: %w", err)
	}
	return tc, nil
}
