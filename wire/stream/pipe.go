package stream

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/wire/conn"
)

// deepOutput is much output: with more than that waiting, the socket shows that the other end lives
// when it takes some.
const deepOutput = 64 << 10

// A pipe is one connection as both ends use it: its output, and when the other end last showed that it
// lives. Its reader is in read.go.
type pipe struct {
	*conn.Pipe

	// Set once.
	nc      *conn.Conn
	base    time.Time // zero of the times
	planted plant.Faults

	heard atomic.Int64 // when something last showed that the other end lives
	sent  atomic.Int64 // when the socket last took output
}

func newPipe(nc *conn.Conn, base time.Time, planted plant.Faults) *pipe {
	p := &pipe{nc: nc, base: base, planted: planted}
	p.Pipe = conn.NewPipe(nc, conn.PipeConfig{Owner: p, Planted: planted})
	p.heard.Store(p.now())
	p.sent.Store(p.now())
	return p
}

func (p *pipe) now() int64 { return int64(time.Since(p.base)) }

// silent is how long nothing has shown that the other end lives.
func (p *pipe) silent() time.Duration { return time.Duration(p.now() - p.heard.Load()) }

// add queues a frame: write appends it to the buffer, but not its body if that is large. Without a connection, where
// p is nil, there is nothing to do: the next connection begins with everything that the other end must know.
func (p *pipe) add(size int, write func(b []byte) []byte, body []byte) {
	if p == nil {
		return
	}
	p.Lock()
	defer p.Unlock()
	if p.Cause() != nil {
		return
	}
	small := len(body) < largeBody
	if small {
		size += len(body)
	}
	p.Room(size)
	before := len(p.Out)
	p.Out = write(p.Out)
	if p.planted.Has(plant.ReorderFrames) {
		p.Out = append(slices.Clone(p.Out[before:]), p.Out[:before]...)
	}
	if !small {
		p.Queue(body)
	}
}

// send queues a frame without a body.
func (p *pipe) send(f frame) {
	p.add(smallFrame, func(b []byte) []byte { return appendFrame(b, f) }, nil)
}

// greet queues what an end sends first: the preface, a frame, and what a later build would add.
func (p *pipe) greet(f frame, s support) {
	p.add(len(Preface)+2*smallFrame, func(b []byte) []byte {
		return s.appendOptional(appendFrame(append(b, Preface...), f))
	}, nil)
}

// Wrote implements conn.Owner.
func (p *pipe) Wrote(n int) {
	now := p.now()
	p.sent.Store(now)
	if p.Backlog()+n > deepOutput {
		p.heard.Store(now)
	}
}

// drain flushes, and waits until all output is out, but no longer than patience.
func (p *pipe) drain(patience time.Duration) {
	timer := time.AfterFunc(patience, func() { p.Fail(errStopped) })
	defer timer.Stop()
	p.Drain()
}
