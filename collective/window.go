package collective

import (
	"context"
	"encoding/binary"

	"github.com/serry-dev/serry/internal/lockrank"
	"github.com/serry-dev/serry/internal/schedule"
	"github.com/serry-dev/serry/memory"
)

const maxWindows = 1024 // of one rank that are open

// A Window is memory that the ranks of a clique have offered to each other: every rank may write into the memory of
// every other one by [Put]. Get it from [Comm.Offer].
type Window struct {
	// Set by Offer, then constant.
	comm   *Comm
	number uint64  // the sequence number of the Offer, so all ranks name the window alike
	memory []byte  // of this rank
	sizes  []int64 // by rank

	mu struct {
		lockrank.Mutex[windowLock]
		closed  bool
		writers int
		idle    chan struct{} // closed when the last writer has ended; nil while no caller waits
	}
}

// Offer offers memory of this rank to the other ranks of the clique. All ranks must call it, like an operation; the memory
// may be empty, and of another size on each rank. Until [Window.Close] has returned the other ranks may write into it at
// any moment, and the program reads only what a signal has told it of (CL-OP-22).
func (c *Comm) Offer(ctx context.Context, r memory.Region) (*Window, error) {
	ctx, cancel := c.group.bounded(ctx)
	defer cancel()
	const entry = 8
	w := &Window{comm: c, sizes: make([]int64, c.Size())}
	mine := binary.LittleEndian.AppendUint64(nil, uint64(r.Len()))
	all := make([]byte, entry*c.Size())
	op, err := c.begin(ctx, offering{AllGather{In: memory.Of(mine), Out: memory.Of(all), Count: entry, Type: memory.U8}, w, r})
	if err != nil {
		return nil, err
	}
	if err := op.run(ctx); err != nil {
		c.remote.forgetWindow(w)
		return nil, err
	}
	for rank := range w.sizes {
		w.sizes[rank] = int64(binary.LittleEndian.Uint64(all[rank*entry:]))
	}
	return w, nil
}

// Size is how many bytes a rank has offered.
func (w *Window) Size(rank int) int64 { return w.sizes[rank] }

// Close takes the memory of this rank back. It waits until no rank writes into it any more, which it does not
// interrupt; if ctx ends before, the window stays closed to new writes and Close may be called again. A rank that
// puts into a window which is closed ends the clique, so ranks close it after a [Quiet] and a [Barrier] of all.
func (w *Window) Close(ctx context.Context) error {
	w.comm.remote.forgetWindow(w)
	w.mu.Lock()
	w.mu.closed = true
	if w.mu.writers == 0 {
		w.mu.Unlock()
		return nil
	}
	if w.mu.idle == nil {
		w.mu.idle = make(chan struct{})
	}
	idle := w.mu.idle
	w.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// enter notes a writer, unless the window is closed.
func (w *Window) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.mu.closed {
		w.mu.writers++
	}
	return !w.mu.closed
}

// exit notes that a writer has ended.
func (w *Window) exit() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.writers--
	if w.mu.writers == 0 && w.mu.idle != nil {
		close(w.mu.idle)
		w.mu.idle = nil
	}
}

// within says whether a range lies in size bytes.
func within(offset, count, size int64) bool {
	return offset >= 0 && count >= 0 && count <= size && offset <= size-count
}

// An offering is the all-gather of an Offer, under a name of its own.
type offering struct {
	AllGather
	window *Window
	memory memory.Region
}

func (o offering) prepare(c *Comm) (*call, error) {
	k, err := o.AllGather.prepare(c)
	if err != nil {
		return nil, err
	}
	k.op, k.job.Op = opNumber(offer), schedule.AllGather
	k.offers = o.window
	o.window.memory = k.region("memory", o.memory, o.memory.Len())
	if c.remote.openWindows() >= maxWindows {
		k.fail("more than %d windows are open", maxWindows)
	}
	return k.done()
}
