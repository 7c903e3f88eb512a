package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/detect"
	"github.com/serry-dev/serry/goodput"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
)

// stopPatience is how long Stop waits for clients to read their last replies, and Shutdown for the journal.
const stopPatience = 5 * time.Second

// A Server is a running coordination service. See the package comment.
//
// Its goroutines, besides those of the transports: owner.run; with a journal, journal.run and one that watches
// for the end of it; the scanner; and one that saves a snapshot, while there is one to save. All of them have
// ended when stopped is closed.
type Server struct {
	// Set in New, then constant.
	cfg       Config
	handler   *handler
	owner     *owner
	scanner   *scanner
	transport transport
	streams   *stream.Server
	stats     *stats

	stopping atomic.Bool   // a call of end has begun; later ones wait for it
	stopped  chan struct{} // closed when nothing of the server runs any more

	// Written by owner.run before it closes ended, read after that.
	ended     chan struct{}
	last      coord.View // the last state of the machine
	lastBooks books      // the last words of the account
	err       error      // why the journal ended, or nil
}

// New starts a service, or goes on with the one that cfg.Journal tells of. No client can reach it before
// [Server.Serve] is called. It runs until [Server.Shutdown], [Server.Stop] or until its journal fails.
//
// The parts know each other in one direction: transports call the handler, the handler queues for the owner, and
// the owner's waves come back to the handler's tables and to the connections. So they are made in the
// opposite order, and the transport, which lets the world in, comes last.
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	history := &past{}
	if cfg.Journal == nil {
		history.machine = coord.New(cfg.Cluster)
	} else if history, err = load(context.Background(), cfg.Journal, cfg.Cluster); err != nil {
		return nil, err
	}
	// Service time goes on from the last record, so that an outage extends deadlines (C-TIME-1).
	clk := clock{time.Now().Add(-time.Duration(history.machine.Now()))}
	methods := wire.Methods(valueLimit(cfg.Cluster.Limits))
	st := newStats()
	h := &handler{limits: cfg.Limits, binding: newBinding(cfg.TaskURI, cfg.Cluster.Jobs), clock: clk, queue: newQueue(cfg.Limits, clk), stats: st, term: cfg.Term, address: cfg.Address}
	h.takeover = cfg.takeover()
	h.inquiries = newInquiries(h.binding)
	// The two channels exist only where the server can do what a person asks for; elsewhere handler.lead
	// refuses. handler.serve takes handoverAsked as the sign that there is a journal.
	if cfg.Journal != nil {
		h.handoverAsked = make(chan struct{}, 1)
	}
	if cfg.Stoppable {
		h.stopAsked = make(chan struct{}, 1)
	}
	s := &Server{
		cfg:     cfg,
		handler: h,
		scanner: newScanner(cfg, clk, h),
		stats:   st,
		stopped: make(chan struct{}),
		ended:   make(chan struct{}),
	}
	s.streams = newStreams(cfg, h, methods)
	s.owner = newOwner(cfg, s)
	// The owner needs the handler and the handler needs this method of the owner. The handler is made first,
	// and gets the method here, before any transport can bring a call.
	h.help = s.owner.help
	// begin can fail only where there is a journal, so owner.journal is not nil in this branch. No goroutine of
	// the server runs yet. To end the requests to the store is all that has to be undone.
	if err := s.owner.begin(cfg, history, began); err != nil {
		s.owner.journal.cancel(err)
		return nil, err
	}
	s.transport = newTransport(cfg, h, methods, s.ServeStream)
	s.start()
	return s, nil
}

// takeover says whose place this server takes, or returns nil.
func (c Config) takeover() *wire.Takeover {
	if c.Former == "" {
		return nil
	}
	t := &wire.Takeover{From: c.Former, At: time.Now().UTC()}
	if !c.FormerLost.IsZero() {
		t.TookSeconds = time.Since(c.FormerLost).Seconds()
	}
	return t
}

