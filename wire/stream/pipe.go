package stream

import (
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/wire/internal/socket"
)

const (
	flushRounds = 4        // how often a flush goes on with output that came meanwhile
	writeChunk  = 64 << 10 // of writes that may block, so that progress shows
	deepOutput  = 64 << 10 // with more waiting, what the socket takes is a sign of life
)

// A pipe is one connection as both ends use it: output that is written without blocking whoever
// queues it, and times that tell whether the other end lives. Its reader is in read.go.
type pipe struct {
	// Set once.
	nc   net.Conn
	raw  *socket.Conn // or nil: writes may block
	base time.Time    // zero of the times

	planted plant.Faults

	heard   atomic.Int64 // when something last showed that the other end lives
	moved   atomic.Int64 // when output last went out, or there was none
	sent    atomic.Int64 // when output was last handed over
	writers sync.WaitGroup

	mu struct {
		sync.Mutex
		room    sync.Cond // output shrank, or the pipe ended
		whole   []segment // before tail
		tail    []byte    // small frames
		bytes   int       // of both, and of what is being written
		writing bool      // a goroutine has the role of the writer: see flush
		cause   error     // why the pipe has ended, or nil
	}
}

// A segment is a piece of output.
type segment struct {
	b   []byte
	own bool // made here, to be recycled
}

func newPipe(nc net.Conn, base time.Time, planted plant.Faults) *pipe {
	p := &pipe{nc: nc, raw: socket.New(nc), base: base, planted: planted}
	p.mu.room.L = &p.mu
	now := p.now()
	p.heard.Store(now)
	p.moved.Store(now)
	p.sent.Store(now)
	return p
}

func (p *pipe) now() int64 { return int64(time.Since(p.base)) }

// silent is how long nothing has shown that the other end lives.
func (p *pipe) silent() time.Duration { return time.Duration(p.now() - p.heard.Load()) }

// stuck is how long output has waited without any of it going out, and how much there is.
func (p *pipe) stuck() (time.Duration, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.bytes == 0 {
		return 0, 0
	}
	return time.Duration(p.now() - p.moved.Load()), p.mu.bytes
}

// add queues a frame: write appends it to the buffer, but not its body if that is large.
func (p *pipe) add(size int, write func(b []byte) []byte, body []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.cause != nil {
		return
	}
	if p.mu.bytes == 0 {
		p.moved.Store(p.now())
	}
	small := len(body) < largeBody
	if small {
		size += len(body)
	}
	if cap(p.mu.tail)-len(p.mu.tail) < size {
		p.turn(size)
	}
	before := len(p.mu.tail)
	p.mu.tail = write(p.mu.tail)
	if p.planted.Has(plant.ReorderFrames) {
		p.mu.tail = append(slices.Clone(p.mu.tail[before:]), p.mu.tail[:before]...)
	}
	p.mu.bytes += len(p.mu.tail) - before
	if !small {
		p.close(&p.mu.tail)
		p.mu.whole = append(p.mu.whole, segment{body, false})
		p.mu.bytes += len(body)
	}
}

// turn makes room in the tail for a frame of about that size; mu is held.
func (p *pipe) turn(size int) {
	if len(p.mu.tail) >= socket.Large/2 {
		p.close(&p.mu.tail)
	}
	p.mu.tail = socket.Grow(p.mu.tail, size)
}

// close makes the tail a segment; mu is held.
func (p *pipe) close(tail *[]byte) {
	if len(*tail) > 0 {
		p.mu.whole = append(p.mu.whole, segment{*tail, true})
	}
	*tail = nil
}

// take removes the next piece of output; mu is held.
func (p *pipe) take() segment {
	if len(p.mu.whole) == 0 {
		s := segment{p.mu.tail, true}
		p.mu.tail = nil
		return s
	}
	s := p.mu.whole[0]
	p.mu.whole[0] = segment{}
	if p.mu.whole = p.mu.whole[1:]; len(p.mu.whole) == 0 {
		p.mu.whole = nil
	}
	return s
}

