package front

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire/conn"
	"github.com/serry-dev/serry/wire/internal/h2"
	"github.com/serry-dev/serry/wire/rpc"
)

// A counter is a handler that lets every call wait and remembers next to nothing of it.
type counter struct {
	mu    sync.Mutex
	calls []waiter
	more  *sync.Cond
}

func newCounter() *counter {
	h := new(counter)
	h.more = sync.NewCond(&h.mu)
	return h
}

func (h *counter) Open(rpc.Conn)               {}
func (h *counter) Close(rpc.Conn, error)       {}
func (h *counter) Cancel(rpc.Conn, rpc.CallID) {}
func (h *counter) Served(rpc.Conn)             {}
func (h *counter) Serve(c rpc.Conn, call rpc.CallID, _ string, _ []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, waiter{c, call})
	h.more.Signal()
}

// heap is the memory in use and the number of goroutines.
func heap() (bytes int64, goroutines int) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse), runtime.NumGoroutine()
}

// TestWaitingCallsAreCheap holds 100,000 calls on four connections.
func TestWaitingCallsAreCheap(t *testing.T) {
	clause.Cite(t, "FR-1", "F-10", "F-13")
	const calls, conns = 100_000, 4
	h := newCounter()
	h.calls = make([]waiter, 0, calls)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, l, Config{Handler: h})
	var peers []*peer
	for range conns {
		p := connect(t, dialTCP(l.Addr().String()), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		p.fr.WriteWindowUpdate(0, 1<<30)
		p.call(1, methodWait, nil)
		p.flush()
		peers = append(peers, p)
	}
	h.untilCalls(conns)
	before, goroutines := heap()
	for i := conns; i < calls; i++ {
		p := peers[i%conns]
		p.call(uint32(2*(i/conns)+1), methodWait, nil)
		if i%1000 >= 1000-conns {
			p.flush()
		}
	}
	h.untilCalls(calls)
	for _, p := range peers {
		p.out = bytes.Buffer{}
	}
	after, now := heap()
	t.Logf("%d waiting calls: %.1f MiB, %d goroutines more", calls, float64(after-before)/(1<<20), now-goroutines)
	if after-before > 20<<20 || now > goroutines {
		t.Errorf("%d waiting calls took %d bytes and %d goroutines; want at most 20 MiB and none", calls, after-before, now-goroutines)
	}
	if got := s.Stats().Waiting; got != calls {
		t.Errorf("Stats().Waiting = %d; want %d", got, calls)
	}

	flushes := s.Stats().Flushes
	var readers sync.WaitGroup
	for _, p := range peers {
		readers.Go(func() {
			if got := p.answers(calls / conns); got[0].end != nil {
				t.Errorf("replies: %v", got[0])
			}
		})
	}
	for _, w := range h.calls {
		w.conn.Reply(w.call, nil, rpc.Status{})
	}
	for _, w := range h.calls[:conns] {
		w.conn.Flush()
	}
	readers.Wait()
	if n := s.Stats().Flushes - flushes; n != conns {
		t.Errorf("%d writes released %d calls; want one a connection", n, calls)
	}
}

func (h *counter) untilCalls(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.calls) < n {
		h.more.Wait()
	}
}

