package front

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire/conn"
	"github.com/serry-dev/serry/wire/rpc"
)

// session writes one of everything that a client may send, and how many streams it ends.
func session(p *peer) (streams int) {
	p.greet(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	p.fr.WriteSettingsAck()
	p.call(1, methodEcho, []byte("one"))
	p.call(3, methodEcho, []byte("one")) // the same block, now by reference
	p.headers(5, methodEcho, "grpc-encoding", "gzip")
	p.fr.WriteData(5, true, message(1, zip([]byte(strings.Repeat("zipped", 20)))))
	p.fr.WritePing(false, [8]byte{1, 2, 3})

	block := p.block(methodEcho, "x-ignored", strings.Repeat("x", 30))
	p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 7, BlockFragment: block[:5]})
	p.fr.WriteContinuation(7, false, block[5:9])
	p.fr.WriteContinuation(7, true, block[9:])
	msg := message(0, []byte("in pieces"))
	p.fr.WriteData(7, false, msg[:3])
	p.fr.WriteDataPadded(7, false, msg[3:8], make([]byte, 7))
	p.fr.WriteWindowUpdate(7, 10)
	p.fr.WriteData(7, false, msg[8:])
	p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 7, BlockFragment: p.trailers(), EndHeaders: true, EndStream: true})

	p.fr.WriteRawFrame(0x77, 0, 9, []byte("unknown"))
	p.fr.WritePriority(9, http2.PriorityParam{Weight: 3})
	p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 9, BlockFragment: p.block(methodEcho), EndHeaders: true, PadLength: 9, Priority: http2.PriorityParam{StreamDep: 7}})
	p.fr.WriteDataPadded(9, true, message(0, []byte("padded")), make([]byte, 20))
	p.call(11, methodFail, []byte{5, 'n', 0xc3, 0xb6, '%'})
	p.call(13, "/no.Such/Method", nil)
	p.headers(15, methodWait)
	p.fr.WriteData(15, true, message(0, nil))
	p.fr.WriteRSTStream(15, http2.ErrCodeCancel)
	p.fr.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
	p.call(17, methodEcho, []byte("last"))
	return 8
}

// trailers is a block of request trailers.
func (p *peer) trailers() []byte {
	return p.block("-", ":method", "-", ":scheme", "-", ":path", "-", ":authority", "-", "te", "-", "content-type", "-", "x-checksum", "1")
}

// replay sends stream in pieces, to a server of its own, and returns all that comes back until n
// streams have ended.
func replay(t *testing.T, h *testHandler, l *bufconn.Listener, pieces [][]byte, n int) (string, map[uint32]answer) {
	t.Helper()
	p := bare(t, l.Dial)
	var got bytes.Buffer
	p.fr = http2.NewFramer(io.Discard, io.TeeReader(p.nc, &got))
	p.fr.ReadMetaHeaders = newDecoder()
	for _, piece := range pieces {
		if _, err := p.nc.Write(piece); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the server has read it
	}
	answers := p.answers(n)
	p.nc.Close()
	synctest.Wait()
	return got.String(), answers
}

// TestEveryCut cuts a session at every byte, and into single bytes: the server says the same,
// byte for byte.
func TestEveryCut(t *testing.T) {
	clause.Cite(t, "FR-3", "F-12", "F-24")
	synctest.Test(t, func(t *testing.T) {
		h, _, l := startPipe(t)
		p := newPeer(t)
		n := session(p)
		all := p.out.Bytes()
		want, answers := replay(t, h, l, [][]byte{all}, n)
		for stream, s := range map[uint32]string{
			1: `OK "" "one"`, 3: `OK "" "one"`, 7: `OK "" "in pieces"`, 9: `OK "" "padded"`,
			5:  `OK "" "` + strings.Repeat("zipped", 20) + `"`,
			11: `NotFound "n%C3%B6%25" ""`, 13: `Unimplemented "unknown method /no.Such/Method" ""`,
			17: `OK "" "last"`,
		} {
			if got := answers[stream].String(); got != s {
				t.Errorf("stream %d: %s; want %s", stream, got, s)
			}
		}
		for cut := 1; cut < len(all); cut++ {
			if got, _ := replay(t, h, l, [][]byte{all[:cut], all[cut:]}, n); got != want {
				t.Fatalf("cut at %d: other replies:\n%q\nwant\n%q", cut, got, want)
			}
		}
		var bytewise [][]byte
		for i := range all {
			bytewise = append(bytewise, all[i:i+1])
		}
		if got, _ := replay(t, h, l, bytewise, n); got != want {
			t.Fatalf("byte by byte: other replies:\n%q\nwant\n%q", got, want)
		}
		random := rand.New(rand.NewPCG(1, 2))
		for range 50 {
			var pieces [][]byte
			for rest := all; len(rest) > 0; {
				n := 1 + random.IntN(min(len(rest), 40))
				pieces, rest = append(pieces, rest[:n]), rest[n:]
			}
			if got, _ := replay(t, h, l, pieces, n); got != want {
				t.Fatalf("random pieces: other replies:\n%q\nwant\n%q", got, want)
			}
		}
	})
}