// valueLimit is the size of the largest value that a client may store.
func valueLimit(l coord.Limits) int64 {
	if l.ValueBytes != 0 {
		return l.ValueBytes
	}
	return coord.DefaultLimits().ValueBytes
}

// newOwner makes an owner without a machine; owner.begin gives it one.
func newOwner(cfg Config, s *Server) *owner {
	o := &owner{
		handler:  s.handler,
		queue:    s.handler.queue,
		clock:    s.handler.clock,
		stats:    s.stats,
		progress: newProgress(cfg.Log),
		waiting:  make(map[coord.Req]*waiter),
		refused:  newRefusedCalls(),
		detector: detect.New[*stream.Session](detect.Config{
			Grace: cfg.LostGrace, Silence: cfg.Cluster.HeartbeatTimeout + cfg.HeartbeatSlack,
		}),
		settings: settingsOf(cfg.Cluster),

		accountant: newAccountant(cfg.Account, s.handler.clock),

		leastGrowth: cfg.SnapshotBytes,
		wave:        new(wave),
		due:         never,
	}
	// The log of barriers is the only part of the accountant that is used without the owner's turn. It has a
	// lock of its own.
	s.handler.inquiries.barriers = o.accountant.log
	o.performer = newPerformer(s)
	if cfg.Journal != nil {
		o.journal = newJournal(cfg.Journal, o.performer, cfg.Planted)
		o.room = roomOf(cfg.Journal)
	}
	return o
}

// start starts the goroutines of the server. The journal is closed after the owner has ended, which submits the
// last wave.
func (s *Server) start() {
	if j := s.owner.journal; j != nil {
		go j.run()
		go s.watch(j)
	}
	go func() {
		defer close(s.ended)
		s.owner.run()
		if j := s.owner.journal; j != nil {
			j.close()
			s.err = j.err
		}
		// The owner has ended, so this goroutine may read the machine without the turn. From now on View and
		// books return these values.
		s.last = s.owner.machine.View()
		s.lastBooks = s.owner.accountant.books(s.owner.clock.now())
	}()
	go s.scanner.run()
}

// watch ends the server when its journal has failed, or has been deposed. Nothing of what was not written has
// left, and nothing will (NEW-45): Close says nothing to clients, which find the next leader by themselves.
func (s *Server) watch(j *journal) {
	<-j.ended
	if j.err != nil {
		level := slog.LevelError
		if errors.Is(j.err, store.ErrDeposed) {
			level = slog.LevelWarn // another server leads: no loss
		}
		s.cfg.Log.Log(context.Background(), level, "journal ended", "err", j.err)
		s.Close()
	}
}

// Serve lets clients of all dialects in until l fails, which is an error, or the server is shut down; then it
// returns nil. It may be called for several listeners. It closes l.
func (s *Server) Serve(l net.Listener) error {
	select {
	case <-s.stopped:
		l.Close()
		return serry.ErrStopped
	default:
		return s.transport.serve(l)
	}
}

// Handler is for transports other than the server's own: they hand their calls to it.
func (s *Server) Handler() rpc.Handler { return s.handler }

// View is the state of the service, for people and tests. It is taken between two steps, so it is consistent; it
// may be ahead of what is durable. While the journal stands still it may wait. After the end of the server it
// is the last state.
func (s *Server) View() coord.View {
	answer := make(chan coord.View, 1)
	if err := s.handler.queue.push(viewWanted{answer}); err != nil {
		<-s.ended
		return s.last
	}
	// An owner that is over drops the commands that it finds in its queue, and this one may be among them. Then
	// no answer comes, and the end of the server ends the wait.
	select {
	case v := <-answer:
		return v
	case <-s.ended:
		return s.last
	}
}

// Goodput is how the time of the job was used so far, since its account began: see [Config.Account].
func (s *Server) Goodput() goodput.Goodput { return s.books().goodput }