// TestOneDoesNotRead has one client of many stop reading: the others go on as before, it is lost
// after a while.
func TestOneDoesNotRead(t *testing.T) {
	clause.Cite(t, "FR-2", "F-13", "F-35")
	synctest.Test(t, func(t *testing.T) {
		h := newTestHandler(t)
		l := bufconn.Listen(4 << 10)
		s := start(t, l, Config{Handler: h})
		stuck := connect(t, l.Dial, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		stuck.call(1, methodEcho, make([]byte, 50<<10))
		stuck.flush()
		const others = 32
		var peers []*peer
		for range others {
			peers = append(peers, connect(t, l.Dial))
		}
		begin := time.Now()
		stream := uint32(1)
		for ; time.Since(begin) < 15*time.Second; stream += 2 {
			for _, p := range peers {
				p.call(stream, methodWait, nil)
				p.flush()
			}
			h.untilWaiting(others)
			at := time.Now()
			h.releaseAll("go")
			for _, p := range peers {
				if got := p.answer(stream); got.body != "go" {
					t.Fatalf("round %d: %v", stream, got)
				}
			}
			if d := time.Since(at); d != 0 {
				t.Errorf("round %d took %v; want no waiting", stream, d)
			}
			time.Sleep(time.Second)
		}
		if err := h.untilClosed(); !errors.Is(err, rpc.ErrNotReading) || !strings.Contains(err.Error(), "does not read") {
			t.Errorf("Close got %v; want ErrNotReading", err)
		}
		if d := time.Since(begin); d < stallTime || d > stallTime+2*watchEvery {
			t.Errorf("lost after %v; want about %v", d, stallTime)
		}
		synctest.Wait()
		if st := s.Stats(); st.Conns != others || st.Refused["does not read"] != 1 {
			t.Errorf("Stats() = %+v; want %d connections and one refused", st, others)
		}
	})
}

// TestNotReading ends connections that leave replies unread: by shut windows, by a full socket, and
// sooner with much unread. One that reads slowly stays.
func TestNotReading(t *testing.T) {
	clause.Cite(t, "F-35", "F-15")
	number := func(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
	for _, tt := range []struct {
		name   string
		window uint32
		size   int
		drip   bool
		after  time.Duration // 0: stays
	}{
		{"shut window", 0, 1, false, stallTime},
		{"full socket", 1 << 30, 1 << 20, false, stallTime},
		{"64 MiB behind a shut window", 0, maxPile, false, pileTime},
		{"slow", 0, 1000, true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newTestHandler(t)
				l := bufconn.Listen(16 << 10)
				start(t, l, Config{Handler: h})
				p := connect(t, l.Dial, http2.Setting{ID: http2.SettingInitialWindowSize, Val: tt.window})
				p.fr.WriteWindowUpdate(0, 1<<30)
				p.call(1, methodSize, number(tt.size))
				p.flush()
				begin := time.Now()
				if tt.drip {
					for range 60 {
						time.Sleep(stallTime / 2)
						p.fr.WriteWindowUpdate(1, 1)
						p.flush()
					}
					p.fr.WriteWindowUpdate(1, 1<<20)
					p.flush()
					if got := p.answer(1); len(got.body) != tt.size {
						t.Errorf("slow reader: %v", got.end)
					}
					return
				}
				if err := h.untilClosed(); !errors.Is(err, rpc.ErrNotReading) {
					t.Errorf("Close got %v; want ErrNotReading", err)
				}
				if d := time.Since(begin); d < tt.after || d > tt.after+2*watchEvery {
					t.Errorf("lost after %v; want about %v", d, tt.after)
				}
			})
		})
	}
}

// TestHoldBack stops reading from a peer that leaves its output unread, and goes on when it reads.
func TestHoldBack(t *testing.T) {
	clause.Cite(t, "F-15")
	synctest.Test(t, func(t *testing.T) {
		h := newTestHandler(t)
		l := bufconn.Listen(16 << 10)
		start(t, l, Config{Handler: h})
		p := connect(t, l.Dial)
		p.fr.WriteWindowUpdate(0, 1<<30)
		const calls = 2000
		body := append([]byte{5}, bytes.Repeat([]byte("x"), 4000)...)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for i := range calls {
				p.call(uint32(2*i+1), methodFail, body)
				if _, err := p.out.WriteTo(p.nc); err != nil {
					t.Errorf("call %d: %v", i, err)
					return
				}
			}
		}()
		synctest.Wait()
		h.mu.Lock()
		served := h.serving[methodFail]
		h.mu.Unlock()
		if most := conn.PauseOutput/4000 + 50; served > most {
			t.Errorf("served %d calls of a peer that does not read; want %d at most", served, most)
		}
		if got := p.answers(calls); got[0].end != nil || len(got) != calls {
			t.Errorf("%d replies, %v; want all", len(got), got[0].end)
		}
		<-sent
	})
}

