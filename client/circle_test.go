package client_test

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
)

// together runs f for each of n members of a fresh job at the same time.
func together(t *testing.T, n int, f func(ctx context.Context, m *client.Member, i int)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, loose(n))
		members := make([]*client.Member, n)
		for i := range n {
			m, err := client.Join(t.Context(), client.Config{Transport: l.Line(t, client.DialOptions{}), Task: worker(i), HeartbeatTimeout: heartbeat})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			members[i] = m
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var done sync.WaitGroup
		for i, m := range members {
			done.Go(func() { f(ctx, m, i) })
		}
		done.Wait()
	})
}

func circle(ctx context.Context, t *testing.T, m *client.Member, tasks ...serry.TaskID) *client.Circle {
	t.Helper()
	c, err := m.Circle(ctx, "test", tasks...)
	if err != nil {
		t.Errorf("Circle() = %v", err)
		t.FailNow()
	}
	return c
}

func numbers(from, count int) []byte {
	var b []byte
	for i := range count {
		b = binary.LittleEndian.AppendUint32(b, uint32(from+i))
	}
	return b
}

func TestCircleGathers(t *testing.T) {
	lab.Clause(t, "P-MH-1", "TC-MH-01", "TC-MH-02")
	const n = 4
	together(t, n, func(ctx context.Context, m *client.Member, i int) {
		c := circle(ctx, t, m)
		for _, size := range []int{4, 0, 1, 64} { // the same circle again and again
			all, err := c.Gather(ctx, numbers(size*i, size))
			if err != nil || len(all) != n {
				t.Errorf("Gather() = %d values, %v; want %d", len(all), err, n)
			}
			if got := slices.Concat(all...); string(got) != string(numbers(0, n*size)) {
				t.Errorf("values of %d numbers in a row = %v", size, got)
			}
		}
		if i == 0 {
			left, err := m.KV().List(ctx, "serry/circle")
			if err != nil || len(left) > 2*n {
				t.Errorf("%d keys are left of the rounds, %v; want at most two rounds", len(left), err)
			}
		}
	})
}

func TestCircleOfOne(t *testing.T) {
	lab.Clause(t, "TC-MH-05")
	together(t, 1, func(ctx context.Context, m *client.Member, _ int) {
		c := circle(ctx, t, m)
		if all, err := c.Gather(ctx, []byte("mine")); err != nil || len(all) != 1 || string(all[0]) != "mine" {
			t.Errorf("Gather() = %q, %v; want our own", all, err)
		}
		if got, err := c.Broadcast(ctx, worker(0), []byte{7}); err != nil || string(got) != "\x07" {
			t.Errorf("Broadcast() = %v, %v; want [7]", got, err)
		}
	})
}

func TestCircleBroadcasts(t *testing.T) {
	lab.Clause(t, "TC-MH-04", "TC-MH-12")
	together(t, 3, func(ctx context.Context, m *client.Member, i int) {
		c := circle(ctx, t, m)
		for from := range 3 {
			got, err := c.Broadcast(ctx, worker(from), numbers(10*i, 2))
			if err != nil || string(got) != string(numbers(10*from, 2)) {
				t.Errorf("Broadcast() from %d = %v, %v", from, got, err)
			}
		}
		if _, err := c.Broadcast(ctx, worker(9), nil); !errors.Is(err, serry.ErrNotMember) {
			t.Errorf("Broadcast() from a stranger = %v; want %v", err, serry.ErrNotMember)
		}
	})
}

func TestCircleSyncs(t *testing.T) {
	lab.Clause(t, "P-MH-4", "TC-MH-06")
	together(t, 3, func(ctx context.Context, m *client.Member, i int) {
		c := circle(ctx, t, m)
		if err := c.Sync(ctx, "same"); err != nil {
			t.Errorf("Sync() = %v", err)
		}
		name := "test message2"
		if i == 0 {
			name = "test message"
		}
		err := c.Sync(ctx, name)
		if !errors.Is(err, client.ErrDiffer) || !strings.Contains(err.Error(), "worker/") {
			t.Errorf("Sync() with different names = %v; want it to say who is where", err)
		}
	})
}

func TestCircleAssertsEqual(t *testing.T) {
	lab.Clause(t, "P-MH-2", "TC-MH-07")
	together(t, 3, func(ctx context.Context, m *client.Member, i int) {
		c := circle(ctx, t, m)
		if err := c.AssertEqual(ctx, "weights", numbers(0, 16)); err != nil {
			t.Errorf("AssertEqual() of equal values = %v", err)
		}
		err := c.AssertEqual(ctx, "weights", numbers(i/2, 16))
		if !errors.Is(err, client.ErrDiffer) || !strings.Contains(err.Error(), "[worker/2]") {
			t.Errorf("AssertEqual() = %v; want worker/2 named as the odd one", err)
		}
	})
}

func TestCircleMax(t *testing.T) {
	lab.Clause(t, "TC-MH-11")
	for _, c := range [][4][]int64{
		{{-1}, {-1}, {-1}, {-1}},
		{{0}, {0}, {0}, {-1}},
		{{2}, {1}, {0}, {-90000}},
		{{0}, {1}, {2}, {3}},
		{{0, 0}, {1, 1}, {2, 2}, {3, 3}},
		{{0, -1}, {1, 2}, {0, 2}, {-1, 2}},
	} {
		want := slices.Clone(c[0])
		for _, row := range c {
			for j, v := range row {
				want[j] = max(want[j], v)
			}
		}
		together(t, 4, func(ctx context.Context, m *client.Member, i int) {
			if got, err := circle(ctx, t, m).Max(ctx, c[i]...); err != nil || !slices.Equal(got, want) {
				t.Errorf("Max(%v) = %v, %v; want %v", c, got, err, want)
			}
		})
	}
}

func TestCirclesOfSome(t *testing.T) {
	lab.Clause(t, "TC-MH-09", "TC-MH-10")
	together(t, 4, func(ctx context.Context, m *client.Member, i int) {
		if _, err := m.Circle(ctx, "test", workers((i+1)%4)...); !errors.Is(err, serry.ErrNotMember) {
			t.Errorf("Circle() without us = %v; want %v", err, serry.ErrNotMember)
		}
		ours := workers(i%2, i%2+2) // {0,2} and {1,3} wait for their own alone
		all, err := circle(ctx, t, m, ours...).Gather(ctx, []byte{byte(i)})
		if err != nil || len(all) != 2 || all[0][0] != byte(i%2) || all[1][0] != byte(i%2+2) {
			t.Errorf("Gather() among %v = %v, %v", ours, all, err)
		}
	})
}

func TestCircleNamesTheMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, loose(3))
		m, err := client.Join(t.Context(), client.Config{Transport: l.Line(t, client.DialOptions{}), Task: worker(1), HeartbeatTimeout: heartbeat})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = circle(ctx, t, m).Sync(ctx, "point")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "missing [worker/0 worker/2]") {
			t.Errorf("Sync() = %v; want the missing named", err)
		}
		if _, err := circle(t.Context(), t, m).Gather(t.Context(), make([]byte, client.MaxShareBytes+1)); !errors.Is(err, serry.ErrLimit) {
			t.Errorf("Gather() of too much = %v; want %v", err, serry.ErrLimit)
		}
	})
}
