package storm

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/serry-dev/serry/node"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/wire/stream"
)

// A site is a machine that runs a server of the service, again whenever that has crashed.
type site struct {
	world *world
	place *place

	mu      sync.Mutex
	process *process // or nil while there is none
	latest  *process // that was started
	starts  int      // of processes
}

// A process is one run of a server at a site: it campaigns, leads, and campaigns again.
type process struct {
	site    *site
	seat    seat
	version stream.Version
	next    bool // it writes the next version of the journal

	mu     sync.Mutex
	server *server.Server // while it leads
	reign  store.Reign
	over   bool // the process has been killed
	barred bool // it has refused the journal

	// Where sites are nodes of package node, which does all this by itself.
	node  *node.Node
	doors *listener
	life  context.Context // ends when the process is killed
	dead  context.CancelFunc
	asked bool // guarded by mu: to end
}

func newSite(w *world, name string) *site {
	s := &site{world: w, place: newPlace(name)}
	s.place.accept = s.accept
	s.place.writing = func() { w.strike(func(f fault) bool { return f.kind == crashReply }, s, nil) }
	return s
}

// restartPause is when a process is started again that has ended by itself.
const restartPause = 100 * time.Millisecond

// start begins a process.
func (s *site) start() {
	opened, err := s.world.disk.open()
	if err != nil {
		s.world.note("%s does not open its store: %v", s.place.name, err)
		if !s.world.disk.errs(err) {
			s.world.damaged("%s: the store cannot be opened: %v", s.place.name, err)
			return
		}
		s.world.after(restartPause, s.start)
		return
	}
	s.mu.Lock()
	s.starts++
	p := &process{site: s, seat: opened, version: s.world.version(s.starts)}
	earlier := s.latest
	s.latest = p
	s.mu.Unlock()
	if s.world.plan.rolls {
		p.versioned(earlier)
	}
	s.place.start()
	if s.world.plan.nodes {
		p.startNode()
	} else {
		s.mu.Lock()
		s.process = p
		s.mu.Unlock()
		s.world.work.Go(p.run)
	}
	if crashed := opened.crashed(); crashed != nil {
		s.world.work.Go(func() { p.watch(crashed) })
	}
	if s.world.over() {
		s.kill(time.Hour, "the end") // which came while the store was opened
	}
}

// watch kills the process when its store says so.
func (p *process) watch(crashed <-chan struct{}) {
	select {
	case <-crashed:
		if p.site.running() == p {
			p.site.kill(restartPause, "the store has crashed")
		}
	case <-p.site.world.ended:
	}
}

