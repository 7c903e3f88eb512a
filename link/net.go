package link

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/secure"
	"github.com/serry-dev/serry/wire/conn"
)

const (
	defaultLanes    = 2
	defaultMaxLinks = 1024

	protocol = "serry-link" // in handshakes of TLS
)

// A Member is what a Net needs of the job; *client.Member satisfies it. One that has a method Tasks, too, as that has, tells
// how many tasks the job has: in a job of one process a Net opens no socket.
type Member interface {
	Task() serry.TaskID
	Incarnation() serry.Incarnation

	// Service names the run of the job: processes of another run are refused.
	Service() serry.Incarnation

	// Watch tells how all tasks are. It may not be supported: then lives are over when their links are.
	Watch(ctx context.Context) iter.Seq2[serry.Snapshot, error]

	// Suspect tells the service what this process saw of a peer.
	Suspect(ctx context.Context, peer serry.TaskID, life serry.Incarnation, e serry.Evidence) error
}

// Keys are where processes publish their addresses, and answer what is asked of their links; *client.KV
// satisfies it.
type Keys interface {
	Create(ctx context.Context, key string, value []byte) error
	Put(ctx context.Context, key string, value []byte) error
	Wait(ctx context.Context, key string) ([]byte, error)
	Delete(ctx context.Context, key string) error

	// Watch tells the keys below dir and every change of them. It may not be supported: then the member answers
	// nothing.
	Watch(ctx context.Context, dir string) iter.Seq2[serry.KeyEvent, error]
}

