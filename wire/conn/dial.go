package conn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// unheardTimeout is how long a server may take to acknowledge bytes before a connection to it breaks.
const unheardTimeout = 20 * time.Second

// DialOptions say how to connect. The zero value means plain text over the network.
type DialOptions struct {
	TLS *tls.Config // nil: plain text

	// Connect makes the connection below TLS, in place of the network. The address is as given to Dial.
	Connect func(ctx context.Context, address string) (net.Conn, error)
}

// ErrTLS is wrapped by the errors of TLS handshakes.
var ErrTLS = errors.New("tls")

// ErrProtocol says that both sides of a TLS handshake have no protocol in common.
var ErrProtocol = errors.New("the server does not offer the protocol")

// Dial connects to a server. An address is a target as gRPC has them: host:port, dns:///host:port,
// unix:path, unix:///path, ipv4:a:port,b:port or ipv6:..., of which the first that can be reached is
// taken.
//
// With TLS the server must agree to the protocol of that name. A server that speaks HTTP/2 instead says
// so, and the error is ErrProtocol.
func Dial(ctx context.Context, address, protocol string, o DialOptions) (*Conn, error) {
	nc, authority, err := connect(ctx, address, o)
	if err != nil {
		return nil, err
	}
	c := New(nc)
	c.GiveUpUnheard(unheardTimeout)
	c.name = authority
	if o.TLS == nil {
		return c, nil
	}
	if err := c.agree(ctx, o.TLS, protocol); err != nil {
		c.Close()
		return nil, fmt.Errorf("%w: %w", ErrTLS, err)
	}
	return c, nil
}

// agree makes the connection secure, and checks that the server speaks the protocol.
func (c *Conn) agree(ctx context.Context, cfg *tls.Config, protocol string) error {
	cfg = cfg.Clone()
	cfg.NextProtos = slices.Compact([]string{protocol, "h2"})
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(c.name)
	}
	if err := c.secure(ctx, cfg, tls.Client); err != nil {
		return err
	}
	if c.tls.ConnectionState().NegotiatedProtocol != protocol {
		return fmt.Errorf("%w %q", ErrProtocol, protocol)
	}
	return nil
}

// connect reaches the first of the hosts that an address names, and says how the server is called.
func connect(ctx context.Context, address string, o DialOptions) (nc net.Conn, authority string, err error) {
	if o.Connect != nil {
		nc, err = o.Connect(ctx, address)
		return nc, address, err
	}
	network, hosts, err := parse(address)
	if err != nil {
		return nil, "", err
	}
	authority = hosts[0]
	if network == "unix" {
		authority = "localhost"
	}
	var errs []error
	for _, host := range hosts {
		nc, err := new(net.Dialer).DialContext(ctx, network, host)
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
func parse(address string) (network string, hosts []string, err error) {
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
		hosts = strings.Split(strings.TrimPrefix(rest, "///"), ",")
	case slashes && (scheme == "dns" || scheme == "passthrough"):
		hosts = []string{rest[len("///"):]}
	default:
		hosts = []string{address}
	}
	for _, host := range hosts {
		if _, _, err := net.SplitHostPort(host); err != nil || strings.ContainsAny(host, "/ ") {
			return "", nil, fmt.Errorf("address %q: want host:port or unix:path", address)
		}
	}
	return "tcp", hosts, nil
}
