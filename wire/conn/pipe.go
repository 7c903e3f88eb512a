package conn

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry/internal/plant"
)

const (
	// PauseOutput is how much output may wait before a connection should be read no more.
	PauseOutput = 1 << 20

	flushRounds = 4        // how often a flush goes on with output that came meanwhile
	writeBytes  = 64 << 10 // of a write that may block, so that progress shows
	sealBytes   = 64 << 10 // of output that TLS encrypts at a time
)

// An Owner of a pipe hears how its output goes out.
type Owner interface {
	// Wrote says that the socket has taken n bytes. It is called with the lock held, and may append
	// more output.
	Wrote(n int)
}

// Totals count what the pipes that share them have written.
type Totals struct {
	Written, Flushes, Partial atomic.Uint64
}

// PipeConfig says what a pipe is for. The zero value is right.
type PipeConfig struct {
	Owner   Owner        // or nil
	Totals  *Totals      // or nil
	Planted plant.Faults // none, but in tests of tests
}

// A Pipe is the output of a connection. It is written without blocking the goroutine that queues it.
//
// Output is appended to Out, or queued whole by [Pipe.Queue], and leaves with the next [Pipe.Flush].
// The lock of the pipe guards it. The owner may guard its own state by the same lock, so that the end
// of a call and the bytes that tell of it are one step.
type Pipe struct {
	// Set in NewPipe, then constant.
	conn *Conn
	cfg  PipeConfig

	writers sync.WaitGroup

	sync.Mutex
	Out []byte // output behind all that is queued; Room makes room in it

	// Guarded by the lock.
	queue   []piece
	bytes   int       // of the queue, and of what is being written
	writing bool      // a goroutine has the role of the writer: see Flush
	blocked bool      // it is a writer goroutine, which may have to wait for the peer
	moved   time.Time // with blocked: when the socket last took output, or the goroutine began
	room    sync.Cond // output shrank, or the pipe ended
	cause   error     // why the pipe has ended, or nil
}

// A piece is a part of the output.
type piece struct {
	b      []byte
	n      int  // bytes of b that the socket has taken
	pooled bool // b may be recycled
	sealed bool // b is encrypted
}

func (s *piece) left() bool { return s.n < len(s.b) }

func (s *piece) recycle() {
	if s.pooled {
		Recycle(s.b)
	}
}

// NewPipe makes the pipe of a connection. From now on nothing else may write to that.
func NewPipe(c *Conn, cfg PipeConfig) *Pipe {
	if cfg.Totals == nil {
		cfg.Totals = new(Totals)
	}
	if c.tls != nil {
		c.sealed.hold.Store(true)
	}
	p := &Pipe{conn: c, cfg: cfg}
	p.room.L = p
	return p
}

// Room makes room for n more bytes in Out. The lock is held.
func (p *Pipe) Room(n int) {
	if cap(p.Out)-len(p.Out) >= n {
		return
	}
	if len(p.Out) >= Large/2 {
		p.cut()
	}
	p.Out = Grow(p.Out, n)
}

// Queue puts b behind the output without copying it: it must not be changed any more. The lock is held.
func (p *Pipe) Queue(b []byte) {
	p.cut()
	p.queue = append(p.queue, piece{b: b})
	p.bytes += len(b)
}

// cut moves Out to the queue. The lock is held.
func (p *Pipe) cut() {
	if len(p.Out) > 0 {
		p.queue = append(p.queue, piece{b: p.Out, pooled: true})
		p.bytes += len(p.Out)
	}
	p.Out = nil
}

// Backlog is how many bytes wait for the socket. The lock is held.
func (p *Pipe) Backlog() int { return p.bytes + len(p.Out) }

// Cause is why the pipe has ended, or nil. The lock is held.
func (p *Pipe) Cause() error { return p.cause }

// Stuck is how long the socket has taken nothing although there is output for it. The lock is held.
func (p *Pipe) Stuck() time.Duration {
	if !p.blocked || p.cause != nil {
		return 0
	}
	return time.Since(p.moved)
}

// Flush writes the output without blocking. What the socket does not take is left to a writer goroutine,
// which ends when everything is out. Flush says whether another goroutine is left with output.
//
// One goroutine writes at a time: the one that set writing. It hands the role on together with the rest of
// its piece (startWriter), or gives it back in rest, or keeps it because the pipe has ended. There is no
// other way: a writer that gave the role back a second time would take it from its successor, and the
// bytes of two frames would mix.
func (p *Pipe) Flush() (waits bool) {
	p.Lock()
	defer p.Unlock()
	if p.writing || p.Backlog() == 0 || p.cause != nil {
		return p.writing
	}
	p.writing = true
	for range flushRounds {
		s := p.take()
		p.put(&s, false)
		if s.left() && p.cause == nil {
			if _, untried := p.conn.out.(blocking); !untried {
				p.cfg.Totals.Partial.Add(1)
			}
			p.startWriter(s)
			return true
		}
		s.recycle()
		if p.rest() {
			return false
		}
	}
	p.startWriter(piece{})
	return true
}

