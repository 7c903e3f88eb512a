package link_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
)

// nearOf is the address of the socket that a life has for processes of its host, or empty.
func (w *world) nearOf(key string) string {
	for address := range strings.SplitSeq(w.key(key), ",") {
		if strings.HasPrefix(address, "unix:@") {
			return address
		}
	}
	return ""
}

// overUnix says whether the only link of a Net is over a socket of the host.
func overUnix(t *testing.T, n *link.Net) bool {
	t.Helper()
	all := n.Links()
	if len(all) != 1 {
		t.Fatalf("%d links; want one", len(all))
	}
	return strings.HasPrefix(all[0].Remote, "unix")
}

// Processes of one host use a socket of the host, unless one of them has none.
func TestSocketOfTheHost(t *testing.T) {
	clause.Cite(t, "CL-TRN-12", "CL-TRN-29", "CLT-DES-12")
	for name, row := range map[string]struct{ dialler, listener bool }{ // TCP only
		"both":     {false, false},
		"dialler":  {true, false},
		"listener": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{job: newJob(), t: t}
			n := w.join(life(1, 11), func(o *link.Options) { o.TCPOnly = row.listener })
			m := w.join(life(0, 10), func(o *link.Options) { o.TCPOnly = row.dialler })
			if got := w.nearOf(peerKey) == ""; got != row.listener {
				t.Errorf("published %q; want a socket of the host: %v", w.key(peerKey), !row.listener)
			}
			a, b := w.linked(m, n)
			exchange(t, a, b, 1)
			if want := !row.listener && !row.dialler; overUnix(t, m) != want || overUnix(t, n) != want {
				t.Errorf("linked over %q and %q; want a socket of the host: %v", m.Links()[0].Remote, n.Links()[0].Remote, want)
			}
		})
	}
}

// A socket of the host that leads nowhere, or to a process that never answers, does not keep a peer from being found over
// TCP, and says nothing about the peer.
func TestSocketOfAnotherHost(t *testing.T) {
	clause.Cite(t, "CL-TRN-12", "CL-TRN-6")
	silent, err := net.Listen("unix", "@serry-link-test-silent")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, near := range []string{"unix:@serry-link-test-nothing", "unix:@serry-link-test-silent", "unix:/not/of/this/version"} {
		t.Run(near, func(t *testing.T) {
			w := &world{job: newJob(), t: t}
			n, m := w.join(life(1, 11)), w.join(life(0, 10))
			tcp, _, _ := strings.Cut(w.key(peerKey), ",unix:")
			w.change(func() { w.keys[peerKey] = near + "," + tcp })
			if _, err := m.Link(t.Context(), n.Life()); err != nil || overUnix(t, m) {
				t.Fatalf("Link() = %v, %+v; want one over TCP", err, m.Links())
			}
		})
	}
	t.Run("and no secret", func(t *testing.T) {
		w := &world{job: newJob(), t: t}
		n, m := w.join(life(1, 11)), w.join(life(0, 10))
		w.change(func() { w.keys[peerKey] = "unix:@serry-link-test-nothing,tcp:192.0.2.1:9" })
		if _, err := m.Link(t.Context(), n.Life()); !errors.Is(err, link.ErrNoSecret) {
			t.Errorf("Link() = %v; want ErrNoSecret", err)
		}
		m.Close(t.Context())
		if got := w.reports(); len(got) != 0 {
			t.Errorf("reports are %q; want none: the peer is on another host", got)
		}
	})
}

// A process of the host that runs as another user is refused on its socket, on either side, and may use TCP.
func TestOtherUser(t *testing.T) {
	clause.Cite(t, "CL-TRN-25", "CLT-DES-9", "TRT-270")
	for _, other := range []string{"dialler", "listener"} {
		t.Run(other, func(t *testing.T) {
			w := &world{job: newJob(), t: t}
			n, m := w.join(life(1, 11)), w.join(life(0, 10))
			if other == "dialler" {
				n.SetUser(os.Geteuid() + 1) // for which this process is another user
			} else {
				m.SetUser(os.Geteuid() + 1)
			}
			refusesUser(t, w, m, n.Life())
		})
	}
}

func refusesUser(t *testing.T, w *world, m *link.Net, peer serry.Life) {
	t.Helper()
	err := m.DialAt(t.Context(), peer, w.nearOf(peerKey))
	if r, ok := errors.AsType[*link.RefusedError](err); !ok || r.Code != link.OtherUser || !strings.Contains(err.Error(), "other user") {
		t.Errorf("dialling the socket of another user = %v; want it refused by name", err)
	}
	if _, err := m.Link(t.Context(), peer); err != nil || overUnix(t, m) {
		t.Errorf("Link() = %v, %+v; want one over TCP", err, m.Links())
	}
}

// The same with a process of another user.
func TestRealOtherUser(t *testing.T) {
	clause.Cite(t, "CL-TRN-25")
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	self := copyForAll(t)
	w := &world{job: newJob(), t: t}
	_, peer := startPeer(t, w, func(c *exec.Cmd) {
		c.Path, c.Dir = self, "/"
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	})
	refusesUser(t, w, w.join(life(0, 10)), peer)
}

// copyForAll copies this program to where every user can run it.
func copyForAll(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "link")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program, err := os.ReadFile(os.Args[0])
	path := filepath.Join(dir, "link.test")
	if err := errors.Join(err, os.Chmod(dir, 0o755), os.WriteFile(path, program, 0o755)); err != nil {
		t.Fatal(err)
	}
	return path
}

// A process that is gone is found although its connections stay open, because a child of it has them: by its pidfd, at
// once. That is hard evidence.
func TestExitOfAProcess(t *testing.T) {
	clause.Cite(t, "CL-TRN-6", "CL-TRN-9")
	w := &world{job: newJob(), t: t}
	process, peer := startPeer(t, w)
	m := w.join(life(0, 10), func(o *link.Options) { o.Timing.Suspect, o.Timing.Dead = time.Hour, time.Hour })
	o := w.observe(m)
	a, err := m.Link(t.Context(), peer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := process.in.Write([]byte("share\n")); err != nil {
		t.Fatal(err)
	}
	if said, err := process.out.ReadString('\n'); err != nil || said != "<nil>\n" {
		t.Fatalf("the peer says %q, %v", said, err)
	}
	tickets := expectations(t, a)
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	loss := fails(t, a, tickets, link.ErrPeerFailed)
	if loss.Source != link.FromLink || !strings.Contains(loss.Error(), "process exited") {
		t.Errorf("loss from %v: %v; want that the process exited", loss.Source, loss)
	}
	m.Close(context.Background()) // reports are made in the background
	if _, kinds := o.seen(); !slices.Contains(kinds, link.PeerExit) {
		t.Errorf("events are %v; want an exit", kinds)
	}
	if got := w.reports(); len(got) != 1 || !strings.Contains(got[0], "hard=true: process exited") {
		t.Errorf("reports are %q; want one of hard evidence", got)
	}
}

// A lane that alone is cut off breaks: the system gives up on it, whichever side dialled, at twice the time of the detector.
func TestUnheardLane(t *testing.T) {
	clause.Cite(t, "CL-TRN-6")
	w := &world{job: newJob(), t: t, options: link.Options{TCPOnly: true, Timing: link.Timing{Dead: 2 * time.Second}}}
	a, b := w.pair()
	for _, l := range []*link.Link{a, b} {
		if got := l.Unheard(); len(got) != 4 || slices.ContainsFunc(got, func(d time.Duration) bool { return d != 4*time.Second }) {
			t.Errorf("lanes give up after %v; want 4 s for each", got)
		}
	}
}
