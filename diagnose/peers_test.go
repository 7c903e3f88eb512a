package diagnose

import (
	"net/netip"
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// offered is a socket address of Linux, and what Gloo puts around it.
func offered(address string) []byte {
	a := netip.MustParseAddrPort(address)
	b := []byte("gloo")
	port := []byte{byte(a.Port() >> 8), byte(a.Port())}
	if a.Addr().Is4() {
		b = append(append(b, 2, 0), port...)
		b = append(append(b, a.Addr().AsSlice()...), make([]byte, 8)...)
	} else {
		b = append(append(b, 10, 0), port...)
		b = append(append(append(b, 0, 0, 0, 0), a.Addr().AsSlice()...), 0, 0, 0, 0)
	}
	return append(b, make([]byte, 100)...)
}

// An error of Gloo names its peer by the address that the peer has offered; the verdict names the rank. Any other address stays.
func TestPeersInTexts(t *testing.T) {
	clause.Cite(t, "D-RC-7", "TD-RC-4")
	peers := ReadPeers([]serry.Entry{
		{Key: "cpu:gloo/0,2048/0", Value: offered("127.0.0.1:21424")},
		{Key: "cpu:gloo/0,2048/3", Value: offered("127.0.0.1:21425")},
		{Key: "cpu:gloo/0,2048/4", Value: offered("[fd00::4]:900")},
		{Key: "cpu:gloo/0,2048/5", Value: offered("10.0.0.1:77")},
		{Key: "cpu:gloo/0,2048/6", Value: offered("10.0.0.1:77")},
		{Key: "cpu:gloo/0,2048/x", Value: offered("10.0.0.2:78")},
		{Key: "cpu:gloo/0,2048/7", Value: []byte("no address")},
	})
	for text, want := range map[string]string{
		"Gloo all-reduce failed: Read error [127.0.0.1]:21425: Connection reset by peer": "Gloo all-reduce failed: Read error rank 3 (127.0.0.1:21425): Connection reset by peer",
		"Read error [fd00::4]:900: closed, [127.0.0.1]:21424 too":                        "Read error rank 4 ([fd00::4]:900): closed, rank 0 (127.0.0.1:21424) too",
		"Read error [::ffff:127.0.0.1]:21424":                                            "Read error rank 0 (127.0.0.1:21424)",
		"Read error [127.0.0.1]:21426: unknown":                                          "Read error [127.0.0.1]:21426: unknown",
		"Read error [10.0.0.1]:77: of two ranks":                                         "Read error [10.0.0.1]:77: of two ranks",
		"[:::::]:99999 and [12]:3 are no addresses":                                      "[:::::]:99999 and [12]:3 are no addresses",
	} {
		if got := peers.name(text); got != want {
			t.Errorf("name(%q) = %q; want %q", text, got, want)
		}
	}
	raised := "raised ValueError: UNKNOWN: Read error [127.0.0.1]:21425: Connection reset by peer"
	r := Judge(Evidence{Status: first(job(up, bad), died(raised)), Peers: peers})
	if want := "rank 1 raised ValueError at 12:01:04: UNKNOWN: Read error rank 3 (127.0.0.1:21425): Connection reset by peer"; r.Verdict != want || !HasPeer(raised) {
		t.Errorf("Judge() = %q; want %q", r.Verdict, want)
	}
}

// Ranks choose the values of their keys, and the texts of their errors.
func FuzzPeers(f *testing.F) {
	f.Add(offered("10.0.0.1:80"), "Read error [10.0.0.1]:80")
	f.Add(offered("[fd00::1]:80"), "[fd00::1]:80")
	f.Add([]byte{2, 0, 0}, "[")
	f.Fuzz(func(t *testing.T, value []byte, text string) {
		found := SocketAddresses(value)
		if len(found) > maxSockets || len(found)*16 > len(value)+16 {
			t.Errorf("SocketAddresses(%x) = %v", value, found)
		}
		ReadPeers([]serry.Entry{{Key: "cpu:gloo/0/3", Value: value}}).name(text)
	})
}