// TestFirstWords is what every client reads first, in one write: no limit on streams, since clients hold
// theirs open, and windows wide enough.
func TestFirstWords(t *testing.T) {
	clause.Cite(t, "F-21", "F-32", "C-WIRE-4")
	synctest.Test(t, func(t *testing.T) {
		_, s, l := startPipe(t)
		p := bare(t, l.Dial)
		synctest.Wait() // before the client has said anything
		if n := s.Stats().Flushes; n != 1 {
			t.Errorf("%d writes; want 1", n)
		}
		f, err := p.fr.ReadFrame()
		settings, ok := f.(*http2.SettingsFrame)
		if err != nil || !ok {
			t.Fatalf("first frame is %v, %v; want SETTINGS", f, err)
		}
		for id, want := range map[http2.SettingID]uint32{
			http2.SettingInitialWindowSize: streamWindow, http2.SettingMaxFrameSize: maxDataFrame, http2.SettingMaxHeaderListSize: maxHeaderList,
		} {
			if got, ok := settings.Value(id); !ok || got != want {
				t.Errorf("%v = %d, %v; want %d", id, got, ok, want)
			}
		}
		for _, id := range []http2.SettingID{http2.SettingMaxConcurrentStreams, http2.SettingEnablePush} {
			if got, ok := settings.Value(id); ok {
				t.Errorf("%v = %d; want it left out", id, got)
			}
		}
		f, err = p.fr.ReadFrame()
		if w, ok := f.(*http2.WindowUpdateFrame); !ok || w.StreamID != 0 || w.Increment != connWindow-65535 {
			t.Errorf("second frame is %v, %v; want the window of the connection", f, err)
		}
		p.greet(http2.Setting{ID: 0x99, Val: 7}) // unknown
		p.flush()
		f, err = p.fr.ReadFrame()
		if ack, ok := f.(*http2.SettingsFrame); !ok || !ack.IsAck() {
			t.Errorf("third frame is %v, %v; want an acknowledgement", f, err)
		}
	})
}

// TestHeaderTable changes the table of the peer between replies, and has the first reply of all wait
// for its window while others pass it.
func TestHeaderTable(t *testing.T) {
	clause.Cite(t, "FR-4", "F-25")
	synctest.Test(t, func(t *testing.T) {
		_, _, l := startPipe(t)
		p := connect(t, l.Dial, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 4})
		p.call(1, methodEcho, []byte("a first reply larger than its window"))
		p.flush()
		synctest.Wait()
		p.call(3, methodFail, []byte{5, 'x'})
		p.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 16})
		p.call(5, methodEcho, []byte("fits"))
		p.flush()
		got := p.answers(3)
		for stream, want := range map[uint32]string{1: `OK "" "a first reply larger than its window"`, 3: `NotFound "x" ""`, 5: `OK "" "fits"`} {
			if got[stream].String() != want {
				t.Errorf("stream %d: %v; want %s", stream, got[stream], want)
			}
		}
		for i, size := range []uint32{0, 4096, 100, 1 << 20} {
			p.fr.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: size})
			p.fr.ReadMetaHeaders.SetAllowedMaxDynamicTableSize(size)
			stream := uint32(7 + 2*i)
			p.call(stream, methodEcho, []byte("after"))
			p.flush()
			if got := p.answer(stream); got.String() != `OK "" "after"` {
				t.Errorf("table of %d: %v", size, got)
			}
		}
	})
}