// take removes the next piece of output: a part of it, if TLS would need much memory for the whole.
// The lock is held.
func (p *Pipe) take() piece {
	p.cfg.Totals.Flushes.Add(1)
	most := len(p.Out)
	if p.conn.tls != nil {
		most = sealBytes
	}
	if len(p.queue) == 0 && len(p.Out) <= most {
		s := piece{b: p.Out, pooled: true}
		p.bytes += len(p.Out)
		p.Out = nil
		return s
	}
	if len(p.queue) == 0 {
		p.cut()
	}
	first := &p.queue[0]
	s := *first
	if p.conn.tls != nil && len(s.b) > most {
		*first = piece{b: s.b[most:]}
		return piece{b: s.b[:most]}
	}
	*first = piece{}
	if p.queue = p.queue[1:]; len(p.queue) == 0 {
		p.queue = nil
	}
	return s
}

// put writes some of s, blocking if need be or not at all. The lock is held, but not during the write, nor
// while TLS encrypts s.
func (p *Pipe) put(s *piece, block bool) {
	if p.cause != nil {
		return
	}
	p.Unlock()
	n, before := 0, len(s.b)
	err := p.conn.seal(s)
	grew := len(s.b) - before
	if b := s.b[s.n:]; err == nil && block {
		n, err = p.conn.out.Wait(b[:min(len(b), writeBytes)])
	} else if err == nil {
		n, err = p.conn.out.Try(b)
	}
	p.cfg.Totals.Written.Add(uint64(n))
	p.Lock()
	s.n += n
	if err != nil {
		p.stop(err)
	}
	if p.cause != nil {
		return
	}
	p.bytes += grew
	if n > 0 {
		p.wrote(n)
	}
}

// wrote counts output that the socket has taken. The lock is held.
func (p *Pipe) wrote(n int) {
	if p.blocked {
		p.moved = time.Now()
	}
	p.bytes -= n
	if p.cfg.Owner != nil {
		p.cfg.Owner.Wrote(n)
	}
	if p.Backlog() < PauseOutput {
		p.room.Broadcast()
	}
}

// ErrWriters says that the role of the writer was given away twice.
var ErrWriters = errors.New("two goroutines write to one connection")

// rest gives the role of the writer back if there is nothing to write, and says whether the caller must
// stop. The lock is held, so that output which is queued later finds no writer. In a pipe that has ended
// the role is not given back: nothing may be written any more.
//
// Output that is counted but not queued is being written by another goroutine. That cannot happen; if it
// does, the connection ends before the bytes of two frames reach the other end as one.
func (p *Pipe) rest() bool {
	if p.bytes > 0 && len(p.queue) == 0 {
		p.stop(ErrWriters)
	}
	if p.cause != nil {
		return true
	}
	p.writing = p.Backlog() > 0
	p.blocked = p.blocked && p.writing
	return !p.writing
}

// startWriter hands the role of the writer to a goroutine, with what is left of s. The lock is held.
func (p *Pipe) startWriter(s piece) {
	p.writing = !p.cfg.Planted.Has(plant.SecondWriter)
	p.blocked, p.moved = true, time.Now()
	p.writers.Go(func() { p.write(s) })
}

// write writes the rest of s, and then all further output. It blocks on the peer.
func (p *Pipe) write(s piece) {
	p.Lock()
	defer p.Unlock()
	for {
		for s.left() && p.cause == nil {
			p.put(&s, true)
		}
		s.recycle()
		if p.rest() {
			return
		}
		s = p.take()
	}
}

// HoldBack waits while more than PauseOutput is unread.
func (p *Pipe) HoldBack() { p.await(PauseOutput) }

// Drain flushes, and waits until all output is out or the pipe has ended.
func (p *Pipe) Drain() {
	p.Flush()
	p.await(0)
}

// await waits while more output than that waits for the socket.
func (p *Pipe) await(most int) {
	p.Lock()
	defer p.Unlock()
	for p.Backlog() > most && p.cause == nil {
		p.room.Wait()
	}
}

// Pause waits for a while, or for the end of the pipe.
func (p *Pipe) Pause(d time.Duration) {
	over := false
	timer := time.AfterFunc(d, func() {
		p.Lock()
		defer p.Unlock()
		over = true
		p.room.Broadcast()
	})
	defer timer.Stop()
	p.Lock()
	defer p.Unlock()
	for !over && p.cause == nil {
		p.room.Wait()
	}
}

// Fail ends the pipe and its connection, from any goroutine. Output that is not written is dropped.
func (p *Pipe) Fail(err error) {
	p.Lock()
	defer p.Unlock()
	p.stop(err)
}

// stop is Fail with the lock held.
func (p *Pipe) stop(err error) {
	if p.cause != nil {
		return
	}
	p.cause = err
	p.queue, p.Out, p.bytes = nil, nil, 0
	p.room.Broadcast()
	p.conn.Close()
}

// Err is why the pipe has ended, or nil.
func (p *Pipe) Err() error {
	p.Lock()
	defer p.Unlock()
	return p.cause
}

// Wait waits for the writer goroutine of a pipe that has failed. It starts no other.
func (p *Pipe) Wait() { p.writers.Wait() }
