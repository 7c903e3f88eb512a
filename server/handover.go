package server

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
)

// errNoJournal says that there is nothing to hand over.
var errNoJournal = errors.New("the service has no journal that another could go on with")

// Handover ends the work of a leader that has a successor (C-STOP-4). When it returns nil the journal
// has a snapshot of everything that anybody has heard of, and nothing more will be answered: calls that
// wait, and those that still come, find no end here. The caller gives the leadership back and then
// closes the server, so that clients turn to the successor, which knows their calls.
func (s *Server) Handover(ctx context.Context) error {
	if s.owner.journal == nil {
		return errNoJournal
	}
	return s.leave(ctx, false)
}

// leave lets the owner leave, and returns when the snapshot is saved.
func (s *Server) leave(ctx context.Context, endPolls bool) error {
	saved := make(chan struct{})
	if err := s.handler.queue.push(leaving{saved, endPolls}); err != nil {
		return err
	}
	select {
	case <-saved:
		return nil
	case <-s.ended:
		return errors.Join(serry.ErrStopped, s.err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Shutdown ends the server, and returns when nothing of it runs any more. With a journal the service goes
// on with the next server on it, so nothing is said of an end: the journal gets a snapshot, connections
// close, and calls that wait on streams are repeated to the next server (C-STOP-4). Without a journal the
// service ends with the server, see [Server.Stop]. Later calls wait for the first.
func (s *Server) Shutdown(ctx context.Context) {
	if s.owner.journal == nil || s.cfg.Planted.Has(plant.PoliteEnd) {
		s.Stop(ctx)
		return
	}
	if s.ending.Load() { // a snapshot now would replace the last records, which tell how the service ended
		<-s.stopped
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	if err := s.leave(ctx, true); err != nil && !s.ending.Load() {
		// The journal has every record, and the next server reads it without the snapshot.
		s.cfg.Log.Warn("no snapshot for the next server", "err", err)
	}
	ctx, cancel = context.WithTimeout(ctx, leavePatience)
	defer cancel()
	s.end(ctx, func() {})
}

// leavePatience is how long direct clients of a server that leaves a service have to read their last
// replies. Their other calls have no answer, so the connections are not idle before.
const leavePatience = 200 * time.Millisecond

// Close ends the server without a word: connections break, and whoever waits on one learns nothing of
// how the job goes on. It is for a server that is no longer, or will soon be, the one to ask.
func (s *Server) Close() {
	s.handler.mute.Store(true)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.end(ctx, func() {})
}

// Done is closed when nothing of the server runs any more.
func (s *Server) Done() <-chan struct{} { return s.stopped }

// Err says, once the server is done, why it ended by itself: [store.ErrDeposed], or what its journal
// said. It is nil if somebody ended it.
func (s *Server) Err() error {
	<-s.stopped
	return s.err
}

// endPolls ends the error polls of stock clients that no relay stands before. Such a client dies when its
// connection takes the poll along; without a poll it waits for the next server (A-HA-7).
func (o *owner) endPolls() {
	for _, req := range slices.Sorted(maps.Keys(o.waiting)) {
		w := o.waiting[req]
		if _, relayed := w.to.peer.conn.(*stream.Conn); w.kind == coord.KindPollForError && !relayed && w.to.shape.Dialect != wire.Own {
			o.reply(coord.Reply{Req: req, Err: serry.ErrStopping})
		}
	}
}

// HandoverAsked gets a value when somebody asks for a hand-over ([wire.LeadMethod]). Whoever made the
// server decides; a server without a journal refuses by itself.
func (s *Server) HandoverAsked() <-chan struct{} { return s.handler.handoverAsked }

// StopAsked gets a value when somebody asks for the end of the service ([wire.LeadMethod]). Whoever made the
// server calls [Server.Stop], or does not; without Config.Stoppable the server refuses by itself.
func (s *Server) StopAsked() <-chan struct{} { return s.handler.stopAsked }

// errNotStoppable says that the service ends in another way.
var errNotStoppable = errors.New("the service belongs to another program, serry run for example: end that")

// lead answers questions for the leadership. A hand-over, or an end, comes after its answer, so that who asks
// need not ask again, and with that hand over twice.
func (h *handler) lead(c rpc.Conn, call rpc.CallID, body []byte) {
	refuse := func(code codes.Code, why error) { c.Reply(call, nil, rpc.Status{Code: code, Message: why.Error()}) }
	r, err := wire.ReadLead(body)
	switch {
	case err != nil:
		refuse(codes.InvalidArgument, err)
		return
	case r.Handover && h.handoverAsked == nil:
		refuse(codes.FailedPrecondition, errNoJournal)
		return
	case r.Stop && h.stopAsked == nil:
		refuse(codes.FailedPrecondition, errNotStoppable)
		return
	}
	c.Reply(call, wire.LeadReply{Term: h.term, Stopping: r.Stop}.Bytes(), rpc.Status{})
	if r.Stop {
		ask(h.stopAsked)
	} else if r.Handover {
		ask(h.handoverAsked)
	}
}

// ask puts a value into a channel that takes one. If there is one, what it asks for is under way.
func ask(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
