package client_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
)

// A gated transport asks before it passes a call on.
type gated struct {
	client.Transport
	codec *wire.Codec
	ask   func(ctx context.Context, ev coord.Event)
}

func (g *gated) Call(ctx context.Context, path string, body []byte) ([]byte, rpc.Status, error) {
	ev, _, err := g.codec.Decode(path, body, wire.Origin{Req: 1})
	if err != nil {
		return nil, rpc.Status{}, err
	}
	if g.ask(ctx, ev); ctx.Err() != nil {
		return nil, rpc.Status{}, context.Cause(ctx)
	}
	return g.Transport.Call(ctx, path, body)
}

// joinGated makes a member whose calls ask first.
func joinGated(t *testing.T, l *lab.Lab, task int, ask func(context.Context, coord.Event)) *client.Member {
	t.Helper()
	through := &gated{l.Line(t, client.DialOptions{}), wire.NewCodec([]coord.Job{{Name: "worker", Tasks: 8}}), ask}
	m, err := client.Join(t.Context(), client.Config{Transport: through, Task: worker(task), HeartbeatTimeout: heartbeat})
	if err != nil {
		t.Errorf("Join() as worker %d = %v", task, err)
		return nil
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// A round has ended when a member has the values of all. That it cannot remove what is no longer needed
// does not take the member out of step: it removes that later.
func TestCircleEndsWithItsValues(t *testing.T) {
	lab.Clause(t, "TC-MH-02")
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, loose(2))
		stuck := true
		members := []*client.Member{joinGated(t, l, 0, func(ctx context.Context, ev coord.Event) {
			switch ev.(type) {
			case coord.GetKeyValueDir, coord.DeleteKeyValue:
				if stuck {
					<-ctx.Done()
				}
			}
		})}
		members = append(members, joinGated(t, l, 1, func(context.Context, coord.Event) {}))
		saveAll(t, members, "a1 b1", "a1", "b1")
		saveAll(t, members, "a2 b2", "a2", "b2")
		saveAll(t, members, "a3 b3", "a3", "b3")
		stuck = false
		saveAll(t, members, "a4 b4", "a4", "b4")
		left, err := members[1].KV().List(t.Context(), "serry/circle")
		if err != nil || len(left) != 2 {
			t.Errorf("%d keys are left, %v; want those of one round", len(left), err)
		}
	})
}

// A task restarts and hands in its value for the circle of the new lives, while another still removes what
// former lives have left. The value stays.
func TestCircleKeepsTheValuesOfNewLives(t *testing.T) {
	lab.Clause(t, "TC-MH-02")
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, recoverable(2))
		free := make(chan struct{})
		hold := func(_ context.Context, ev coord.Event) {
			if _, lists := ev.(coord.GetKeyValueDir); lists {
				<-free
			}
		}
		var slow, former *client.Member
		each(2, func(i int) {
			if i == 0 {
				slow = joinGated(t, l, 0, hold)
			} else {
				former = joinGated(t, l, 1, hold)
			}
		})
		if t.Failed() {
			t.FailNow()
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if got, err := save(t.Context(), slow, "a1"); err != nil || got != "a1 b1" {
				t.Errorf("Gather() = %q, %v; want a1 b1", got, err)
			}
		}()
		if got, err := save(t.Context(), former, "b1"); err != nil || got != "a1 b1" {
			t.Errorf("Gather() = %q, %v; want a1 b1", got, err)
		}
		former.Close()
		time.Sleep(time.Minute)
		next := joinGated(t, l, 1, hold)
		handed := make(chan struct{})
		go func() {
			defer close(handed)
			if got, err := save(t.Context(), next, "b2"); err != nil || got != "a2 b2" {
				t.Errorf("Gather() of the new life = %q, %v; want a2 b2", got, err)
			}
		}()
		synctest.Wait() // the new life waits for the other
		close(free)
		<-ended
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if got, err := save(ctx, slow, "a2"); err != nil || got != "a2 b2" {
			t.Errorf("Gather() = %q, %v; want a2 b2", got, err)
		}
		<-handed
	})
}

// A circle without a name leaves nothing of former lives either.
func TestCircleWithoutAName(t *testing.T) {
	lab.Clause(t, "TC-MH-02")
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, recoverable(1))
		for range 3 {
			m := joinGated(t, l, 0, func(context.Context, coord.Event) {})
			c, err := m.Circle(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Sync(t.Context(), "here"); err != nil {
				t.Errorf("Sync() = %v", err)
			}
			left, err := m.KV().List(t.Context(), "serry/circle")
			if err != nil || len(left) != 1 {
				t.Errorf("%d keys are left, %v; want that of one life", len(left), err)
			}
			m.Close()
			time.Sleep(time.Minute)
		}
	})
}
