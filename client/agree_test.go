package client_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
)

// joinAll makes n members of a job.
func joinAll(t *testing.T, l *lab.Lab, n int) []*client.Member {
	t.Helper()
	members := make([]*client.Member, n)
	var done sync.WaitGroup
	for i := range n {
		done.Go(func() {
			m, err := client.Join(t.Context(), client.Config{Transport: l.Line(t, client.DialOptions{}), Task: worker(i), HeartbeatTimeout: heartbeat})
			if err != nil {
				t.Errorf("Join() as worker %d = %v", i, err)
				return
			}
			t.Cleanup(func() { m.Close() })
			members[i] = m
		})
	}
	if done.Wait(); t.Failed() {
		t.FailNow()
	}
	return members
}

// A member gives up an Agree and asks again. It is told what the others were told of the first time.
func TestAgreeAfterATimeout(t *testing.T) {
	lab.Clause(t, "C-REQ-2", "C-ALIVE-8")
	synctest.Test(t, func(t *testing.T) {
		members := joinAll(t, lab.Serve(t, loose(2)), 2)
		ask := func(m *client.Member, d time.Duration, word string, order ...int) (string, error) {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			a, err := m.Agree(ctx, []byte(word), workers(order...)...)
			return string(a.Words[worker(0)]) + " " + string(a.Words[worker(1)]), err
		}
		for range 3 { // a call that was given up can be given up again
			if got, err := ask(members[0], time.Second, "a1", 0, 1); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Agree() alone = %q, %v; want the end of its context", got, err)
			}
		}
		if got, err := ask(members[1], time.Second, "b1", 0, 1); err != nil || got != "a1 b1" {
			t.Errorf("Agree() of task 1 = %q, %v; want a1 b1", got, err)
		}
		for range 100 { // other calls do not make the service forget the answer
			if err := members[0].KV().Put(t.Context(), "key", nil); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := ask(members[0], time.Second, "a again", 1, 0); err != nil || got != "a1 b1" {
			t.Errorf("Agree() of task 0, asked again = %q, %v; want what task 1 was told, a1 b1", got, err)
		}
		answer := make(chan string)
		go func() {
			got, _ := ask(members[0], time.Minute, "a2", 0, 1)
			answer <- got
		}()
		if got, err := ask(members[1], time.Minute, "b2", 0, 1); err != nil || got != "a2 b2" || <-answer != got {
			t.Errorf("the next Agree() = %q, %v; want a2 b2 for both", got, err)
		}
	})
}