// TestExpansion sends messages that gzip makes large: those that are worth it are taken, one after the other where
// they are too many together.
func TestExpansion(t *testing.T) {
	clause.Cite(t, "SEC-102", "C-LIM-3")
	synctest.Test(t, func(t *testing.T) {
		h := newTestHandler(t)
		l := bufconn.Listen(1 << 16)
		s := start(t, l, Config{Handler: h, Methods: rpc.Methods{methodEcho: {MaxRequestBytes: 1 << 30}}})
		p := connect(t, l.Dial)
		p.call(1, methodEcho, nil)
		p.flush()
		p.answer(1)
		bomb := message(1, zip(make([]byte, 80<<20)))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p.headers(3, methodEcho, "grpc-encoding", "gzip")
		p.fr.WriteData(3, true, bomb)
		p.flush()
		if got := p.answer(3).String(); got != `ResourceExhausted "request message above the limit of 67108864 bytes" ""` {
			t.Errorf("80 MiB in %d bytes: %s; want a refusal", len(bomb), got)
		}
		if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 8<<20 {
			t.Errorf("a message that was refused took %d bytes; want next to none", after.TotalAlloc-before.TotalAlloc)
		}
		// Others are being expanded, and one of them goes on beyond the limit.
		first, second := s.expanded.Share(noWaiter{}), s.expanded.Share(noWaiter{})
		if !first.Reserve(expandedBytes) || !second.Reserve(1) {
			t.Fatal("an empty budget has no room")
		}
		p.headers(5, methodEcho, "grpc-encoding", "gzip")
		p.fr.WriteData(5, true, message(1, zip(make([]byte, 50<<10))))
		p.flush()
		if got := p.answer(5).String(); got != `ResourceExhausted "gzip: too many messages are being expanded" ""` {
			t.Errorf("a message beside others: %s; want a refusal", got)
		}
		first.Release()
		second.Release()
		p.headers(7, methodEcho, "grpc-encoding", "gzip")
		p.fr.WriteData(7, true, message(1, zip(make([]byte, 50<<10))))
		p.flush()
		if got := p.answer(7); got.String()[:2] != "OK" || s.expanded.Used() != 0 {
			t.Errorf("a message alone: %v, %d bytes in the budget; want OK and none", got, s.expanded.Used())
		}
	})
}

// TestMessages is what a request may and may not be.
func TestMessages(t *testing.T) {
	clause.Cite(t, "FR-7", "F-26", "F-23", "F-30", "C-VER-5")
	bomb := zip(make([]byte, 4<<20)) // for a method that takes 64 KiB
	for _, tt := range []struct {
		name   string
		method string
		extra  []string
		body   []byte
		want   string
	}{
		{"empty message", methodEcho, nil, message(0, nil), `OK "" ""`},
		{"gzip", methodEcho, []string{"grpc-encoding", "gzip"}, message(1, zip([]byte("x"))), `OK "" "x"`},
		{"gzip announced, not used", methodEcho, []string{"grpc-encoding", "gzip"}, message(0, []byte("x")), `OK "" "x"`},
		{"gzip bomb", methodFail, []string{"grpc-encoding", "gzip"}, message(1, bomb), `ResourceExhausted "request message above the limit of 65536 bytes" ""`},
		{"not gzip", methodEcho, []string{"grpc-encoding", "gzip"}, message(1, []byte("abc")), `Internal "gzip: unexpected EOF" ""`},
		{"gzip with a tail", methodEcho, []string{"grpc-encoding", "gzip"}, message(1, append(zip([]byte("x")), "tail"...)), `Internal "gzip: unexpected EOF" ""`},
		{"flag without encoding", methodEcho, nil, message(1, nil), `Unimplemented "compression other than gzip" "" grpc-accept-encoding=identity, gzip`},
		{"other encoding", methodEcho, []string{"grpc-encoding", "snappy"}, message(1, nil), `Unimplemented "compression other than gzip" "" grpc-accept-encoding=identity, gzip`},
		{"other encoding, not used", methodEcho, []string{"grpc-encoding", "snappy"}, message(0, nil), `OK "" ""`},
		{"reserved flag", methodEcho, nil, message(2, nil), `Internal "reserved flags in the message prefix" ""`},
		{"no message", methodEcho, nil, nil, `Internal "request is not one message" ""`},
		{"short prefix", methodEcho, nil, []byte{0, 0}, `Internal "request is not one message" ""`},
		{"short message", methodEcho, nil, message(0, []byte("abc"))[:7], `Internal "request is not one message" ""`},
		{"two messages", methodEcho, nil, append(message(0, []byte("abc")), message(0, nil)...), `Internal "request is not one message" ""`},
		{"above the limit", methodSize, nil, message(0, make([]byte, 9)), `ResourceExhausted "request message above the limit of 8 bytes" ""`},
		{"unknown method", "/test.Service/None", nil, message(0, nil), `Unimplemented "unknown method /test.Service/None" ""`},
		{"subtype", methodEcho, []string{"content-type", "application/grpc+proto"}, message(0, nil), `OK "" ""`},
		{"GET", methodEcho, []string{":method", "GET"}, message(0, nil), `http 405`},
		{"plain HTTP", methodEcho, []string{"content-type", "-"}, message(0, nil), `http 415`},
		{"grpc-web", methodEcho, []string{"content-type", "application/grpc-web"}, message(0, nil), `http 415`},
		{"without te", methodEcho, []string{"te", "-"}, message(0, nil), `Internal "header te: trailers is missing" ""`},
		{"other te", methodEcho, []string{"te", "gzip"}, message(0, nil), `reset: PROTOCOL_ERROR`},
		{"connection field", methodEcho, []string{"connection", "close"}, message(0, nil), `reset: PROTOCOL_ERROR`},
		{"capital", methodEcho, []string{"X-Capital", "1"}, message(0, nil), `reset: PROTOCOL_ERROR`},
		{"line break in a value", methodEcho, []string{"x", "a\r\nb"}, message(0, nil), `reset: PROTOCOL_ERROR`},
		{"headers too long", methodEcho, []string{"x", strings.Repeat("x", 15<<10), "y", strings.Repeat("y", 2<<10)}, message(0, nil), `ResourceExhausted "header list above 16384 bytes" ""`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, _, l := startPipe(t)
				for _, piecewise := range []bool{false, true} {
					p := connect(t, l.Dial)
					block := p.block(tt.method, tt.extra...)
					first := min(len(block), 16<<10)
					p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:first], EndHeaders: first == len(block)})
					if first < len(block) {
						p.fr.WriteContinuation(1, true, block[first:])
					}
					go func() {
						for body := tt.body; piecewise && len(body) > 1; body = body[1:] {
							if len(body) > 50 {
								break
							}
							p.fr.WriteData(1, false, body[:1])
							tt.body = body[1:]
						}
						p.fr.WriteData(1, true, tt.body)
						p.out.WriteTo(p.nc)
					}()
					if got := p.answer(1).String(); got != tt.want {
						t.Errorf("piecewise %v: %s; want %s", piecewise, got, tt.want)
					}
				}
			})
		})
	}
}