// Account is a copy of the account of the job as it is now, for the server of the next attempt.
func (s *Server) Account() *goodput.Account { return s.books().account }

// books is what the account of the job says; after the end of the server, what it said last.
func (s *Server) books() books {
	answer := make(chan books, 1)
	if err := s.handler.queue.push(booksWanted{answer}); err != nil {
		<-s.ended
		return s.lastBooks
	}
	select {
	case b := <-answer:
		return b
	case <-s.ended:
		return s.lastBooks
	}
}

// OpenEpoch ends the present run of the job, whatever its state, and opens the next one, with other jobs if some
// are given (C-EPOCH-2). Tasks of the former run are told that their epoch is over, which ends them.
func (s *Server) OpenEpoch(ctx context.Context, jobs []coord.Job) error {
	if len(jobs) > 0 {
		if err := coord.ValidateJobs(jobs); err != nil {
			return err
		}
	}
	return s.order(ctx, coord.OpenEpoch{Service: newIncarnation(), Jobs: jobs})
}

// order steps the machine with an event of the operator and waits until its effects have left, which with a
// journal means that they are durable.
//
// After an error the event may still take effect. It stays in the queue when ctx ends, and a journal that fails
// while it writes the record may have written it.
func (s *Server) order(ctx context.Context, ev coord.Event) error {
	done := make(chan struct{})
	if err := s.handler.queue.push(operatorEvent{ev, done}); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-s.ended:
		return serry.ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Stop ends the service and with it the job (C-STOP-1), then the connections, in this order, so that every
// waiting call gets the service's own answer (C-STOP-2). Clients have until ctx ends, but at most a few
// seconds, to read it. After that nothing of the server runs any more. Later calls wait for the first. The
// next server on the journal opens another epoch.
func (s *Server) Stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	s.end(ctx, func() {
		// If ctx ends before the stop is durable, the connections close without its answers.
		_ = s.order(ctx, coord.Stop{})
	})
}

// end ends the server once; other calls wait for the first. last steps the last events. The order is such that
// every part can still use those behind it: connections end first, because they bring events; then the
// scanner; then the queue is closed, and the owner ends when it has stepped the rest. When ctx ends, the
// journal gives up writes that are under way, so that a store that hangs cannot keep the server from ending.
func (s *Server) end(ctx context.Context, last func()) {
	if !s.stopping.CompareAndSwap(false, true) {
		<-s.stopped
		return
	}
	defer close(s.stopped)
	if j := s.owner.journal; j != nil {
		defer context.AfterFunc(ctx, func() { j.cancel(serry.ErrStopped) })()
	}
	last()
	s.handler.inquiries.close()
	s.streams.Shutdown(ctx)
	s.transport.shutdown(ctx)
	close(s.scanner.stop)
	<-s.scanner.done
	s.handler.queue.close()
	<-s.ended
}

// Metrics gathers the numbers of the server, for Prometheus. They may be asked for while the server runs and after.
func (s *Server) Metrics() prometheus.Gatherer { return newMetrics(s) }

// Ready says whether a call that came now would be answered: nil, or why not. It does not take the owner's
// turn, so a probe gets its answer while the journal stands still.
func (s *Server) Ready() error {
	select {
	case <-s.Done():
		return serry.ErrStopped
	default:
		return nil
	}
}

// Exited tells the service that the process of a task has ended, as its launcher saw. It is about the life that
// the task has now, as soon as no connection carries that any more. An end with a cause ("signal 9") is a loss,
// known at once instead of after a grace; one without is a polite end, whether or not the task said goodbye.
func (s *Server) Exited(task serry.TaskID, cause string) {
	// The error is that the server has ended.
	_ = s.handler.queue.push(taskExited{task, cause})
}

// Lost tells the service that the life a task has now is lost, on evidence that needs no other: "host
// silent".
func (s *Server) Lost(task serry.TaskID, evidence string) {
	// The error is that the server has ended.
	_ = s.handler.queue.push(taskLost{task, evidence})
}