// TestLargeReplyDoesNotStarve reads a large reply through small windows, with other calls between.
func TestLargeReplyDoesNotStarve(t *testing.T) {
	clause.Cite(t, "FR-5", "F-33")
	synctest.Test(t, func(t *testing.T) {
		_, _, l := startPipe(t)
		p := connect(t, l.Dial) // windows of 64 KiB
		const size = 64 << 20
		p.call(1, methodSize, binary.BigEndian.AppendUint64(nil, size))
		p.flush()
		got, between, stream, asked := 0, 0, uint32(3), false
		for got < size+h2.PrefixBytes {
			f, err := p.read()
			if err != nil {
				t.Fatal(err)
			}
			switch f := f.(type) {
			case *http2.DataFrame:
				n := len(f.Data())
				if n > h2.MinFrame {
					t.Fatalf("DATA of %d bytes; want %d at most", n, h2.MinFrame)
				}
				p.fr.WriteWindowUpdate(0, uint32(n))
				if f.StreamID != 1 {
					break
				}
				p.fr.WriteWindowUpdate(1, uint32(n))
				got += n
				if between += n; between > 2*h2.InitialWindow+h2.MinFrame {
					t.Fatalf("%d bytes of the large reply before a small one; want about a window", between)
				}
				if !asked {
					asked, between = true, 0
					p.call(stream, methodEcho, []byte("beat"))
				}
			case *http2.MetaHeadersFrame:
				if f.StreamID == stream && f.StreamEnded() {
					asked, stream = false, stream+2
				}
			}
			p.flush()
		}
		if stream < 100 {
			t.Errorf("%d small replies meanwhile; want many", stream/2)
		}
	})
}

// TestMemoryFollowsBytes announces 2 GiB and sends ten bytes, then sends a message above the budget
// of a connection.
func TestMemoryFollowsBytes(t *testing.T) {
	clause.Cite(t, "FR-6", "F-26", "F-32")
	_, s, addr := startTCP(t)
	p := connect(t, dialTCP(addr))
	p.call(1, methodEcho, nil)
	p.flush()
	p.answer(1)
	before, _ := heap()
	const announced = 2<<30 - 1
	p.headers(3, methodCount)
	p.fr.WriteData(3, false, binary.BigEndian.AppendUint32([]byte{0}, announced))
	p.fr.WriteData(3, false, make([]byte, 10))
	p.call(5, methodEcho, nil)
	p.flush()
	p.answer(5)
	if after, _ := heap(); after-before > 1<<20 {
		t.Errorf("an announcement took %d bytes", after-before)
	}
	p.fr.WriteRSTStream(3, http2.ErrCodeCancel)
	p.call(7, methodEcho, nil)
	p.flush()
	p.answer(7)

	const size = maxConnBytes + 44<<20
	cc := dial(t, addr)
	got, err := call1(t.Context(), cc, methodCount, make([]byte, size))
	if err != nil || binary.BigEndian.Uint64(got) != size {
		t.Errorf("Count(%d bytes) = %v, %v", size, got, err)
	}
	if used := s.budget.Used(); used != 0 {
		t.Errorf("%d bytes of unfinished messages left; want 0", used)
	}
}

// TestBudget sends many large messages at once to a server with little memory for them: they come
// to their ends one after the other.
func TestBudget(t *testing.T) {
	clause.Cite(t, "F-32")
	h := newTestHandler(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, l, Config{Handler: h, MaxUnfinishedBytes: 16 << 20})
	var calls sync.WaitGroup
	for range 4 {
		cc := dial(t, l.Addr().String())
		for range 2 {
			calls.Go(func() {
				const size = 6 << 20
				got, err := call1(t.Context(), cc, methodCount, make([]byte, size))
				if err != nil || binary.BigEndian.Uint64(got) != size {
					t.Errorf("Count(%d bytes) = %v, %v", size, got, err)
				}
			})
		}
	}
	calls.Wait()
	if used := s.budget.Used(); used != 0 {
		t.Errorf("%d bytes left with the budget; want none", used)
	}
}