// TestEarlyAnswer announces too much: the answer comes at the prefix, the stream is reset without an
// error, and what still comes for it is ignored.
func TestEarlyAnswer(t *testing.T) {
	clause.Cite(t, "FR-6", "F-26", "F-30", "F-27")
	synctest.Test(t, func(t *testing.T) {
		_, _, l := startPipe(t)
		p := connect(t, l.Dial)
		p.headers(1, methodSize)
		p.fr.WriteData(1, false, []byte{0, 0, 0, 1, 0})
		p.flush()
		if got := p.answer(1).String(); got != `ResourceExhausted "request message above the limit of 8 bytes" ""` {
			t.Errorf("answer %s", got)
		}
		f, err := p.read()
		if rst, ok := f.(*http2.RSTStreamFrame); !ok || rst.ErrCode != http2.ErrCodeNo {
			t.Errorf("then %v, %v; want RST_STREAM NO_ERROR", f, err)
		}
		p.fr.WriteData(1, false, make([]byte, 100))
		p.fr.WriteWindowUpdate(1, 1)
		p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.trailers(), EndHeaders: true, EndStream: true})
		p.fr.WriteRSTStream(1, http2.ErrCodeCancel)
		p.call(3, methodEcho, []byte("on"))
		p.flush()
		if got := p.answer(3).String(); got != `OK "" "on"` {
			t.Errorf("next call: %s", got)
		}
	})
}

