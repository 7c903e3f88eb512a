package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/serry-dev/serry"
)

const (
	maxAddresses    = 16 // of TCP; one more is of this host
	maxAddressBytes = 1 << 10
	maxNearBytes    = len("unix:") + 107 // what the kernel takes
)

// system is the network of the system.
type system struct{}

// Listen implements Network.
func (system) Listen(ctx context.Context, address string) (net.Listener, error) {
	network, address := split(address)
	return new(net.ListenConfig).Listen(ctx, network, address)
}

// Dial implements Network.
func (system) Dial(ctx context.Context, address string) (net.Conn, error) {
	network, address := split(address)
	return new(net.Dialer).DialContext(ctx, network, address)
}

// nearPrefix begins the address of a socket for processes of this host. It has a name that no file has.
const nearPrefix = "unix:@"

// isNear says whether an address leads to processes of this host alone.
func isNear(address string) bool { return strings.HasPrefix(address, nearPrefix) }

// split takes an address apart, as package net has them.
func split(address string) (network, rest string) {
	if isNear(address) {
		return "unix", strings.TrimPrefix(address, "unix:")
	}
	return "tcp", address
}

// listen binds what the options ask for, and finds out what peers can dial.
func (n *Net) listen(ctx context.Context) error {
	binds, err := n.binds()
	if err != nil {
		return err
	}
	var errs []error
	for _, address := range binds {
		l, err := n.network.Listen(ctx, address)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		n.listeners = append(n.listeners, l)
		n.addresses = append(n.addresses, reachable(l.Addr())...)
		if !n.allowed(l.Addr().String()) {
			errs = append(errs, fmt.Errorf("%w: %v is not an address of loopback", ErrNoSecret, l.Addr()))
		}
	}
	if len(n.listeners) == 0 || len(errs) > 0 && len(n.opt.Listen) > 0 {
		return errors.Join(append(errs, n.closeListeners())...)
	}
	if n.opt.Advertise != nil {
		n.addresses = slices.Clone(n.opt.Advertise)
	}
	if err := n.checkAddresses(); err != nil {
		return errors.Join(err, n.closeListeners())
	}
	n.listenNear(ctx)
	return nil
}

// listenNear makes the socket for processes of this host, where there are such sockets. Without it they use TCP.
func (n *Net) listenNear(ctx context.Context) {
	if !hostSockets || n.opt.TCPOnly || n.network != (system{}) {
		return
	}
	near := fmt.Sprintf("%sserry-link-%016x", nearPrefix, random())
	l, err := n.network.Listen(ctx, near)
	if err != nil {
		n.log.Debug("no socket for processes of this host", "err", err)
		return
	}
	n.near = near
	n.listeners = append(n.listeners, l)
}

func (n *Net) closeListeners() error {
	for _, l := range n.listeners {
		l.Close()
	}
	return nil
}

// checkAddresses holds what is published to what peers can use.
func (n *Net) checkAddresses() error {
	if len(n.addresses) == 0 {
		return ErrNoAddress
	}
	n.addresses = n.addresses[:min(len(n.addresses), maxAddresses)]
	for _, address := range n.addresses {
		host, port, err := net.SplitHostPort(address)
		if err != nil || host == "" || port == "" || port == "0" || strings.ContainsAny(address, ", \n") {
			return fmt.Errorf("%w: %q", ErrNoAddress, address)
		}
		ip, err := netip.ParseAddr(host)
		if err == nil && ip.IsUnspecified() {
			return fmt.Errorf("%w: %q is a wildcard", ErrNoAddress, address)
		}
		if !n.allowed(address) {
			return fmt.Errorf("%w: %s is not an address of loopback", ErrNoSecret, address)
		}
	}
	return nil
}

// allowed says whether a link may use an address: without a secret only one that does not leave the host (CL-TRN-30).
func (n *Net) allowed(address string) bool {
	if isNear(address) {
		return hostSockets && !n.opt.TCPOnly
	}
	if n.guarded() {
		return true
	}
	host, _, _ := net.SplitHostPort(address)
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || host == "localhost"
}

// guarded says whether links may leave this host: peers prove which tasks they are, or the options ask for no proof.
func (n *Net) guarded() bool { return len(n.opt.Secret) > 0 || n.opt.TLS != nil || n.opt.Plain }

// kind is what addresses of TCP begin with: a process with certificates talks to none that has no certificate.
func (n *Net) kind() string {
	if n.opt.TLS != nil {
		return "tls:"
	}
	return "tcp:"
}