// A Network makes connections, in place of the one of the system.
type Network interface {
	// Listen binds an address: "host:port", where port 0 means any.
	Listen(ctx context.Context, address string) (net.Listener, error)

	// Dial connects to an address as Listen's listener has it.
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// An Identity has the certificate of this process, and says which ones it accepts; *mtls.Identity satisfies it. A process
// with a certificate that is accepted can be any task of the job, unless there is a secret, too. Processes of one host use
// their socket without TLS: the kernel names the user of the process at its other end.
type Identity interface {
	Server() *tls.Config            // of the side that is dialled: it wants a certificate
	Client(host string) *tls.Config // of the side that dials a host
}

// A Checksum says whether payloads have a checksum.
type Checksum int

// The ways to have checksums.
const (
	BetweenHosts Checksum = iota // unless both processes are on one host
	Always
	Never
)

// Options say how a Net works. The zero value is right for a job on one host.
type Options struct {
	// Listen has the addresses to bind: "10.0.0.2", "host:port", a network "10.0.0.0/8" or the name of an interface.
	// Nil means all interfaces, or without a secret those of loopback.
	Listen []string

	// Advertise has what peers dial, "host:port"; nil means the bound addresses.
	Advertise []string

	// Secret is that of the job. Nil means the one in the file that SERRY_JOB_SECRET_FILE names, if any.
	// Without a secret and without TLS, links are made only on loopback, unless Plain is set.
	Secret secure.Secret
	TLS    Identity // or nil: certificates, which all processes of the job have or none
	Plain  bool     // allow links between hosts without a secret

	Lanes    int // bulk connections of a link, 1 to 8; 0 means 2, and more while that is worth it
	MaxLinks int // 0 means 1024

	// Idle is how long a link that no family has use for may carry nothing until it is closed: see [Keeper]. Zero means 10 minutes,
	// less means for ever.
	Idle time.Duration

	Chunk  int // greatest payload of a data frame; 0 means 4 MiB, which is also the most
	Timing Timing

	Collective Checksum // checksums of the collective family
	Transfer   Checksum // of the transfer family

	TCPOnly bool    // use no socket of this host for its processes; they use TCP, as between hosts
	Local   *Local  // or nil: Nets of this process that share it need no sockets among themselves
	Network Network // or nil

	// Segments lets Nets of this process that share it lend segments of ordinary memory to each other, as processes of one host
	// lend theirs: the race detector sees what is done with them, and goroutines sleep for them in virtual time. Or nil.
	Segments *Local

	Planted plant.Faults // none, but in tests of tests
	Log     *slog.Logger
}

// A Net is the link layer of one member. Make it with Open.
type Net struct {
	// Set in Open, then constant.
	member     Member
	keys       Keys
	life       serry.Life
	opt        Options
	timing     Timing
	chunkBytes int64
	mostLanes  int   // that a link writes to
	trialBytes int64 // see tuner
	log        *slog.Logger
	network    Network
	acceptor   *conn.Acceptor // of TCP
	welcome    *conn.Acceptor // of processes of this host
	listeners  []net.Listener
	addresses  []string // published, of TCP
	near       string   // published, of this host, or empty
	user       int      // of this process
	began      time.Time
	ctx        context.Context // of everything in the background
	stop       context.CancelCauseFunc
	ended      chan struct{} // closed when Close has done all
	handlers   [families]atomic.Pointer[Handler]

	early     earlyFrames
	published atomic.Bool
	work      sync.WaitGroup     // goroutines, and links that are not down
	answers   sync.WaitGroup     // the goroutine that answers what is asked
	mute      context.CancelFunc // ends it
	losses    [sources]atomic.Uint64
	exits     exits // of peers on this host
	pollster  pollster

	mu struct {
		sync.Mutex
		closed  bool
		links   map[serry.Life]*Link // forming or up
		known   map[serry.Life]*acquaintance
		tasks   map[serry.TaskID]serry.TaskInfo // as the service told last, or nil before
		over    map[serry.Life]bool             // lives that were replaced
		changed chan struct{}                   // closed when tasks change
		past    Traffic                         // of links that are gone
		queue   queue                           // of peers that there was no place for
	}
}

// An acquaintance is what is remembered of a life besides its link.
type acquaintance struct {
	addresses []string
	lastSet   uint64
}

// Open makes the link layer of a member: it listens, and publishes its addresses, unless the member is alone. Close ends
// it.
func Open(ctx context.Context, m Member, k Keys, o Options) (*Net, error) {
	if err := o.findSecret(); err != nil {
		return nil, err
	}
	if o.Lanes < 0 || o.Lanes > MaxLanes || o.Chunk < 0 || o.Chunk > ChunkBytes {
		return nil, &serry.InvalidError{What: fmt.Sprintf("%d lanes, chunks of %d bytes", o.Lanes, o.Chunk)}
	}
	n := &Net{
		member: m, keys: k, life: serry.Life{Task: m.Task(), Incarnation: m.Incarnation()}, opt: o,
		timing: o.Timing.withDefaults(), chunkBytes: ChunkBytes, log: conn.LimitLog(o.Log), network: o.Network, user: os.Geteuid(), began: time.Now(),
	}
	n.mostLanes, n.trialBytes = mostLanes(o.Lanes), trialBytes
	if n.opt.Lanes == 0 {
		n.opt.Lanes = defaultLanes
	}
	if n.opt.MaxLinks <= 0 {
		n.opt.MaxLinks = defaultMaxLinks
	}
	n.opt.Idle = cmp.Or(n.opt.Idle, defaultIdle)
	if o.Chunk > 0 {
		n.chunkBytes = int64(max(o.Chunk, SmallBytes))
	}
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	if n.network == nil {
		n.network = system{}
	}
	n.mu.links = make(map[serry.Life]*Link)
	n.mu.queue = make(queue)
	n.mu.known = make(map[serry.Life]*acquaintance)
	n.mu.over = make(map[serry.Life]bool)
	n.mu.changed = make(chan struct{})
	n.ended = make(chan struct{})
	n.pollster.allowed = min(runtime.NumCPU(), runtime.GOMAXPROCS(0)) > 1
	n.ctx, n.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	if n.alone(ctx) {
		n.run()
		return n, nil
	}
	if err := n.listen(ctx); err != nil {
		n.stop(err)
		return nil, err
	}
	n.run()
	if err := n.publish(ctx); err != nil {
		return nil, errors.Join(err, n.Close(ctx))
	}
	return n, nil
}

// alone says whether this task is the whole job: then no peer will dial, and no socket is needed (CL-TRN-11).
func (n *Net) alone(ctx context.Context) bool {
	m, ok := n.member.(interface {
		Tasks(ctx context.Context) (serry.Snapshot, error)
	})
	if !ok {
		return false
	}
	s, err := m.Tasks(ctx)
	return err == nil && len(s.Tasks) == 1
}

// findSecret takes the secret from the environment where the options have none.
func (o *Options) findSecret() (err error) {
	if o.Secret == nil {
		o.Secret, err = secure.FromEnv()
	} else {
		err = o.Secret.Check()
	}
	return err
}

// run starts what a Net does in the background.
func (n *Net) run() {
	cfg := conn.AcceptorConfig{Protocols: []conn.Protocol{{Name: protocol, Serve: n.serve}}, HandshakeTime: handshakeTime, Log: n.log}
	n.welcome = conn.NewAcceptor(cfg)
	if n.opt.TLS != nil {
		cfg.TLS = n.opt.TLS.Server()
	}
	n.acceptor = conn.NewAcceptor(cfg)
	for _, l := range n.listeners {
		a := n.acceptor
		if l.Addr().Network() == "unix" {
			a = n.welcome
		}
		n.work.Go(func() { a.Serve(l) })
	}
	n.work.Go(n.detect)
	n.work.Go(n.watch)
	ctx, mute := context.WithCancel(n.ctx)
	n.mute = mute
	n.answers.Go(func() { n.answer(ctx) })
	n.opt.Local.add(n)
	n.opt.Segments.add(n)
}

// Life is the life that this Net is of.
func (n *Net) Life() serry.Life { return n.life }

// now is the time since the net was made.
func (n *Net) now() time.Duration { return time.Since(n.began) }

// Link returns the link to a life, and makes it if there is none. It waits until the peer has published
// its addresses and answers, until the service declares that life lost, or until ctx ends.
func (n *Net) Link(ctx context.Context, peer serry.Life) (*Link, error) {
	for {
		l, err := n.enter(peer)
		switch {
		case errors.Is(err, serry.ErrLimit) && n.evict(peer, ownTenure):
			continue
		case errors.Is(err, errKept):
			if pause.For(ctx, keepPlace/32) != nil {
				return nil, fmt.Errorf("link to %v: %w", peer.Task, context.Cause(ctx))
			}
			continue
		case err != nil:
			return nil, err
		}
		err = l.await(ctx)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errBrokeAtOnce):
			n.remove(l)
			continue // to dial again shows whether the peer has failed
		case errors.Is(err, errDialledAnew), errors.Is(err, errIncomplete), errors.Is(err, errAbandoned):
			continue // what the peer or another caller began did not come up
		case errors.Is(err, errYielded) && pauseYielded(ctx):
			continue
		}
		return l, err
	}
}

