// Package etcd keeps the journal of a coordination service in etcd, where servers on several machines
// share it.
//
// An election decides which candidate leads: each candidate has a key that lives as long as its lease, and the oldest
// key leads. The revision at which that key was created is the term. Every write compares it in the
// same transaction, so a leader that was deposed while it was frozen, or cut off, cannot write, however
// late its request arrives.
//
// A batch is one key. What is larger than a request may be is written in parts first, and counts once
// one small key names them; parts that nothing names are removed by the next Save. Writes that meet an
// etcd without a leader, or out of reach, are repeated until it answers, the lease is lost, or the
// context ends.
//
// Below [Config.Prefix]:
//
//	election/LEASE   address of a candidate
//	format           version of all this
//	journal/NUMBER   a batch, or the blob that it is
//	snapshot         number of the last batch that it covers, and the blob that it is
//	value/REF        the blob that a value aside is
//	blob/ID/PART     bytes
package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/store"
)

// A Config says where the journal is.
type Config struct {
	// Endpoints are the members of the etcd cluster: host:port, or URLs.
	Endpoints []string
	// TLS is how to talk to them; nil for plain text.
	TLS *tls.Config
	// Client, or nil, is used instead of Endpoints and TLS. It stays open when the store is closed.
	Client *clientv3.Client

	// Prefix is where the keys of this service begin; "/serry/" by default.
	Prefix string
	// LeaseTTL is after how long without a sign a leader is replaced, 3 s by default. etcd rounds it up
	// to whole seconds, and to one and a half of its election time-outs.
	LeaseTTL time.Duration
	// MaxValueBytes is the size of the largest value that can be stored beside the batches, 64 MiB by default. It has to
	// fit into etcd's quota, with all others (C-LOG-5).
	MaxValueBytes int64
	// PartBytes is how much one request carries, 1 MiB by default. It has to be below what etcd takes
	// (--max-request-bytes, 1.5 MiB by default).
	PartBytes int
	// QuotaBytes is the size that etcd may grow to; 0 asks etcd for it. A service uses half of it at most
	// (C-LIM-1).
	QuotaBytes int64
	// Compact says that this etcd keeps nothing but journals of serry: its history is dropped after each
	// Save. Elsewhere, run etcd with --auto-compaction-retention.
	Compact bool
	// Log, or nil, gets a line when etcd does not answer.
	Log *slog.Logger
	// Planted is none, but in tests of tests.
	Planted plant.Faults
}

const (
	defaultPrefix    = "/serry/"
	defaultLeaseTTL  = 3 * time.Second
	defaultMaxValue  = 64 << 20
	defaultPartBytes = 1 << 20

	format       = "1"
	formatNumber = 1
)

// A service is a journal in etcd, seen by one server.
type service struct {
	cfg    Config // set in Open, then constant
	client *clientv3.Client
	own    bool // Close closes the client too

	trouble  trouble
	shortage shortage

	open  context.Context // ends when Close begins: no candidate campaigns after that
	close context.CancelCauseFunc
	bids  sync.WaitGroup // campaigns

	ctx  context.Context // ends with Close, after all have resigned
	stop context.CancelCauseFunc
	work sync.WaitGroup // what ends when ctx does

	mu struct {
		sync.Mutex
		campaigning bool
		reigns      []*reign // that may not be over yet
	}
}

// Open makes a store of an etcd cluster. It does not wait for the cluster: what is asked of the store
// does, until its context ends.
func Open(ctx context.Context, cfg Config) (store.Store, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	cfg.Prefix = strings.TrimSuffix(cmp.Or(cfg.Prefix, defaultPrefix), "/") + "/"
	cfg.LeaseTTL = cmp.Or(max(cfg.LeaseTTL, 0), defaultLeaseTTL)
	cfg.MaxValueBytes = cmp.Or(max(cfg.MaxValueBytes, 0), defaultMaxValue)
	cfg.PartBytes = cmp.Or(max(cfg.PartBytes, 0), defaultPartBytes)
	s := &service{cfg: cfg, client: cfg.Client}
	if s.client == nil {
		client, err := dial(cfg)
		if err != nil {
			return nil, err
		}
		s.client, s.own = client, true
	}
	s.trouble.log, s.trouble.client = cfg.Log, s.client
	s.shortage.log, s.shortage.fix = cfg.Log, fixOf(cfg)
	s.open, s.close = context.WithCancelCause(context.Background())
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	return s, nil
}

func dial(cfg Config) (*clientv3.Client, error) {
	if len(cfg.Endpoints) == 0 {
		return nil, errors.New("store: etcd without an endpoint")
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            cfg.Endpoints,
		TLS:                  cfg.TLS,
		DialTimeout:          cfg.LeaseTTL, // which is the first deadline of a lease, too
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		Logger:               zap.NewNop(), // it would tell of every attempt
	})
	if err != nil {
		return nil, fmt.Errorf("store: etcd: %w", err)
	}
	return client, nil
}