// TestBudgetIsHard opens ever more messages that do not end: the newest are refused.
func TestBudgetIsHard(t *testing.T) {
	clause.Cite(t, "F-32")
	h := newTestHandler(t)
	l := bufconn.Listen(1 << 20)
	s := start(t, l, Config{Handler: h, MaxUnfinishedBytes: 1 << 20})
	p := connect(t, l.Dial)
	go func() {
		for i := range 40 {
			p.headers(uint32(2*i+1), methodCount)
			p.fr.WriteData(uint32(2*i+1), false, message(0, make([]byte, 200<<10))[:100<<10])
		}
		p.out.WriteTo(p.nc)
	}()
	got := p.answers(1)
	for stream, a := range got {
		if a.code != codes.ResourceExhausted {
			t.Errorf("stream %d: %v; want ResourceExhausted", stream, a)
		}
	}
	if used := s.budget.Used(); used > 2<<20 {
		t.Errorf("%d bytes held; want %d at most", used, 2<<20)
	}
}

// TestStrangers opens messages that do not end, as a peer that the handler does not know and as one that it knows:
// strangers share a small budget, and do not wait for each other with messages that are quickly expanded.
func TestStrangers(t *testing.T) {
	clause.Cite(t, "SEC-102")
	h := newTestHandler(t)
	l := bufconn.Listen(1 << 20)
	s := start(t, l, Config{Handler: h, MaxUnfinishedBytes: 64 << 20, StrangerBytes: 1 << 20})
	begin := func(p *peer) {
		for i := range 40 {
			p.headers(uint32(2*i+1), methodCount)
			p.fr.WriteData(uint32(2*i+1), false, message(0, make([]byte, 200<<10))[:100<<10])
		}
		p.out.WriteTo(p.nc)
	}
	stranger := connect(t, l.Dial)
	go begin(stranger)
	for stream, a := range stranger.answers(1) {
		if a.code != codes.ResourceExhausted {
			t.Errorf("stream %d of a stranger: %v; want ResourceExhausted", stream, a)
		}
	}
	if used := s.budget.Used(); used > 2<<20 {
		t.Errorf("%d bytes held for strangers; want %d at most", used, 2<<20)
	}
	late, small := connect(t, l.Dial), message(0, make([]byte, 100))
	late.headers(1, methodCount)
	late.fr.WriteData(1, false, small[:50])
	late.fr.WriteData(1, true, small[50:])
	late.flush()
	if got := late.answer(1); got.http != "200" || got.code != codes.OK || got.end != nil {
		t.Errorf("a small message in two pieces: %v; want OK", got)
	}
	known := connect(t, l.Dial)
	known.call(1001, methodEcho, nil)
	known.flush()
	known.answer(1001)
	s.mu.Lock()
	for _, c := range s.mu.conns {
		c.Known()
	}
	s.mu.Unlock()
	known.headers(1003, methodCount)
	known.fr.WriteData(1003, true, message(0, make([]byte, 5<<20))[:900<<10])
	known.flush()
	if got := known.answer(1003); got.code != codes.Internal { // its message is not complete
		t.Errorf("a message of a known peer: %v; want that all of its bytes were taken", got)
	}
	if s.strangers.Used() > 2<<20 {
		t.Errorf("%d bytes in the budget of strangers; want what they sent before", s.strangers.Used())
	}
}