// TestStreamStates sends each frame on an idle, a waiting and a finished stream.
func TestStreamStates(t *testing.T) {
	clause.Cite(t, "FR-12", "F-27", "F-31", "F-34")
	frames := map[string]func(p *peer){
		"DATA":             func(p *peer) { p.fr.WriteData(5, true, make([]byte, 20)) },
		"HEADERS":          func(p *peer) { p.headers(5, methodEcho) },
		"WINDOW_UPDATE":    func(p *peer) { p.fr.WriteWindowUpdate(5, 1) },
		"zero increment":   func(p *peer) { p.fr.WriteWindowUpdate(5, 0) },
		"RST_STREAM":       func(p *peer) { p.fr.WriteRSTStream(5, http2.ErrCodeCancel) },
		"PRIORITY":         func(p *peer) { p.fr.WritePriority(5, http2.PriorityParam{StreamDep: 3}) },
		"lower HEADERS":    func(p *peer) { p.headers(3, methodEcho) },
		"even HEADERS":     func(p *peer) { p.headers(6, methodEcho) },
		"window overflow":  func(p *peer) { p.fr.WriteWindowUpdate(5, 1<<31-1) },
		"CONTINUATION":     func(p *peer) { p.fr.WriteContinuation(5, true, nil) },
		"PUSH_PROMISE":     func(p *peer) { p.fr.WriteRawFrame(http2.FramePushPromise, 4, 5, []byte{0, 0, 0, 7}) },
		"connection zero":  func(p *peer) { p.fr.WriteWindowUpdate(0, 0) },
		"connection flood": func(p *peer) { p.fr.WriteWindowUpdate(0, 1<<31-1) },
	}
	const ignored, protocol, closed = "ignored", "PROTOCOL_ERROR", "STREAM_CLOSED"
	for name, want := range map[string][3]string{ // on an idle, a waiting, a finished stream
		"DATA":             {"conn " + protocol, "stream " + closed, "stream " + closed},
		"HEADERS":          {ignored, "stream " + closed, "conn " + protocol},
		"WINDOW_UPDATE":    {"conn " + protocol, ignored, ignored},
		"zero increment":   {"conn " + protocol, "stream " + protocol, ignored},
		"RST_STREAM":       {"conn " + protocol, "canceled", ignored},
		"PRIORITY":         {ignored, ignored, ignored},
		"lower HEADERS":    {ignored, "conn " + protocol, "conn " + protocol},
		"even HEADERS":     {"conn " + protocol, "conn " + protocol, "conn " + protocol},
		"window overflow":  {"conn " + protocol, "stream FLOW_CONTROL_ERROR", ignored},
		"CONTINUATION":     {"conn " + protocol, "conn " + protocol, "conn " + protocol},
		"PUSH_PROMISE":     {"conn " + protocol, "conn " + protocol, "conn " + protocol},
		"connection zero":  {"conn " + protocol, "conn " + protocol, "conn " + protocol},
		"connection flood": {"conn FLOW_CONTROL_ERROR", "conn FLOW_CONTROL_ERROR", "conn FLOW_CONTROL_ERROR"},
	} {
		for i, state := range []string{"idle", "waiting", "finished"} {
			t.Run(name+" on "+state, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h, _, l := startPipe(t)
					p := connect(t, l.Dial)
					switch state {
					case "waiting":
						p.call(5, methodWait, nil)
					case "finished":
						p.call(5, methodEcho, nil)
						p.flush()
						p.answer(5)
					}
					frames[name](p)
					p.call(7, methodEcho, nil)
					p.flush()
					if got := outcome(p, h); got != want[i] {
						t.Errorf("%s; want %s", got, want[i])
					}
				})
			})
		}
	}
}

// outcome tells how a connection went on up to the reply on stream 7.
func outcome(p *peer, h *testHandler) string {
	what := "ignored"
	for {
		f, err := p.read()
		if ga, ok := errors.AsType[goAway](err); ok {
			return "conn " + ga.code.String()
		}
		switch f := f.(type) {
		case nil:
			return "closed: " + err.Error()
		case *http2.RSTStreamFrame:
			what = "stream " + f.ErrCode.String()
		case *http2.MetaHeadersFrame:
			if f.StreamID != 7 || !f.StreamEnded() {
				continue
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			if what == "ignored" && h.canceled > 0 {
				return "canceled"
			}
			return what
		}
	}
}

// TestCancel withdraws a call: the handler hears of it once, and a late reply goes nowhere.
func TestCancel(t *testing.T) {
	clause.Cite(t, "FR-8", "F-28", "C-WIRE-6")
	synctest.Test(t, func(t *testing.T) {
		h, s, l := startPipe(t)
		cc := dialPipe(t, l)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			h.untilWaiting(1)
			cancel()
		}()
		if _, err := call1(ctx, cc, methodWait, nil); status.Code(err) != codes.Canceled {
			t.Errorf("Wait() = %v; want Canceled", err)
		}
		h.until(func() bool { return h.canceled == 1 && len(h.waiting) == 0 })
		if got, err := call1(t.Context(), cc, methodRelease, []byte("x")); err != nil || string(got) != "x" {
			t.Errorf("Release() = %q, %v", got, err)
		}
		if st := s.Stats(); st.Waiting != 0 {
			t.Errorf("Stats().Waiting = %d; want 0", st.Waiting)
		}
	})
}