// await waits until the link is up.
func (l *Link) await(ctx context.Context) error {
	defer l.leave()
	select {
	case <-l.ready:
	case <-ctx.Done():
		return fmt.Errorf("link to %v: %w", l.peer.Task, context.Cause(ctx))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.state == up {
		return nil
	}
	if l.mu.cause == nil { // it broke just now, and why is being found out
		return &LossError{Peer: l.peer, Reason: errBrokeAtOnce, Err: ErrTransport}
	}
	return l.mu.cause
}

var (
	errBrokeAtOnce = errors.New("the link broke as soon as it was made")
	errKept        = errors.New("the place is kept for a peer that has waited for longer")
)

// enter finds the link to a life or begins to make it. The caller must leave it.
func (n *Net) enter(peer serry.Life) (*Link, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.lossOf(peer); err != nil {
		return nil, err
	}
	l := n.mu.links[peer]
	if l == nil {
		switch {
		case n.mu.closed:
			return nil, &LossError{Peer: peer, Source: FromSelf, Reason: errNetClosed, Err: ErrClosed}
		case !n.hasPlace(peer):
			err := &serry.LimitError{Limit: "links", Max: int64(n.opt.MaxLinks)}
			if len(n.mu.links) < n.opt.MaxLinks {
				return nil, errors.Join(err, errKept)
			}
			return nil, err
		}
		l = n.add(peer)
		l.dial()
	}
	l.join()
	return l, nil
}

var errNetClosed = errors.New("the link layer is closed")

// add makes the entry of a link; mu is held.
func (n *Net) add(peer serry.Life) *Link {
	l := newLink(n, peer)
	n.mu.links[peer] = l
	n.work.Add(1)
	return l
}

// remove forgets a link but for its figures. The next call of Link makes another.
func (n *Net) remove(l *Link) {
	l.countRetransmits() // while its connections are open
	n.mu.Lock()
	defer n.mu.Unlock()
	n.drop(l)
}

// drop is remove with mu held.
func (n *Net) drop(l *Link) {
	if n.mu.links[l.peer] != l {
		return
	}
	n.mu.past.add(&l.counts)
	delete(n.mu.links, l.peer)
	if l.isUp() {
		delete(n.mu.queue, l.peer)
	}
}

// all lists the links, in any order.
func (n *Net) all() []*Link {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Values(n.mu.links))
}

