package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/relay"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/conn"
	"github.com/serry-dev/serry/wire/front"
	"github.com/serry-dev/serry/wire/stream"
)

// Config is what a node is told once. Store, Server and Address must be given.
type Config struct {
	// Store is where the nodes of the service meet. The node does not close it.
	Store store.Store

	// Server is the configuration of the service, the same for all nodes. Its Journal and its Term are
	// those of each leadership.
	Server server.Config

	// Address is where other nodes, relays and clients reach this one.
	Address string

	// Name is that of this node among Members; both may be zero. Members knows the other nodes, for people to read.
	Name    string
	Members Members

	// TLS makes the configuration for streams to a leader, by its name (mtls.Identity.Client does);
	// nil: plain.
	TLS func(host string) *tls.Config

	// Dial makes connections to nodes in place of the network, below TLS.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

const (
	// campaignPause is how long a node waits after a leadership that did not begin, or was over at once,
	// or after a store that could not be asked. It grows up to longestPause while that goes on.
	campaignPause = 500 * time.Millisecond

	// successorPatience is how long a leader that has resigned waits for the next one to show. A
	// candidate that stands by is the leader as soon as the store has heard of the resignation.
	successorPatience = 2 * time.Second

	// leaderPatience is how long a stream waits at a node that knows of no leader, before it is sent
	// away to look elsewhere.
	leaderPatience = 2 * time.Second

	// stopPatience is how long Shutdown lets clients read their last replies.
	stopPatience = 5 * time.Second
)

// A Node is one process of a service. See the package comment.
type Node struct {
	// Set in New, then constant.
	cfg   Config
	log   *slog.Logger
	relay *relay.Relay
	front *front.Server

	ctx    context.Context // of campaigns and watches
	cancel context.CancelCauseFunc
	work   sync.WaitGroup

	stop    sync.Once
	stopped chan struct{} // closed when nothing of the node runs any more

	deposed sync.Map // by address: leaders that this node has deposed and was not connected to since

	mu struct {
		sync.Mutex
		office  *office       // or nil: it stands by
		leader  store.Leader  // the newest that the store told of
		former  store.Leader  // the last other server that led before it
		lost    store.Leader  // the last one that was found to be gone,
		lostAt  time.Time     // and when its connection broke
		changed chan struct{} // closed when one of these changes
		leaving bool          // no more campaigns
		page    string        // address of its page, or empty
		err     error         // why it ended by itself
	}
}

// An office is a leadership of this node.
type office struct {
	server *server.Server
	reign  store.Reign
}

// ErrTaskURI says why a service of several servers cannot bind tasks to certificates (SEC-42).
var ErrTaskURI = errors.New("certificates cannot be bound to tasks where several servers are one service: " +
	"a server calls the leader for its clients with its own certificate, which would be taken for theirs; " +
	"run one server with a file, or leave out the task URI (--tls-task-uri)")

// New starts a node: it campaigns. It takes no connections until [Node.Serve] is called.
func New(cfg Config) (*Node, error) {
	if err := cfg.Server.Validate(); err != nil {
		return nil, err
	}
	if cfg.Store == nil || cfg.Address == "" {
		return nil, errors.New("a node wants a store and an address")
	}
	if cfg.Server.TaskURI != "" {
		return nil, ErrTaskURI
	}
	n := &Node{cfg: cfg, log: cfg.Server.Log, stopped: make(chan struct{})}
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	n.ctx, n.cancel = context.WithCancelCause(context.Background())
	n.mu.changed = make(chan struct{})
	r, err := relay.New(relay.Config{
		Upstream: []string{cfg.Address}, Operators: true, TLS: cfg.TLS, Dial: cfg.Dial, Loop: n.loop,
		MaxValueBytes: cfg.Server.Cluster.Limits.ValueBytes, Log: n.log, Planted: cfg.Server.Planted,
	})
	if err != nil {
		n.cancel(err)
		return nil, err
	}
	n.relay = r
	methods := r.Methods()
	maps.Copy(methods, wire.ServerMethods())
	n.front = front.New(front.Config{
		Handler: answering{r.Handler(), n}, Methods: methods, TLS: cfg.Server.TLS, Log: n.log,
		Others: []conn.Protocol{stream.Accept(n.serveStream)},
	})
	n.work.Go(n.follow)
	n.work.Go(n.campaign)
	return n, nil
}

// Serve lets in clients, and streams of relays, until l fails or the node is shut down; then it returns
// nil. It may be called for several listeners. It closes l.
func (n *Node) Serve(l net.Listener) error {
	select {
	case <-n.stopped:
		l.Close()
		return serry.ErrStopped
	default:
	}
	if err := n.front.Serve(l); !errors.Is(err, front.ErrServerClosed) {
		return err
	}
	return nil
}

// Leader says who leads, as far as this node knows, and whether it is this node and serves.
func (n *Node) Leader() (l store.Leader, here bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.leader, n.mu.office != nil
}

// Server is the server of the present leadership, or nil while the node stands by.
func (n *Node) Server() *server.Server {
	if o := n.office(); o != nil {
		return o.server
	}
	return nil
}

// Metrics gathers the numbers of the server if this node leads now, else those of its relay, for Prometheus. Either
// way it says whether this node leads, in which term, and the rules of the service (DLV-40).
func (n *Node) Metrics() prometheus.Gatherer {
	if s := n.Server(); s != nil {
		return s.Metrics()
	}
	standby := prometheus.NewRegistry()
	standby.MustRegister(server.Rules{Config: n.cfg.Server}, standing{n.relay.Status().Term})
	return prometheus.Gatherers{standby, n.relay.Metrics()}
}

// standing shows that a node stands by, and the term of the leader that it saw last.
type standing struct{ term uint64 }

var (
	leaderMetric = prometheus.NewDesc("serry_leader", "1 where this server leads.", nil, nil)
	termMetric   = prometheus.NewDesc("serry_term", "Number of the leadership; 0 for a server without a journal.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (s standing) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, ch) }

// Collect implements [prometheus.Collector].
func (s standing) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(leaderMetric, prometheus.GaugeValue, 0)
	ch <- prometheus.MustNewConstMetric(termMetric, prometheus.GaugeValue, float64(s.term))
}

// Ready says whether a call that came now would be answered: nil if this node leads or is connected to the node
// that does, or why not.
func (n *Node) Ready() error {
	if s := n.Server(); s != nil {
		return s.Ready()
	}
	return n.relay.Ready()
}

// Done is closed when nothing of the node runs any more.
func (n *Node) Done() <-chan struct{} { return n.stopped }

// Err says, once the node is done, why it ended by itself; nil if it was shut down.
func (n *Node) Err() error {
	<-n.stopped
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.err
}

func (n *Node) office() *office {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.office
}

// change changes what streams wait for. f runs with the lock held.
func (n *Node) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	close(n.mu.changed)
	n.mu.changed = make(chan struct{})
}

// leaving says whether the node campaigns no more.
func (n *Node) leaving() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.leaving
}

