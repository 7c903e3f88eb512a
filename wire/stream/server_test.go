package stream_test

import (
	"errors"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/stream"
)

func life(i int) serry.Life {
	return serry.Life{Task: serry.TaskID{Job: "worker", Index: i}, Incarnation: serry.Incarnation(100 + i)}
}

func TestBeatsTell(t *testing.T) {
	for _, clause := range []string{"A-SIDE-3", "A-SIDE-15", "A-SIDE-16", "C-REQ-3"} {
		t.Run(clause, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t)
				d := newDesk(n, "a", 1)
				h, e := host(t, n, stream.Relay, "a")
				h.Heard(life(1))
				h.Heard(life(1))
				h.Delivered(1, 3)
				h.Delivered(1, 2)
				if err := h.Call(stream.Call{Conn: 1, ID: 1, Method: wait}); err != nil { // without a number: it tells nothing
					t.Fatal(err)
				}
				h.Exited(life(2), "signal 9")
				h.Flush()
				time.Sleep(stream.BeatEvery)
				synctest.Wait()
				if len(d.mu.heard) != 1 || d.mu.heard[0] != life(1) || len(d.mu.follow) != 1 || d.mu.watermarks[1] != 3 {
					t.Errorf("heard %v, follows %v, watermarks %v; want one life, watermark 3", d.mu.heard, d.mu.follow, d.mu.watermarks)
				}
				if len(d.mu.exits) != 1 || d.mu.exits[0] != "worker/2: signal 9" {
					t.Errorf("exits %v", d.mu.exits)
				}
				n.last().Close() // the next leader must hear of the exit, and whom to tell of
				time.Sleep(stream.BeatEvery)
				synctest.Wait()
				if len(d.mu.exits) != 2 || len(d.mu.follow) != 2 || len(d.mu.heard) != 1 {
					t.Errorf("after a resumption: exits %v, follows %v, heard %v; want the exit and the life followed again, and not heard",
						d.mu.exits, d.mu.follow, d.mu.heard)
				}
				d.mu.conns[1].Session().Standing(stream.Standing{Life: life(2), State: serry.Failed, Error: []byte("why")})
				d.mu.conns[1].Flush()
				synctest.Wait()
				if len(e.standings) != 1 || string(e.standings[0].Error) != "why" {
					t.Errorf("standings %v", e.standings)
				}
				n.last().Close()
				time.Sleep(stream.BeatEvery)
				synctest.Wait()
				if len(d.mu.exits) != 2 {
					t.Errorf("exits %v; want no more of them once the service has understood", d.mu.exits)
				}
			})
		})
	}
}

func TestSilence(t *testing.T) {
	t.Run("C-LOST-5 closed connection", func(t *testing.T) {
		testSilence(t, func(n *network) {
			n.mu.Lock()
			delete(n.mu.at, "a")
			n.mu.Unlock()
			n.last().Close()
		})
	})
	t.Run("C-LOST-5 open connection", func(t *testing.T) {
		testSilence(t, func(n *network) {
			n.mu.Lock()
			delete(n.mu.at, "a")
			n.mu.Unlock()
			mute(n.last())
		})
	})
}

func testSilence(t *testing.T, trouble func(n *network)) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		d := newDesk(n, "a", 1)
		host(t, n, stream.Relay, "a")
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(d.mu.silent) != 0 {
			t.Fatal("a host that only beats is called silent")
		}
		trouble(n)
		began := time.Now()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(d.mu.silent) != 1 || d.Sessions() != 0 {
			t.Fatalf("%d hosts are silent; want 1", len(d.mu.silent))
		}
		if took := d.mu.at.Sub(began); took < stream.SilentAfter-stream.BeatEvery || took > 5*time.Second {
			t.Errorf("silence was found after %v; want about %v", took, stream.SilentAfter)
		}
		n.mu.Lock()
		n.mu.at["a"] = d
		n.mu.Unlock()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if d.Sessions() != 1 {
			t.Error("a host that comes back after all finds no session")
		}
	})
}

