package server

import (
	"maps"
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire/rpc"
)

// Commands of the server to its owner. Those that tell of an observation only pass it on to the detector;
// owner.item asks the detector for its verdicts afterwards.
type (
	// callCancelled: a client does not wait for a call any more.
	callCancelled struct {
		peer *peer
		call rpc.CallID
	}

	// connClosed: the transport of a connection has ended. The evidence is what that says against the lives
	// on it.
	connClosed struct {
		peer     *peer
		evidence string
	}

	// tasksSilent: a scan has found tasks of an epoch without a heartbeat.
	tasksSilent struct {
		epoch *epoch
		tasks []*sharedTask
	}

	// taskExited: a witness saw the process of a task end. An empty cause is a good end.
	taskExited struct {
		task  serry.TaskID
		cause string
	}

	// taskLost: a witness that needs no other evidence says that a task is lost.
	taskLost struct {
		task     serry.TaskID
		evidence string
	}

	// denied: the certificate of a peer does not name the task that it wants to register as.
	denied struct {
		peer   *peer
		caller coord.Call
		err    errNotBound
	}

	// viewWanted: a person, or a test, asks for a picture of the machine. The channel has room for it.
	viewWanted struct{ answer chan<- coord.View }

	// booksWanted: a person, or a page of metrics, asks how the time of the job is used. The channel has room for it.
	booksWanted struct{ answer chan<- books }

	// leaving: another server continues from here. saved is closed when the journal has the last snapshot.
	// With endPolls the error polls of direct stock clients are answered, because this process ends.
	leaving struct {
		saved    chan<- struct{}
		endPolls bool
	}

	// operatorEvent: a method of [Server] steps the machine. done is closed once the effects have left.
	operatorEvent struct {
		event coord.Event
		done  chan<- struct{}
	}
)

// do withdraws the call: the machine forgets it when the last caller that shares its waiter has given up. A call
// that is not there has been answered meanwhile. Withdrawn calls stay in the list of a shared waiter until
// they are most of it, so that giving up thousands of gets costs no square. The queue keeps the order: a
// transport withdraws a call only after it has served it, so the call came before this command.
func (c callCancelled) do(o *owner) {
	w := c.peer.calls[c.call]
	if w == nil {
		return
	}
	delete(c.peer.calls, c.call)
	if w.live--; w.live == 0 {
		o.release(w)
		o.step(coord.Cancel{Req: w.req})
	} else if len(w.more) > 2*w.live {
		w.more = slices.DeleteFunc(w.more, func(call rpc.CallID) bool { return c.peer.calls[call] != w })
	}
}

// do withdraws every call of the connection, in order, and tells the detector which lives it carried. closed
// makes the owner drop calls of the connection that another goroutine still had under way.
func (c connClosed) do(o *owner) {
	p := c.peer
	p.closed = true
	for _, call := range slices.Sorted(maps.Keys(p.calls)) {
		callCancelled{p, call}.do(o)
	}
	for _, l := range p.carried() {
		o.detector.Detached(l.Life, c.evidence, o.now)
	}
}

// do means the life that the task has now, because a launcher knows the task and not the incarnation.
func (c taskExited) do(o *owner) {
	o.detector.Exited(serry.Life{Task: c.task}, c.cause, o.now)
}

// do takes the word of a launcher as evidence against a task that it has given up, whether its process runs or not.
func (c taskLost) do(o *owner) { o.detector.Accused(c.task, c.evidence) }

// do tells people of the process that was turned away. The machine never hears of it.
func (c denied) do(o *owner) { o.noteRefusal(c.err, coord.KindRegisterTask, c.caller, c.peer) }

// do takes the view between two steps. Its time is that of now: the machine knows that of its last step, and while nothing
// happens in a job that stands still, a wait would not seem to grow.
func (c viewWanted) do(o *owner) {
	v := o.machine.View()
	v.Now = max(v.Now, o.time.at(o.now)) // on the clock every wait would have lasted longer, by all stalls
	c.answer <- v
}

// do takes the account between two steps.
func (c booksWanted) do(o *owner) { c.answer <- o.accountant.books(o.now) }

// do makes the next wave the last one, with a snapshot. What comes after it is for the successor: over lets the
// owner drop every later item, and mute keeps handlers from refusing calls in the name of a service that goes
// on.
func (c leaving) do(o *owner) {
	o.handler.mute.Store(true)
	if c.endPolls {
		o.endPolls()
	}
	o.takeSnapshot().saved = c.saved
	// The wave also has the effects of the items before this one in the batch. batch does not commit it,
	// because it returns as soon as over is set.
	o.commit()
	o.over = true
}

// do steps the event. It publishes an epoch without tasks if the service stops, so that no heartbeat is called a good one any
// more (C-HB-1).
func (c operatorEvent) do(o *owner) {
	o.step(c.event)
	if c.event == (coord.Stop{}) {
		o.epoch = &epoch{service: o.epoch.service, codec: o.epoch.codec}
		o.wave.epoch = o.epoch
		o.detector.Stopped()
	}
	o.wave.done = append(o.wave.done, c.done)
}
