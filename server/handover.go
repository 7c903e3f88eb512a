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

// This file is how a leader ends while its service goes on: with a successor that leads already or soon
// (Handover), or with the next server on the same journal (Shutdown). The clients must not notice more than a
// slow answer. So the leader says nothing about an end: calls that wait are left without an answer, and
// their callers, relays and serry's own clients, repeat them to the next server under the same request ids.

// errNoJournal says that there is nothing to hand over.
var errNoJournal = errors.New("the service has no journal that another could go on with")

// Handover ends the work of a leader that has a successor (C-STOP-4). When it returns nil the journal has a
// snapshot of everything that a client has heard of, and the server answers nothing any more: neither calls that
// wait, nor those that still come. The caller gives the leadership back and then closes the server, so that
// clients turn to the successor, which knows their calls.
func (s *Server) Handover(ctx context.Context) error {
	if s.owner.journal == nil {
		return errNoJournal
	}
	return s.leave(ctx, false)
}

// leave lets the owner step its last wave, and returns when the snapshot of it is saved.
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
//
// Shutdown differs from Handover in two ways. It also ends the connections. And because this process is about
// to end, it answers the error polls of stock clients that are connected directly, which would die of a broken
// poll.
func (s *Server) Shutdown(ctx context.Context) {
	if s.owner.journal == nil || s.cfg.Planted.Has(plant.PoliteEnd) {
		s.Stop(ctx)
		return
	}
	if s.stopping.Load() {
		// A snapshot now would replace the last records, which tell how the service ended.
		<-s.stopped
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	if err := s.leave(ctx, true); err != nil && !s.stopping.Load() {
		// The journal has every record, and the next server reads it without the snapshot.
		s.cfg.Log.Warn("no snapshot for the next server", "err", err)
	}
	ctx, cancel = context.WithTimeout(ctx, leavePatience)
	defer cancel()
	s.end(ctx, func() {})
}

// leavePatience is how long direct clients of a server that shuts down have to read their last replies. Their
// waiting calls get no answer, so their connections never become idle, and to wait for that would be in vain.
const leavePatience = 200 * time.Millisecond

// Close ends the server without a word: connections break, and callers that wait learn nothing of how the job
// goes on. It is for a server that does not lead any more, or is about to hand over.
func (s *Server) Close() {
	s.handler.mute.Store(true)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.end(ctx, func() {})
}

// Done is closed when nothing of the server runs any more, whether a method ended it or its journal failed.
func (s *Server) Done() <-chan struct{} { return s.stopped }

// Err says, once the server is done, why it ended by itself: [store.ErrDeposed], or what its journal
// said. It is nil if a method of the server ended it.
func (s *Server) Err() error {
	<-s.stopped
	return s.err
}

// endPolls answers the error polls of stock clients that are connected directly, without a relay. Such a client
// dies when its connection breaks under a poll; without a poll it waits for the next server (A-HA-7).
func (o *owner) endPolls() {
	for _, req := range slices.Sorted(maps.Keys(o.waiting)) {
		w := o.waiting[req]
		if _, relayed := w.to.peer.conn.(*stream.Conn); w.kind == coord.KindPollForError && !relayed && w.to.shape.Dialect != wire.Serry {
			o.reply(coord.Reply{Req: req, Err: serry.ErrStopping})
		}
	}
}

// HandoverAsked gets a value when a person asks for a hand-over ([wire.LeadMethod]). The program that made the
// server decides; a server without a journal refuses by itself.
func (s *Server) HandoverAsked() <-chan struct{} { return s.handler.handoverAsked }

// StopAsked gets a value when a person asks for the end of the service ([wire.LeadMethod]). The program that made
// the server calls [Server.Stop], or does not; without Config.Stoppable the server refuses by itself.
func (s *Server) StopAsked() <-chan struct{} { return s.handler.stopAsked }

// errNotStoppable says that the service ends in another way.
var errNotStoppable = errors.New("the service belongs to another program, serry run for example: end that")

// lead answers a call about the leadership: who leads, hand over, or end. The answer leaves before the hand-over
// begins. If it came after, the caller's connection could break before it, and the caller would ask again, and
// with that make the successor hand over, too.
func (h *handler) lead(c rpc.Conn, call rpc.CallID, body []byte) {
	refuse := func(code codes.Code, why error) { c.Reply(call, nil, rpc.Status{Code: code, Message: why.Error()}) }
	r, err := wire.ReadLead(body)
	switch {
	case err != nil:
		refuse(codes.InvalidArgument, err)
		return
	case (r.Handover || r.Stop) && !h.binding.hold(c, rightRule, serry.TaskID{}):
		refuse(codes.PermissionDenied, h.binding.noOperator())
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

// ask puts a value into a channel that takes one. If it has one, what that asks for is under way.
func ask(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
