package jax_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/transfer/jax"
	"github.com/serry-dev/serry/transfer/offer"
)

// collect reads the packets of requests and their bytes, until every one of so many buffers is there.
func (p *peer) collect(sizes ...int) (buffers [][]byte, packets []jax.PacketFields) {
	p.t.Helper()
	left := 0
	for _, size := range sizes {
		buffers = append(buffers, make([]byte, size))
		left += size
	}
	for left > 0 {
		m, ok := p.hear().(jax.Packet)
		if !ok {
			p.t.Fatalf("the answer is %T; want a packet", m)
		}
		f := m.Fields()
		if f.Lane >= uint64(len(p.lanes)) || f.Request >= uint64(len(buffers)) {
			p.t.Fatalf("packet %+v for %d buffers on %d lanes", f, len(buffers), len(p.lanes))
		}
		if _, err := io.ReadFull(p.lanes[f.Lane], buffers[f.Request][f.Offset:f.Offset+f.Size]); err != nil {
			p.t.Fatal(err)
		}
		packets = append(packets, f)
		left -= int(f.Size)
	}
	return buffers, packets
}

// What a packet announces comes on the lane that it names, with the size that it has. No packet is larger than JAX takes.
func TestPacketsNameTheirLane(t *testing.T) {
	clause.Cite(t, "TRT-130", "TRT-158", "TR-W-15", "TR-W-18")
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.serve(t, jax.Config{Lanes: 3})
		data := [][]byte{noise(5<<20 + 3), noise(7), noise(1 << 20)}
		mustOffer(t, s, 7, data...)
		p := n.enter(t, s.Address(), 3)
		p.say(jax.NewPull(7, 0, 0, 0, 1, 2))
		got, packets := p.collect(5<<20+3, 7, 1<<20)
		for i := range data {
			if !bytes.Equal(got[i], data[i]) {
				t.Errorf("buffer %d is not what was announced", i)
			}
		}
		for _, f := range packets {
			if f.Size > 1<<20 {
				t.Errorf("a packet of %d bytes; JAX may refuse it", f.Size)
			}
		}
	})
	if _, err := jax.Serve(nil, nil, jax.Config{ChunkBytes: 256<<20 + 1}); err == nil {
		t.Error("a server with chunks that no JAX process takes was made")
	}
}

// A request that comes before the lanes are there is answered when they are. Both sides then leave, without an error.
func TestRequestBeforeLanes(t *testing.T) {
	clause.Cite(t, "TRT-104", "TRT-135", "TR-W-13", "TR-W-22")
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.serve(t, jax.Config{})
		data := noise(3000)
		offered := mustOffer(t, s, 7, data)
		p := n.knock(t, s.Address())
		words := append(jax.Frame(jax.NewEstablish([]string{""})), jax.Frame(jax.NewPull(7, 0, 0, 0))...)
		must(p.control.Write(words))(t) // in one piece, as JAX does
		addresses, uuid := p.hear().(jax.Establish).Lanes()
		time.Sleep(time.Second)
		lane := must(n.dial(t.Context(), "tcp", addresses[0]))(t)
		must(lane.Write(binary.LittleEndian.AppendUint64(nil, uuid)))(t)
		p.lanes = append(p.lanes, lane)
		if got, _ := p.collect(len(data)); !bytes.Equal(got[0], data) {
			t.Error("the buffer came out different")
		}
		<-offered.Done()
		p.say(jax.HalfClose{})
		p.over()
		if n, err := lane.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("the lane ends with %d bytes and %v; want %v", n, err, io.EOF)
		}
		synctest.Wait()
		if err := offered.Err(); err != nil || len(s.Conns()) != 0 {
			t.Errorf("the offer ended with %v, and %d connections are left", err, len(s.Conns()))
		}
	})
}

// A narrowConn carries few bytes at a time.
type narrowConn struct{ net.Conn }

func (c narrowConn) Read(p []byte) (int, error) { return c.Conn.Read(p[:min(len(p), 64)]) }

func (c narrowConn) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = c.Conn.Write(p[n:min(n+64, len(p))])
		n += m
	}
	return n, err
}

// Lanes that take 64 bytes at a time carry buffers whole, and in order.
func TestNarrowLanes(t *testing.T) {
	clause.Cite(t, "TRT-132", "TR-W-15")
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		dial := func(ctx context.Context, network, to string) (net.Conn, error) {
			c, err := n.dial(ctx, network, to)
			return narrowConn{c}, err
		}
		s := n.serve(t, jax.Config{Lanes: 1})
		c, err := jax.Dial(t.Context(), s.Address(), jax.Config{Lanes: 1}.By(dial))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var data [][]byte
		for i := range 10 {
			data = append(data, append(bytes.Repeat([]byte{byte(i)}, 4096), noise(4096)...))
		}
		mustOffer(t, s, 7, data...)
		mustPull(t, c, 7, data...)
	})
}

