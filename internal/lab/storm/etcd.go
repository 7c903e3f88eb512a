package storm

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/serry-dev/serry/internal/lab/faultyetcd"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/store/etcd"
)

// A realEtcd is a medium for several servers: the etcd store, below a prefix of its own in a real etcd, to
// which each process has a link with faults. etcd runs in real time, and so does the world.
type realEtcd struct {
	world  *world
	prefix string
	plain  *clientv3.Client // without faults

	mu     sync.Mutex
	rand   *rand.Rand
	serene bool // links have no more faults
	reigns int
	seats  []*etcdSeat // all that ever were
}

// etcdPatience is how long the medium itself waits for etcd.
const etcdPatience = 30 * time.Second

func newRealEtcd(w *world) *realEtcd {
	e := &realEtcd{world: w, prefix: fmt.Sprintf("/fleet %d %x/", w.seed, rand.Uint64()), rand: dice(w.seed, forDisk, 1)}
	client, err := faultyetcd.New(nil).Dial(w.options.Etcd)
	if err != nil {
		panic(err) // the address is that of the test
	}
	e.plain = client
	return e
}

// open implements medium.
func (e *realEtcd) open() (seat, error) {
	e.mu.Lock()
	s := &etcdSeat{etcd: e}
	lease := time.Minute // of the audit, which does not compete
	if !e.serene {
		lease = e.world.plan.lease
		s.plan = e.draw()
	}
	s.linger = between(e.rand, 0, time.Second)
	e.mu.Unlock()
	s.link = faultyetcd.New(s.plan)
	client, err := s.link.Dial(e.world.options.Etcd)
	if err != nil {
		return nil, err
	}
	s.client = client
	parts := partBytes
	if e.world.plan.large {
		parts = largePartBytes
	}
	s.Store, err = etcd.Open(context.Background(), etcd.Config{
		Client: client, Prefix: e.prefix, LeaseTTL: lease, PartBytes: parts, Compact: true,
		Log: e.world.log("etcd"), Planted: e.world.options.Planted,
	})
	if err != nil {
		client.Close()
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seats = append(e.seats, s)
	return s, nil
}

// mortal is how many processes of a schedule may end by a fault of their link. Those after them live, so
// that the programs come to their end however slow the machine is.
const mortal = 6

// draw makes the faults of a new link. mu is held.
func (e *realEtcd) draw() faultyetcd.Plan {
	rates := e.world.plan.rates
	if len(e.seats) >= mortal {
		rates.Crash = 0
		return faultyetcd.Seeded(e.rand.Uint64(), rates)
	}
	return aimed(rand.New(rand.NewPCG(e.rand.Uint64(), 0)), faultyetcd.Seeded(e.rand.Uint64(), rates))
}

// expire implements medium: it ends the lease of the oldest candidate, which is the leader.
func (e *realEtcd) expire() { e.revoke(clientv3.WithFirstCreate()...) }

// calm implements medium. Whoever has died without a word leads no longer, as after the time of a lease.
func (e *realEtcd) calm() {
	e.mu.Lock()
	e.serene = true
	e.mu.Unlock()
	e.revoke()
}

// revoke ends the leases of candidates.
func (e *realEtcd) revoke(which ...clientv3.OpOption) {
	ctx, cancel := context.WithTimeout(context.Background(), etcdPatience)
	defer cancel()
	found, err := e.plain.Get(ctx, e.prefix+"election/", append(which, clientv3.WithPrefix())...)
	if err != nil {
		e.world.wrong("etcd without faults: %v", err)
		return
	}
	for _, kv := range found.Kvs {
		_, _ = e.plain.Revoke(ctx, clientv3.LeaseID(kv.Lease)) // or it has just ended
	}
}

// errs implements medium. The process of a link that crashes is killed by the world; every other fault is
// the store's to bear.
func (e *realEtcd) errs(error) bool { return false }

// terms implements medium: the terms of etcd are revisions, so leaderships are counted as they begin.
func (e *realEtcd) terms(uint64) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reigns - 1 // but for that of the audit
}

// remove implements medium.
func (e *realEtcd) remove() {
	e.mu.Lock()
	seats := e.seats
	e.mu.Unlock()
	for _, s := range seats {
		s.kill()
		for f, name := range etcdFaults {
			if n := s.link.Count(f); n > 0 {
				e.world.mu.report.Struck[name] += n
			}
		}
	}
	e.world.work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), etcdPatience)
	defer cancel()
	_, _ = e.plain.Delete(ctx, e.prefix, clientv3.WithPrefix()) // to spare memory
	_ = e.plain.Close()
}

// etcdFaults are what a report calls the faults of links.
var etcdFaults = map[faultyetcd.Fault]string{
	faultyetcd.Slow: "etcd: slow", faultyetcd.Lost: "etcd: lost", faultyetcd.NoReply: "etcd: no reply",
	faultyetcd.Late: "etcd: late", faultyetcd.Twice: "etcd: twice", faultyetcd.NoSpace: "etcd: no space",
	faultyetcd.FullDone: "etcd: full but done", faultyetcd.Compact: "etcd: compacted", faultyetcd.Crash: "etcd: crash",
}

// EtcdFaults are the kinds of faults that a schedule on etcd may have in addition.
func EtcdFaults() []string { return slices.Sorted(maps.Values(etcdFaults)) }

// An etcdSeat is the store of one process, and its link.
type etcdSeat struct {
	store.Store
	etcd   *realEtcd
	plan   faultyetcd.Plan
	link   *faultyetcd.Link
	client *clientv3.Client
	linger time.Duration // after which its last requests arrive
	once   sync.Once
}

