package interop

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A trio is a service of three servers that keep the job together in the etcd
// inside them.
type trio struct {
	t       *testing.T
	members [3]*trioMember
}

// A trioMember is one server of the three, of which one process after the other
// runs.
type trioMember struct {
	*process
	command []string
	addr    string // where clients and relays reach it
}

// place says where a server of a trio runs.
type place struct {
	host  string   // its address
	enter []string // command that runs another one there
}

// here is where most tests run all three.
var here = [3]place{{host: "127.0.0.1"}, {host: "127.0.0.1"}, {host: "127.0.0.1"}}

// startTrio starts a service and returns when it has a leader.
func startTrio(t *testing.T, at [3]place, flags ...string) *trio {
	t.Helper()
	dir, err := os.MkdirTemp("", "trio") // the path of a socket in it must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	names, peers := []string{"a", "b", "c"}, make([]string, 3)
	for i, name := range names {
		peers[i] = name + "=" + freeOn(t, at[i].host)
	}
	s := &trio{t: t}
	for i, name := range names {
		m := &trioMember{addr: freeOn(t, at[i].host)}
		m.command = append(slices.Clone(at[i].enter), os.Getenv("SERRY_BINARY"), "serve", "--tasks", "4",
			"--listen", m.addr, "--peers", strings.Join(peers, ","), "--name", name, "--data-dir", filepath.Join(dir, name))
		m.command = append(m.command, flags...)
		m.process = start(t, "server "+name, environment(), m.command...)
		s.members[i] = m
	}
	for _, m := range s.members {
		m.line() // it serves
	}
	s.leader(0)
	return s
}

// freeOn is a free address on a host. In a namespace of its own every port is.
func freeOn(t *testing.T, host string) string {
	t.Helper()
	_, port, _ := strings.Cut(unusedAddress(t), ":")
	return host + ":" + port
}

// addrs are where the three listen.
func (s *trio) addrs() []string {
	return []string{s.members[0].addr, s.members[1].addr, s.members[2].addr}
}

// leads is what a server logs when its leadership begins.
var leads = regexp.MustCompile(`msg=leading term=(\d+)`)

// A leader is the server that leads in a term.
type leader struct {
	*trioMember
	term int
}

// leader waits for a leader of a later term than the one given.
func (s *trio) leader(after int) leader {
	s.t.Helper()
	var newest leader
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		grown := make(chan struct{}, 1)
		for _, m := range s.members {
			for _, match := range leads.FindAllStringSubmatch(m.stderr.notify(grown), -1) {
				if term, _ := strconv.Atoi(match[1]); term > newest.term {
					newest = leader{m, term}
				}
			}
		}
		if newest.term > after {
			return newest
		}
		select {
		case <-grown:
		case <-timer.C:
			s.t.Fatalf("no leader after term %d", after)
		}
	}
}

// restart starts a server again that has ended, and returns when it serves.
func (s *trio) restart(m *trioMember) {
	s.t.Helper()
	<-m.ended
	m.process = start(s.t, m.name, environment(), m.command...)
	m.line()
}

// stopped waits for a server that was told to end. It ends well, and neither it nor the etcd inside it
// calls anything about that an error. (At a start etcd may: that it has not yet written its first term.)
func (m *trioMember) stopped() {
	m.t.Helper()
	m.leaves()
	_, said, told := strings.Cut(m.stderr.String(), "msg=ending")
	if !told || strings.Contains(said, "level=ERROR") {
		m.t.Errorf("%s, which was told to end, logged an error (or no end: %v):\n%s", m.name, !told, said)
	}
}

// A chance gives the random moments of a test.
type chance struct {
	*rand.Rand
}

// newChance takes the seed from SERRY_SEED, or a new one, and says which.
func newChance(t *testing.T) chance {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv("SERRY_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("random moments of SERRY_SEED=%d", seed)
	return chance{rand.New(rand.NewPCG(seed, 0))}
}

// moment lets up to d pass. When it is over is what a test leaves to chance.
func (c chance) moment(d time.Duration) {
	<-time.After(time.Duration(c.Int64N(int64(d))))
}

// stalls are how long a job stood still, each time.
type stalls []time.Duration

func (s stalls) String() string {
	sorted := slices.Sorted(slices.Values(s))
	return fmt.Sprintf("stalls: %v; median %v, longest %v", []time.Duration(s), sorted[len(sorted)/2], sorted[len(sorted)-1])
}

// handover asks for another leader, at a server that stands by.
func (s *trio) handover(l leader, flags ...string) {
	s.t.Helper()
	standby := s.members[0]
	if standby == l.trioMember {
		standby = s.members[1]
	}
	cmd := exec.Command(os.Getenv("SERRY_BINARY"), append([]string{"handover", "--address", standby.addr}, flags...)...)
	cmd.Env = environment()
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%v = %v\n%s", cmd, err, out)
	}
	s.t.Logf("%s", out)
}