// binds are the addresses to listen on.
func (n *Net) binds() ([]string, error) {
	if len(n.opt.Listen) == 0 {
		if n.guarded() {
			return []string{":0"}, nil
		}
		return []string{"127.0.0.1:0", "[::1]:0"}, nil
	}
	var all []string
	for _, want := range n.opt.Listen {
		found, err := resolve(want)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// resolve turns an address, a network or the name of an interface into addresses to bind.
func resolve(want string) ([]string, error) {
	if _, _, err := net.SplitHostPort(want); err == nil {
		return []string{want}, nil
	}
	if ip, err := netip.ParseAddr(want); err == nil {
		return []string{netip.AddrPortFrom(ip, 0).String()}, nil
	}
	network, cidr := netip.ParsePrefix(want)
	var found []string
	for _, a := range interfaceAddresses() {
		if cidr == nil && network.Contains(a.ip) || cidr != nil && a.name == want {
			found = append(found, netip.AddrPortFrom(a.ip, 0).String())
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: no interface is %q, or has an address in it", ErrNoAddress, want)
	}
	return found, nil
}

// An interfaceAddress is an address of this host.
type interfaceAddress struct {
	name string
	ip   netip.Addr
}

// interfaceAddresses lists the addresses of interfaces that are up. Link-local ones are left out: they mean
// nothing on another host.
func interfaceAddresses() (all []interfaceAddress) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil
	}
	for _, i := range interfaces {
		addresses, err := i.Addrs()
		if err != nil || i.Flags&net.FlagUp == 0 {
			continue
		}
		for _, a := range addresses {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil && !prefix.Addr().IsLinkLocalUnicast() {
				all = append(all, interfaceAddress{i.Name, prefix.Addr()})
			}
		}
	}
	return all
}

// reachable is how peers reach a listener: for a wildcard, by the addresses of all interfaces but loopback,
// or by loopback if there is nothing else.
func reachable(a net.Addr) []string {
	bound, err := netip.ParseAddrPort(a.String())
	if err != nil || !bound.Addr().IsUnspecified() {
		return []string{a.String()}
	}
	var outside, loopback []string
	for _, i := range interfaceAddresses() {
		address := netip.AddrPortFrom(i.ip, bound.Port()).String()
		if i.ip.IsLoopback() {
			loopback = append(loopback, address)
		} else {
			outside = append(outside, address)
		}
	}
	if len(outside) > 0 {
		return outside
	}
	return loopback
}

// AddressKey is the key under which a life publishes its addresses. What else is known of its links is below it.
func AddressKey(l serry.Life) string {
	return fmt.Sprintf("serry/link/%v/%016x", l.Task, uint64(l.Incarnation))
}

// publish writes the addresses to the key-value store, once.
func (n *Net) publish(ctx context.Context) error {
	text := formatAddresses(n.kind(), n.addresses)
	if len(text) > maxAddressBytes {
		return fmt.Errorf("%w: they take %d bytes, at most %d", ErrNoAddress, len(text), maxAddressBytes)
	}
	if n.near != "" {
		if all := formatAddresses(n.kind(), append(slices.Clone(n.addresses), n.near)); len(all) <= maxAddressBytes {
			text = all
		}
	}
	if err := n.keys.Create(ctx, AddressKey(n.life), []byte(text)); err != nil {
		return fmt.Errorf("publish addresses of links: %w", err)
	}
	n.published.Store(true)
	return nil
}

// unpublish deletes the addresses, if this Net has published them.
func (n *Net) unpublish(ctx context.Context) error {
	if !n.published.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reportTime)
	defer cancel()
	if err := n.keys.Delete(ctx, AddressKey(n.life)); err != nil && !errors.Is(err, serry.ErrNotFound) {
		return fmt.Errorf("delete addresses of links: %w", err)
	}
	return nil
}

// Host names the host of this process by the addresses that it publishes, without their ports: processes of one host that listen
// alike have the same name, and those of different hosts have not. Processes without addresses have the empty one.
func (n *Net) Host() string {
	var hosts []string
	for _, a := range n.addresses {
		if host, _, err := net.SplitHostPort(a); err == nil {
			hosts = append(hosts, host)
		}
	}
	slices.Sort(hosts)
	return strings.Join(slices.Compact(hosts), ",")
}

// lookup finds the addresses of a life. It waits until they are published.
func (n *Net) lookup(ctx context.Context, peer serry.Life) ([]string, error) {
	n.mu.Lock()
	known := n.know(peer).addresses
	n.mu.Unlock()
	if known != nil {
		return known, nil
	}
	text, err := n.keys.Wait(ctx, AddressKey(peer))
	if err != nil {
		return nil, fmt.Errorf("addresses of %v: %w", peer.Task, err)
	}
	addresses, err := parseAddresses(n.kind(), string(text))
	if err != nil {
		return nil, fmt.Errorf("addresses of %v: %w", peer.Task, err)
	}
	addresses = slices.DeleteFunc(addresses, func(a string) bool { return !n.allowed(a) })
	if len(addresses) == 0 {
		return nil, fmt.Errorf("addresses of %v: %w", peer.Task, ErrNoSecret)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.know(peer).addresses = addresses
	return addresses, nil
}

// forgetAddresses lets the next lookup ask the service. A life that said goodbye may have closed its link layer: then it
// has deleted its addresses, and that a port refuses says nothing about its process.
func (n *Net) forgetAddresses(peer serry.Life) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if known := n.mu.known[peer]; known != nil {
		known.addresses = nil
	}
}

func formatAddresses(kind string, all []string) string {
	texts := make([]string, len(all))
	for i, address := range all {
		texts[i] = address
		if !isNear(address) {
			texts[i] = kind + address
		}
	}
	return strings.Join(texts, ",")
}

// parseAddresses reads what another process has published. Those of TCP are returned without their kind. Kinds of addresses that this version does not
// know are skipped.
func parseAddresses(kind, text string) ([]string, error) {
	if len(text) > maxAddressBytes {
		return nil, fmt.Errorf("%w: %d bytes", ErrNoAddress, len(text))
	}
	var all []string
	for a := range strings.SplitSeq(text, ",") {
		address, ok := strings.CutPrefix(a, kind)
		switch {
		case len(all) > maxAddresses:
			return nil, fmt.Errorf("%w: more than %d", ErrNoAddress, maxAddresses)
		case isNear(a) && len(a) <= maxNearBytes:
			all = append(all, a)
			continue
		case !ok:
			continue
		}
		if _, port, err := net.SplitHostPort(address); err != nil || port == "" || isNear(address) {
			return nil, fmt.Errorf("%w: %q", ErrNoAddress, clean([]byte(a)))
		}
		all = append(all, address)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: %q", ErrNoAddress, clean([]byte(text)))
	}
	return all, nil
}
