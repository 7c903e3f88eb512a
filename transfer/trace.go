package transfer

import (
	"context"
	"runtime/trace"
)

// What a trace of the program shows (package runtime/trace): calls of Transfer as regions, and the moments of transfers as logs. It
// costs nothing while the program is not traced.
const (
	traceCall  = "serry transfer"  // from the arguments of a call to the start of its transfers
	traceStart = "transfers start" // a group, with how many it has
	traceMove  = "transfer moves"  // bytes of one begin to move
	traceEnd   = "transfer ends"
)

// traceGroup notes that a group begins.
func traceGroup(g *Group) {
	if trace.IsEnabled() {
		trace.Logf(context.Background(), traceStart, "%d", len(g.ops))
	}
}

// trace notes a moment of a transfer.
func (o *operation) trace(what string) {
	if trace.IsEnabled() {
		w := Waiting{Send: o.send, Key: o.op.Key, Src: o.op.Src, Dst: o.op.Dst}
		trace.Logf(context.Background(), what, "%s, %d bytes, with %v", w.name(), o.Shape.Bytes, o.peer.life.Task)
	}
}

// begin notes that bytes of a transfer begin to move.
func (o *operation) begin() {
	if o.starts++; o.starts == 1 {
		o.began = o.peer.now()
		o.trace(traceMove)
	}
}

// times fills in the times of a record.
func (o *operation) times(r *Record) {
	now := o.peer.now()
	admitted, began := o.admitted, o.began
	if !o.entered {
		admitted = now
	}
	if o.starts == 0 {
		began = now
	}
	r.Elapsed, r.Queued, r.Waited, r.Moved = now-o.posted, admitted-o.posted, began-admitted, now-began
	r.Resumed = max(0, o.starts-1)
}
