package jax_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/transfer/jax"
	"github.com/serry-dev/serry/transfer/offer"
)

func TestPull(t *testing.T) {
	clause.Cite(t, "TRT-150", "TRT-136", "TRT-146", "TR-W-14", "TR-W-15", "TR-W-16", "TR-W-22", "TR-PUL-13")
	for _, lanes := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(lanes, " lanes"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				s := n.serve(t, jax.Config{ChunkBytes: 64, Lanes: 3})
				c := n.connect(t, s.Address(), jax.Config{Lanes: lanes})
				data := [][]byte{noise(10_007), noise(64), noise(1), noise(1 << 20)}
				offered := mustOffer(t, s, 7, data...)
				mustPull(t, c, 7, data...)
				<-offered.Done()
				if err, all := offered.Err(), offered.TakeDeliveries(); err != nil || len(all) != 4 {
					t.Errorf("offer ended with %v and deliveries %v; want nil and 4", err, all)
				}
				c.Close()
				synctest.Wait()
				if got := s.Conns(); len(got) > 0 {
					t.Errorf("%d connections after the peer has left; want 0", len(got))
				}
			})
		})
	}
}

func TestPullBeforeOffer(t *testing.T) {
	clause.Cite(t, "TRT-111", "TR-PUL-2", "TR-W-13")
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.serve(t, jax.Config{})
		c := n.connect(t, s.Address(), jax.Config{})
		data := noise(1000)
		time.AfterFunc(time.Minute, func() { mustOffer(t, s, 7, data) })
		mustPull(t, c, 7, data)
	})
}

func TestManyBuffers(t *testing.T) {
	clause.Cite(t, "TRT-121", "TR-SZE-6")
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.serve(t, jax.Config{})
		c := n.connect(t, s.Address(), jax.Config{})
		data := make([][]byte, 1000)
		for i := range data {
			data[i] = noise(i + 1)
		}
		mustOffer(t, s, 1, data...)
		mustPull(t, c, 1, data...)
	})
}

func TestDialBeforeListen(t *testing.T) {
	clause.Cite(t, "TRT-151", "TR-W-25")
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		control := n.listen("127.0.0.1")
		delete(n.listeners, control.address)
		time.AfterFunc(10*time.Second, func() {
			n.mu.Lock()
			n.listeners[control.address] = control
			n.mu.Unlock()
			s, _ := jax.Serve(control, n.listen("127.0.0.1"), jax.Config{})
			t.Cleanup(func() { s.Close() })
		})
		began := time.Now()
		n.connect(t, control.address, jax.Config{})
		if took := time.Since(began); took > 12*time.Second {
			t.Errorf("connected after %v; want at most 2s after the server listens", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := jax.Dial(ctx, "127.0.0.1:9", jax.Config{}.By(n.dial)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Dial(no server) = %v; want %v", err, context.DeadlineExceeded)
		}
	})
}

func TestErrorsOfABuffer(t *testing.T) {
	clause.Cite(t, "TRT-117", "TRT-118", "TRT-119", "TR-PUL-6", "TR-PUL-4", "TR-ERR-6", "TR-H-13")
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.serve(t, jax.Config{})
		c := n.connect(t, s.Address(), jax.Config{})
		data := noise(100)
		offered := mustOffer(t, s, 7, data, data)
		into := make([]byte, 100)
		err := c.Pull(t.Context(), 7, []jax.Want{{Index: 5, Into: make([]byte, 100)}, {Index: 0, Into: into}, {Index: 0, Into: make([]byte, 100)}})
		for _, want := range []string{`buffer 5 of offer 7: the peer answers "Buffer id: 5 out of range 2"`, `"Buffer id: 0 has already been fetched"`} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Pull() = %v; want %s", err, want)
			}
		}
		if !bytes.Equal(into, data) {
			t.Error("the good buffer did not arrive")
		}
		if err := c.Pull(t.Context(), 7, []jax.Want{{Index: 1, Into: into}}); err != nil {
			t.Errorf("Pull(the last buffer) = %v", err)
		}
		<-offered.Done()
	})
}

