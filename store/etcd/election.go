package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/store"
)

// errBusy says that a store is used for two candidacies.
var errBusy = errors.New("store: this store campaigns already")

// errLeaseLost ends a candidacy whose lease ran out while it waited: it has lost its place.
var errLeaseLost = errors.New("store: etcd lease lost")

// A candidacy is a key of the election.
type candidacy struct {
	lease clientv3.LeaseID
	slot  string
	term  int64           // revision at which the key was created
	alive context.Context // ends when the lease is lost, or given up
	end   context.CancelCauseFunc
	done  chan struct{} // closed when the lease is no longer renewed
}

// Campaign stands for election until this server leads.
func (s *service) Campaign(ctx context.Context, who store.Candidate) (store.Reign, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.open, func() { cancel(store.ErrClosed) })()
	for {
		r, err := s.campaign(ctx, who)
		if !errors.Is(err, errLeaseLost) {
			return r, err
		}
	}
}

func (s *service) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open.Err() != nil {
		return context.Cause(s.open)
	}
	if s.mu.campaigning {
		return errBusy
	}
	s.mu.campaigning = true
	s.bids.Add(1)
	return nil
}

func (s *service) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.campaigning = false
	s.bids.Done()
}

// campaign stands for election with one lease.
func (s *service) campaign(ctx context.Context, who store.Candidate) (store.Reign, error) {
	c, err := s.stand(ctx, who)
	if err != nil {
		return nil, err
	}
	r := &reign{reader: reader{service: s}, candidacy: c, over: make(chan struct{})}
	r.read = r.fenced
	err = s.await(ctx, c)
	if err == nil {
		err = r.begin(ctx)
	}
	if err != nil {
		s.withdraw(c, err)
		if errors.Is(err, store.ErrDeposed) { // it had lost its place before it won
			err = errLeaseLost
		}
		return nil, err
	}
	if !s.spawn(r.watch) || !s.spawn(r.watchRoom) {
		s.withdraw(c, store.ErrClosed)
		return nil, store.ErrClosed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.reigns = append(s.mu.reigns, r)
	return r, nil
}

// stand takes a lease and puts the key of a candidate.
func (s *service) stand(ctx context.Context, who store.Candidate) (*candidacy, error) {
	c := &candidacy{done: make(chan struct{})}
	err := s.retry(ctx, func(ctx context.Context) error {
		grant, err := s.client.Grant(ctx, max(1, int64(s.cfg.LeaseTTL.Seconds()+0.999)))
		if err == nil {
			c.lease = grant.ID
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	c.slot = s.key(fmt.Sprintf("election/%016x", uint64(c.lease)))
	c.alive, c.end = context.WithCancelCause(s.ctx)
	if err := s.renew(c); err != nil {
		return nil, err
	}
	// A repeated request finds the key that the first has put.
	put := clientv3.OpPut(c.slot, who.Address, clientv3.WithLease(c.lease))
	err = s.retry(ctx, func(ctx context.Context) error {
		resp, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(c.slot), "=", 0)).
			Then(put, clientv3.OpGet(c.slot)).Else(put, clientv3.OpGet(c.slot)).Commit()
		if leaseGone(err) {
			return errLeaseLost
		}
		if err == nil {
			c.term = resp.Responses[1].GetResponseRange().Kvs[0].CreateRevision
		}
		return err
	})
	if err != nil {
		s.withdraw(c, err)
		return nil, err
	}
	return c, nil
}

// renew keeps the lease alive until the candidacy ends, and ends it when the lease is lost.
func (s *service) renew(c *candidacy) error {
	renewals, err := s.client.KeepAlive(c.alive, c.lease)
	if err != nil {
		c.end(err)
		close(c.done)
		return s.explain(err)
	}
	if !s.spawn(func() {
		defer close(c.done)
		for range renewals {
		}
		c.end(errLeaseLost)
	}) {
		close(c.done)
		return store.ErrClosed
	}
	return nil
}

// await waits until every key that is older has gone.
func (s *service) await(ctx context.Context, c *candidacy) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.alive, func() { cancel(context.Cause(c.alive)) })()
	for {
		var older int
		var revision int64
		err := s.retry(ctx, func(ctx context.Context) error {
			resp, err := s.client.Get(ctx, s.key("election/"), clientv3.WithPrefix(),
				clientv3.WithMaxCreateRev(c.term-1), clientv3.WithKeysOnly())
			if err == nil {
				older, revision = len(resp.Kvs), resp.Header.Revision
			}
			return err
		})
		if err != nil {
			return err
		}
		if older == 0 {
			return nil
		}
		s.changed(ctx, revision)
	}
}

// withdraw gives up a candidacy. If etcd cannot be told, the lease runs out by itself.
func (s *service) withdraw(c *candidacy, cause error) {
	c.end(cause)
	<-c.done
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	_, _ = s.client.Revoke(ctx, c.lease)
}

// A reign is a candidacy that has won.
type reign struct {
	reader
	*candidacy
	over chan struct{} // closed when the reign is known to have ended
	once sync.Once     // closes over

	store  serry.StoreID // set in begin, then constant
	blobs  blobs
	failed atomic.Pointer[error] // of an Append, or nil

	quota   int64 // of etcd; set before the reign begins
	guessed bool  // etcd did not say which quota it has

	next uint64 // number of the next batch; owned by the goroutine that appends
}

// watch ends the reign when its key has gone, or its lease is lost.
func (r *reign) watch() {
	defer r.finish()
	for r.alive.Err() == nil {
		watch := r.client.Watch(r.alive, r.slot, clientv3.WithRev(r.term+1))
		for resp := range watch {
			for _, ev := range resp.Events {
				if ev.Type == clientv3.EventTypeDelete {
					return
				}
			}
		}
		if errors.Is(r.Confirm(r.alive), store.ErrDeposed) { // etcd has ended the watch: look
			return
		}
		_ = pause.For(r.alive, longestPause)
	}
}

// finish ends the reign here; etcd may know already.
func (r *reign) finish() {
	r.once.Do(func() { close(r.over) })
	r.end(store.ErrDeposed)
	<-r.done
	r.forget(r)
}

// Term is the revision at which the key of this reign was created.
func (r *reign) Store() serry.StoreID { return r.store }

func (r *reign) Term() uint64 { return uint64(r.term) }

// Deposed is closed when the reign is known to be over.
func (r *reign) Deposed() <-chan struct{} { return r.over }

// Resign removes the key of this reign and its lease.
func (r *reign) Resign(ctx context.Context) error {
	r.finish()
	return r.retry(ctx, func(ctx context.Context) error {
		if _, err := r.client.Revoke(ctx, r.lease); err != nil && !leaseGone(err) {
			return err
		}
		return nil
	})
}