// A connection is closed by another goroutine while buffers come in both directions: every pull ends.
func TestClosedWhilePulling(t *testing.T) {
	clause.Cite(t, "TRT-100", "TR-W-26")
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.serve(t, jax.Config{ChunkBytes: 1000})
		data := noise(100_000)
		if _, err := s.Offer(jax.Offer{ID: 7, Buffers: []jax.Buffer{{Bytes: data}}, Times: offer.Unlimited}); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			c, err := jax.Dial(t.Context(), s.Address(), jax.Config{}.By(n.dial))
			if err != nil {
				t.Fatal(err)
			}
			mustPull(t, c, 7, data)
			ended := make(chan error, 3)
			for range cap(ended) {
				go func() {
					for {
						if _, err := pull(t.Context(), c, 7, len(data)); err != nil {
							ended <- err
							return
						}
					}
				}()
			}
			runtime.Gosched()
			c.Close()
			for range cap(ended) {
				<-ended
			}
		}
		synctest.Wait()
		if got := s.Conns(); len(got) > 0 {
			t.Errorf("%d connections are left", len(got))
		}
	})
}

var knocks = flag.Int("knocks", 20_000, "how many connections TestRandomBytes makes")

// Strangers send random bytes to the control port and to the port of lanes: some whole messages, some parts. The server lets go of
// all of them, and serves others.
func TestRandomBytes(t *testing.T) {
	clause.Cite(t, "TRT-107", "TR-W-26", "TR-W-27")
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.serve(t, jax.Config{})
		data := noise(1000)
		if _, err := s.Offer(jax.Offer{ID: 7, Buffers: []jax.Buffer{{Bytes: data}}, Times: offer.Unlimited}); err != nil {
			t.Fatal(err)
		}
		ports := slices.Collect(func(yield func(string) bool) {
			for address := range n.listeners {
				if !yield(address) {
					return
				}
			}
		})
		slices.Sort(ports)
		synctest.Wait()
		before := runtime.NumGoroutine()
		r := rand.New(rand.NewPCG(1, 2))
		var halfway uint64
		for i := range *knocks {
			if i == *knocks/2 {
				halfway = heap()
			}
			c, err := n.dial(t.Context(), "tcp", ports[r.IntN(len(ports))])
			if err != nil {
				t.Fatal(err)
			}
			go io.Copy(io.Discard, c)
			c.SetWriteDeadline(time.Now().Add(time.Hour))
			c.Write(randomWords(r))
			c.SetWriteDeadline(time.Time{}) // its timer keeps the connection
			if r.IntN(2) == 0 {
				time.Sleep(time.Duration(r.IntN(4)) * time.Second)
			}
			c.Close()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if after, conns := runtime.NumGoroutine(), s.Conns(); after > before+10 || len(conns) > 0 {
			t.Errorf("%d goroutines and %d connections are left; there were %d goroutines", after, len(conns), before)
		}
		if grown := int64(heap() - halfway); grown > 4<<20 { // a connection that is kept has 600 bytes
			t.Errorf("%d bytes of memory are left of the second half of %d connections", grown, *knocks)
		}
		mustPull(t, n.connect(t, s.Address(), jax.Config{}), 7, data)
	})
}

// heap is how much memory is in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // pools give up what they hold in two
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// randomWords are bytes without meaning, perhaps behind a message that has one, or messages of which a byte was changed.
func randomWords(r *rand.Rand) []byte {
	words := jax.Frame(jax.NewEstablish(make([]string, r.IntN(3))))
	switch r.IntN(4) {
	case 0:
		words = nil
	case 1:
		words = append(words, jax.Frame(jax.NewPull(r.Uint64(), r.Uint64(), r.Int64(), r.Uint64(), 0))...)
	case 2:
		words = append(words, jax.Frame(jax.NewPacket(r.Uint64(), r.Uint64(), r.Uint64(), r.Uint64(), r.IntN(2) == 0))...)
	}
	if r.IntN(2) == 0 && len(words) > 0 {
		words[r.IntN(len(words))] ^= byte(1 << r.IntN(8))
	}
	for range r.IntN(200) {
		words = append(words, byte(r.Uint32()))
	}
	return words
}
