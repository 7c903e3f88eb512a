package server

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
)

// stopPatience is how long Shutdown waits for clients to read their last replies.
const stopPatience = 5 * time.Second

// A Server is a running coordination service. See the package comment.
type Server struct {
	// Set in New, then constant.
	cfg       Config
	handler   *handler
	owner     *owner
	silence   *silence
	transport transport
	stats     *stats

	stop    sync.Once
	stopped chan struct{} // closed when Shutdown has ended everything
	ended   chan struct{} // closed when the owner has ended
	last    coord.View    // what the owner saw last; read only after ended
}

// New starts a service. It serves nobody until [Server.Serve] is called, and runs until
// [Server.Shutdown].
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	clk := clock{time.Now()}
	methods := wire.Methods(valueLimit(cfg.Cluster.Limits))
	st := newStats()
	h := &handler{limits: cfg.Limits, taskURI: cfg.TaskURI, clock: clk, queue: newQueue(cfg.Limits), stats: st}
	s := &Server{
		cfg:     cfg,
		handler: h,
		silence: newSilence(cfg, clk, h),
		stats:   st,
		stopped: make(chan struct{}),
		ended:   make(chan struct{}),
	}
	s.owner = newOwner(cfg, s)
	s.transport = newTransport(cfg, h, methods)
	s.start()
	return s, nil
}

func valueLimit(l coord.Limits) int64 {
	if l.ValueBytes != 0 {
		return l.ValueBytes
	}
	return coord.DefaultLimits().ValueBytes
}

func newOwner(cfg Config, s *Server) *owner {
	o := &owner{
		handler:  s.handler,
		queue:    s.handler.queue,
		clock:    s.handler.clock,
		stats:    s.stats,
		silence:  s.silence,
		progress: newProgress(cfg.Log),
		machine:  coord.New(cfg.Cluster),
		waiting:  make(map[coord.Req]*waiter),
		links:    newLinks(cfg.LostGrace),
		fanout:   newFanout(),
	}
	o.opened(coord.Opened{Epoch: 1, Service: cfg.Cluster.Service, Jobs: cfg.Cluster.Jobs})
	o.perform()
	return o
}

func (s *Server) start() {
	go func() {
		defer close(s.ended)
		s.owner.run()
		s.last = s.owner.machine.View()
	}()
	go s.silence.run()
}

// Serve lets in clients of both dialects until l fails or the server is shut down; then it returns
// nil. It may be called for several listeners. It closes l.
func (s *Server) Serve(l net.Listener) error {
	select {
	case <-s.stopped:
		l.Close()
		return serry.ErrStopped
	default:
		return s.transport.serve(l)
	}
}

// Handler is what a transport of another make hands its calls to.
func (s *Server) Handler() rpc.Handler { return s.handler }

// View draws a picture of the service.
func (s *Server) View() coord.View {
	answer := make(chan coord.View, 1)
	if err := s.handler.queue.push(item{word: viewing{answer}}, false); err != nil {
		<-s.ended
		return s.last
	}
	return <-answer
}

// OpenEpoch ends the present run of the job, whatever its state, and opens the next one, with other
// jobs if some are given (C-EPOCH-2).
func (s *Server) OpenEpoch(ctx context.Context, jobs []coord.Job) error {
	if len(jobs) > 0 {
		if err := coord.ValidateJobs(jobs); err != nil {
			return err
		}
	}
	return s.order(ctx, coord.OpenEpoch{Service: newIncarnation(), Jobs: jobs})
}

// order steps the machine with an event of ours and waits until its effects have left.
func (s *Server) order(ctx context.Context, ev coord.Event) error {
	done := make(chan struct{})
	if err := s.handler.queue.push(item{word: ordered{ev, done}}, false); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Shutdown ends the service, then the connections, in this order, so that every waiting call gets
// the service's own answer (C-STOP-2). Clients have until ctx ends, but at most a few seconds, to
// read it. After that nothing of the server runs any more. Later calls wait for the first.
func (s *Server) Shutdown(ctx context.Context) {
	s.stop.Do(func() {
		defer close(s.stopped)
		ctx, cancel := context.WithTimeout(ctx, stopPatience)
		defer cancel()
		// It cannot fail but by ctx, and then the connections go at once.
		_ = s.order(ctx, coord.Stop{})
		s.transport.shutdown(ctx)
		close(s.silence.stop)
		<-s.silence.done
		s.handler.queue.close()
		<-s.ended
	})
	<-s.stopped
}

// Metrics serves the numbers of the server in the form Prometheus reads.
func (s *Server) Metrics() http.Handler { return newMetrics(s) }

// Exited tells the service that the process of a task has ended, as whoever started it saw. It is
// about the life that the task has now, as soon as nothing carries that any more. An end with a cause
// ("signal 9") is a loss, known at once instead of after a grace; one without is a polite end, whether
// or not the task said goodbye.
func (s *Server) Exited(task serry.TaskID, cause string) {
	// A server that has ended has no use for it.
	_ = s.handler.queue.push(item{word: exited{task, cause}}, false)
}

// Lost tells the service that the life a task has now is lost, on evidence that needs no other: "host
// silent".
func (s *Server) Lost(task serry.TaskID, evidence string) {
	// A server that has ended has no use for it.
	_ = s.handler.queue.push(item{word: accused{task, evidence}}, false)
}
