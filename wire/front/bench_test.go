package front

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"golang.org/x/net/http2"

	"github.com/serry-dev/serry/wire/internal/h2"
	"github.com/serry-dev/serry/wire/rpc"
)

// A prompt handler answers every call at once.
type prompt struct{}

func (prompt) Open(rpc.Conn)               {}
func (prompt) Close(rpc.Conn, error)       {}
func (prompt) Cancel(rpc.Conn, rpc.CallID) {}
func (prompt) Served(rpc.Conn)             {}
func (prompt) Serve(c rpc.Conn, call rpc.CallID, _ string, _ []byte) {
	c.Reply(call, nil, rpc.Status{})
}

// BenchmarkCalls is the time of a small call, both sides together: the client does as little as it can.
// After its first call its headers are indices, like those of C++ clients.
func BenchmarkCalls(b *testing.B) {
	for _, secure := range []bool{false, true} {
		for _, load := range []struct{ conns, depth int }{{1, 1}, {1, 16}, {16, 1}, {256, 1}} {
			b.Run(fmt.Sprintf("tls=%v/conns=%d/depth=%d", secure, load.conns, load.depth), func(b *testing.B) {
				benchmarkCalls(b, secure, load.conns, load.depth)
			})
		}
	}
}

func benchmarkCalls(b *testing.B, secure bool, conns, depth int) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	cfg := Config{Handler: prompt{}}
	dial := dialTCP(l.Addr().String())
	if secure {
		ca := newAuthority(b)
		cfg.TLS = &tls.Config{Certificates: []tls.Certificate{ca.issue(b)}}
		client := &tls.Config{RootCAs: ca.pool, NextProtos: []string{"h2"}}
		dial = func() (net.Conn, error) { return tls.Dial("tcp", l.Addr().String(), client) }
	}
	start(b, l, cfg)
	callers := make([]*caller, conns)
	for i := range callers {
		callers[i] = newCaller(b, dial)
		callers[i].round(b, depth)
	}
	b.ReportAllocs()
	for b.Loop() {
		var round sync.WaitGroup
		if conns == 1 {
			callers[0].round(b, depth)
			continue
		}
		for _, c := range callers {
			round.Go(func() { c.round(b, depth) })
		}
		round.Wait()
	}
	calls := float64(b.N * conns * depth)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/calls, "ns/call")
	b.ReportMetric(calls/b.Elapsed().Seconds(), "calls/s")
}

// A caller makes rounds of calls on one connection.
type caller struct {
	nc     net.Conn
	in     *bufio.Reader
	block  []byte // of headers
	stream uint32
	out    []byte
}

func newCaller(b *testing.B, dial func() (net.Conn, error)) *caller {
	p := connect(b, dial)
	p.call(1, methodEcho, nil)
	p.fr.WriteWindowUpdate(0, 1<<30)
	p.flush()
	c := &caller{nc: p.nc, in: bufio.NewReader(p.nc), block: p.block(methodEcho), stream: 3}
	if !onlyIndexed(c.block) {
		b.Fatalf("the second block is %x; want indices only", c.block)
	}
	c.await(b, 1)
	return c
}

// round makes n calls at once and waits for the replies.
func (c *caller) round(b *testing.B, n int) {
	c.out = c.out[:0]
	for range n {
		head := h2.Head{Length: len(c.block), Kind: http2.FrameHeaders, Flags: http2.FlagHeadersEndHeaders, Stream: c.stream}
		c.out = append(c.out, make([]byte, h2.HeadBytes)...)
		head.Put(c.out[len(c.out)-h2.HeadBytes:])
		c.out = append(c.out, c.block...)
		data := h2.Head{Length: h2.PrefixBytes, Kind: http2.FrameData, Flags: http2.FlagDataEndStream, Stream: c.stream}
		c.out = append(c.out, make([]byte, h2.HeadBytes)...)
		data.Put(c.out[len(c.out)-h2.HeadBytes:])
		c.out = append(c.out, 0, 0, 0, 0, 0)
		c.stream += 2
	}
	if _, err := c.nc.Write(c.out); err != nil {
		b.Error(err)
		return
	}
	c.await(b, n)
}

// await reads n replies.
func (c *caller) await(b *testing.B, n int) {
	var head [h2.HeadBytes]byte
	for n > 0 {
		if _, err := io.ReadFull(c.in, head[:]); err != nil {
			b.Error(err)
			return
		}
		h := h2.ParseHead(head[:])
		if h.Kind == http2.FrameHeaders && h.Flags.Has(http2.FlagHeadersEndStream) {
			n--
		}
		if _, err := c.in.Discard(h.Length); err != nil {
			b.Error(err)
			return
		}
	}
}

// BenchmarkRelease is the time of releasing waiting calls, up to the last reply read.
func BenchmarkRelease(b *testing.B) {
	const conns, waiting = 16, 64
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	h := newTestHandler(b)
	start(b, l, Config{Handler: h})
	callers := make([]*caller, conns)
	for i := range callers {
		callers[i] = newCaller(b, dialTCP(l.Addr().String()))
		p := newPeer(b)
		p.enc.SetMaxDynamicTableSize(0)
		callers[i].block = p.block(methodWait)
	}
	body := binary.BigEndian.AppendUint64(nil, 1)
	b.ReportAllocs()
	for b.Loop() {
		var round sync.WaitGroup
		for _, c := range callers {
			round.Go(func() { c.round(b, waiting) })
		}
		h.untilWaiting(conns * waiting)
		h.releaseAll(string(body))
		round.Wait()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*conns*waiting), "ns/call")
}
