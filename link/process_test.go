//go:build unix

package link_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
)

// envPeer makes this program the peer of a test.
const envPeer = "LINK_TEST_PEER"

// peerKey is where the peer of a test publishes its addresses.
const peerKey = "serry/link/worker/1/000000000000000b"

// bePeer is what the peer does: it says its addresses, and holds its links until its input ends. A line of input makes it
// start a child that has its connections, too.
func bePeer() {
	j := newJob()
	n, err := link.Open(context.Background(), member{j, life(1, 11), 7, true}, j, link.Options{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(j.key(peerKey))
	for in := bufio.NewReader(os.Stdin); ; {
		if _, err := in.ReadString('\n'); err != nil {
			break
		}
		fmt.Println(shareSockets())
	}
	n.Close(context.Background())
}

// shareSockets starts a child with all sockets of this process, which it holds until the input of both ends.
func shareSockets() error {
	files := []*os.File{os.Stdin, os.Stderr, os.Stderr}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range open {
		name, err := os.Readlink("/proc/self/fd/" + e.Name())
		if number, wrong := strconv.Atoi(e.Name()); err == nil && wrong == nil && strings.HasPrefix(name, "socket:") {
			files = append(files, os.NewFile(uintptr(number), name))
		}
	}
	_, err = os.StartProcess("/bin/cat", []string{"cat"}, &os.ProcAttr{Files: files})
	return err
}

// A peerProcess is the peer as the test sees it.
type peerProcess struct {
	*os.Process
	in  io.Writer
	out *bufio.Reader
}

// startPeer runs the peer in a process of its own.
func startPeer(t *testing.T, w *world, change ...func(*exec.Cmd)) (*peerProcess, serry.Life) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envPeer+"=1")
	for _, c := range change {
		c(cmd)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGCONT)
		in.Close()
		cmd.Wait()
	})
	p := &peerProcess{in: in, out: bufio.NewReader(out), Process: cmd.Process}
	addresses, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	peer := life(1, 11)
	w.set(serry.TaskInfo{Task: peer.Task, Incarnation: peer.Incarnation, State: serry.Connected})
	w.change(func() { w.keys[peerKey] = strings.TrimSpace(addresses) })
	return p, peer
}

// A process that is killed is found by its closed connections and its port, one that is stopped by its
// silence. The first is hard evidence, the second is not.
func TestRealProcess(t *testing.T) {
	clause.Cite(t, "CL-TRN-5", "CL-TRN-6", "CL-TRN-7")
	for name, row := range map[string]struct {
		signal  syscall.Signal
		redial  time.Duration
		tcpOnly bool
		want    error
		hard    bool
	}{
		"killed":             {syscall.SIGKILL, time.Minute, true, link.ErrPeerFailed, true}, // it refuses at once, however slow this machine is
		"stopped":            {syscall.SIGSTOP, 0, true, link.ErrTransport, false},
		"killed, same host":  {syscall.SIGKILL, time.Minute, false, link.ErrPeerFailed, true},
		"stopped, same host": {syscall.SIGSTOP, 0, false, link.ErrTransport, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{job: newJob(), t: t}
			process, peer := startPeer(t, w)
			if row.tcpOnly {
				w.change(func() { w.keys[peerKey], _, _ = strings.Cut(w.keys[peerKey], ",unix:") })
			}
			m := w.join(life(0, 10), func(o *link.Options) {
				o.TCPOnly = row.tcpOnly
				o.Timing = link.Timing{Ping: 50 * time.Millisecond, Suspect: 200 * time.Millisecond, Dead: time.Second, Redial: row.redial}
			})
			a, err := m.Link(t.Context(), peer)
			if err != nil {
				t.Fatal(err)
			}
			tickets := expectations(t, a)
			if err := process.Signal(row.signal); err != nil {
				t.Fatal(err)
			}
			fails(t, a, tickets, row.want)
			m.Close(t.Context()) // reports are made in the background
			hard := slices.ContainsFunc(w.reports(), func(r string) bool { return strings.Contains(r, "hard=true") })
			if hard != row.hard {
				t.Errorf("reports are %q; want hard evidence: %v", w.reports(), row.hard)
			}
		})
	}
}

// A process that ends in order says goodbye.
func TestRealGoodbye(t *testing.T) {
	clause.Cite(t, "CL-TRN-6")
	w := &world{job: newJob(), t: t}
	_, peer := startPeer(t, w)
	m := w.join(life(0, 10))
	a, err := m.Link(t.Context(), peer)
	if err != nil {
		t.Fatal(err)
	}
	a.Shutdown(errors.New("enough"))
	fails(t, a, nil, link.ErrClosed)
	if b, err := m.Link(t.Context(), peer); err != nil || b == a {
		t.Errorf("a new link = %p, %v; the old one is %p", b, err, a)
	}
}
