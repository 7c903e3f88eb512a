package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/pause"
)

// A hostLink is an address of a network interface of this host.
type hostLink struct {
	name   string
	prefix netip.Prefix
}

func ownLinks() []hostLink {
	all, _ := net.Interfaces() // none can be listed: nothing is said about them
	var found []hostLink
	for _, i := range all {
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				found = append(found, hostLink{i.Name, netip.PrefixFrom(p.Addr().Unmap(), p.Bits())})
			}
		}
	}
	return found
}

// named are the hosts that the user has named: that of the service, if it is one, and those of --host-list.
func (s *site) named() []string {
	hosts := slices.Clone(s.peers)
	if host, _, ok := s.hostPort(); ok {
		hosts = append(hosts, host)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// namePause is how often a name that does not resolve is looked up again.
const namePause = 250 * time.Millisecond

// checkNames finds hosts whose names come into being while the job starts, as those of pods do. A program that looks a name
// up once, and keeps the failure, does not start.
func checkNames(ctx context.Context, s *site) finding {
	var missing []string
	for _, host := range s.named() {
		after, err := s.appears(ctx, host)
		switch {
		case err != nil:
			missing = append(missing, host)
		case after > 0:
			return warning("start the ranks with serry run, which looks again until the name is there",
				"%s appears only after %v; jax does not look again", host, after.Round(100*time.Millisecond))
		}
	}
	if len(missing) > 0 {
		return problem("add them to DNS or /etc/hosts; --wait-dns 30s looks for longer", "%s: no such name here", strings.Join(missing, ", "))
	}
	return fine("the names of the job resolve")
}

// appears says how long it took until a name resolved. Its error is that of the last look-up.
func (s *site) appears(ctx context.Context, host string) (time.Duration, error) {
	began := s.now()
	for again := false; ; again = true {
		_, err := s.resolve(ctx, host)
		switch spent := s.now().Sub(began); {
		case err == nil && again:
			return max(spent, 1), nil
		case err == nil:
			return 0, nil
		case spent+namePause > s.waitName || pause.For(ctx, namePause) != nil:
			return 0, err
		}
	}
}

// Sizes of packets, as the IP header counts them.
const (
	smallPacket = 200  // it fits through everything
	fullPacket  = 1500 // what an interface of Ethernet sends, unless it is told otherwise
)

// packetSizes are those that are tried once one of full size has got lost: tunnels and overlays take 50 to 120 bytes, and IPv6 has 1280 at least.
var packetSizes = []int{1450, 1400, 1280, 576}

// errPacketLost says that nothing came back.
var errPacketLost = errors.New("no answer")

// checkPackets finds ways on which large packets vanish without a word. Connections are made there, small messages pass, and
// the first large one is sent again and again.
func checkPackets(ctx context.Context, s *site) finding {
	_, port, ok := s.hostPort()
	if !ok {
		port = defaultPort
	}
	asked := 0
	for _, host := range s.named() {
		found, err := s.resolve(ctx, host)
		if err != nil || len(found) == 0 || isLoopback(ctx, s, host) {
			continue
		}
		at := net.JoinHostPort(found[0].String(), port)
		if s.packet(ctx, at, smallPacket) != nil {
			continue // its host does not tell of datagrams that nothing reads
		}
		asked++
		if most, lost := s.lostAbove(ctx, at); lost {
			return problem(fmt.Sprintf("set the MTU of the interface to %d, or let routers on the way answer \"packet too big\"", most),
				"packets above %d bytes vanish on the way to %s", most, host)
		}
	}
	if asked == 0 {
		return skipped("no other host answers datagrams")
	}
	return fine("packets of %d bytes arrive", fullPacket)
}

// lostAbove finds the size above which packets vanish. That a packet is refused as too large is as it should be.
func (s *site) lostAbove(ctx context.Context, at string) (most int, lost bool) {
	if !errors.Is(s.packet(ctx, at, fullPacket), errPacketLost) || !errors.Is(s.packet(ctx, at, fullPacket), errPacketLost) {
		return 0, false
	}
	for _, size := range packetSizes {
		if err := s.packet(ctx, at, size); !errors.Is(err, errPacketLost) {
			return size, true
		}
	}
	return smallPacket, true
}

// packetPatience is how long the answer to a packet may take.
const packetPatience = 250 * time.Millisecond

// sendPacket sends one datagram that must not be cut into parts. The host at the other end answers that nothing reads it, so it
// has arrived. EMSGSIZE: a router, or this host, says that it is too large.
func sendPacket(ctx context.Context, address string, bytes int) error {
	conn, err := new(net.Dialer).DialContext(ctx, "udp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	c := conn.(*net.UDPConn)
	if err := forbidParts(c); err != nil {
		return err
	}
	header := 28 // of IPv4 and UDP
	if c.RemoteAddr().(*net.UDPAddr).IP.To4() == nil {
		header = 48
	}
	c.SetDeadline(time.Now().Add(packetPatience))
	_, err = c.Write(make([]byte, bytes-header))
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil
	case ok && timeout.Timeout():
		return errPacketLost
	}
	return err
}

// forbidParts sets the bit "don't fragment" of what a socket sends.
func forbidParts(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		if c.RemoteAddr().(*net.UDPAddr).IP.To4() == nil {
			set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
		} else {
			set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
		}
	})
	return errors.Join(err, set)
}