// TestDeadlines runs calls with deadlines in virtual time.
func TestDeadlines(t *testing.T) {
	clause.Cite(t, "FR-15", "F-29")
	for _, tt := range []struct {
		timeout string
		after   time.Duration // virtual time until the answer
		want    string
	}{
		{"1m", time.Millisecond, `DeadlineExceeded "deadline exceeded" ""`},
		{"3010m", 3010 * time.Millisecond, `DeadlineExceeded "deadline exceeded" ""`},
		{"2H", 2 * time.Hour, `DeadlineExceeded "deadline exceeded" ""`},
		{"5000000n", 5 * time.Millisecond, `DeadlineExceeded "deadline exceeded" ""`},
		{"7u", 7 * time.Microsecond, `DeadlineExceeded "deadline exceeded" ""`},
		{"90M", 90 * time.Minute, `DeadlineExceeded "deadline exceeded" ""`},
		{"0S", 0, `DeadlineExceeded "deadline exceeded" ""`},
		{"99999999H", 24 * time.Hour, `OK "" "released"`},
		{"3x", 0, `Internal "malformed grpc-timeout" ""`},
		{"", 0, `Internal "malformed grpc-timeout" ""`},
		{"123456789S", 0, `Internal "malformed grpc-timeout" ""`},
		{"-1S", 0, `Internal "malformed grpc-timeout" ""`},
		{"S", 0, `Internal "malformed grpc-timeout" ""`},
	} {
		t.Run("timeout="+tt.timeout, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, s, l := startPipe(t)
				p := connect(t, l.Dial)
				other := connect(t, l.Dial)
				p.call(1, methodWait, nil, "grpc-timeout", tt.timeout)
				begin := time.Now()
				p.flush()
				if strings.HasPrefix(tt.want, "OK") {
					time.Sleep(tt.after)
					other.call(1, methodRelease, []byte("released"))
					other.flush()
				}
				if got := p.answer(1).String(); got != tt.want || time.Since(begin) != tt.after {
					t.Errorf("%s after %v; want %s after %v", got, time.Since(begin), tt.want, tt.after)
				}
				synctest.Wait()
				wantCancels := 0
				if tt.after > 0 && !strings.HasPrefix(tt.want, "OK") {
					wantCancels = 1
				}
				h.mu.Lock()
				defer h.mu.Unlock()
				if h.canceled != wantCancels || s.Stats().Waiting != 0 {
					t.Errorf("%d cancels, %d waiting; want %d, 0", h.canceled, s.Stats().Waiting, wantCancels)
				}
			})
		})
	}
}

// TestDeadlineOfUnfinishedRequest lets the deadline pass while the request is on its way.
func TestDeadlineOfUnfinishedRequest(t *testing.T) {
	clause.Cite(t, "FR-15", "F-29", "F-30")
	synctest.Test(t, func(t *testing.T) {
		h, s, l := startPipe(t)
		p := connect(t, l.Dial)
		p.headers(1, methodEcho, "grpc-timeout", "1S")
		p.fr.WriteData(1, false, message(0, make([]byte, 100))[:50])
		p.flush()
		if got := p.answer(1).String(); got != `DeadlineExceeded "deadline exceeded" ""` {
			t.Errorf("answer %s", got)
		}
		p.fr.WriteData(1, true, make([]byte, 55))
		p.call(3, methodEcho, []byte("on"))
		p.flush()
		if f, err := p.read(); err != nil || f.Header().Type != http2.FrameRSTStream {
			t.Errorf("after the answer: %v, %v; want RST_STREAM", f, err)
		}
		if got := p.answer(3).String(); got != `OK "" "on"` {
			t.Errorf("next call: %s", got)
		}
		if s.budget.Used() != 0 || h.canceled != 0 || h.serving[methodEcho] != 1 {
			t.Errorf("%d bytes held, %d cancels, served %v; want none, none, one", s.budget.Used(), h.canceled, h.serving)
		}
	})
}

// A slowHandler takes a second to take a call.
type slowHandler struct{ *testHandler }

func (h slowHandler) Serve(c rpc.Conn, call rpc.CallID, method string, body []byte) {
	time.Sleep(time.Second)
	h.testHandler.Serve(c, call, method, body)
}

// TestCancelComesAfterServe lets the deadline of a call pass while the handler takes it, whether its
// request comes in one piece or in two. If the handler heard of the end of a call first, the call would
// wait for good.
func TestCancelComesAfterServe(t *testing.T) {
	clause.Cite(t, "FR-15", "F-29")
	for _, pieces := range []int{1, 2} {
		t.Run(fmt.Sprint("pieces=", pieces), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, l := newTestHandler(t), bufconn.Listen(1<<20)
				s := start(t, l, Config{Handler: slowHandler{h}})
				p := connect(t, l.Dial)
				body := message(0, make([]byte, 100))
				p.headers(1, methodWait, "grpc-timeout", "600m")
				if pieces == 2 {
					p.fr.WriteData(1, false, body[:50])
					p.flush()
					time.Sleep(300 * time.Millisecond)
					body = body[50:]
				}
				p.fr.WriteData(1, true, body)
				p.flush()
				if got := p.answer(1).String(); got != `DeadlineExceeded "deadline exceeded" ""` {
					t.Errorf("answer %s", got)
				}
				time.Sleep(time.Second)
				h.mu.Lock()
				defer h.mu.Unlock()
				if len(h.waiting) != 0 || h.canceled != 1 || s.Stats().Waiting != 0 {
					t.Errorf("%d calls wait, %d cancels; want the one call cancelled", len(h.waiting), h.canceled)
				}
			})
		})
	}
}

