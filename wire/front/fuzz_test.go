package front

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire/conn"
	"github.com/serry-dev/serry/wire/internal/h2"
	"github.com/serry-dev/serry/wire/rpc"
)

// A scripted connection is read by hand: a fuzz target gives its bytes to connection.chunk.
type scripted struct {
	net.Conn
	out bytes.Buffer
}

func (*scripted) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*scripted) SetDeadline(time.Time) error      { return nil }
func (*scripted) SetReadDeadline(time.Time) error  { return nil }
func (*scripted) SetWriteDeadline(time.Time) error { return nil }
func (*scripted) Close() error                     { return nil }
func (s *scripted) Write(p []byte) (int, error)    { return s.out.Write(p) }
func (s *scripted) Read([]byte) (int, error)       { return 0, io.EOF }

// byHand makes a connection without goroutines of its own.
func byHand(t testing.TB, h rpc.Handler) (*connection, *scripted) {
	s := New(Config{Handler: h, Methods: testMethods})
	t.Cleanup(func() { s.Close() })
	nc := new(scripted)
	c := newConnection(s, conn.New(nc))
	c.greet()
	return c, nc
}

// finish ends the connection and returns all it has written.
func (c *connection) finish(nc *scripted, err error) []byte {
	c.end(err)
	c.mu.Drain()
	c.mu.Fail(err)
	c.mu.Wait()
	return nc.out.Bytes()
}

// FuzzFrames gives a connection any bytes in any pieces. It must not panic, must write well-formed
// frames, the same ones however the bytes are cut (windows for requests aside), and hold nothing in
// the end.
func FuzzFrames(f *testing.F) {
	clause.Cite(f, "F-41")
	p := newPeer(f)
	session(p)
	all := bytes.Clone(p.out.Bytes())
	f.Add(all, uint64(1))
	f.Add(all[:200], uint64(2))
	for i := 0; i < len(all); i += 37 {
		changed := bytes.Clone(all)
		changed[i] ^= 0x41
		f.Add(changed, uint64(i))
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		var pieces [][]byte
		for rest := data; len(rest) > 0; {
			n := 1 + random.IntN(len(rest))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		synctest.Test(t, func(t *testing.T) { // for a clock that stands still
			whole, cut := consumeAll(t, [][]byte{data}), consumeAll(t, pieces)
			if len(whole) < pumpOutput && !bytes.Equal(whole, cut) {
				t.Errorf("cut into %d pieces: %q; want %q", len(pieces), cut, whole)
			}
		})
	})
}

// consumeAll gives the pieces to a new connection and returns what it wrote, less WINDOW_UPDATE.
func consumeAll(t *testing.T, pieces [][]byte) []byte {
	h := newTestHandler(t)
	c, nc := byHand(t, tame{h})
	var err error
	for _, piece := range pieces {
		wave := append(bytes.Clone(c.nc.Kept()), piece...)
		if err = c.chunk(wave); err != nil {
			break
		}
	}
	if err == nil {
		err = errDrained // an end in order: all output is written
	}
	out := c.finish(nc, err)
	if c.srv.budget.Used() != 0 || c.budget.Load().Used() != 0 {
		t.Errorf("%d, %d bytes left with the budgets; want none", c.srv.budget.Used(), c.budget.Load().Used())
	}
	if len(h.open) != 0 {
		t.Errorf("the handler was not told of the end")
	}
	return checkFrames(t, out)
}

// tame keeps a test handler from what a fuzzer makes it do at length.
type tame struct{ *testHandler }

func (h tame) Serve(c rpc.Conn, call rpc.CallID, method string, body []byte) {
	if method == methodSize && (len(body) != 8 || binary.BigEndian.Uint64(body) > 1<<20) || method == methodFail && len(body) == 0 {
		method = methodEcho
	}
	h.testHandler.Serve(c, call, method, body)
}

// checkFrames reads what a server wrote as a client would, and returns it less WINDOW_UPDATE.
func checkFrames(t *testing.T, out []byte) []byte {
	var kept []byte
	for rest := out; len(rest) >= h2.HeadBytes; {
		h := h2.ParseHead(rest)
		end := min(h2.HeadBytes+h.Length, len(rest))
		if h.Kind != http2.FrameWindowUpdate {
			kept = append(kept, rest[:end]...)
		}
		rest = rest[end:]
	}
	fr := http2.NewFramer(io.Discard, bytes.NewReader(out))
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		_, err := fr.ReadFrame()
		if errors.Is(err, io.EOF) {
			return kept
		}
		if err != nil {
			t.Fatalf("the server wrote %q: %v", out, err)
		}
	}
}

