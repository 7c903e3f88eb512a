package stream_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/stream"
)

func TestCallsAndReplies(t *testing.T) {
	t.Run("A-SIDE-14", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t)
			d := newDesk(n, "a", 3)
			h, e := host(t, n, stream.Relay, "a")
			stamp := stream.Stamp{Life: serry.Life{Task: serry.TaskID{Job: "worker", Index: 3}, Incarnation: 9}, Service: service}
			sent := stream.Call{Conn: 1, ID: 7, Number: 2, Watermark: 1, Stamp: stamp, Method: echo, Body: []byte("hello")}
			if err := h.Call(sent); err != nil {
				t.Fatal(err)
			}
			h.Flush()
			synctest.Wait()
			if diff := cmp.Diff([]stream.Call{sent}, d.got()); diff != "" {
				t.Errorf("calls at the server (-want +got):\n%s", diff)
			}
			want := []stream.Reply{{Conn: 1, Call: 7, Term: 3, Body: []byte("hello")}}
			if diff := cmp.Diff(want, e.replies); diff != "" {
				t.Errorf("replies (-want +got):\n%s", diff)
			}
			call(t, h, 8, "/test/None", "")
			call(t, h, 9, wait, string(make([]byte, 101)))
			for i, want := range []codes.Code{codes.Unimplemented, codes.ResourceExhausted} {
				if got := e.replies[i+1].Status.Code; got != want {
					t.Errorf("reply %d has code %v; want %v", i+1, got, want)
				}
			}
		})
	})
}

func TestLargeBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		d := newDesk(n, "a", 0)
		h, e := host(t, n, stream.Relay, "a")
		body := make([]byte, 3<<20)
		for i := range body {
			body[i] = byte(i * i >> 7)
		}
		call(t, h, 1, echo, string(body))
		call(t, h, 2, echo, string(make([]byte, 5<<20))) // more than the method allows
		call(t, h, 3, echo, "small")
		if got := e.heard(); len(got) != 3 || got[0] != string(body) || got[1] != "" || got[2] != "small" {
			t.Fatalf("%d replies; want the large one, a refusal, and the small one", len(got))
		}
		if got := e.replies[1].Status.Code; got != codes.ResourceExhausted {
			t.Errorf("code of the refused call is %v", got)
		}
		if len(d.got()) != 2 {
			t.Errorf("the handler got %d calls; want 2", len(d.got()))
		}
	})
}

// TestBothWaysFull sends far more both ways than the connection holds.
func TestBothWaysFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		newDesk(n, "a", 0)
		h, e := host(t, n, stream.Relay, "a")
		for id := range 64 {
			if err := h.Call(stream.Call{Conn: 1, ID: rpcID(id + 1), Method: echo, Body: make([]byte, 1<<20)}); err != nil {
				t.Fatal(err)
			}
		}
		h.Flush()
		time.Sleep(time.Second)
		synctest.Wait()
		if got := len(e.heard()); got != 64 || n.lines() != 1 {
			t.Errorf("%d replies over %d connections; want 64 over one", got, n.lines())
		}
	})
}

func TestFramesTravelTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		d := newDesk(n, "a", 0)
		h, e := host(t, n, stream.Relay, "a")
		d.mu.served, e.flushes = 0, 0
		for id := range 20 {
			if err := h.Call(stream.Call{Conn: 1, ID: rpcID(id + 1), Method: echo, Body: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if len(d.got()) != 0 {
			t.Error("calls left before Flush")
		}
		h.Flush()
		synctest.Wait()
		if d.mu.served != 1 || e.flushes != 1 || len(e.heard()) != 20 {
			t.Errorf("20 calls came in %d waves, %d replies in %d; want one each", d.mu.served, len(e.heard()), e.flushes)
		}
	})
}

