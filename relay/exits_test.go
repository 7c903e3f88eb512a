package relay

import (
	"context"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
)

// patience bounds every wait. It is no assertion: only a test that fails anyway waits so long.
const patience = time.Minute

// watched starts a relay outside of a bubble, with a task that has registered, and a process that the
// relay watches as that of the task.
func watched(t *testing.T, script string, leave bool) (*upstream, *Relay, *exec.Cmd) {
	t.Helper()
	up := newUpstream(t)
	r, err := New(Config{Upstream: []string{"a:1"}, Dial: up.dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		r.Shutdown(ctx)
		up.close()
	})
	c := &direct{replies: make(chan struct{}, 8)}
	h := r.Handler()
	h.Open(c)
	who := coord.Call{Task: serry.TaskID{Job: "worker", Index: 1}, Incarnation: 11}
	calls := []coord.Event{coord.RegisterTask{Call: who}}
	if leave {
		calls = append(calls, coord.ShutdownTask{Call: who})
	}
	for i, ev := range calls {
		path, body, err := wire.TF.Request(ev)
		if err != nil {
			t.Fatal(err)
		}
		h.Serve(c, rpc.CallID(i+1), path, body)
		h.Served(c)
		<-c.replies
	}
	cmd := exec.Command("/bin/sh", "-c", script)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := r.Watch(who.Task, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	return up, r, cmd
}

// TestProcessExits: the end of a process is reported with its code or signal, a good one as such.
func TestProcessExits(t *testing.T) {
	clause.Cite(t, "T-RLY-7", "A-SIDE-16")
	for name, c := range map[string]struct {
		script string
		signal os.Signal
		leave  bool
		want   string
	}{
		"killed":               {script: "exec sleep 1000", signal: unix.SIGKILL, want: "worker/1 signal 9"},
		"failed":               {script: "exit 3", want: "worker/1 code 3"},
		"ended well":           {script: "exit 0", want: "worker/1 "},
		"ended after it left":  {script: "exit 0", leave: true, want: "worker/1 "},
		"killed after it left": {script: "exec sleep 1000", signal: unix.SIGKILL, leave: true, want: "worker/1 signal 9"},
	} {
		t.Run(name, func(t *testing.T) {
			up, _, cmd := watched(t, c.script, c.leave)
			if c.signal != nil {
				if err := cmd.Process.Signal(c.signal); err != nil {
					t.Fatal(err)
				}
			}
			if got := up.nextExit(t); got != c.want {
				t.Errorf("the service heard %q; want %q", got, c.want)
			}
			_ = cmd.Wait() // it has ended, well or not
		})
	}
}

// TestReapedProcess: how a process ended that somebody else has waited for is told where the kernel
// remembers it.
func TestReapedProcess(t *testing.T) {
	clause.Cite(t, "A-SIDE-16")
	cmd := exec.Command("/bin/sh", "-c", "exit 5")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	_ = cmd.Wait()
	if got := exitCause(fd, cmd.Process.Pid); got != "code 5" && got != unknownCause {
		t.Errorf("exitCause() = %q; want code 5, or that it is not known", got)
	}
}

// TestWatchNobody: a process that is not there cannot be watched, and nothing is watched after the end.
func TestWatchNobody(t *testing.T) {
	_, r, cmd := watched(t, "exit 0", false)
	_ = cmd.Wait()
	if err := r.Watch(serry.TaskID{Job: "worker"}, cmd.Process.Pid); err == nil {
		t.Error("Watch() of a process that has ended = nil; want an error")
	}
	r.Shutdown(t.Context())
	if err := r.Watch(serry.TaskID{Job: "worker"}, os.Getpid()); err == nil {
		t.Error("Watch() after Shutdown = nil; want an error")
	}
	if err := r.Serve(newListener()); err == nil {
		t.Error("Serve() after Shutdown = nil; want an error")
	}
}

// nextExit waits for the report of an exit.
func (u *upstream) nextExit(t *testing.T) string {
	t.Helper()
	select {
	case got := <-u.exited:
		return got
	case <-time.After(patience):
		t.Fatal("the service heard of no exit")
		return ""
	}
}

// A direct connection hands calls to a relay without a transport.
type direct struct {
	mu      sync.Mutex
	ends    map[uint64]end
	replies chan struct{}
}

func (d *direct) Reply(call rpc.CallID, body []byte, st rpc.Status) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ends == nil {
		d.ends = make(map[uint64]end)
	}
	d.ends[uint64(call)] = end{body: body, st: st}
	d.replies <- struct{}{}
}

func (d *direct) Flush()               {}
func (d *direct) RemoteAddr() net.Addr { return place{} }
