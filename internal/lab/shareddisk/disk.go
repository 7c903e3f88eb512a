// Package shareddisk is a disk in memory that the stores of several candidates share, with elections, leases and
// faults, for tests in virtual time.
//
// A [Disk] is what an etcd is to the servers of a service. [Disk.Open] gives each candidate a [Handle], its
// [store.Store]; a test kills a handle, cuts it off and heals it as that happens to servers.
package shareddisk

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/store"
)

// A Disk is a disk in memory that the stores of several candidates have in common: what an etcd is
// to the servers of a service, for tests. It starts no goroutine and keeps no time but that of
// [Config.LeaseTTL], so it runs in a testing/synctest bubble, and the same calls in the same order
// give the same results.
type Disk struct {
	cfg Config        // set in New, then constant
	id  serry.StoreID // the same

	mu struct {
		sync.Mutex
		contents contents
		term     uint64 // of the last leadership
		leader   *reign // or nil
		bids     []*bid // of candidates that wait, oldest first
		watches  []*watch
	}
}

// A Config says how a Disk behaves. The zero value is a disk without faults on which leases end
// by hand only.
type Config struct {
	// LeaseTTL is how long a leadership outlives a Handle that was killed or cut off. Zero: until Expire,
	// or Depose.
	LeaseTTL time.Duration

	// Notice is how long after it was deposed a leader learns of it, other than by an operation that is
	// refused.
	Notice time.Duration

	// Fault, or nil, is called by every operation of a handle, before and after it takes effect, without a
	// lock. It may wait, and it may call methods of the Disk and its handles. An error it returns is what
	// the operation returns; after the effect that is an acknowledgement that was lost.
	Fault func(Op) error

	// Planted is a fault of the store itself.
	Planted plant.Faults
}

// An Op is an operation at one of its two moments.
type Op struct {
	Action Action
	Leader store.Leader // by whom; the term is 0 where a candidate acts
	Bytes  int          // that are written
	Done   bool         // it has taken effect

	// Over is closed when the reign that acts is over, and nil where a candidate acts. A fault that waits
	// ends then, as the operations of a real store do.
	Over <-chan struct{}
}

// An Action is a kind of operation, named like its method.
type Action string

// The operations of a Handle and its reigns.
const (
	OpCampaign Action = "campaign"
	OpLeader   Action = "leader"
	OpDepose   Action = "depose"
	OpLoad     Action = "load"
	OpAppend   Action = "append"
	OpConfirm  Action = "confirm"
	OpPut      Action = "put"
	OpGet      Action = "get"
	OpSave     Action = "save"
	OpResign   Action = "resign"
)

// New is an empty disk without a leader.
func New(cfg Config) *Disk {
	s := &Disk{cfg: cfg, id: serry.NewStoreID()}
	s.mu.contents.values = make(map[coord.Ref][]byte)
	return s
}

// Open gives a candidate its place at the disk.
func (s *Disk) Open() *Handle {
	return &Handle{disk: s, dead: make(chan struct{})}
}

// Expire ends the present leadership, if there is one, as if its lease had run out.
func (s *Disk) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.leader != nil {
		s.end(s.mu.leader)
	}
}

// Journal reads the disk past all handles.
func (s *Disk) Journal() store.Journal { return rawJournal{s} }

// Values counts the values that are stored beside the batches.
func (s *Disk) Values() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.contents.values)
}

// A bid is a candidacy that waits.
type bid struct {
	handle *Handle
	who    store.Candidate
	won    chan *reign // takes one
}

// A watch gets every new leader.
type watch struct {
	handle *Handle
	news   chan store.Leader // takes one: the last
}

// elect makes the oldest bid of a handle that is connected the leader, if there is none. mu is held.
func (s *Disk) elect() {
	if s.mu.leader != nil {
		return
	}
	i := slices.IndexFunc(s.mu.bids, func(b *bid) bool { return !b.handle.cut })
	if i < 0 {
		return
	}
	b := s.mu.bids[i]
	s.mu.bids = slices.Delete(s.mu.bids, i, i+1)
	s.mu.term++
	r := &reign{
		handle: b.handle, leader: store.Leader{Address: b.who.Address, Term: s.mu.term},
		over: make(chan struct{}),
	}
	s.mu.leader = r
	b.handle.reign = r
	b.won <- r
	s.tell()
}

// end ends a leadership, and lets the next begin. mu is held.
func (s *Disk) end(r *reign) {
	if s.mu.leader != r {
		return
	}
	s.mu.leader = nil
	r.deposed = true
	switch {
	case r.handle.cut: // it learns when it is connected again, or when its own clock says so
	case s.cfg.Notice > 0:
		time.AfterFunc(s.cfg.Notice, r.close)
	default:
		r.close()
	}
	s.tell()
	s.elect()
}

// tell sends the leader to every watch that is connected. mu is held.
func (s *Disk) tell() {
	for _, w := range s.mu.watches {
		if !w.handle.cut {
			w.send(s.leads())
		}
	}
}

// leads is the leader, or the zero Leader. mu is held.
func (s *Disk) leads() store.Leader {
	if s.mu.leader == nil {
		return store.Leader{}
	}
	return s.mu.leader.leader
}

// send replaces what the reader has not taken yet.
func (w *watch) send(l store.Leader) {
	select {
	case old := <-w.news:
		if old == l {
			w.news <- old
			return
		}
	default:
	}
	w.news <- l
}

// errBusy says that a handle is used for two candidacies.
var errBusy = errors.New("shareddisk: this store campaigns already")

// bid queues a candidacy. mu is held.
func (s *Disk) bid(handle *Handle, who store.Candidate) (*bid, error) {
	if slices.ContainsFunc(s.mu.bids, func(b *bid) bool { return b.handle == handle }) {
		return nil, errBusy
	}
	b := &bid{handle: handle, who: who, won: make(chan *reign, 1)}
	s.mu.bids = append(s.mu.bids, b)
	s.elect()
	return b, nil
}

// withdraw takes back a candidacy, or the leadership that it has won meanwhile.
func (s *Disk) withdraw(b *bid) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.bids = slices.DeleteFunc(s.mu.bids, func(o *bid) bool { return o == b })
	select {
	case r := <-b.won:
		s.end(r)
	default:
	}
}

// watch begins a watch, that ends with ctx or with the handle.
func (s *Disk) watch(ctx context.Context, handle *Handle) <-chan store.Leader {
	w := &watch{handle: handle, news: make(chan store.Leader, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if handle.closed {
		close(w.news)
		return w.news
	}
	s.mu.watches = append(s.mu.watches, w)
	if !handle.cut {
		w.send(s.leads())
	}
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unwatch(func(o *watch) bool { return o == w })
	})
	return w.news
}

// unwatch ends watches. mu is held.
func (s *Disk) unwatch(which func(*watch) bool) {
	s.mu.watches = slices.DeleteFunc(s.mu.watches, func(w *watch) bool {
		if !which(w) {
			return false
		}
		close(w.news)
		return true
	})
}