// campaign leads again and again, until the node ends.
func (n *Node) campaign() {
	for wait := campaignPause; !n.leaving(); {
		began := time.Now()
		reign, err := n.cfg.Store.Campaign(n.ctx, store.Candidate{Address: n.cfg.Address})
		elected := time.Now()
		if err == nil {
			err = n.lead(reign, began)
		}
		switch {
		case errors.Is(err, server.ErrOtherJob):
			n.fail(err)
			return
		case unreadable(err):
			// A newer server has led and written what this build cannot read. The node goes on for its
			// clients, and as a member of the store where it is one, but campaigns no more.
			n.log.Error("this node cannot lead", "err", err)
			return
		case err == nil || time.Since(elected) >= steadyTime:
			wait = campaignPause
		case n.ctx.Err() == nil:
			n.log.Warn("leadership did not last", "err", err)
			_ = pause.For(n.ctx, wait) // a node that ends campaigns no more
			wait = min(2*wait, longestPause)
		}
	}
}

// unreadable says whether a leadership did not begin because of the version of the journal.
func unreadable(err error) bool {
	_, other := errors.AsType[*coord.VersionError](err)
	return other
}

// fail ends a node that can never lead.
func (n *Node) fail(err error) {
	n.mu.Lock()
	n.mu.err = err
	n.mu.Unlock()
	go n.Shutdown(context.Background())
}

