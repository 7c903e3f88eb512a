package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
)

// Join makes this process the task of cfg and returns once the service has accepted it. With a
// register barrier that is when every task has come. It ends with ctx, or after
// Config.RegisterTimeout.
func Join(ctx context.Context, cfg Config) (*Member, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	for cfg.Incarnation == 0 {
		cfg.Incarnation = serry.Incarnation(rand.Uint64())
	}
	m := &Member{cfg: cfg, transport: cfg.Transport, requester: rand.Uint64() | 1}
	m.mu.uses = make(map[string]*use)
	m.mu.numbers.open = make(map[uint64]bool)
	m.ctx, m.lose = context.WithCancelCause(context.Background())
	if m.transport == nil {
		conn, err := dial(cfg.Address, cfg.TLS)
		if err != nil {
			return nil, err
		}
		m.transport = conn
	}
	if err := m.register(ctx); err != nil {
		m.end(&Fault{Kind: FaultLocal, Err: err})
		return nil, fmt.Errorf("join as %v: %w", cfg.Task, err)
	}
	m.word.hear()
	m.done.Go(m.keepAlive)
	m.done.Go(m.listen)
	cfg.Log.Info("joined", "task", cfg.Task, "incarnation", cfg.Incarnation)
	return m, nil
}

// register tries until the service accepts us, says that it never will, or the time is over.
func (m *Member) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, m.cfg.RegisterTimeout+m.cfg.ErrorGrace,
		fmt.Errorf("%w after %v", serry.ErrTimeout, m.cfg.RegisterTimeout+m.cfg.ErrorGrace))
	defer cancel()
	if err := m.findDialect(ctx); err != nil {
		return err
	}
	call := coord.RegisterTask{Call: m.caller(), Recoverable: m.cfg.Recoverable}
	var last error
	for k := 1; ; k++ {
		result, err := exchange(ctx, m.transport, m.dialect, call)
		if r, ok := result.(coord.Registered); ok && err == nil {
			m.service = r.Service
			return nil
		}
		switch {
		case err == nil:
			return errors.New("the service sent a reply that is none to a registration")
		case ctx.Err() != nil && last != nil:
			return fmt.Errorf("%w; before that: %w", context.Cause(ctx), last)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !mayTryAgain(err):
			return err
		}
		if last == nil || last.Error() != err.Error() {
			m.cfg.Log.Warn("not registered yet", "task", m.cfg.Task, "err", err)
		}
		last = err
		wait := time.Duration(rand.Float64() * float64(time.Millisecond<<min(14, k)))
		if err := pause(ctx, wait); err != nil {
			return fmt.Errorf("%w; before that: %w", err, last)
		}
	}
}

// mayTryAgain says whether a refused registration may succeed later: the job that stood there before
// may be over then, the barrier may open anew, and a service that is not ready may become so.
func mayTryAgain(err error) bool {
	switch {
	case errors.Is(err, errUnreachable):
		return true
	case errors.Is(err, serry.ErrUnknownTask), errors.Is(err, serry.ErrInvalid), errors.Is(err, serry.ErrSuperseded),
		errors.Is(err, serry.ErrTimeout), errors.Is(err, serry.ErrStopped):
		return false
	}
	switch status.Code(err) {
	case codes.Unimplemented, codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.AlreadyExists:
		return false
	}
	return true
}

// findDialect asks for the status of the service in serry's own dialect; one that does not know that
// call is a stock service. Those speak jaxlib's dialect or TensorFlow's, and only the right one of
// them knows what a heartbeat is.
func (m *Member) findDialect(ctx context.Context) error {
	if m.cfg.Dialect != Auto {
		m.dialect = m.cfg.Dialect.wire()
		return nil
	}
	tries := []struct {
		dialect wire.Dialect
		probe   coord.Event
	}{
		{wire.Own, coord.TryGetKeyValue{Key: "serry/hello"}},
		{wire.XLA, coord.TryGetKeyValue{Key: "serry/hello"}},
		{wire.TF, coord.TryGetKeyValue{Key: "serry/hello"}},
	}
	for _, t := range tries {
		for {
			_, err := exchange(ctx, m.transport, t.dialect, t.probe)
			if errors.Is(err, errUnreachable) {
				if err := pause(ctx, jittered(firstRetry)); err != nil {
					return err
				}
				continue
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if status.Code(err) == codes.Unimplemented {
				break
			}
			m.dialect = t.dialect
			return nil
		}
	}
	return fmt.Errorf("%s is no coordination service: it knows none of the dialects", m.cfg.Address)
}