// TestStrangersAreReadSlowly has a stranger send as fast as it can: its requests are read at twice StrangerBytes a
// second. Meanwhile a newcomer and a peer that the handler knows are not kept waiting.
func TestStrangersAreReadSlowly(t *testing.T) {
	clause.Cite(t, "SEC-102")
	synctest.Test(t, func(t *testing.T) {
		l := bufconn.Listen(64 << 10)
		s := start(t, l, Config{Handler: newTestHandler(t), StrangerBytes: 1 << 20})
		const calls = 20
		flood := func(p *peer) (took time.Duration) {
			begun := time.Now()
			for i := range uint32(calls) {
				p.call(2*i+1, methodCount, make([]byte, 1<<20-h2.PrefixBytes))
			}
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				p.out.WriteTo(p.nc)
			}()
			if got := p.answers(calls); got[0].end != nil {
				t.Error(got[0].end)
			}
			<-sent
			return time.Since(begun)
		}
		known := connect(t, l.Dial)
		synctest.Wait()
		s.mu.Lock()
		for _, c := range s.mu.conns {
			c.Known()
		}
		s.mu.Unlock()

		stranger, slow := connect(t, l.Dial), make(chan time.Duration)
		go func() { slow <- flood(stranger) }()
		time.Sleep(time.Second)
		begun, late := time.Now(), connect(t, l.Dial)
		late.call(1, methodEcho, []byte("here"))
		late.flush()
		if got := late.answer(1); got.body != "here" || time.Since(begun) > 0 {
			t.Errorf("a newcomer: %v after %v; want an answer at once", got, time.Since(begun))
		}
		if took := flood(known); took > 0 {
			t.Errorf("a known peer was kept waiting for %v; want no wait", took)
		}
		if took, least := <-slow, 7*time.Second; took < least || took > 2*least {
			t.Errorf("%d MiB of a stranger took %v; want about 8 s, at 2 MiB a second after the first 4 MiB", calls, took)
		}

		last := connect(t, l.Dial)
		last.call(1, methodCount, make([]byte, 8<<20))
		go last.out.WriteTo(last.nc)
		synctest.Wait() // the server pauses
		begun = time.Now()
		if s.Close(); time.Since(begun) > 0 {
			t.Errorf("closed after %v; want at once", time.Since(begun))
		}
	})
}

// TestTurns lets a stranger expand a small message while another one has its turn with a large one.
func TestTurns(t *testing.T) {
	clause.Cite(t, "SEC-102")
	h := newTestHandler(t)
	l := bufconn.Listen(1 << 20)
	s := start(t, l, Config{Handler: h, StrangerBytes: 1 << 20, Methods: rpc.Methods{methodCount: {MaxRequestBytes: 1 << 30}}})
	send := func(p *peer, stream uint32, size int) {
		p.headers(stream, methodCount, "grpc-encoding", "gzip")
		p.fr.WriteData(stream, true, message(1, zip(make([]byte, size))))
		p.flush()
	}
	s.turn.Lock()
	large, small := connect(t, l.Dial), connect(t, l.Dial)
	send(large, 1, quickBytes+1)
	send(small, 1, 1<<10)
	if got := small.answer(1); got.http != "200" || got.code != codes.OK || got.end != nil {
		t.Errorf("a small message: %v; want OK", got)
	}
	s.turn.Unlock()
	if got := large.answer(1); got.http != "200" || got.code != codes.OK || got.end != nil {
		t.Errorf("a large message in its turn: %v; want OK", got)
	}
}