func (s *site) running() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// accept serves a connection if this site leads, and says who does if not.
func (s *site) accept(c net.Conn) {
	p := s.running()
	if p == nil {
		c.Close()
		return
	}
	if p.doors != nil {
		p.doors.take(c)
		return
	}
	if srv := p.leads(); srv != nil {
		srv.ServeStream(c)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	l, err := p.seat.Leader(ctx)
	if err != nil || l.Address == s.place.name { // not yet, or not any more
		l = store.Leader{}
	}
	stream.Redirect(c, l.Address)
}

// leads is the server of a process that leads, or nil.
func (p *process) leads() *server.Server {
	if p.node != nil {
		return p.node.Server()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.server
}

// term is that of a process that leads, or 0.
func (p *process) term() uint64 {
	if p.node != nil {
		if l, here := p.node.Leader(); here {
			return l.Term
		}
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server == nil {
		return 0
	}
	return p.reign.Term()
}

// serverConfig is that of the world, in the version of the process.
func (p *process) serverConfig() server.Config {
	cfg := p.site.world.serverConfig()
	cfg.StreamVersion, cfg.Cluster.NextVersion = p.version, p.next
	cfg.Log = p.site.world.logOf(p, "server")
	return cfg
}

// run campaigns and leads until the process is killed.
func (p *process) run() {
	for {
		reign, err := p.seat.Campaign(context.Background(), store.Candidate{Address: p.site.place.name})
		if p.fails(err) || err != nil {
			return // or killed
		}
		cfg := p.serverConfig()
		cfg.Journal = reign
		srv, err := server.New(cfg)
		if err != nil {
			if p.fails(err) || errors.Is(err, store.ErrClosed) {
				return
			}
			if errors.Is(err, store.ErrDamaged) {
				p.site.world.damaged("%s: the journal cannot be read: %v", p.site.place.name, err)
				return
			}
			p.site.world.note("%s does not lead: %v", p.site.place.name, err)
			_ = reign.Resign(context.Background())
			if p.refuses(err) {
				return // as a node does
			}
			continue
		}
		p.site.world.note("%s leads, term %d", p.site.place.name, reign.Term())
		if p.site.world.rolledBack() {
			p.site.world.struck(goesOn)
		}
		if !p.lead(srv, reign) {
			srv.Close()
			return
		}
		<-srv.Done()
		p.site.world.note("%s leads no more, term %d: %v", p.site.place.name, reign.Term(), srv.Err())
		if errors.Is(srv.Err(), store.ErrDamaged) {
			p.site.world.damaged("%s: the journal is damaged under its leader: %v", p.site.place.name, srv.Err())
		}
		if !p.lead(nil, nil) || p.fails(srv.Err()) {
			return
		}
		_ = reign.Resign(context.Background()) // a server that could not write gives up its office
	}
}

// fails ends the process if the error is one that it ends of.
func (p *process) fails(err error) bool {
	if err == nil || !p.site.world.disk.errs(err) {
		return false
	}
	if p.site.running() == p {
		p.site.world.struck("disk")
		p.site.kill(restartPause, err.Error())
	}
	return true
}

// lead notes the server of a process, unless that has been killed.
func (p *process) lead(srv *server.Server, reign store.Reign) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return false
	}
	p.server, p.reign = srv, reign
	return true
}

// kill ends the process without a word, and starts another later. A real kill ends its network and its store at
// one moment. Here one of the two is the first, by the seed, and the process goes on for an instant with the other
// alone: it may write what no caller hears of, or answer while nothing can be written.
func (s *site) kill(back time.Duration, why string) {
	s.mu.Lock()
	p := s.process
	s.process = nil
	s.mu.Unlock()
	if p == nil {
		return
	}
	s.world.note("%s killed: %s", s.place.name, why)
	p.mu.Lock()
	p.over = true
	srv, reign := p.server, p.reign
	p.mu.Unlock()
	if s.world.storeFirst() {
		p.seat.kill()
		s.place.kill()
	} else {
		s.place.kill()
		p.seat.kill()
	}
	if p.node != nil {
		s.world.work.Go(p.stopNode)
	}
	if srv != nil {
		s.world.work.Go(srv.Close)
		s.world.vacant(reign.Term())
	}
	s.world.after(back, s.start)
}

// storeFirst says whether a process that is killed loses its store before its network.
func (w *world) storeFirst() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.kills.IntN(2) == 0
}

// freeze stops the process for a while.
func (s *site) freeze(lasts time.Duration) {
	p := s.running()
	if p == nil {
		return
	}
	s.world.note("%s frozen for %v", s.place.name, lasts)
	s.place.shut(frozen)
	p.seat.cut()
	s.world.after(lasts, func() {
		if s.running() != p {
			return // it was killed meanwhile
		}
		s.world.note("%s thaws", s.place.name)
		s.place.open(frozen)
		p.seat.heal()
	})
}

// handOver gives the leadership to another, in order (C-STOP-4).
func (p *process) handOver() {
	if p.node != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		p.site.world.note("%s hands over: %v", p.site.place.name, p.node.Handover(ctx))
		return
	}
	p.mu.Lock()
	srv, reign := p.server, p.reign
	p.mu.Unlock()
	if srv == nil {
		return
	}
	p.site.world.note("%s hands over", p.site.place.name)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := srv.Handover(ctx); err != nil {
		p.site.world.note("%s does not hand over: %v", p.site.place.name, err)
	}
	_ = reign.Resign(ctx)
	srv.Close()
}
