package transfer

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/transfer/internal/match"
)

// A Key names a transfer between two devices. Both processes know it without talking to each other. It is used once.
type Key struct{ Namespace, Seq uint64 }

// String is the number, with the namespace in front if there is one.
func (k Key) String() string {
	text := strconv.FormatUint(k.Seq, 10)
	if k.Namespace != 0 {
		text = strconv.FormatUint(k.Namespace, 10) + "/" + text
	}
	return text
}

// A Class says which transfers go first.
type Class uint8

// The classes. Every class moves, also beside a more urgent one.
const (
	Normal Class = iota
	Urgent       // small, or waited for: activations of a pipeline
	Bulk         // weights, checkpoints
)

// link is the class of the link layer.
func (c Class) link() link.Class {
	switch c {
	case Urgent:
		return link.Urgent
	case Bulk:
		return link.Bulk
	}
	return link.Normal
}

// An Op is a half of a transfer: a send if its source is a device of this process, a receive if its destination is.
type Op struct {
	Key      Key
	Src, Dst serry.DeviceID

	// Buffer has the data of a send. Of a receive it is the memory, whose content the transfer defines; nil means that
	// the engine takes memory for Spec.
	Buffer *Buffer
	Spec   Spec

	// View is the part of Buffer that moves, if not all of it does: Spec says what it is, and the other half has the same Spec. A
	// send may have the same bytes several times, and go backwards: its strides may be 0 or less. It is for memory of the host.
	View View

	After []*Event // that must end before anything moves
	Class Class

	// InOrder has a send wait until those before it between the same two devices that are InOrder have ended. Without it, a small
	// one may overtake a large one. The receiver need not say it.
	InOrder bool
}

// shapes remembers the last shape: buffers of a group are mostly alike.
type shapes struct {
	mu    sync.Mutex
	spec  Spec
	shape match.Shape
}

func (x *shapes) of(s Spec) (match.Shape, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.shape.Text != "" && x.spec.Equal(s) {
		return x.shape, nil
	}
	shape, err := shapeOf(s)
	if err == nil {
		x.spec, x.shape = s, shape
		x.spec.Dims = slices.Clone(s.Dims)
	}
	return shape, err
}

// shape is what the other half must have in common with a buffer.
func shapeOf(s Spec) (match.Shape, error) {
	size, err := s.Bytes()
	if err != nil {
		return match.Shape{}, err
	}
	text := s.String()
	digest := fnv.New64a()
	fmt.Fprintf(digest, "%d %v %q %d", s.Type, s.Dims, s.Layout, size)
	return match.Shape{Bytes: size, Digest: digest.Sum64(), Text: text[:min(len(text), match.MaxText)]}, nil
}

// An Item is one transfer of a group.
type Item struct {
	Buffer *Buffer // of the op, or the one that the engine made
	Event  *Event  // ends with the transfer; its error is an *Error, or that of the data
}

// A Group is the transfers of one call. They are independent of each other: one that fails leaves the others alone.
type Group struct {
	engine *Engine
	items  []Item
	ops    []*operation
	open   atomic.Int64 // transfers that have not ended
	done   *Event
	failed *Event
	detach func() bool // ends the watch over the context
}

// Items are the transfers, in the order of the call.
func (g *Group) Items() []Item { return g.items }

// Done ends when all transfers have, with the error of the first in the list that failed.
func (g *Group) Done() *Event { return g.done }

// ended notes that a transfer has, after its event.
func (g *Group) ended(err error) {
	if err != nil {
		g.failed.end(err)
	}
	if g.open.Add(-1) > 0 {
		return
	}
	g.failed.end(nil)
	for _, item := range g.items {
		if err := item.Event.Err(); err != nil {
			g.done.end(err)
			return
		}
	}
	g.done.end(nil)
}

// Failed ends when the first transfer has failed, with its error; or completes when all have ended well.
func (g *Group) Failed() *Event { return g.failed }

// Progress is how many bytes of the group have moved, and how many there are. What a receiver copies from the memory of the
// sender, the sender counts when it has ended.
func (g *Group) Progress() (done, all int64) {
	for _, o := range g.ops {
		done += o.moved.Load()
		all += o.Shape.Bytes
	}
	return done, all
}

// Cancel ends the transfers of the group that have not ended, on both sides.
func (g *Group) Cancel(cause error) {
	v := match.Verdict{Code: match.Cancelled}
	if cause != nil {
		v.Text = cause.Error()
	}
	g.each(func(o *operation) { o.peer.cancel(o, v) })
}

// fewOps is how many operations are begun before the peer hears of them.
const fewOps = 32

// each calls f for the operations of the group, on the goroutines of their peers.
func (g *Group) each(f func(*operation)) {
	for _, p := range peersOf(g.ops) {
		p.doHere(func() {
			for i, o := range g.ops {
				if o.peer == p {
					f(o)
				}
				if i%fewOps == fewOps-1 {
					p.perform()
				}
			}
		})
	}
}

// peersOf lists the peers of operations, in the order in which they first appear.
func peersOf(ops []*operation) (list []*peer) {
	seen := make(map[*peer]bool)
	for _, o := range ops {
		if !seen[o.peer] {
			seen[o.peer] = true
			list = append(list, o.peer)
		}
	}
	return list
}

// watch cancels the group when the context of its call is cancelled. Its deadline is kept by the machines.
func (g *Group) watch(ctx context.Context) {
	g.detach = context.AfterFunc(ctx, func() {
		if ctx.Err() == context.Canceled {
			g.Cancel(context.Cause(ctx))
		}
	})
	g.done.onEnd(func() { g.detach() })
}