func TestExpiry(t *testing.T) {
	clause.Cite(t, "TRT-114", "TRT-115", "TRT-120", "TRT-123", "TR-W-31", "TR-PUL-8", "TR-H-2")
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.serve(t, jax.Config{})
		c := n.connect(t, s.Address(), jax.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		if _, err := pull(ctx, c, 7, 10); err == nil || time.Since(began) != 3*time.Second {
			t.Errorf("Pull(no offer) = %v after %v; want an error after 3s", err, time.Since(began))
		}
		if _, err := pull(t.Context(), c, 7, 10); !errors.Is(err, offer.ErrExpired) || time.Since(began) != 5*time.Minute+3*time.Second {
			t.Errorf("Pull(no offer, no deadline) = %v after %v; want %v after 5 min more", err, time.Since(began), offer.ErrExpired)
		}
		o, err := s.Offer(jax.Offer{ID: 7, Buffers: []jax.Buffer{{Bytes: noise(10)}}, Until: time.Now().Add(time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		<-o.Done()
		if !errors.Is(o.Err(), offer.ErrExpired) {
			t.Errorf("offer ended with %v; want %v", o.Err(), offer.ErrExpired)
		}

		p := n.enter(t, s.Address(), 1)
		for _, until := range []int64{1, 1 << 62, time.Now().Add(time.Second).UnixMicro()} {
			began = time.Now()
			p.say(jax.NewPull(9, 0, until, 0))
			if m, ok := p.hear().(jax.Failure); !ok || time.Since(began) > time.Hour {
				t.Errorf("pull until %d: %+v after %v; want a failure within the longest wait", until, m, time.Since(began))
			}
		}
	})
}

func TestWithdraw(t *testing.T) {
	clause.Cite(t, "TRT-120", "TR-PUL-14", "TR-PUL-9", "TR-PUL-1", "TRT-116")
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.serve(t, jax.Config{})
		c := n.connect(t, s.Address(), jax.Config{})
		first := mustOffer(t, s, 7, noise(10))
		if _, err := s.Offer(jax.Offer{ID: 7, Buffers: []jax.Buffer{{Bytes: noise(10)}}}); !errors.Is(err, offer.ErrOffered) {
			t.Errorf("Offer(the same id) = %v; want %v", err, offer.ErrOffered)
		}
		second, err := s.Offer(jax.Offer{ID: 7, Buffers: []jax.Buffer{{Bytes: noise(20)}}, Replace: true, Times: offer.Unlimited})
		if err != nil {
			t.Fatal(err)
		}
		<-first.Done()
		mustPull(t, c, 7, noise(20))
		mustPull(t, c, 7, noise(20))
		if !s.Withdraw(7) || s.Withdraw(7) {
			t.Error("Withdraw(7) twice is not true, then false")
		}
		<-second.Done()
		if !errors.Is(first.Err(), offer.ErrReplaced) || !errors.Is(second.Err(), offer.ErrWithdrawn) {
			t.Errorf("offers ended with %v and %v", first.Err(), second.Err())
		}
		time.AfterFunc(time.Second, s.Reset)
		if _, err := pull(t.Context(), c, 7, 10); err == nil || !strings.Contains(err.Error(), "PullTable::Reset") {
			t.Errorf("Pull() = %v; want a reset", err)
		}
	})
}

func TestZeroBytes(t *testing.T) {
	clause.Cite(t, "TRT-160", "TR-W-30", "TR-H-1")
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.serve(t, jax.Config{})
		offered := mustOffer(t, s, 7, []byte{}, noise(3))
		c := n.connect(t, s.Address(), jax.Config{})
		mustPull(t, c, 7, []byte{}, noise(3))
		p := n.enter(t, s.Address(), 1)
		p.say(jax.NewPull(7, 0, 0, 0))
		if m, ok := p.hear().(jax.Failure); !ok {
			t.Errorf("answer to a pull of zero bytes: %+v; want a failure", m)
		}
		<-offered.Done()
	})
}

func TestSizes(t *testing.T) {
	clause.Cite(t, "TRT-140", "TR-W-20", "TRT-143")
	for name, size := range map[string]int{"memory too small": 90, "memory too large": 110} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				s := n.serve(t, jax.Config{ChunkBytes: 40})
				c := n.connect(t, s.Address(), jax.Config{})
				mustOffer(t, s, 7, noise(100), noise(5))
				if _, err := pull(t.Context(), c, 7, size); !errors.Is(err, jax.ErrSize) {
					t.Errorf("Pull() = %v; want %v", err, jax.ErrSize)
				}
				into := make([]byte, 5) // the connection goes on
				if err := c.Pull(t.Context(), 7, []jax.Want{{Index: 1, Into: into}}); err != nil || !bytes.Equal(into, noise(5)) {
					t.Errorf("Pull(the next) = %v", err)
				}
			})
		})
	}
}

// A shrinkingFile has fewer bytes than it had when it was offered.
type shrinkingFile struct{ *bytes.Reader }