// innerLinks are the names of interfaces that lead to containers and virtual machines of this host, and to no other host.
var innerLinks = []string{"docker", "br-", "virbr", "podman", "cni", "lxcbr", "lxdbr"}

// innerLink names the interface of this host that an address belongs to, if it is one that leads nowhere else. Other hosts have
// such interfaces with the same addresses.
func (s *site) innerLink(a netip.Addr) string {
	for _, l := range s.links() {
		inner := slices.ContainsFunc(innerLinks, func(begin string) bool { return strings.HasPrefix(l.name, begin) })
		if inner && l.prefix.Masked().Contains(a) {
			return l.name
		}
	}
	return ""
}

const glooFix = "give the host name the address of the network between the hosts in /etc/hosts: Gloo offers what the name resolves to"

// checkGloo finds ranks that offer their peers an address at which no other host reaches them.
func checkGloo(ctx context.Context, s *site) finding {
	if name, err := s.hostname(); err == nil {
		found, _ := s.resolve(ctx, name) // the check of the host name tells of it
		for _, a := range found {
			if link := s.innerLink(a); link != "" {
				return problem(glooFix, "%s resolves to %s (%s), which ranks here would offer to their peers", name, a, link)
			}
		}
	}
	if _, err := s.status(ctx); err != nil {
		return skipped("the service does not answer")
	}
	keys, err := s.entries(ctx, diagnose.GlooKeys)
	if err != nil || len(keys) == 0 {
		return skipped("no rank has offered its peers an address yet")
	}
	for _, k := range keys {
		for _, a := range diagnose.SocketAddresses(k.Value) {
			if link := s.innerLink(a.Addr()); link != "" {
				return problem(glooFix, "rank %s offers %s (%s) to its peers", oneLine(path.Base(k.Key)), a.Addr(), link)
			}
		}
	}
	return s.loopbackOffers(keys)
}

// loopbackOffers finds ranks that offer a loopback address while others do not: those are on other hosts.
func (s *site) loopbackOffers(keys []serry.Entry) finding {
	inner, outer := "", false
	var at netip.Addr
	for _, k := range keys {
		for _, a := range diagnose.SocketAddresses(k.Value) {
			if a.Addr().IsLoopback() && inner == "" {
				inner, at = path.Base(k.Key), a.Addr()
			}
			outer = outer || !a.Addr().IsLoopback()
		}
	}
	if inner != "" && outer {
		return problem(glooFix, "rank %s offers %s to its peers, and others are not on its host", oneLine(inner), at)
	}
	return fine("ranks offer their peers addresses of the network")
}
