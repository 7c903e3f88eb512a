package client_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
)

// save makes a circle and hands a value round, as a function would that saves a checkpoint.
func save(ctx context.Context, m *client.Member, value string) (string, error) {
	c, err := m.Circle(ctx, "save")
	if err != nil {
		return "", err
	}
	all, err := c.Gather(ctx, []byte(value))
	var texts []string
	for _, b := range all {
		texts = append(texts, string(b))
	}
	return strings.Join(texts, " "), err
}

// saveAll lets all members do it, and checks what they get.
func saveAll(t *testing.T, members []*client.Member, want string, values ...string) {
	t.Helper()
	var done sync.WaitGroup
	for i, m := range members {
		done.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if got, err := save(ctx, m, values[i]); err != nil || got != want {
				t.Errorf("Gather() of task %d = %q, %v; want %q", i, got, err, want)
			}
		})
	}
	done.Wait()
}

// Rounds belong to the name: a member that makes the circle again goes on with them.
func TestCircleMadeAgain(t *testing.T) {
	lab.Clause(t, "TC-MH-02")
	synctest.Test(t, func(t *testing.T) {
		members := joinAll(t, lab.Serve(t, loose(2)), 2)
		saveAll(t, members, "a1 b1", "a1", "b1")
		saveAll(t, members, "a2 b2", "a2", "b2")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got, err := save(ctx, members[0], "a3"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "missing [worker/1]") {
			t.Errorf("Gather() without the other = %q, %v; want it to wait", got, err)
		}
	})
}

// A round that a member has given up goes on with its next call. What it handed in stands, because the
// others may have read it.
func TestCircleAfterATimeout(t *testing.T) {
	lab.Clause(t, "TC-MH-02")
	synctest.Test(t, func(t *testing.T) {
		members := joinAll(t, lab.Serve(t, loose(2)), 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := save(ctx, members[0], "a1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Gather() = %v; want the end of its context", err)
		}
		saveAll(t, members, "a1 b1", "a again", "b1")
		saveAll(t, members, "a2 b2", "a2", "b2")
	})
}

// The values of former lives are not taken for those of the present ones, and are removed.
func TestCircleOfNewLives(t *testing.T) {
	lab.Clause(t, "TC-MH-02")
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, recoverable(3))
		members := joinAll(t, l, 3)
		saveAll(t, members, "a1 b1 c1", "a1", "b1", "c1")
		for range 3 {
			members[1].Close()
			time.Sleep(time.Minute)
			m, err := client.Join(t.Context(), client.Config{Transport: l.Line(t, client.DialOptions{}), Task: worker(1), HeartbeatTimeout: heartbeat})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { m.Close() })
			members[1] = m
			saveAll(t, members, "a2 b2 c2", "a2", "b2", "c2")
		}
		left, err := members[0].KV().List(t.Context(), "serry/circle")
		if err != nil || len(left) != 3 {
			t.Errorf("%d keys are left, %v; want those of one round", len(left), err)
		}
	})
}