func TestFiles(t *testing.T) {
	clause.Cite(t, "TRT-155", "TR-PUL-7")
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.serve(t, jax.Config{ChunkBytes: 300})
		c := n.connect(t, s.Address(), jax.Config{})
		data := noise(1000)
		whole := jax.Buffer{File: bytes.NewReader(data), Size: 1000}
		short := jax.Buffer{File: shrinkingFile{bytes.NewReader(data[:700])}, Size: 1000}
		offered, err := s.Offer(jax.Offer{ID: 7, Buffers: []jax.Buffer{whole, short}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := pull(t.Context(), c, 7, 1000, 1000)
		if be, ok := errors.AsType[*jax.BufferError](err); !ok || be.Index != 1 || !strings.Contains(err.Error(), "read from byte") {
			t.Errorf("Pull() = %v; want an error of buffer 1", err)
		}
		if !bytes.Equal(got[0], data) {
			t.Error("buffer 0 differs")
		}
		synctest.Wait()
		if all := offered.TakeDeliveries(); len(all) != 2 || errors.Join(all[0].Err, all[1].Err) == nil {
			t.Errorf("TakeDeliveries() = %v; want one that failed", all)
		}
	})
}

// TestCancelled checks that memory is not written to after Pull has returned, while a lane is in the middle of a chunk
// for it, and that the connection goes on.
func TestCancelled(t *testing.T) {
	clause.Cite(t, "TR-W-28", "TRT-145")
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		control, lanes := n.listen("127.0.0.1"), n.listen("127.0.0.1")
		p := &peer{t: t, network: n}
		go func() {
			p.control = must(control.Accept())(t)
			p.hear()
			p.say(jax.NewEstablish([]string{lanes.address}, 40))
			p.lanes = append(p.lanes, must(lanes.Accept())(t))
			io.ReadFull(p.lanes[0], make([]byte, 8))
			p.hear() // the pull
			p.say(jax.NewPacket(0, 0, 0, 100, true))
			p.lanes[0].Write(bytes.Repeat([]byte{1}, 60))
		}()
		c := n.connect(t, control.address, jax.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got, err := pull(ctx, c, 7, 100)
		if err == nil || !bytes.Equal(got[0][:60], bytes.Repeat([]byte{1}, 60)) {
			t.Fatalf("Pull() = %v; want an error after 60 bytes", err)
		}
		clear(got[0])
		go func() {
			p.lanes[0].Write(bytes.Repeat([]byte{1}, 40))
			p.hear() // the second pull
			p.say(jax.NewPacket(1, 0, 0, 3, true))
			p.lanes[0].Write([]byte("abc"))
		}()
		mustPull(t, c, 8, []byte("abc"))
		if !bytes.Equal(got[0], make([]byte, 100)) {
			t.Error("memory was written to after Pull had returned")
		}
		p.close()
	})
}

func TestPeerDies(t *testing.T) {
	clause.Cite(t, "TRT-131", "TRT-133", "TRT-134", "TR-W-23", "TR-W-24", "TR-PUL-11")
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.serve(t, jax.Config{ChunkBytes: 1000})
		offered := mustOffer(t, s, 7, noise(5000), noise(10))
		p := n.enter(t, s.Address(), 2)
		p.say(jax.NewPull(7, 0, 0, 0, 1))
		p.hear()
		p.close() // in the middle of buffer 0
		synctest.Wait()
		if len(s.Conns()) != 0 {
			t.Error("the connection is still there")
		}
		c := n.connect(t, s.Address(), jax.Config{})
		mustPull(t, c, 7, noise(5000), noise(10)) // both can be had again
		<-offered.Done()

		time.AfterFunc(time.Second, func() { s.Close() })
		began := time.Now()
		if _, err := pull(t.Context(), c, 8, 10); err == nil || time.Since(began) != time.Second {
			t.Errorf("Pull() = %v after %v; want an error when the server is closed", err, time.Since(began))
		}
		if _, err := pull(t.Context(), c, 8, 10); err == nil {
			t.Error("Pull() on a broken connection = nil; want its error")
		}
	})
}