// TestStall holds up the server itself, while a host is away for less than it may be.
func TestStall(t *testing.T) {
	t.Run("C-LOST-6", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t)
			d := newDesk(n, "a", 1)
			host(t, n, stream.Relay, "a")
			first := n.last()
			other, _ := host(t, n, stream.Relay, "a")
			_ = other
			d.mu.Lock()
			d.onSilent = func() { time.Sleep(6 * time.Second) } // the scanner stands still
			d.mu.Unlock()
			n.mu.Lock()
			delete(n.mu.at, "a")
			n.mu.Unlock()
			second := n.last()
			first.Close()
			time.Sleep(3500 * time.Millisecond)
			second.Close()
			time.Sleep(8 * time.Second) // the scanner slept most of that
			n.mu.Lock()
			n.mu.at["a"] = d
			n.mu.Unlock()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if len(d.mu.silent) != 1 {
				t.Errorf("%d hosts are silent; want the first alone", len(d.mu.silent))
			}
		})
	})
}

func TestGoodbye(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		d := newDesk(n, "a", 1)
		h, _ := host(t, n, stream.Relay, "a")
		call(t, h, 1, wait, "x")
		if err := h.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v", err)
		}
		if how, ok := d.mu.shut[1]; !ok || how != stream.Closed || d.mu.byes != 1 || d.Sessions() != 0 {
			t.Errorf("after Close: shut %v, %d goodbyes, %d sessions", d.mu.shut, d.mu.byes, d.Sessions())
		}
	})
}

// TestPeerThatDoesNotRead shows that what such a peer costs is bounded.
func TestPeerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		d := newDesk(n, "a", 1)
		h, _ := host(t, n, stream.Relay, "a")
		w := n.last()
		deafen(w)
		sent := 0
		for ; sent < 100; sent++ { // 100 MiB of replies
			if err := h.Call(stream.Call{Conn: 1, ID: rpcID(sent + 1), Method: echo, Body: make([]byte, 1<<20)}); err != nil {
				t.Fatal(err)
			}
		}
		h.Flush()
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if got := len(d.got()); got > 10 {
			t.Errorf("the server read %d calls while nobody read its replies; want it to stop", got)
		}
	})
}

// TestStrangers shows what ends a connection at once.
func TestStrangers(t *testing.T) {
	for name, bytes := range map[string]string{
		"another protocol":    "GET / HTTP/1.1\r\n\r\n",
		"no hello":            stream.Preface + "\x01\x00\x00\x00\x09",
		"unknown frame":       stream.Preface + "\x01\x00\x00\x00\x63",
		"empty frame":         stream.Preface + "\x00\x00\x00\x00\x01",
		"hello without words": stream.Preface + "\x01\x00\x00\x00\x01",
		"too long":            stream.Preface + "\xff\xff\xff\x7f\x01",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t)
				d := newDesk(n, "a", 1)
				near, far := net.Pipe()
				served := make(chan error, 1)
				go func() { served <- d.Server.Serve(far) }()
				go near.Write([]byte(bytes))
				if err := <-served; err == nil {
					t.Error("Serve() = nil; want an error")
				}
				near.Close()
			})
		})
	}
}

// TestEpochThatOpensWithAWelcome: an epoch opens between the moment in which a welcome is written and the one
// from which on the connection hears of epochs.
func TestEpochThatOpensWithAWelcome(t *testing.T) {
	t.Run("C-EPOCH-5", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t)
			d := newDesk(n, "a", 1)
			asked := 0
			d.epochs = func() serry.Incarnation {
				asked++
				return service + serry.Incarnation(min(asked-1, 2)) // one more opens while the first is told
			}
			_, e := host(t, n, stream.Relay, "a")
			if want := []serry.Incarnation{service + 1, service + 2}; !slices.Equal(e.epochs, want) {
				t.Errorf("epochs %v; want %v", e.epochs, want)
			}
		})
	})
}

// TestServerThatHasEnded: whoever still reaches a server that has ended hears that another leads. A connection
// that just closes would tell nothing, not even what is spoken there.
func TestServerThatHasEnded(t *testing.T) {
	t.Run("A-HA-9 A-SIDE-14", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t)
			d := newDesk(n, "a", 1)
			d.Shutdown(t.Context())
			_, e := host(t, n, stream.Client, "a")
			if len(e.downs) == 0 || !errors.Is(e.downs[0], stream.ErrStandby) {
				t.Errorf("down %v; want %v", e.downs, stream.ErrStandby)
			}
		})
	})
}
