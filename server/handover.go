package server

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
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
	saved := make(chan struct{})
	if err := s.handler.queue.push(leaving{saved}); err != nil {
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

// leave makes the next wave the last one, with a snapshot. What comes after it is for the successor.
func (o *owner) leave(w leaving) {
	o.handler.mute.Store(true)
	o.picture().saved = w.saved
	o.commit()
	o.over = true
}

// HandoverAsked gets a value when somebody asks for a hand-over ([wire.LeadMethod]). Whoever made the
// server decides; a server without a journal refuses by itself.
func (s *Server) HandoverAsked() <-chan struct{} { return s.handler.asked }

// lead answers questions for the leadership. A hand-over comes after its answer, so that who asks need
// not ask again, and with that hand over twice.
func (h *handler) lead(c rpc.Conn, call rpc.CallID, body []byte) {
	r, err := wire.ReadLead(body)
	switch {
	case err != nil:
		c.Reply(call, nil, rpc.Status{Code: codes.InvalidArgument, Message: err.Error()})
		return
	case r.Handover && h.asked == nil:
		c.Reply(call, nil, rpc.Status{Code: codes.FailedPrecondition, Message: errNoJournal.Error()})
		return
	}
	c.Reply(call, wire.LeadReply{Term: h.term}.Bytes(), rpc.Status{})
	if r.Handover {
		select {
		case h.asked <- struct{}{}:
		default: // it is under way
		}
	}
}
