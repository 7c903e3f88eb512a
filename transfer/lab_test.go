package transfer_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer"
)

// newPool makes a pool that the test must leave without open or dropped promises (TR-OBJ-9).
func newPool(t *testing.T) *transfer.Pool {
	t.Helper()
	p := &transfer.Pool{Trace: true}
	t.Cleanup(func() {
		p.Flush()
		if open, abandoned, origins := p.Promises(); open > 0 || abandoned > 0 {
			t.Errorf("%d promises are open and %d were dropped; those made at\n%v", open, abandoned, origins)
		}
	})
	return p
}

// bufferOf makes a buffer of bytes, which counts how often its memory is given back.
func bufferOf(t *testing.T, p *transfer.Pool, bytes []byte) (b *transfer.Buffer, freed *int) {
	t.Helper()
	freed = new(int)
	b, err := p.Buffer(
		transfer.Spec{Type: memory.U8, Dims: []int64{int64(len(bytes))}},
		transfer.Memory{Region: memory.Of(bytes), Free: func() { *freed++ }},
	)
	if err != nil {
		t.Fatal(err)
	}
	return b, freed
}

var errDevice = errors.New("device fell off the bus")

// A fakeDevice has queues whose work takes a time that the test sets.
type fakeDevice struct {
	transfer.Device // of which only Err is called
	mu              sync.Mutex
	lost            error
}

func (d *fakeDevice) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost
}

func (d *fakeDevice) lose() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost = errDevice
}

// A fakeQueue runs its work in order, in virtual time.
type fakeQueue struct {
	work    time.Duration // that a copy takes
	refuses error         // of Mark, or nil

	mu     sync.Mutex
	free   time.Time // when the last work is done
	marks  []time.Time
	afters int      // calls of After
	copies []func() // that copy if it is time
	looks  int      // calls of Reached
}

func (q *fakeQueue) begins() time.Time {
	if now := time.Now(); q.free.Before(now) {
		q.free = now
	}
	return q.free
}

func (q *fakeQueue) Copy(dst, src memory.Region) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free = q.begins().Add(q.work)
	at := q.free
	q.copies = append(q.copies, func() {
		if !time.Now().Before(at) {
			copy(dst.Bytes(), src.Bytes())
		}
	})
	return nil
}

func (q *fakeQueue) After(m transfer.Mark) error {
	other := m.Queue.(*fakeQueue)
	other.mu.Lock()
	at := other.marks[m.Number-1]
	other.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.afters++
	if q.begins(); q.free.Before(at) {
		q.free = at
	}
	return nil
}

func (q *fakeQueue) Mark() (transfer.Mark, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refuses != nil {
		return transfer.Mark{}, q.refuses
	}
	q.marks = append(q.marks, q.begins())
	return transfer.Mark{Queue: q, Number: uint64(len(q.marks))}, nil
}

func (q *fakeQueue) Reached() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.looks++
	n := uint64(0)
	for _, at := range q.marks {
		if !time.Now().Before(at) {
			n++
		}
	}
	for _, c := range q.copies {
		c()
	}
	return n
}