// TestSlowPeers checks that one peer does not hold up another: one that connects a lane and says nothing, one that
// never reads, one that never dials its lanes (TR-H-11).
func TestSlowPeers(t *testing.T) {
	clause.Cite(t, "TRT-162", "TRT-163", "TR-W-27", "TR-W-28", "TR-H-11")
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.serve(t, jax.Config{ChunkBytes: 1000})
		data := noise(100_000)
		if _, err := s.Offer(jax.Offer{ID: 7, Buffers: []jax.Buffer{{Bytes: data}}, Times: offer.Unlimited}); err != nil {
			t.Fatal(err)
		}
		deaf := n.enter(t, s.Address(), 2)
		addresses := func() []string {
			p := n.knock(t, s.Address())
			p.say(jax.NewEstablish(nil))
			m := p.hear().(jax.Establish)
			p.say(jax.NewPull(7, 0, 0, 0))
			a, _ := m.Lanes()
			return a
		}()
		must(n.dial(t.Context(), "tcp", addresses[0]))(t) // a lane that says nothing
		n.knock(t, s.Address())                           // a control connection that says nothing
		deaf.say(jax.NewPull(7, 0, 0, 0))
		synctest.Wait()
		c := n.connect(t, s.Address(), jax.Config{})
		began := time.Now()
		mustPull(t, c, 7, data)
		if took := time.Since(began); took != 0 {
			t.Errorf("a pull beside slow peers takes %v; want no time", took)
		}
		deaf.over() // the server has given it up
		if took := time.Since(began); took > time.Minute {
			t.Errorf("a peer that does not read is given up after %v; want 20s", took)
		}
	})
}

func TestHostilePeers(t *testing.T) {
	clause.Cite(t, "TR-W-26", "TR-SEC-4", "TR-W-12")
	for name, words := range map[string][]jax.Message{
		"no handshake":              {jax.NewPull(1, 0, 0, 0)},
		"two handshakes":            {jax.NewEstablish(nil), jax.NewEstablish(nil)},
		"packet without request":    {jax.NewEstablish(nil), jax.NewPacket(0, 0, 0, 10, true)},
		"failure without request":   {jax.NewEstablish(nil), jax.NewFailure(3, 0, 0, true, "no")},
		"more requests than may be": {jax.NewEstablish(nil), jax.NewPull(1, 0, 0, 0, 1, 2, 3, 4)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				s := n.serve(t, jax.Config{Requests: 4})
				p := n.knock(t, s.Address())
				go func() {
					for _, m := range words {
						p.control.Write(jax.Frame(m))
					}
				}()
				p.over()
			})
		})
	}
}

// TestFlood has a peer request what is refused, without reading the answers: it is cut off before they fill memory.
func TestFlood(t *testing.T) {
	clause.Cite(t, "TR-W-26", "TR-SEC-4")
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.serve(t, jax.Config{})
		mustOffer(t, s, 1, noise(1))
		p := n.enter(t, s.Address(), 1)
		began := time.Now()
		bad := jax.Frame(jax.NewPull(1, 0, 0, slices.Repeat([]uint64{7}, 2000)...))
		for {
			if _, err := p.control.Write(bad); err != nil {
				break
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("cut off after %v; want before the time in which it must read is over", took)
		}
	})
}

// TestLyingServers checks what a puller does with a peer that breaks the rules: Pull ends with an error, and nothing is
// written beyond its memory.
func TestLyingServers(t *testing.T) {
	clause.Cite(t, "TRT-144", "TR-W-16", "TR-W-26", "TR-H-15")
	lane := func(p *peer) []string { return []string{p.lanes[0].(wire).local.String()} }
	for name, answer := range map[string]func(*peer){
		"a lane that is not there": func(p *peer) { p.say(jax.NewPacket(0, 9, 0, 10, true)) },
		"beyond the memory":        func(p *peer) { p.say(jax.NewPacket(0, 0, 95, 10, true)) },
		"beyond all numbers":       func(p *peer) { p.say(jax.NewPacket(0, 0, 1<<63, 1<<63, true)) },
		"the same part twice": func(p *peer) {
			p.say(jax.NewPacket(0, 0, 0, 10, false))
			p.say(jax.NewPacket(0, 0, 5, 10, false))
		},
		"a gap": func(p *peer) {
			p.say(jax.NewPacket(0, 0, 0, 10, false))
			p.say(jax.NewPacket(0, 0, 10, 10, true))
		},
		"nothing, as the last":   func(p *peer) { p.say(jax.NewPacket(0, 0, 0, 0, true)) },
		"another handshake":      func(p *peer) { p.say(jax.NewEstablish(lane(p), 1)) },
		"a request of its own":   func(p *peer) { p.say(jax.NewPull(0, 0, 0, 0)); p.hear(); p.control.Close() },
		"bytes without a header": func(p *peer) { p.lanes[0].Close(); p.control.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				control, lanes := n.listen("127.0.0.1"), n.listen("127.0.0.1")
				p := &peer{t: t, network: n}
				go func() {
					p.control = must(control.Accept())(t)
					p.hear()
					p.say(jax.NewEstablish([]string{lanes.address}, 40))
					p.lanes = append(p.lanes, must(lanes.Accept())(t))
					io.ReadFull(p.lanes[0], make([]byte, 8))
					p.hear()
					answer(p)
				}()
				c := n.connect(t, control.address, jax.Config{Patience: time.Minute})
				if _, err := pull(t.Context(), c, 7, 100); err == nil || errors.Is(err, offer.ErrExpired) {
					t.Errorf("Pull() = %v; want the error of the peer", err)
				}
				p.close()
			})
		})
	}
}