// up lists the links that are up.
func (n *Net) up() []*Link {
	return slices.DeleteFunc(n.all(), func(l *Link) bool { return !l.isUp() })
}

// Links returns the figures of all links, sorted by peer.
func (n *Net) Links() []Stats {
	var all []Stats
	for _, l := range n.up() {
		all = append(all, l.Stats())
	}
	slices.SortFunc(all, func(a, b Stats) int { return a.Peer.Compare(b.Peer) })
	return all
}

// know returns what is remembered of a life; mu is held. Of too many lives an arbitrary one without a link
// is forgotten.
func (n *Net) know(peer serry.Life) *acquaintance {
	if a := n.mu.known[peer]; a != nil {
		return a
	}
	for old := range n.mu.known {
		if len(n.mu.known) < 4*n.opt.MaxLinks {
			break
		}
		if n.mu.links[old] == nil {
			delete(n.mu.known, old)
		}
	}
	a := new(acquaintance)
	n.mu.known[peer] = a
	return a
}

// linkUp tells that a link can be used.
func (n *Net) linkUp(l *Link) {
	n.mu.Lock()
	n.know(l.peer).lastSet = l.set
	n.mu.Unlock()
	n.emit(Event{Kind: LinkUp, Peer: l.peer})
}

// linkDown tells that everything on a link has failed.
func (n *Net) linkDown(l *Link, cause error) {
	if loss, ok := errors.AsType[*LossError](cause); ok {
		n.losses[loss.Source].Add(1)
	}
	n.log.Info("link down", "peer", l.peer.Task, "incarnation", l.peer.Incarnation, "err", cause)
	n.emit(Event{Kind: LinkDown, Peer: l.peer, Err: cause})
}

// Close deletes the addresses, closes all links, and ends everything in the background. Messages that are
// under way fail with ErrClosed. A second call waits for the first. A service that does not answer holds up the links
// for 5 s: other tasks delete the addresses of a life that is over.
func (n *Net) Close(ctx context.Context) error {
	n.mu.Lock()
	if n.mu.closed {
		n.mu.Unlock()
		<-n.ended
		return nil
	}
	n.mu.closed = true
	links := make([]*Link, 0, len(n.mu.links))
	for _, l := range n.mu.links {
		links = append(links, l)
	}
	n.mu.Unlock()
	n.opt.Local.remove(n)
	n.opt.Segments.remove(n)
	for _, c := range append(n.acceptor.Stop(), n.welcome.Stop()...) {
		c.Close()
	}
	n.mute() // what is written later than unpublish deletes would stay
	n.answers.Wait()
	err := n.unpublish(ctx)
	var closing sync.WaitGroup
	for _, l := range links {
		closing.Go(func() { l.Shutdown(errNetClosed) })
	}
	closing.Wait()
	n.exits.close()
	n.stop(errNetClosed)
	n.acceptor.Wait()
	n.welcome.Wait()
	n.work.Wait()
	close(n.ended)
	return err
}

// random is a number that no other process draws.
func random() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:]) | 1
}