// TestDeadlinesDoNotPileUp answers many calls long before their deadlines: their alarms are cleared away.
func TestDeadlinesDoNotPileUp(t *testing.T) {
	clause.Cite(t, "F-29")
	synctest.Test(t, func(t *testing.T) {
		h, s, l := startPipe(t)
		p := connect(t, l.Dial)
		go io.Copy(io.Discard, p.nc)
		const wave, waves = 500, 20
		for i := range waves {
			for j := range wave {
				p.call(uint32(2*(i*(wave+1)+j)+1), methodWait, nil, "grpc-timeout", "1H")
			}
			p.flush()
			h.untilWaiting(wave)
			p.call(uint32(2*(i*(wave+1)+wave)+1), methodRelease, nil)
			p.flush()
			h.untilWaiting(0)
		}
		synctest.Wait()
		s.scan.mu.Lock()
		defer s.scan.mu.Unlock()
		if n := len(s.scan.mu.heap); n > staleAlarms+3*wave {
			t.Errorf("%d alarms after %d calls; want about %d at most", n, wave*waves, staleAlarms)
		}
	})
}

// TestSilentClient says nothing for an hour.
func TestSilentClient(t *testing.T) {
	clause.Cite(t, "FR-14", "F-38", "C-WIRE-5")
	synctest.Test(t, func(t *testing.T) {
		h, _, l := startPipe(t)
		p := connect(t, l.Dial)
		p.call(1, methodWait, nil)
		p.flush()
		h.untilWaiting(1)
		time.Sleep(time.Hour)
		p.call(3, methodRelease, []byte("still here"))
		p.flush()
		got := p.answers(2)
		if got[1].body != "still here" || got[3].body != "still here" {
			t.Errorf("after an hour: %v", got)
		}
	})
}

// TestHandshake is what becomes of connections that are not HTTP/2.
func TestHandshake(t *testing.T) {
	clause.Cite(t, "FR-13", "F-20")
	for _, tt := range []struct {
		name  string
		bytes string
		after time.Duration
	}{
		{"nothing", "", conn.HandshakeTime},
		{"half a preface", http2.ClientPreface[:10], conn.HandshakeTime},
		{"preface only", http2.ClientPreface, conn.HandshakeTime},
		{"HTTP/1", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 0},
		{"TLS to a plain port", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 0},
		{"no settings first", http2.ClientPreface + "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, s, l := startPipe(t)
				p := bare(t, l.Dial)
				begin := time.Now()
				p.nc.Write([]byte(tt.bytes))
				p.closed()
				if time.Since(begin) != tt.after {
					t.Errorf("closed after %v; want %v", time.Since(begin), tt.after)
				}
				if len(h.open)+len(h.closed) > 0 {
					t.Errorf("the handler was told")
				}
				p.nc.Close()
				synctest.Wait()
				if st := s.Stats(); st.Conns != 0 {
					t.Errorf("Stats().Conns = %d; want 0", st.Conns)
				}
			})
		})
	}
}

// TestShutdown stops a server with calls under way; a successor takes the new ones.
func TestShutdown(t *testing.T) {
	clause.Cite(t, "FR-11", "F-40")
	synctest.Test(t, func(t *testing.T) {
		h, s, l := startPipe(t)
		next, _, nextL := startPipe(t)
		var stopped sync.WaitGroup
		const clients = 512
		for range clients {
			cc := dial(t, "passthrough:pipe", dialEither(l, nextL))
			stopped.Go(func() {
				if got, err := call1(t.Context(), cc, methodWait, nil); err != nil || string(got) != "bye" {
					t.Errorf("waiting call = %q, %v; want bye", got, err)
				}
				if _, err := call1(t.Context(), cc, methodEcho, nil); err != nil {
					t.Errorf("call to the successor: %v", err)
				}
			})
		}
		h.untilWaiting(clients)
		done := make(chan error)
		go func() { done <- s.Shutdown(t.Context()) }()
		time.Sleep(10 * time.Second) // calls under way keep their connections
		if st := s.Stats(); st.Conns != clients || st.Waiting != clients {
			t.Errorf("Stats() = %+v; want all connections with their calls", st)
		}
		h.releaseAll("bye")
		stopped.Wait()
		if err := <-done; err != nil {
			t.Errorf("Shutdown() = %v", err)
		}
		if got := next.serving[methodEcho]; got != clients {
			t.Errorf("the successor served %d calls; want %d", got, clients)
		}
		for _, err := range h.closed {
			if !errors.Is(err, ErrServerClosed) && !errors.Is(err, io.EOF) {
				t.Errorf("Close got %v", err)
			}
		}
	})
}

