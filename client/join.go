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
	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
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
	m := &Member{cfg: cfg, transport: cfg.Transport, requester: rand.Uint64() | 1, unheard: make(chan struct{}, 1)}
	m.mu.circles = make(map[string]*rounds)
	m.mu.givenUp = make(map[string]coord.RequestID)
	m.mu.answers = map[string]func(context.Context, string, int) []byte{wire.StacksEvidence: goroutineStacks}
	m.ctx, m.lose = context.WithCancelCause(context.Background())
	if m.transport == nil {
		conn, err := Dial(cfg.Address, DialOptions{TLS: cfg.TLS})
		if err != nil {
			return nil, err
		}
		m.transport = conn
	}
	if err := m.register(ctx); err != nil {
		m.end(&Fault{Kind: FaultLocal, Err: err})
		return nil, fmt.Errorf("join as %v: %w", cfg.Task, err)
	}
	m.done.Go(m.keepAlive)
	m.done.Go(m.listen)
	if m.dialect == wire.Serry { // other services do not ask
		m.done.Go(m.attend)
	}
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
	var last error
	for k := 1; ; k++ {
		result, st, err := m.registerOnce(ctx)
		if err == nil {
			r, err := as[coord.Registered](result, nil)
			m.service = r.Service
			return err
		}
		switch {
		case ctx.Err() != nil && last != nil:
			return fmt.Errorf("%w; before that: %w", context.Cause(ctx), last)
		case ctx.Err() != nil:
			return err
		case !mayTryAgain(st, err):
			return err
		}
		if last == nil || last.Error() != err.Error() {
			m.cfg.Log.Warn("not registered yet", "task", m.cfg.Task, "err", err)
		}
		last = err
		wait := time.Duration(rand.Float64() * float64(min(time.Millisecond<<min(k, 10), lastRetry)))
		if err := pause.For(ctx, wait); err != nil {
			return fmt.Errorf("%w; before that: %w", err, last)
		}
	}
}

// registerOnce sends one registration, under an id of its own: one that was refused is refused for good.
// While the service is out of reach it is sent again under the same id.
func (m *Member) registerOnce(ctx context.Context) (coord.Result, rpc.Status, error) {
	call, answered := m.changing()
	defer answered()
	return m.insist(ctx, coord.RegisterTask{Call: call, Recoverable: m.cfg.Recoverable})
}

// insist makes a call again and again, until there is an answer or ctx ends.
func (m *Member) insist(ctx context.Context, ev coord.Event) (coord.Result, rpc.Status, error) {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		result, st, err := attempt(ctx, m.transport, m.dialect, ev)
		if !errors.Is(err, errUnreachable) || pause.For(ctx, jittered(wait)) != nil {
			return result, st, err
		}
	}
}

// mayTryAgain says whether a refused registration may succeed later: the job that stood there before
// may be over then, the barrier may open anew, and a service that is not ready may become so.
func mayTryAgain(st rpc.Status, err error) bool {
	switch {
	case errors.Is(err, serry.ErrUnknownTask), errors.Is(err, serry.ErrInvalid), errors.Is(err, serry.ErrSuperseded),
		errors.Is(err, serry.ErrTimeout):
		return false
	}
	switch st.Code {
	case codes.OK, codes.Aborted, codes.Internal:
		return true
	case codes.Unimplemented, codes.PermissionDenied, codes.Unauthenticated:
		return false
	}
	return st.Details == nil // what the service itself says is final
}

// findDialect asks for a key that no task sets, in serry's own dialect. A service that does not know this call is a stock
// one, which speaks jaxlib's dialect or TensorFlow's.
func (m *Member) findDialect(ctx context.Context) error {
	if m.cfg.Dialect != Auto {
		m.dialect = m.cfg.Dialect.wire()
		return nil
	}
	var err error
	for _, m.dialect = range []wire.Dialect{wire.Serry, wire.XLA, wire.TF} {
		if _, _, err = m.insist(ctx, coord.TryGetKeyValue{Key: "serry/hello"}); status.Code(err) != codes.Unimplemented {
			if err != nil && ctx.Err() != nil {
				return err
			}
			return nil // whatever it says of the key, it has understood us
		}
	}
	return fmt.Errorf("no coordination service is there, it knows none of the dialects: %w", err)
}