// Campaign implements store.Store. What others have sent before may arrive when this one has just won.
func (s *etcdSeat) Campaign(ctx context.Context, who store.Candidate) (store.Reign, error) {
	r, err := s.Store.Campaign(ctx, who)
	if err != nil {
		return nil, err
	}
	e := s.etcd
	e.mu.Lock()
	e.reigns++
	seats, deliver := slices.Clone(e.seats), e.rand.IntN(2) == 0
	e.mu.Unlock()
	for _, o := range seats {
		if deliver && o != s {
			o.deliver()
		}
	}
	return r, nil
}

// deliver lets what the process has sent arrive.
func (s *etcdSeat) deliver() {
	ctx, cancel := context.WithTimeout(context.Background(), etcdPatience)
	defer cancel()
	s.link.Deliver(ctx)
}

// kill ends the process without a word. What it has sent may arrive when another leads.
func (s *etcdSeat) kill() {
	s.link.Crash()
	s.settle()
}

// Close implements store.Store.
func (s *etcdSeat) Close() error {
	err := s.Store.Close()
	s.settle()
	return err
}

// settle closes the store, and its client after the last requests have arrived.
func (s *etcdSeat) settle() {
	s.once.Do(func() {
		s.etcd.world.work.Go(func() {
			_ = s.Store.Close()
			s.etcd.world.pass(s.linger, nil)
			s.deliver()
			_ = s.client.Close()
		})
	})
}

// cut keeps requests from etcd while the process is frozen; writes arrive when others have. heal lets all
// pass again. The lease is renewed meanwhile: a fault of its own ends it.
func (s *etcdSeat) cut() {
	s.link.Plan(func(req faultyetcd.Request) (faultyetcd.Fault, int) {
		if req.Write {
			return faultyetcd.Late, 10
		}
		return faultyetcd.Lost, 0
	})
}

func (s *etcdSeat) heal() { s.link.Plan(s.plan) }

func (s *etcdSeat) crashed() <-chan struct{} { return s.link.Crashed() }

// pauseWhenFull is after how long a caller tries again for whom the store had no room.
const pauseWhenFull = 10 * time.Millisecond

// noRoom says, after a pause, whether a call was refused because the store is full. Such a call has had no
// effect, and may be made again.
func (p *proc) noRoom(refused bool) bool {
	if _, never := p.world.disk.(sharedDisk); never || !refused {
		return false
	}
	p.world.struck(noRoom)
	return p.pause(pauseWhenFull)
}

// aimed adds to a plan what it would seldom bring about: writes of the snapshot key, which are few, arrive
// once more after others, and processes end soon after a request has arrived late. What that has spoilt is
// found then, before a later write mends it.
func aimed(r *rand.Rand, plan faultyetcd.Plan) faultyetcd.Plan {
	end := -1 // the number of the request after which the process ends
	return func(req faultyetcd.Request) (faultyetcd.Fault, int) {
		f, after := plan(req)
		if f == faultyetcd.None && slices.ContainsFunc(req.Puts, isSnapshot) && r.IntN(2) == 0 {
			f = faultyetcd.Twice
		}
		switch late := f == faultyetcd.Late || f == faultyetcd.Twice; {
		case end >= 0 && req.N >= end && req.Write:
			return faultyetcd.Crash, 0
		case late && req.Write && end < 0 && r.IntN(4) == 0:
			end = req.N + after + r.IntN(3)
		}
		return f, after
	}
}

func isSnapshot(key string) bool { return strings.HasSuffix(key, "/snapshot") }

// drawEtcd makes a plan one for etcd: it is played in real time, so programs are short and quick, and so are
// outages. What takes longer than a host may be silent is left to fleets in virtual time.
func (p *plan) drawEtcd(r *rand.Rand) {
	p.mode = pick(r, steady, steady, steady, comeback, rounds)
	p.recoverable = p.mode != steady
	p.tasks, p.hosts, p.sites, p.steps, p.epochs = 2+r.IntN(2), 1+r.IntN(2), 2, 2+r.IntN(5), 1
	p.members = 0
	if p.mode == steady {
		p.members = r.IntN(2)
	}
	p.snapshots, p.notice, p.lease, p.alert = 1, 0, 2*time.Second, pick(r, 0.7, 1)
	p.pace, p.net.storms = between(r, 10*time.Millisecond, 80*time.Millisecond), 0
	p.rates = pick(r, etcdWeather...)
	p.program, p.faults = nil, nil
	for range p.steps {
		p.program = append(p.program, p.drawStep(r))
	}
	kinds := []kind{crash, freeze, depose, depose, handOver, breakLink, crashReply}
	if p.nodes {
		kinds = append(kinds, nodeFaults...)
	}
	for range 1 + r.IntN(3) {
		p.faults = append(p.faults, p.drawFault(r, kinds))
	}
	if p.mode != steady {
		p.faults = append(p.faults, p.drawFault(r, []kind{killProc, moveProc}))
	}
	for i := range p.faults {
		p.faults[i].lasts = between(r, 10*time.Millisecond, 200*time.Millisecond)
	}
}

// etcdWeather are the rates of faults that a plan has.
var etcdWeather = []faultyetcd.Rates{
	{Slow: 5, Lost: 15, NoReply: 25, Late: 40, Twice: 40, NoSpace: 5, FullDone: 5, Compact: 5, Crash: 5},
	{NoReply: 20, Late: 100, Twice: 100, Crash: 10},
	{Slow: 20, NoSpace: 40, FullDone: 40, Compact: 20, Crash: 5},
	{Lost: 30, NoReply: 30, Crash: 25},
}