// TestFloods ends connections that send what no client in order does, and only those.
func TestFloods(t *testing.T) {
	clause.Cite(t, "FR-9", "F-24", "F-36", "F-37", "F-39")
	for _, tt := range []struct {
		name  string
		write func(p *peer, i int)
		want  string
	}{
		{"rapid reset", func(p *peer, i int) {
			p.call(uint32(2*i+1), methodWait, nil)
			p.fr.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel)
		}, "too many streams reset"},
		{"streams with errors", func(p *peer, i int) {
			p.headers(uint32(2*i+1), methodEcho)
			p.fr.WriteWindowUpdate(uint32(2*i+1), 0)
		}, "too many streams reset"},
		{"DATA on finished streams", func(p *peer, i int) {
			p.call(uint32(2*i+1), methodEcho, nil)
			p.fr.WriteData(uint32(2*i+1), true, nil)
		}, "too many streams reset"},
		{"CONTINUATION", func(p *peer, i int) {
			if i == 0 {
				p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.block(methodEcho)})
			}
			p.fr.WriteContinuation(1, false, nil)
		}, "header block too long"},
		{"long header block", func(p *peer, i int) {
			if i == 0 {
				p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, 15<<10)})
			}
			p.fr.WriteContinuation(1, false, make([]byte, 15<<10))
		}, "header block too long"},
		{"PING", func(p *peer, i int) { p.fr.WritePing(false, [8]byte{}) }, "too many PINGs"},
		{"SETTINGS", func(p *peer, i int) { p.fr.WriteSettings() }, "too many SETTINGS"},
		{"SETTINGS acknowledgements", func(p *peer, i int) { p.fr.WriteSettingsAck() }, "too many SETTINGS"},
		{"empty DATA", func(p *peer, i int) {
			if i == 0 {
				p.headers(1, methodEcho)
			}
			p.fr.WriteData(1, false, nil)
		}, "too many tiny DATA frames"},
		{"PRIORITY", func(p *peer, i int) { p.fr.WritePriority(1, http2.PriorityParam{StreamDep: 3}) }, "too many frames without a request"},
		{"WINDOW_UPDATE", func(p *peer, i int) { p.fr.WriteWindowUpdate(0, 1) }, "too many frames without a request"},
		{"unknown frames", func(p *peer, i int) { p.fr.WriteRawFrame(0x99, 0, 0, nil) }, "too many frames without a request"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, s, l := startPipe(t)
				good, bad := connect(t, l.Dial), connect(t, l.Dial)
				go func() {
					for i := range 100_000 {
						tt.write(bad, i)
						if bad.out.Len() > 60<<10 || i < 2 {
							if _, err := bad.out.WriteTo(bad.nc); err != nil {
								return
							}
						}
					}
				}()
				err := bad.closed()
				ga, _ := errors.AsType[goAway](err)
				if ga.code != http2.ErrCodeEnhanceYourCalm || ga.reason != tt.want {
					t.Errorf("ended with %v; want ENHANCE_YOUR_CALM: %s", err, tt.want)
				}
				ce, ok := errors.AsType[*ConnError](h.untilClosed())
				if !ok || ce.Reason != tt.want {
					t.Errorf("Close got %v; want %s", ce, tt.want)
				}
				good.call(1, methodEcho, []byte("well"))
				good.flush()
				if got := good.answer(1); got.body != "well" {
					t.Errorf("another client: %v", got)
				}
				if st := s.Stats(); st.Errors["ENHANCE_YOUR_CALM"] != 1 {
					t.Errorf("Stats() = %+v", st)
				}
			})
		})
	}
}

// TestPingsAfterData measures bandwidth as busy clients do, with a PING after every reply.
func TestPingsAfterData(t *testing.T) {
	clause.Cite(t, "F-36", "A-CH-7")
	synctest.Test(t, func(t *testing.T) {
		_, _, l := startPipe(t)
		p := connect(t, l.Dial)
		p.fr.WriteWindowUpdate(0, 1<<30)
		const calls = 5 * 1000
		for i := range calls {
			stream := uint32(2*i + 1)
			p.call(stream, methodEcho, nil)
			p.fr.WritePing(false, [8]byte{})
			p.flush()
			if got := p.answer(stream); got.end != nil {
				t.Fatalf("call %d: %v", i, got)
			}
		}
	})
}

// TestUnreadAcknowledgements has a peer ask and never read the answers, slowly enough for the rates.
func TestUnreadAcknowledgements(t *testing.T) {
	clause.Cite(t, "F-37")
	synctest.Test(t, func(t *testing.T) {
		h := newTestHandler(t)
		l := bufconn.Listen(1 << 10)
		start(t, l, Config{Handler: h})
		p := connect(t, l.Dial)
		for range 15 {
			for range 800 {
				p.fr.WritePing(false, [8]byte{})
			}
			if _, err := p.out.WriteTo(p.nc); err != nil {
				break
			}
			time.Sleep(time.Second)
		}
		if err := h.untilClosed(); !strings.Contains(err.Error(), "acknowledgements unread") {
			t.Errorf("Close got %v; want acknowledgements unread", err)
		}
	})
}

// TestAbandonedCalls leaves 100,000 calls waiting, without a word or by withdrawing them later.
func TestAbandonedCalls(t *testing.T) {
	clause.Cite(t, "FR-10", "F-36", "C-LIM-4")
	synctest.Test(t, func(t *testing.T) {
		h, s, l := startPipe(t)
		p := connect(t, l.Dial)
		const calls = 100_000
		go io.Copy(io.Discard, p.nc)
		for i := range calls {
			p.call(uint32(2*i+1), methodWait, nil)
			if p.out.Len() > 32<<10 || i == calls-1 {
				p.flush()
			}
		}
		h.untilWaiting(calls)
		time.Sleep(3 * time.Second)
		p.call(2*calls+1, methodEcho, nil)
		p.flush()
		for i := range calls {
			p.fr.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel)
			if p.out.Len() > 32<<10 || i == calls-1 {
				p.flush()
			}
		}
		h.until(func() bool { return h.canceled == calls && h.serving[methodEcho] == 1 })
		if st := s.Stats(); st.Conns != 1 || st.Waiting != 0 {
			t.Errorf("Stats() = %+v; want the connection open, nothing waiting", st)
		}
	})
}

