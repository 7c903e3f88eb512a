package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/store"
)

const (
	// unknownQuota is the quota of an etcd that does not say which it has: the default of etcd.
	unknownQuota = 2 << 30

	// roomPart is which part of the quota a service may use. The rest is for what etcd keeps beside: its
	// history until it is compacted, and pages that are free but cannot be used, because etcd counts the
	// size of its file.
	roomPart = 2

	// reservePart is which part of the quota is kept for what the server itself has to write: when the
	// file has grown into it, callers store nothing.
	reservePart = 8

	// valuePart is which part of the room one value may take.
	valuePart = 4

	// askEvery is how often etcd is asked how full it is.
	askEvery = time.Second
)

// A shortage is what a store knows of the space in etcd. etcd refuses every write, also those of other
// clients and those that would make room for others, from when its quota is reached until an operator, or
// the member itself, has made room and cleared its alarm. That is no reason to end a service: whatever must
// be written waits, and goes on where it was.
type shortage struct {
	log *slog.Logger // or nil
	fix string

	mu struct {
		sync.Mutex
		full  *store.FullError // or nil
		since time.Time
		told  time.Time // or zero
	}
}

// now is why etcd takes no writes, or nil.
func (s *shortage) now() *store.FullError {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.full
}

// begin notes that etcd takes no writes, and why: the latest reason counts.
func (s *shortage) begin(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.mu.full == nil {
		s.mu.since = now
	}
	s.mu.full = &store.FullError{What: "the etcd database", Fix: s.fix, Err: err}
	if s.log != nil && now.Sub(s.mu.told) >= tellEvery {
		s.mu.told = now
		s.log.Warn("etcd is full: calls that store something are refused, and changes wait", "for", now.Sub(s.mu.since).Round(time.Second/10), "err", s.mu.full)
	}
}

// end notes that it takes writes.
func (s *shortage) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.full != nil && !s.mu.told.IsZero() {
		s.log.Info("etcd has room again", "outage", time.Since(s.mu.since).Round(time.Second/10))
	}
	s.mu.full, s.mu.told = nil, time.Time{}
}

func noSpace(err error) bool { return errors.Is(rpctypes.Error(err), rpctypes.ErrNoSpace) }

// Capacity is the part of the quota that the service may use.
func (r *reign) Capacity() int64 { return r.quota / roomPart }

// Full says why etcd takes no writes, or nil.
func (r *reign) Full() *store.FullError { return r.shortage.now() }

// MaxValue is the limit of the configuration, or what the quota allows.
func (r *reign) MaxValue() int64 { return min(r.cfg.MaxValueBytes, r.Capacity()/valuePart) }

// learnQuota finds out how much etcd holds, unless the configuration says so.
func (r *reign) learnQuota(ctx context.Context) error {
	if r.quota = r.cfg.QuotaBytes; r.quota > 0 {
		return nil
	}
	return r.try(ctx, func(ctx context.Context) error {
		status, err := r.status(ctx)
		switch {
		case err != nil && passing(err):
			return err
		case err != nil || status.DbSizeQuota <= 0: // an old etcd, or one that does not tell this client
			r.quota, r.guessed = unknownQuota, true
		default:
			r.quota = status.DbSizeQuota
		}
		return nil
	})
}

// watchRoom asks again and again how full etcd is, until the reign ends. So calls are refused before the
// journal has to wait, where others fill this etcd, and are taken again when there is room.
func (r *reign) watchRoom() {
	for r.alive.Err() == nil {
		ctx, cancel := context.WithTimeout(r.alive, askEvery)
		status, err := r.status(ctx)
		cancel()
		if err == nil {
			r.judge(status)
		}
		_ = pause.For(r.alive, askEvery)
	}
}

func (r *reign) judge(status *clientv3.StatusResponse) {
	for _, alarm := range status.Errors {
		if strings.Contains(alarm, "NOSPACE") {
			r.shortage.begin(rpctypes.ErrNoSpace)
			return
		}
	}
	if !r.guessed && status.DbSize > r.quota-r.quota/reservePart {
		r.shortage.begin(fmt.Errorf("its file has %d of %d bytes", status.DbSize, r.quota))
		return
	}
	r.shortage.end()
}

// status asks one member, the first that answers.
func (s *service) status(ctx context.Context) (status *clientv3.StatusResponse, err error) {
	endpoints := s.client.Endpoints()
	if len(endpoints) == 0 {
		endpoints = []string{""} // of a member in this process, which needs none
	}
	for _, e := range endpoints {
		if status, err = s.client.Status(ctx, e); err == nil {
			return status, nil
		}
	}
	return nil, err
}