// lead serves as long as the reign lasts. The error says why it did not begin, or ended by itself.
func (n *Node) lead(reign store.Reign, began time.Time) error {
	elected := time.Now()
	cfg := n.cfg.Server
	cfg.Journal, cfg.Address = reign, n.cfg.Address
	cfg.Former, cfg.FormerLost = n.predecessor(reign.Term())
	// New writes to the journal, which may have to wait for as long as the reign lasts. A node that ends
	// meanwhile ends the reign.
	stop := context.AfterFunc(n.ctx, func() { _ = resign(reign) })
	s, err := server.New(cfg)
	stop()
	if err != nil {
		return errors.Join(err, resign(reign))
	}
	o, late := &office{s, reign}, false
	n.change(func() { n.mu.office, late = o, n.mu.leaving })
	n.log.Info("leading", "term", reign.Term(), "stood by", elected.Sub(began).Round(time.Millisecond),
		"took", time.Since(elected).Round(time.Millisecond))
	if late { // Shutdown did not see it
		ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
		defer cancel()
		n.abdicate(ctx)
	}
	n.attend(o)
	n.change(func() { n.mu.office = nil })
	ended := s.Err()
	if ended != nil {
		n.log.Warn("no longer leading", "term", reign.Term(), "err", ended)
	} else {
		n.log.Info("no longer leading", "term", reign.Term())
	}
	if err := resign(reign); err != nil {
		n.log.Debug("resignation", "err", err) // most likely it is over already
	}
	return ended
}

// predecessor is the address of the server that led before a term of this node, and when it was lost, as far as that is known.
func (n *Node) predecessor(term uint64) (address string, lost time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.mu.leader
	if before.Term == 0 || before.Term >= term {
		before = n.mu.former // the store has told of this term already
	}
	if before.Term == 0 || before.Address == n.cfg.Address {
		return "", time.Time{}
	}
	if before == n.mu.lost {
		lost = n.mu.lostAt
	}
	return before.Address, lost
}

// attend waits for the end of a leadership, and hands over, or ends the service, when an operator asks for it.
func (n *Node) attend(o *office) {
	for {
		select {
		case <-o.server.HandoverAsked():
			n.work.Go(func() {
				if err := n.Handover(n.ctx); err != nil {
					n.log.Warn("hand-over", "err", err)
				}
			})
		case <-o.server.StopAsked():
			n.work.Go(func() { o.stop(n.ctx, n.log) })
		case <-o.server.Done():
			return
		}
	}
}

// Stop ends the service, and with it the job: every waiting call is told so (C-STOP-1). The nodes stay; the
// next one to lead opens another epoch.
func (n *Node) Stop(ctx context.Context) error {
	o := n.office()
	if o == nil {
		return ErrStandby
	}
	o.stop(ctx, n.log)
	return nil
}

func (o *office) stop(ctx context.Context, log *slog.Logger) {
	log.Info("the service is told to end", "term", o.reign.Term())
	o.server.Stop(ctx)
}

// resign gives a leadership back, if it still is one.
func resign(r store.Reign) error {
	ctx, cancel := context.WithTimeout(context.Background(), successorPatience)
	defer cancel()
	return r.Resign(ctx)
}