// TestConnectionLimits fills the server with connections.
func TestConnectionLimits(t *testing.T) {
	clause.Cite(t, "F-37")
	synctest.Test(t, func(t *testing.T) {
		h := newTestHandler(t)
		l := bufconn.Listen(1 << 10)
		s := start(t, l, Config{Handler: h, MaxConns: 2})
		p1, p2 := connect(t, l.Dial), connect(t, l.Dial)
		h.until(func() bool { return len(h.open) == 2 })
		third := make(chan *peer)
		go func() { third <- connect(t, l.Dial) }()
		time.Sleep(time.Minute)
		if st := s.Stats(); st.Conns != 2 || st.Refused["connections"] == 0 {
			t.Errorf("Stats() = %+v; want two connections", st)
		}
		p2.call(1, methodEcho, []byte("served"))
		p2.flush()
		if got := p2.answer(1); got.body != "served" {
			t.Errorf("second connection: %v", got)
		}
		p1.nc.Close()
		p3 := <-third
		p3.call(1, methodEcho, []byte("in its place"))
		p3.flush()
		if got := p3.answer(1); got.body != "in its place" {
			t.Errorf("third connection: %v", got)
		}
	})
}

// TestHandshakeLimit opens connections that say nothing: they hold up no other, and all of them go together.
func TestHandshakeLimit(t *testing.T) {
	clause.Cite(t, "F-37", "SEC-100")
	synctest.Test(t, func(t *testing.T) {
		h := newTestHandler(t)
		l := bufconn.Listen(1 << 10)
		s := start(t, l, Config{Handler: h, MaxConns: 5000})
		done := connect(t, l.Dial)
		h.until(func() bool { return len(h.open) == 1 })
		begin := time.Now()
		var silent []*peer
		for range 3000 {
			silent = append(silent, bare(t, l.Dial))
		}
		newcomer := connect(t, l.Dial)
		newcomer.call(1, methodEcho, []byte("x"))
		newcomer.flush()
		if got := newcomer.answer(1); got.body != "x" || time.Since(begin) != 0 {
			t.Errorf("a newcomer behind 3,000 silent connections: %v after %v; want an answer at once", got, time.Since(begin))
		}
		for _, p := range silent {
			p.closed()
		}
		if took := time.Since(begin); took > 1500*time.Millisecond {
			t.Errorf("silent connections were closed after %v; want at most 1.5 s", took)
		}
		done.call(1, methodEcho, []byte("x"))
		done.flush()
		if got := done.answer(1); got.body != "x" {
			t.Errorf("a connection with its handshake done: %v", got)
		}
		if st := s.Stats(); st.Refused["handshakes"] != 3000 {
			t.Errorf("Stats() = %+v; want 3,000 handshakes refused", st)
		}
	})
}