// fixOf says what to do about an etcd that is full.
func fixOf(cfg Config) string {
	if cfg.Compact { // the store that compacts also defragments
		return "start every server again with a larger --quota"
	}
	return "compact its history (etcdctl compact REVISION), defragment every member (etcdctl defrag --cluster), " +
		"give it more room (--quota-backend-bytes) if that is not enough, and clear the alarm (etcdctl alarm disarm)"
}

// Leader reads which candidate leads.
func (s *service) Leader(ctx context.Context) (l store.Leader, err error) {
	l, _, err = s.current(ctx)
	if err == nil && l == (store.Leader{}) {
		err = store.ErrNoLeader
	}
	return l, err
}

// current is the leader, and the revision at which it led.
func (s *service) current(ctx context.Context) (l store.Leader, revision int64, err error) {
	err = s.retry(ctx, func(ctx context.Context) error {
		resp, err := s.client.Get(ctx, s.key("election/"), clientv3.WithFirstCreate()...)
		if err != nil {
			return err
		}
		l, revision = store.Leader{}, resp.Header.Revision
		for _, kv := range resp.Kvs { // at most one
			l = store.Leader{Address: string(kv.Value), Term: uint64(kv.CreateRevision)}
		}
		return nil
	})
	return l, revision, err
}

// Candidates counts the keys of the election but for the oldest, which leads.
func (s *service) Candidates(ctx context.Context) (n int, err error) {
	err = s.retry(ctx, func(ctx context.Context) error {
		resp, err := s.client.Get(ctx, s.key("election/"), clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil {
			n = max(0, int(resp.Count)-1)
		}
		return err
	})
	return n, err
}

// Watch reads the leader whenever the keys of the election change.
func (s *service) Watch(ctx context.Context) <-chan store.Leader {
	news := make(chan store.Leader)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	if !s.spawn(func() {
		defer cancel()
		defer stop()
		defer close(news)
		s.report(ctx, news)
	}) {
		cancel()
		close(news)
	}
	return news
}

// spawn starts a goroutine that ends when the store is closed, unless it is.
func (s *service) spawn(do func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.work.Go(do)
	return true
}

// report sends the leader, and again after each change, until ctx ends.
func (s *service) report(ctx context.Context, news chan<- store.Leader) {
	told, known := store.Leader{}, false
	for {
		l, revision, err := s.current(ctx)
		if err != nil {
			return
		}
		if known && l == told {
			s.changed(ctx, revision)
			continue
		}
		watching, done := context.WithCancel(ctx)
		change := make(chan struct{})
		go func() {
			defer close(change)
			s.changed(watching, revision)
		}()
		select {
		case news <- l:
			told, known = l, true
		case <-change: // before the receiver has read it
		case <-ctx.Done():
		}
		done()
		<-change
	}
}

// changed waits until the keys of the election have changed after a revision, or may have: a watch
// that etcd ends, because of a compaction for example, is no reason to miss a change.
func (s *service) changed(ctx context.Context, revision int64) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := s.client.Watch(ctx, s.key("election/"), clientv3.WithPrefix(), clientv3.WithRev(revision+1))
	if resp, ok := <-watch; !ok || resp.Err() != nil {
		_ = pause.For(ctx, longestPause)
	}
}

// Depose revokes the lease of a leader.
func (s *service) Depose(ctx context.Context, l store.Leader) error {
	return s.retry(ctx, func(ctx context.Context) error {
		resp, err := s.client.Get(ctx, s.key("election/"), clientv3.WithPrefix())
		if err != nil {
			return err
		}
		for _, kv := range resp.Kvs {
			if uint64(kv.CreateRevision) != l.Term {
				continue
			}
			if _, err := s.client.Revoke(ctx, clientv3.LeaseID(kv.Lease)); err != nil && !leaseGone(err) {
				return err
			}
		}
		return nil
	})
}

// Close resigns, and closes the connections to etcd.
func (s *service) Close() error {
	s.mu.Lock()
	s.close(store.ErrClosed)
	s.mu.Unlock()
	s.bids.Wait()
	s.mu.Lock()
	reigns := s.mu.reigns
	s.mu.reigns = nil
	s.mu.Unlock()
	var errs []error
	for _, r := range reigns {
		ctx, cancel := context.WithTimeout(context.Background(), farewell) // or the lease ends by itself
		errs = append(errs, r.Resign(ctx))
		cancel()
	}
	s.mu.Lock()
	s.stop(store.ErrClosed)
	s.mu.Unlock()
	s.work.Wait()
	if s.own {
		errs = append(errs, s.client.Close())
	}
	return errors.Join(errs...)
}

// key is the full name of a key.
func (s *service) key(name string) string { return s.cfg.Prefix + name }

// forget drops a reign that is over.
func (s *service) forget(r *reign) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.reigns = slices.DeleteFunc(s.mu.reigns, func(o *reign) bool { return o == r })
}