// FuzzHeaders reads two header blocks, each twice. Remembered blocks must mean what they would
// without memory.
func FuzzHeaders(f *testing.F) {
	clause.Cite(f, "F-41", "F-22")
	p := newPeer(f)
	first := p.block(methodEcho, "grpc-timeout", "1S")
	f.Add(first, p.block(methodEcho, "grpc-timeout", "1S"))
	f.Add(first, p.block(methodWait, "grpc-encoding", "gzip"))
	f.Add([]byte{0x82, 0x86, 0x84}, []byte{0x20, 0x82})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		methods := New(Config{Methods: testMethods}).methods
		newReader := func() *headerReader {
			r := new(headerReader)
			r.decoder = hpack.NewDecoder(h2.TableBytes, r.field)
			return r
		}
		memory, plain := newReader(), newReader()
		for i, block := range [][]byte{a, a, b, b, a, b} {
			plain.known = nil
			got, err := memory.read(block, methods)
			want, wantErr := plain.read(block, methods)
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("block %d: %v; want %v", i, err, wantErr)
			}
			if err != nil {
				return
			}
			if got.refusal != nil && want.refusal != nil && got.refusal.Message == want.refusal.Message {
				want.refusal = got.refusal
			}
			if *got != *want {
				t.Fatalf("block %d: %+v; want %+v", i, *got, *want)
			}
			if !got.malformed && got.pseudo && got.refusal == nil && got.http == 0 && got.method == nil {
				t.Fatalf("block %d: a request without a method", i)
			}
		}
	})
}

// FuzzWindows opens and shuts windows at will while replies of many sizes are sent. Against a naive
// account, no window is ever exceeded, and in the end, with all windows open, every reply is whole.
func FuzzWindows(f *testing.F) {
	clause.Cite(f, "F-41", "F-33")
	f.Add([]byte{0, 10, 1, 200, 2, 30, 3, 40, 0, 255, 4, 9, 5, 1})
	f.Add([]byte{3, 0, 0, 100, 0, 100, 1, 3, 3, 255, 2, 255})
	f.Add([]byte{0, 250, 0, 250, 0, 250, 2, 250, 5, 0, 2, 1, 3, 9})
	f.Fuzz(func(t *testing.T, ops []byte) {
		c, nc := byHand(t, tame{newTestHandler(t)})
		m := newWindowModel(t)
		m.p.greet()
		for ; len(ops) >= 2 && m.stream < 2000; ops = ops[2:] {
			m.step(ops[0], int(ops[1]))
			m.give(c, nc)
		}
		m.p.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		m.p.fr.WriteWindowUpdate(0, 1<<29)
		m.conn += 1 << 29
		m.initial = 1 << 20
		m.give(c, nc)
		for stream, size := range m.size {
			if m.got[stream] != size {
				t.Errorf("stream %d: %d bytes of DATA; want %d", stream, m.got[stream], size)
			}
		}
		c.finish(nc, io.EOF)
	})
}

// A windowModel is the account of a client: what it allows, and what has come.
type windowModel struct {
	t       *testing.T
	p       *peer
	fr      *http2.Framer // reads what the server wrote
	in      bytes.Buffer
	stream  uint32
	conn    int64
	initial int64
	added   map[uint32]int64
	size    map[uint32]int64
	got     map[uint32]int64
	total   int64
}

func newWindowModel(t *testing.T) *windowModel {
	m := &windowModel{
		t: t, p: newPeer(t), stream: 1, conn: h2.InitialWindow, initial: h2.InitialWindow,
		added: make(map[uint32]int64), size: make(map[uint32]int64), got: make(map[uint32]int64),
	}
	m.fr = http2.NewFramer(io.Discard, &m.in)
	m.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	return m
}

// step does one thing.
func (m *windowModel) step(op byte, n int) {
	open := uint32(n)*2%m.stream | 1
	switch op % 4 {
	case 0, 1: // a call whose reply has about n*n bytes
		size := int64(n * n * (int(op%2) + 1))
		m.p.call(m.stream, methodSize, binary.BigEndian.AppendUint64(nil, uint64(size)))
		m.size[m.stream] = size + h2.PrefixBytes
		m.stream += 2
	case 2:
		if n > 0 {
			m.p.fr.WriteWindowUpdate(0, uint32(n*n))
			m.conn += int64(n * n)
		}
	case 3:
		if op&4 == 0 {
			m.p.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(n * n)})
			m.initial = int64(n * n)
		} else if n > 0 && open < m.stream {
			m.p.fr.WriteWindowUpdate(open, uint32(n))
			m.added[open] += int64(n)
		}
	}
}

// give hands what was written to the connection and counts what came back.
func (m *windowModel) give(c *connection, nc *scripted) {
	err := c.chunk(append(bytes.Clone(c.nc.Kept()), m.p.out.Bytes()...))
	m.p.out.Reset()
	if err != nil {
		if ce, ok := errors.AsType[*ConnError](err); ok && ce.Code == http2.ErrCodeEnhanceYourCalm {
			m.t.Skip("too fast")
		}
		m.t.Fatalf("chunk: %v", err)
	}
	c.mu.Wait()
	m.in.Write(nc.out.Bytes())
	nc.out.Reset()
	for {
		f, err := m.fr.ReadFrame()
		if err != nil {
			return
		}
		d, ok := f.(*http2.DataFrame)
		if !ok {
			continue
		}
		n := int64(len(d.Data()))
		m.got[d.StreamID] += n
		m.total += n
		if m.total > m.conn {
			m.t.Fatalf("%d bytes on the connection; allowed %d", m.total, m.conn)
		}
		if n > 0 && m.got[d.StreamID] > m.initial+m.added[d.StreamID] {
			m.t.Fatalf("stream %d: %d bytes; allowed %d", d.StreamID, m.got[d.StreamID], m.initial+m.added[d.StreamID])
		}
	}
}