func TestBadHandshakes(t *testing.T) {
	clause.Cite(t, "TR-W-10", "TRT-102", "TR-W-3")
	for name, m := range map[string]jax.Message{
		"no lanes":       jax.NewEstablish(nil, 1),
		"too many lanes": jax.NewEstablish(make([]string, 65), 1),
		"no numbers":     jax.NewEstablish([]string{"127.0.0.1:1"}),
		"a name":         jax.NewEstablish([]string{"host:1"}, 1),
		"no port":        jax.NewEstablish([]string{"127.0.0.1"}, 1),
		"half a bracket": jax.NewEstablish([]string{"[::1:5"}, 1),
		"port 0":         jax.NewEstablish([]string{"127.0.0.1:0"}, 1),
		"not a number":   jax.NewEstablish([]string{"127.0.0.1:x"}, 1),
		"another kind":   jax.HalfClose{},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				control := n.listen("127.0.0.1")
				p := &peer{t: t, network: n}
				go func() {
					p.control = must(control.Accept())(t)
					p.hear()
					p.say(m)
				}()
				c := n.connect(t, control.address, jax.Config{})
				if _, err := pull(t.Context(), c, 7, 100); err == nil || errors.Is(err, offer.ErrExpired) {
					t.Errorf("Pull() = %v; want the error of the handshake", err)
				}
			})
		})
	}
}

// TestReversePull checks that a server can pull from the process that dialled it: the protocol is symmetric. The peer is
// one of bytes, because JAX has no such call.
func TestReversePull(t *testing.T) {
	clause.Cite(t, "TR-W-21")
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.serve(t, jax.Config{})
		p := n.enter(t, s.Address(), 1)
		synctest.Wait()
		go func() {
			p.hear()
			p.say(jax.NewPacket(0, 0, 0, 3, true))
			p.lanes[0].Write([]byte("abc"))
		}()
		mustPull(t, s.Conns()[0], 4, []byte("abc"))
	})
}

func TestSpans(t *testing.T) {
	clause.Cite(t, "TR-W-16")
	var s jax.Spans
	for _, step := range []struct {
		from, to uint64
		want     string
	}{
		{10, 20, "[{10 20}]"}, {30, 40, "[{10 20} {30 40}]"}, {20, 30, "[{10 40}]"}, {0, 5, "[{0 5} {10 40}]"},
		{50, 60, "[{0 5} {10 40} {50 60}]"}, {5, 10, "[{0 40} {50 60}]"}, {40, 45, "[{0 45} {50 60}]"}, {49, 50, "[{0 45} {49 60}]"},
	} {
		var err error
		if s, err = s.Add(step.from, step.to); err != nil || fmt.Sprint(s) != step.want {
			t.Fatalf("add(%d, %d) = %v, %v; want %s", step.from, step.to, s, err, step.want)
		}
	}
	for _, bad := range [][2]uint64{{0, 1}, {44, 46}, {48, 50}, {46, 70}, {45, 50}} {
		if got, err := s.Add(bad[0], bad[1]); err == nil {
			t.Fatalf("add(%d, %d) = %v; want an overlap", bad[0], bad[1], got)
		}
	}
}

func TestListen(t *testing.T) {
	clause.Cite(t, "TR-SEC-4", "TR-W-32", "TRT-101", "TR-H-14")
	for _, bad := range []string{"0.0.0.0:0", "[::]:0", "localhost:0", "192.0.2.1:0", "127.0.0.1", ""} {
		if s, err := jax.Listen(bad, jax.Config{}); err == nil {
			s.Close()
			t.Errorf("Listen(%q) = nil; want an error", bad)
		}
	}
	for _, good := range []string{"127.0.0.1:0", "[::1]:0"} {
		s, err := jax.Listen(good, jax.Config{})
		if err != nil {
			if strings.HasPrefix(good, "[") {
				continue // a host without IPv6
			}
			t.Fatalf("Listen(%q) = %v", good, err)
		}
		data := noise(9_000_001)
		mustOffer(t, s, 1, data)
		c, err := jax.Dial(t.Context(), s.Address(), jax.Config{})
		if err != nil {
			t.Fatal(err)
		}
		mustPull(t, c, 1, data)
		c.Close()
		s.Close()
	}
}
