package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/serry-dev/serry/internal/pause"
)

const (
	shortestPause = 5 * time.Millisecond
	longestPause  = 100 * time.Millisecond

	// firstAttempt is how long a request may take before it is sent again: what was on its way to a
	// member that died is lost, and etcd waits for it far longer than for a new leader. Each further
	// attempt may take twice as long, up to lastAttempt, because a disk can be slow, too.
	firstAttempt = 300 * time.Millisecond
	lastAttempt  = 5 * time.Second

	// farewell is how long etcd is asked to remove a lease that ends by itself.
	farewell = 2 * time.Second
)

// retry does what can be repeated until etcd has answered, ctx ends, or the store is closed. Requests
// fail while etcd elects a leader; that is not worth ending a service for.
func (s *service) retry(ctx context.Context, do func(context.Context) error) error {
	pauseFor, patience := shortestPause, firstAttempt
	var last error
	full := false // etcd had no room for this request
	for {
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		if ctx.Err() != nil {
			return s.gaveUp(context.Cause(ctx), full, last)
		}
		attempt, cancel := context.WithTimeout(ctx, patience)
		stop := context.AfterFunc(s.ctx, cancel)
		err := do(attempt)
		stop()
		cancel()
		if err == nil || !passing(err) {
			s.trouble.passed()
			if full && err == nil {
				s.shortage.end()
			}
			return s.explain(err)
		}
		switch {
		case ctx.Err() != nil || s.ctx.Err() != nil: // it was the caller that gave up
		case noSpace(err):
			s.trouble.passed()
			s.shortage.begin(rpctypes.Error(err))
			full, last = true, nil
		default:
			s.trouble.failed(err)
			last = err
		}
		_ = pause.For(ctx, pauseFor)
		pauseFor, patience = min(2*pauseFor, longestPause), min(2*patience, lastAttempt)
	}
}

// gaveUp is the end of a wait, with the reason why there was no answer, if that is known.
func (s *service) gaveUp(cause error, full bool, last error) error {
	if why := s.shortage.now(); full && last == nil && why != nil {
		return fmt.Errorf("%w: %w", cause, why)
	}
	return s.trouble.explain(cause, last)
}

// code is the status that etcd or the way to it has answered with.
func code(err error) codes.Code {
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return e.Code()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return codes.DeadlineExceeded
	}
	if errors.Is(err, context.Canceled) {
		return codes.Canceled
	}
	return status.Code(err)
}

// passing says whether the same request can succeed later. Whether it has already is not known.
func passing(err error) bool {
	switch code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	case codes.ResourceExhausted:
		return noSpace(err) || errors.Is(rpctypes.Error(err), rpctypes.ErrTooManyRequests)
	}
	return false
}

func leaseGone(err error) bool { return errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseNotFound) }

// explain makes an error of etcd one that says what to do.
func (s *service) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(rpctypes.Error(err), rpctypes.ErrRequestTooLarge):
		return fmt.Errorf("store: etcd takes only smaller requests than its default; raise its --max-request-bytes: %w", err)
	case code(err) == codes.Unknown:
		return err // of our own
	}
	return fmt.Errorf("store: etcd: %w", err)
}

func compacted(err error) bool { return errors.Is(rpctypes.Error(err), rpctypes.ErrCompacted) }
