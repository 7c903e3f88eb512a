package diagnose

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"strconv"

	"github.com/serry-dev/serry"
)

// GlooKeys is the folder in which ranks of jax on CPU offer their peers addresses.
const GlooKeys = "cpu:gloo"

// Peers are the ranks that offer addresses. Errors of Gloo name a peer by its address alone (D-RC-7).
type Peers map[netip.AddrPort]int

// ReadPeers finds the ranks in the keys below [GlooKeys]. Ranks choose the values, so what is no address is left out; an address
// that two ranks offer is that of none.
func ReadPeers(keys []serry.Entry) Peers {
	peers := make(Peers)
	for _, k := range keys {
		rank, err := strconv.Atoi(path.Base(k.Key))
		if err != nil || rank < 0 {
			continue
		}
		for _, a := range SocketAddresses(k.Value) {
			if a.Port() == 0 {
				continue
			}
			if other, ok := peers[a]; ok && other != rank {
				rank = ambiguous
			}
			peers[a] = rank
		}
	}
	return peers
}

// ambiguous stands for the rank of an address that several ranks offer.
const ambiguous = -1

// peerAddress is an address as Gloo prints it: [127.0.0.1]:49539.
var peerAddress = regexp.MustCompile(`\[([0-9a-fA-F.:]{2,45})\]:([0-9]{1,5})\b`)

// HasPeer says whether a text has the address of a peer, so that it is worth to ask for the keys.
func HasPeer(text string) bool { return peerAddress.MatchString(text) }

// name puts ranks in the place of addresses in a text; an address that no rank offers stays as it is.
func (p Peers) name(text string) string {
	if len(p) == 0 {
		return text
	}
	return peerAddress.ReplaceAllStringFunc(text, func(found string) string {
		at, err := netip.ParseAddrPort(found)
		if err != nil { // IPv4 in brackets
			m := peerAddress.FindStringSubmatch(found)
			if at, err = netip.ParseAddrPort(m[1] + ":" + m[2]); err != nil {
				return found
			}
		}
		at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
		if rank, ok := p[at]; ok && rank != ambiguous {
			return fmt.Sprintf("rank %d (%v)", rank, at)
		}
		return found
	})
}

// The families of socket addresses, as the C library of Linux numbers them.
const (
	inet4 = 2
	inet6 = 10
)

// SocketAddresses finds the socket addresses in the value of a key of Gloo, which has them as the C library of Linux does: family,
// port, and for IPv4 the address and eight zeros.
func SocketAddresses(value []byte) (found []netip.AddrPort) {
	for i := 0; i+28 <= len(value) && len(found) < maxSockets; i++ {
		b := value[i:]
		port := binary.BigEndian.Uint16(b[2:])
		switch binary.LittleEndian.Uint16(b) {
		case inet4:
			if [8]byte(b[8:16]) == [8]byte{} && b[4] != 0 {
				found = append(found, netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port))
				i += 15
			}
		case inet6:
			if a := netip.AddrFrom16([16]byte(b[8:24])); a.IsGlobalUnicast() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.Is4In6() {
				found = append(found, netip.AddrPortFrom(a.Unmap(), port))
				i += 27
			}
		}
	}
	return found
}

// maxSockets bounds how many addresses of one value are looked at.
const maxSockets = 1 << 10