// ErrNoSuccessor says that this node gave its leadership back, and no other node took it.
var ErrNoSuccessor = errors.New("no other node stands by")

// ErrStandby says that a node cannot hand over what it does not have.
var ErrStandby = errors.New("this node does not lead")

// Handover gives the leadership to a node that stands by: it writes a snapshot, resigns, and breaks the
// streams of relays, which find the other one by themselves and ask it for what they waited for
// (C-STOP-4). Where no other node stands by nothing happens, and the error is [ErrNoSuccessor].
func (n *Node) Handover(ctx context.Context) error {
	o := n.office()
	if o == nil {
		return ErrStandby
	}
	waiting, err := n.cfg.Store.Candidates(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("hand-over: %w", err)
	case waiting == 0:
		return ErrNoSuccessor
	}
	began := time.Now()
	defer o.server.Close() // whatever happens: from here on it answers nothing any more
	if err := o.server.Handover(ctx); err != nil {
		return fmt.Errorf("hand-over: %w", err)
	}
	if err := o.reign.Resign(ctx); err != nil {
		return fmt.Errorf("hand-over: %w", err)
	}
	// Streams that break now find the other node faster if this one knows it.
	ctx, cancel := context.WithTimeout(ctx, successorPatience)
	defer cancel()
	for l := range n.cfg.Store.Watch(ctx) {
		if l.Term > o.reign.Term() {
			n.log.Info("handed over", "peer", l.Address, "term", l.Term, "took", time.Since(began).Round(time.Millisecond))
			return nil
		}
	}
	return ErrNoSuccessor
}

// Shutdown ends the node. A leader hands over first. If no other node takes over, the next one that is
// started goes on with the job (C-STOP-4). Later calls wait for the first.
func (n *Node) Shutdown(ctx context.Context) {
	n.stop.Do(func() {
		defer close(n.stopped)
		ctx, cancel := context.WithTimeout(ctx, stopPatience)
		defer cancel()
		n.mu.Lock()
		n.mu.leaving = true
		leads := n.mu.office != nil
		n.mu.Unlock()
		if leads {
			if n.abdicate(ctx) {
				n.turn(ctx)
			}
		}
		n.cancel(serry.ErrStopped)
		n.relay.EndPolls()
		if n.front.Shutdown(ctx) != nil {
			_ = n.front.Close() // it returns what Shutdown did
		}
		n.relay.Shutdown(ctx)
		n.work.Wait()
	})
	<-n.stopped
}

// abdicate hands over, or else leaves the service to the node that leads next.
func (n *Node) abdicate(ctx context.Context) (handedOver bool) {
	err := n.Handover(ctx)
	o := n.office()
	if err == nil || o == nil {
		return err == nil
	}
	defer o.server.Close()
	if errors.Is(err, ErrNoSuccessor) {
		n.log.Info("no other node stands by: the next one to be started goes on with the job")
	} else {
		n.log.Warn("hand-over", "err", err)
	}
	o.server.Shutdown(ctx)
	return false
}

// turn lets the relay of a node that has handed over find the next leader, which it does by asking this
// node, as long as that node accepts connections. Calls of clients that are connected here can then be answered
// (A-HA-8).
func (n *Node) turn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, successorPatience)
	defer cancel()
	for ctx.Err() == nil {
		next, _ := n.Leader()
		s := n.relay.Status()
		if next.Address != n.cfg.Address && next.Term != 0 && s.Term >= next.Term && !s.Down {
			return
		}
		_ = pause.For(ctx, probePause) // or the loop ends
	}
}

// loop connects the relay of this node with the node itself, in memory, to be served or to hear who leads.
// All else is as if the relay had come by the network: the same protocol, and so the same sessions, terms
// and request ids.
func (n *Node) loop(address string) net.Conn {
	if address != n.cfg.Address {
		return nil
	}
	near, far := conn.Loop(address)
	n.work.Go(func() { n.serveStream(far) })
	return near
}
