package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/relay"
	"github.com/serry-dev/serry/wire/stream"
)

// TestRollingUpgrade upgrades the three servers of a running job, one after the other, to a build that
// writes the next version of the journal and speaks a later version of the stream. A server may go back
// as long as no newer one has led. After that the older build does not lead, and says why, and the job
// goes on under the others.
func TestRollingUpgrade(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds of real time")
	}
	lab.Clause(t, "C-LOG-4", "C-TERM-1", "C-STOP-4")
	newer := buildNewer(t)
	p := startPeers(t)
	j := joinThrough(t, p)
	j.work(t)

	// A standby goes forward and back: no newer server has led.
	standbys := slices.DeleteFunc(slices.Clone(p.addresses), func(a string) bool { return a == j.leader() })
	p.swap(t, standbys[0], newer)
	j.work(t)
	p.swap(t, standbys[0], "")
	j.work(t)

	// All servers go forward, the leader last.
	first := j.leader()
	for _, address := range append(standbys, first) {
		p.swap(t, address, newer)
		j.work(t)
	}

	// One goes back. It stands by, but when its turn to lead comes it cannot read what was written. Every
	// server that restarts stands last in line, so its turn comes after two of the others.
	old := standbys[0]
	if old == j.leader() {
		old = standbys[1]
	}
	p.swap(t, old, "")
	for turns := 0; !strings.Contains(p.log(t, old), "this node cannot lead"); turns++ {
		if turns == 6 {
			t.Fatalf("the older build was never the next to lead; its log:\n%s", p.log(t, old))
		}
		p.swap(t, j.leader(), newer)
		j.work(t)
	}
	if text := p.log(t, old); !strings.Contains(text, "use the newer serry that wrote it") {
		t.Errorf("the older build does not say what to do:\n%s", text)
	}
	p.swap(t, old, newer)
	j.work(t)
	j.whole(t)
}

// buildNewer builds serry as the next version of it would be.
func buildNewer(t *testing.T) string {
	t.Helper()
	const module = "github.com/serry-dev/serry"
	path := filepath.Join(t.TempDir(), "serry-newer")
	next := stream.Speaks()
	next.Minor++
	flags := fmt.Sprintf("-X %s/coord.raised=yes -X %s/wire/stream.claimed=%v", module, module, next)
	out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags", flags, "-o", path, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// swap ends the server of an address politely and starts another build there.
func (p *peers) swap(t *testing.T, address, build string) {
	t.Helper()
	if err := p.running[address].Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.running[address].Wait(); err != nil {
		t.Fatalf("server %s at SIGTERM = %v; want it to end well", address, err)
	}
	p.builds[address] = build
	p.start(t, address)
}

// log is what the server of an address has written so far.
func (p *peers) log(t *testing.T, address string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, string(rune('a'+slices.Index(p.addresses, address)))+".log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A pair is a job of two members behind a relay of this build.
type pair struct {
	relay   *relay.Relay
	members []*client.Member
	total   int
	rounds  int
}

func joinThrough(t *testing.T, p *peers) *pair {
	t.Helper()
	r, err := relay.New(relay.Config{Upstream: p.addresses})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "relay"))
	if err != nil {
		t.Fatal(err)
	}
	go r.Serve(l)
	t.Cleanup(func() { r.Shutdown(context.Background()) })
	return &pair{relay: r, members: joinAll(t, unixPrefix+l.Addr().String(), 2)}
}

func (j *pair) leader() string { return j.relay.Status().Address }

// work counts and meets: nothing may be lost or done twice.
func (j *pair) work(t *testing.T) {
	t.Helper()
	for range 20 {
		j.total++
		n, err := j.members[j.total%2].KV().Add(t.Context(), "n", 1)
		if err != nil || n != int64(j.total) {
			t.Fatalf("Add() %d = %d, %v; want one more than before", j.total, n, err)
		}
	}
	j.rounds++
	id := fmt.Sprint("round ", j.rounds)
	first := make(chan error, 1)
	go func() { first <- j.members[0].Barrier(t.Context(), id, serry.BarrierOptions{}) }()
	if err := j.members[1].Barrier(t.Context(), id, serry.BarrierOptions{}); err != nil {
		t.Fatalf("Barrier(%q) = %v", id, err)
	}
	if err := <-first; err != nil {
		t.Fatalf("Barrier(%q) = %v", id, err)
	}
}

// whole makes sure that no member was lost.
func (j *pair) whole(t *testing.T) {
	t.Helper()
	for _, m := range j.members {
		if err := m.Context().Err(); err != nil {
			t.Errorf("a member was lost: %v", context.Cause(m.Context()))
		}
	}
}