// flush writes the output without blocking. What the socket does not take is left to a writer goroutine,
// which ends when everything is out.
//
// One goroutine writes at a time: the one that set writing. It hands the role on together with the rest of
// its segment (startWriter), or gives it back in rest, or keeps it because the pipe has ended. There is
// no other way: a writer that gave the role back a second time would take it from its successor, and the
// bytes of two frames would mix.
func (p *pipe) flush() {
	p.mu.Lock()
	if p.mu.writing || p.mu.bytes == 0 || p.mu.cause != nil {
		p.mu.Unlock()
		return
	}
	p.mu.writing = true
	for round := 0; ; round++ {
		s := p.take()
		if p.raw == nil || round == flushRounds {
			p.startWriter(s, 0)
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		n, err := p.raw.Try(s.b)
		p.mu.Lock()
		if err != nil {
			p.stop(err)
		}
		p.went(n)
		if n < len(s.b) && p.mu.cause == nil {
			p.startWriter(s, n)
			p.mu.Unlock()
			return
		}
		s.recycle()
		if p.rest() {
			p.mu.Unlock()
			return
		}
	}
}

// errWriters says that the role of the writer was given away twice.
var errWriters = errors.New("stream: two goroutines write to one connection")

// rest gives the role of the writer back if there is nothing to write, and says whether the caller must
// stop; mu is held, so that output which is queued later finds no writer. In a pipe that has ended the
// role is not given back: nothing may be written any more.
//
// Output that is counted but not queued is being written by another goroutine. That cannot happen; if it
// does, the connection ends before the bytes of two frames reach the other end as one.
func (p *pipe) rest() bool {
	if queued := len(p.mu.whole) + len(p.mu.tail); p.mu.bytes > 0 && queued == 0 {
		p.stop(errWriters)
	}
	if p.mu.cause != nil {
		return true
	}
	p.mu.writing = p.mu.bytes > 0
	return !p.mu.writing
}

func (s segment) recycle() {
	if s.own {
		socket.Recycle(s.b)
	}
}

// went counts output that the socket has taken; mu is held. A pipe that has ended has no output.
func (p *pipe) went(n int) {
	if n == 0 || p.mu.cause != nil {
		return
	}
	now := p.now()
	p.moved.Store(now)
	p.sent.Store(now)
	if p.mu.bytes > deepOutput {
		p.heard.Store(now)
	}
	if p.mu.bytes -= n; p.mu.bytes < pauseOutput {
		p.mu.room.Broadcast()
	}
}

// startWriter hands the role of the writer to a goroutine, with s, of which n bytes are out; mu is held.
func (p *pipe) startWriter(s segment, n int) {
	p.mu.writing = !p.planted.Has(plant.SecondWriter)
	p.writers.Go(func() {
		if err := p.write(s, n); err != nil {
			p.fail(err)
		}
	})
}

// write writes s from byte n on, and then all further output. It blocks on the peer.
func (p *pipe) write(s segment, n int) error {
	for {
		for n < len(s.b) {
			k, err := p.put(s.b[n:])
			if err != nil {
				return err
			}
			n += k
			p.mu.Lock()
			p.went(k)
			p.mu.Unlock()
		}
		s.recycle()
		p.mu.Lock()
		if p.rest() {
			p.mu.Unlock()
			return nil
		}
		s, n = p.take(), 0
		p.mu.Unlock()
	}
}

func (p *pipe) put(b []byte) (int, error) {
	b = b[:min(len(b), writeChunk)]
	if p.raw != nil {
		return p.raw.Wait(b)
	}
	return p.nc.Write(b)
}

// fail ends the pipe, from any goroutine.
func (p *pipe) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop(err)
}

// stop is fail with mu held.
func (p *pipe) stop(err error) {
	if p.mu.cause != nil {
		return
	}
	p.mu.cause = err
	p.mu.whole, p.mu.tail, p.mu.bytes = nil, nil, 0
	p.mu.room.Broadcast()
	p.nc.Close()
}

// err is why the pipe has ended, or nil.
func (p *pipe) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.cause
}

// holdBack waits while the peer leaves too much output unread.
func (p *pipe) holdBack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.mu.bytes > pauseOutput && p.mu.cause == nil {
		p.mu.room.Wait()
	}
}