// TestErrorDetails sends each known payload, and the most that fits, to a Go client.
func TestErrorDetails(t *testing.T) {
	clause.Cite(t, "FR-17", "C-WIRE-7", "C-WIRE-16")
	h, _, addr := startTCP(t)
	cc := dial(t, addr)
	for _, tt := range []struct {
		name, details, message string
	}{
		{"V1", "CjsKN3R5cGUuZ29vZ2xlYXBpcy5jb20vdGVuc29yZmxvdy5Db29yZGluYXRpb25TZXJ2aWNlRXJyb3ISAA", "plain"},
		{"V2", "Cj8KN3R5cGUuZ29vZ2xlYXBpcy5jb20vdGVuc29yZmxvdy5Db29yZGluYXRpb25TZXJ2aWNlRXJyb3ISBBgBIAc", "with % and ö"},
		{"V3", "CkcKN3R5cGUuZ29vZ2xlYXBpcy5jb20vdGVuc29yZmxvdy5Db29yZGluYXRpb25TZXJ2aWNlRXJyb3ISDCIKCgZ3b3JrZXIQAQ", "line\nbreak"},
		{"V4", "CjUKK3R5cGUuZ29vZ2xlYXBpcy5jb20vdGVuc29yZmxvdy5CYXJyaWVyRXJyb3ISBgoCYjEQAwo7Cjd0eXBlLmdvb2dsZWFwaXMuY29tL3RlbnNvcmZsb3cuQ29vcmRpbmF0aW9uU2VydmljZUVycm9yEgA", "x"},
		{"V5", "CjsKN3R5cGUuZ29vZ2xlYXBpcy5jb20vdGVuc29yZmxvdy5Db29yZGluYXRpb25TZXJ2aWNlRXJyb3ISAApACjN0eXBlLmdvb2dsZWFwaXMuY29tL3RlbnNvcmZsb3cuU2VydmljZU1pc21hdGNoRXJyb3ISCQkIBwYFBAMCAQ", "x"},
		{"7 KiB", "CoAY" + strings.Repeat("AAAA", 1024), strings.Repeat("m", 3<<10-4)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			details, _ := base64.RawStdEncoding.DecodeString(tt.details)
			h.details.Store(&details)
			var trailer metadata.MD
			_, err := call1(t.Context(), cc, methodFail, append([]byte{5}, tt.message...), grpc.Trailer(&trailer))
			// grpc-go reads a container of payloads as another status: the code it got is in the text.
			if err == nil || !strings.Contains(err.Error(), "NOT_FOUND") && !strings.Contains(err.Error(), "NotFound") {
				t.Errorf("Fail() = %v; want NotFound", err)
			}
			if got := trailer.Get("grpc-status-details-bin"); len(got) != 1 || got[0] != string(details) {
				t.Errorf("details %q; want %q", got, details)
			}
			if want := strconv.Quote(tt.message); !strings.Contains(err.Error(), want) {
				t.Errorf("Fail() = %v; want the message %s", err, want)
			}
		})
	}
}

// TestTrailerBudget cuts the text, never the payload, to what every client takes.
func TestTrailerBudget(t *testing.T) {
	clause.Cite(t, "C-WIRE-16")
	synctest.Test(t, func(t *testing.T) {
		h, _, l := startPipe(t)
		for _, tt := range []struct {
			details, message int
			wantMessage      int
		}{
			{0, 10 << 10, 7 << 10},
			{3 << 10, 10 << 10, 3 << 10},
			{15 << 10, 10 << 10, 0}, // more than a frame: CONTINUATION
		} {
			details := make([]byte, tt.details)
			h.details.Store(&details)
			p := connect(t, l.Dial)
			p.call(1, methodFail, append([]byte{5}, strings.Repeat("ö", tt.message/2)...))
			p.flush()
			got := p.answer(1)
			if got.code != codes.NotFound || len(got.message) > tt.wantMessage || len(got.message) < tt.wantMessage-6 || len(got.message)%6 != 0 {
				t.Errorf("%d bytes of details: %v with %d bytes of text; want NotFound with about %d", tt.details, got.code, len(got.message), tt.wantMessage)
			}
			if want := base64.RawStdEncoding.EncodedLen(tt.details); len(got.fields) != len(" grpc-status-details-bin=")+want {
				t.Errorf("%d bytes of encoded details; want %d", len(got.fields), want)
			}
		}
	})
}

// TestUnixSocket serves a Unix socket.
func TestUnixSocket(t *testing.T) {
	clause.Cite(t, "F-11")
	h := newTestHandler(t)
	path := fmt.Sprintf("%s/s", t.TempDir())
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	start(t, l, Config{Handler: h})
	cc := dial(t, "unix:"+path)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body := bytes.Repeat([]byte("unix"), 1<<20)
	if got, err := call1(ctx, cc, methodEcho, body); err != nil || !bytes.Equal(got, body) {
		t.Errorf("Echo() = %d bytes, %v", len(got), err)
	}
}