func TestResume(t *testing.T) {
	t.Run("A-SIDE-18 T-RLY-13 acknowledgements stop", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t)
			d := newDesk(n, "a", 1)
			h, e := host(t, n, stream.Relay, "a")
			call(t, h, 1, wait, "held")
			deafen(n.last())
			start := time.Now()
			for n.lines() == 1 {
				time.Sleep(10 * time.Millisecond)
			}
			if took := time.Since(start); took > stream.ResumeAfter+stream.BeatEvery {
				t.Errorf("the second connection came after %v; want about %v", took, stream.ResumeAfter)
			}
			synctest.Wait()
			if got := d.got(); len(got) != 1 {
				t.Errorf("the handler got the call %d times; want once", len(got))
			}
			d.answer(1, 1, "late")
			synctest.Wait()
			if got := e.heard(); !slices.Equal(got, []string{"late"}) {
				t.Errorf("replies %q; want one, on the second connection", got)
			}
			if len(e.downs) != 0 || d.Sessions() != 1 {
				t.Errorf("down %v, %d sessions; want none and 1", e.downs, d.Sessions())
			}
		})
	})
	t.Run("A-SIDE-2 connection broken", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t)
			d := newDesk(n, "a", 1)
			h, e := host(t, n, stream.Relay, "a")
			call(t, h, 1, wait, "one")
			call(t, h, 2, wait, "two")
			call(t, h, 3, wait, "three")
			h.Open(2)
			h.Flush()
			synctest.Wait()
			n.last().Close()
			h.Cancel(1, 2) // nobody can be told
			h.Shut(2, stream.Closed)
			d.answer(1, 3, "lost")
			synctest.Wait()
			time.Sleep(stream.BeatEvery)
			synctest.Wait()
			var bodies []string
			for _, c := range d.got() {
				bodies = append(bodies, string(c.Body))
			}
			if want := []string{"one", "two", "three", "three"}; !slices.Equal(bodies, want) {
				t.Errorf("the handler got %q; want %q", bodies, want)
			}
			if !slices.Equal(d.mu.cancels, []rpcID{2}) || len(d.mu.shut) != 1 {
				t.Errorf("cancelled %v, shut %v; want what was given up meanwhile", d.mu.cancels, d.mu.shut)
			}
			d.answer(1, 1, "1")
			d.answer(1, 3, "3")
			synctest.Wait()
			if got := e.heard(); !slices.Equal(got, []string{"1", "3"}) {
				t.Errorf("replies %q; want one to each call", got)
			}
		})
	})
}

func TestTerms(t *testing.T) {
	for _, clause := range []string{"A-SIDE-20", "C-TERM-1", "NEW-48", "T-RLY-14"} {
		t.Run(clause, testTerms)
	}
}

func testTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		old := newDesk(n, "old", 3)
		h, e := host(t, n, stream.Relay, "old", "new")
		call(t, h, 1, wait, "x")
		first := n.last()
		deafen(first) // the old leader is frozen, as far as the host can tell
		next := newDesk(n, "new", 4)
		n.mu.Lock()
		delete(n.mu.at, "old")
		n.mu.Unlock()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !slices.Equal(e.ups, []uint64{3, 4}) {
			t.Fatalf("up with terms %v; want 3, then 4", e.ups)
		}
		undeafen(first)
		old.answer(1, 1, "old")
		synctest.Wait()
		next.answer(1, 1, "new")
		synctest.Wait()
		if got := e.heard(); !slices.Equal(got, []string{"new"}) {
			t.Errorf("replies %q; want that of term 4 alone", got)
		}
		n.mu.Lock()
		n.mu.at["old"] = old
		n.mu.Unlock()
		n.crash("new")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if len(e.ups) != 2 {
			t.Errorf("up with terms %v; want no return to the leader of a former term", e.ups)
		}
	})
}

func TestRedirect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		standby := newDesk(n, "standby", 0)
		standby.serve = func(nc net.Conn) { stream.Redirect(nc, "leader") }
		d := newDesk(n, "leader", 5)
		h, e := host(t, n, stream.Client, "standby")
		call(t, h, 1, echo, "x")
		if len(d.got()) != 1 || len(e.heard()) != 1 {
			t.Errorf("the leader got %d calls; want the one", len(d.got()))
		}
	})
}

