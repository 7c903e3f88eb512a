package interop

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/serry-dev/serry"
	member "github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
)

// A Go member is at home in a job whose service is the one that comes with jaxlib: it finds out which
// dialect is spoken there, and does with the jax process beside it what it does with serry's server.
func TestGoMemberOfAStockService(t *testing.T) {
	lab.Clause(t, "A-GO-6", "C-WIRE-14", "P-TOP-8")
	t.Parallel()
	eachStock(t, func(t *testing.T, v venv) {
		for _, goTask := range []int{0, 1} {
			j := joinMixed(t, serveStock(t, v, 2).addr, v, 2, goTask)
			j.sameTopology()
			j.shareKeys()
			j.meet("step")
			j.meet("step")
			j.agree()
			j.leave()
		}
	})
}

// Errors of a stock service arrive as the errors they are, although a grpc-go client as it is would
// read all of them as one.
func TestGoMemberReadsStockErrors(t *testing.T) {
	lab.Clause(t, "C-WIRE-14", "A-GO-6")
	t.Parallel()
	eachStock(t, func(t *testing.T, v venv) {
		j := joinMixed(t, serveStock(t, v, 2).addr, v, 2, 0)
		ctx, m, kv := t.Context(), j.members[0], j.members[0].KV()
		if err := kv.Create(ctx, "taken", []byte("first")); err != nil {
			t.Fatalf("Create() = %v", err)
		}
		_, missing := kv.Get(ctx, "missing")
		alone := m.Barrier(ctx, "alone", serry.BarrierOptions{Timeout: 200 * time.Millisecond})
		for _, test := range []struct {
			call      string
			got, want error
		}{
			{"Create of a key that is there", kv.Create(ctx, "taken", []byte("second")), serry.ErrExists},
			{"Get of one that is not", missing, serry.ErrNotFound},
			{"Barrier without the other", alone, serry.ErrTimeout},
			{"CancelBarrier without a call", m.CancelBarrier(ctx, "alone"), member.ErrNotOpen},
			{"Swap", kv.Swap(ctx, "taken", []byte("first"), []byte("third")), member.ErrUnsupported},
			{"Watch of keys", firstOf(kv.Watch(ctx, "")), member.ErrUnsupported},
			{"Suspect", m.Suspect(ctx, worker(1), 1, serry.Evidence{}), member.ErrUnsupported},
		} {
			if !errors.Is(test.got, test.want) {
				t.Errorf("%s = %v; want %v", test.call, test.got, test.want)
			}
		}
		if err := m.Err(); err != nil {
			t.Errorf("Err() = %v; want a member still", err)
		}
		j.meet("together") // and goes on as one
		j.leave()
	})
}

// The fate of one is the fate of all with a stock service too: a Go member hears that a jaxlib process
// was killed, and what a Go member reports of itself ends a jaxlib process.
func TestFailuresThroughAStockService(t *testing.T) {
	lab.Clause(t, "A-GO-6", "A-DIE-1", "C-PROP-4")
	const heartbeat = 12 // seconds; a stock service knows of a loss by silence alone
	t.Parallel()
	eachStock(t, func(t *testing.T, v venv) {
		pair := func() (*member.Member, *client) {
			srv := serveStock(t, v, 2, "heartbeat_timeout", heartbeat)
			c := newClient(t, srv.addr, clientConfig{venv: v, task: 1, heartbeat: heartbeat})
			c.begin("connect")
			m := together(t, []int{0}, func(ctx context.Context, i int) (*member.Member, error) {
				return member.Join(ctx, member.Config{Address: srv.addr, Task: worker(i), HeartbeatTimeout: heartbeat * time.Second})
			})[0]
			t.Cleanup(func() { m.Close() })
			c.end().value(nil)
			return m, c
		}

		m, c := pair()
		c.kill()
		select {
		case <-m.Context().Done():
		case <-time.After(patience):
			t.Fatalf("member lives %v after its peer was killed; want a fault", patience)
		}
		fault, ok := errors.AsType[*member.Fault](context.Cause(m.Context()))
		if !ok || fault.Kind != member.FaultPeer {
			t.Errorf("cause of the member's end = %v; want a fault of a peer", context.Cause(m.Context()))
		}

		m, c = pair()
		err := m.Fail(t.Context(), errors.New("out of memory"))
		if v == jax092 { // its service never answers a report; the others hear of the silence
			if err == nil {
				t.Error("Fail() = nil; want to know that nobody was told")
			}
			c.aborts("UNAVAILABLE", "stopped sending heartbeats")
			return
		}
		if err != nil {
			t.Errorf("Fail() = %v", err)
		}
		c.aborts("out of memory")
	})
}

// eachStock runs a test with a stock service and jax processes of each dialect.
func eachStock(t *testing.T, test func(t *testing.T, v venv)) {
	t.Helper()
	skipShort(t)
	eachVenv(t, both, 2, test)
}

// firstOf is the error of the first element of a sequence.
func firstOf[T any](seq func(yield func(T, error) bool)) (first error) {
	for _, err := range seq {
		return err
	}
	return nil
}