// TestShutdownDeadline ends the stop although a call still waits.
func TestShutdownDeadline(t *testing.T) {
	clause.Cite(t, "F-40")
	synctest.Test(t, func(t *testing.T) {
		h, s, l := startPipe(t)
		p := connect(t, l.Dial)
		p.call(1, methodWait, nil)
		p.flush()
		h.untilWaiting(1)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		go p.closed()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown() = %v; want DeadlineExceeded", err)
		}
		if err := h.untilClosed(); !errors.Is(err, ErrServerClosed) {
			t.Errorf("Close got %v; want ErrServerClosed", err)
		}
	})
}

// TestShutdownFrames checks the two GOAWAYs, with and without an answer to the PING between them.
func TestShutdownFrames(t *testing.T) {
	clause.Cite(t, "F-40")
	for _, answered := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			h, s, l := startPipe(t)
			p := connect(t, l.Dial)
			p.call(1, methodWait, nil)
			p.flush()
			h.untilWaiting(1)
			done := make(chan error)
			go func() { done <- s.Shutdown(t.Context()) }()
			begin := time.Now()
			if ga := p.nextGoAway(); ga.LastStreamID != 1<<31-1 || ga.ErrCode != http2.ErrCodeNo {
				t.Fatalf("first GOAWAY: %v", ga)
			}
			p.call(3, methodEcho, []byte("in time"))
			if answered {
				p.fr.WritePing(true, drainPing)
			}
			p.flush()
			if got := p.answer(3).String(); got != `OK "" "in time"` {
				t.Errorf("call between the GOAWAYs: %s", got)
			}
			wait := time.Second
			if answered {
				wait = 0
			}
			if ga := p.nextGoAway(); ga.LastStreamID != 3 || time.Since(begin) != wait {
				t.Fatalf("second GOAWAY: %v after %v; want last stream 3 after %v", ga, time.Since(begin), wait)
			}
			p.call(5, methodEcho, []byte("too late"))
			p.fr.WriteWindowUpdate(5, 1)
			p.fr.WriteRSTStream(5, http2.ErrCodeCancel)
			p.flush()
			synctest.Wait()
			h.releaseAll("bye")
			if got := p.answer(1).String(); got != `OK "" "bye"` {
				t.Errorf("waiting call: %s", got)
			}
			if err := p.closed(); err != io.EOF {
				t.Errorf("end: %v", err)
			}
			if err := <-done; err != nil {
				t.Errorf("Shutdown() = %v", err)
			}
		})
	}
}

func (p *peer) nextGoAway() *http2.GoAwayFrame {
	p.t.Helper()
	for {
		f, err := p.fr.ReadFrame()
		if err != nil {
			p.t.Fatalf("GOAWAY expected: %v", err)
		}
		if ga, ok := f.(*http2.GoAwayFrame); ok {
			return ga
		}
	}
}

// TestTLS serves over TLS with client certificates, and closes what did not agree on h2.
func TestTLS(t *testing.T) {
	clause.Cite(t, "FR-13", "F-20", "C-WIRE-12")
	ca := newAuthority(t)
	h := newTestHandler(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	start(t, l, Config{Handler: h, TLS: &tls.Config{
		Certificates: []tls.Certificate{ca.issue(t)}, ClientCAs: ca.pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}})
	client := &tls.Config{RootCAs: ca.pool, Certificates: []tls.Certificate{ca.issue(t)}}
	cc := dial(t, l.Addr().String(), withTLS(client))
	for _, size := range []int{10, 5 << 20} {
		body := bytes.Repeat([]byte("tls"), size)
		if got, err := call1(t.Context(), cc, methodEcho, body); err != nil || !bytes.Equal(got, body) {
			t.Errorf("Echo(%d bytes) = %d bytes, %v", len(body), len(got), err)
		}
	}
	for name, cfg := range map[string]*tls.Config{
		"without ALPN":        {RootCAs: ca.pool, Certificates: client.Certificates},
		"without certificate": {RootCAs: ca.pool, NextProtos: []string{"h2"}},
		"TLS 1.1":             {RootCAs: ca.pool, Certificates: client.Certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11},
	} {
		tc, err := tls.Dial("tcp", l.Addr().String(), cfg)
		if err == nil { // TLS 1.3 tells the client only when it reads
			var b [100]byte
			_, err = tc.Read(b[:])
			tc.Close()
		}
		if err == nil {
			t.Errorf("%s: served", name)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.open)+len(h.closed) != 1 {
		t.Errorf("the handler saw %d connections; want 1", len(h.open)+len(h.closed))
	}
}