// A frozen leader is named by those who stand by until its lease is over. Then the next one is found soon.
func TestRedirectToOneThatIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 4 * time.Second
		began := time.Now()
		n := newNetwork(t)
		newDesk(n, "a", 1)
		for _, address := range []string{"b", "c"} {
			standby := newDesk(n, address, 2)
			standby.serve = func(nc net.Conn) {
				switch {
				case time.Since(began) < lease:
					stream.Redirect(nc, "a")
				case address == "b":
					stream.Redirect(nc, "c")
				default:
					standby.Server.Serve(nc)
				}
			}
		}
		h, e := host(t, n, stream.Relay, "a", "b", "c")
		call(t, h, 1, wait, "x")
		n.freeze("a")
		deafen(n.last())
		time.Sleep(lease + stream.ResumeAfter + time.Second/2)
		synctest.Wait()
		if !slices.Equal(e.ups, []uint64{1, 2}) {
			t.Errorf("up with terms %v; want 1, and 2 a second after it began", e.ups)
		}
	})
}

// While servers elect a leader they refuse hosts at once, round after round. That a leader freezes then must
// not cost a host more than one attempt of the usual length.
func TestSilentAfterManyRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		leader := "" // that the standby names
		standby := newDesk(n, "b", 2)
		standby.serve = func(nc net.Conn) { stream.Redirect(nc, leader) }
		h, e := host(t, n, stream.Relay, "a", "b", "c")
		call(t, h, 1, wait, "x")
		time.Sleep(10 * time.Second)
		newDesk(n, "a", 1)
		n.freeze("a")
		leader = "a"
		time.Sleep(time.Second)
		newDesk(n, "c", 3)
		time.Sleep(2*stream.ResumeAfter + time.Second/2)
		synctest.Wait()
		if !slices.Equal(e.ups, []uint64{3}) {
			t.Errorf("up with terms %v; want 3 soon after it began", e.ups)
		}
	})
}

func TestNotSpoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		other := newDesk(n, "http2", 0)
		other.serve = func(nc net.Conn) {
			nc.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0})
			nc.Close()
		}
		_, e := host(t, n, stream.Client, "http2")
		if len(e.downs) == 0 || !errors.Is(e.downs[0], stream.ErrNotSpoken) {
			t.Errorf("down with %v; want ErrNotSpoken", e.downs)
		}
	})
}

func TestHostLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := stream.NewHost(stream.HostConfig{
			Addresses: []string{"nowhere"}, Kind: stream.Relay, Sink: new(ear), Dial: newNetwork(t).dial,
			MaxCalls: 2, MaxBytes: 10,
		})
		defer h.Close(context.Background())
		h.Open(1)
		body := make([]byte, 8)
		for _, step := range []struct {
			what string
			call stream.Call
			err  error
		}{
			{"the first", stream.Call{Conn: 1, ID: 1, Body: body}, nil},
			{"too many bytes", stream.Call{Conn: 1, ID: 2, Body: body}, serry.ErrLimit},
			{"vital", stream.Call{Conn: 1, ID: 3, Body: body, Vital: true}, nil},
			{"too many calls", stream.Call{Conn: 1, ID: 4}, serry.ErrLimit},
			{"no such connection", stream.Call{Conn: 2, ID: 1}, net.ErrClosed},
		} {
			if err := h.Call(step.call); !errors.Is(err, step.err) {
				t.Errorf("Call(%s) = %v; want %v", step.what, err, step.err)
			}
		}
		h.Cancel(1, 1)
		if err := h.Call(stream.Call{Conn: 1, ID: 5}); err != nil {
			t.Errorf("Call() = %v; want room after a call was cancelled", err)
		}
	})
}

// A server that takes every connection and ends it at once is not asked without a pause, and one that dies
// once is replaced without one.
func TestServerThatHangsUpAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		d := newDesk(n, "a", 1)
		serve := d.serve
		n.mu.Lock()
		d.serve = func(nc net.Conn) {
			timer := time.AfterFunc(time.Millisecond, func() { nc.Close() }) // after the welcome
			defer timer.Stop()
			serve(nc)
		}
		n.mu.Unlock()
		host(t, n, stream.Client, "a")
		time.Sleep(10 * time.Second)
		if got := n.lines(); got > 40 {
			t.Errorf("%d connections in 10s; want about two a second", got)
		}
		n.mu.Lock()
		d.serve = serve
		n.mu.Unlock()
		time.Sleep(3 * time.Second)
		before := n.lines()
		n.last().Close()
		synctest.Wait()
		if got := n.lines(); got != before+1 {
			t.Errorf("%d connections after a steady one broke; want another at once", got-before)
		}
	})
}
