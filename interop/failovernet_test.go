package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A network is three hosts and a switch between them, made of namespaces of the
// kernel. Relays run at the switch, and are reached from outside by sockets.
type network struct {
	t      *testing.T
	hub    []string // command that runs another one at the switch
	places [3]place

	names [4]string // of the namespaces; the last is the switch
	dir   string
}

// newNetwork makes a network of its own, which is gone with the test. A machine on
// which that is not allowed skips the test, and says so.
func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{t: t}
	var err error
	if n.dir, err = os.MkdirTemp("", "net"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(n.dir) })
	for i := range n.names {
		n.names[i] = fmt.Sprintf("serry-%d-%d", os.Getpid(), i)
	}
	t.Cleanup(func() { exec.Command("../scripts/netns.sh", append([]string{"delete"}, n.names[:]...)...).Run() })
	if out, err := exec.Command("../scripts/netns.sh", append([]string{"make"}, n.names[:]...)...).CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("scripts/netns.sh = %v\n%s", err, out)
		}
		t.Skipf("SKIPPED, NOTHING TESTED: this machine makes no network namespaces\n%s", out)
	}
	for i := range n.places {
		n.places[i] = place{host: fmt.Sprintf("10.213.0.%d", i+1), enter: n.enter(i)}
	}
	n.hub = n.enter(3)
	return n
}

func (n *network) enter(i int) []string {
	return []string{"ip", "netns", "exec", n.names[i]}
}

// socket is where a relay at the switch listens.
func (n *network) socket(i int) string {
	return "unix:" + filepath.Join(n.dir, fmt.Sprint("relay", i))
}

// cut takes a host from the network, without a word to anybody: packets to it and
// from it are lost.
func (n *network) cut(host int) { n.link(host, "down") }

// heal puts it back.
func (n *network) heal(host int) { n.link(host, "up") }

func (n *network) link(host int, state string) {
	n.t.Helper()
	set := exec.Command("ip", "-n", n.names[3], "link", "set", fmt.Sprint("port", host), state)
	if out, err := set.CombinedOutput(); err != nil {
		n.t.Fatalf("%v = %v\n%s", set, err, out)
	}
}
