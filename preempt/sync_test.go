package preempt_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/preempt"
	"github.com/serry-dev/serry/server"
)

// A crew is a job of members, each with a Sync, against a real server in virtual time.
type crew struct {
	members []*client.Member
	syncs   []*preempt.Sync
}

// hire starts a job of n members. Those with a nil entry in notifiers get no Sync of their own.
func hire(t *testing.T, o preempt.Options, notifiers ...preempt.Notifier) *crew {
	t.Helper()
	l := lab.Serve(t, server.Config{Cluster: coord.Config{
		Jobs: []coord.Job{{Name: "worker", Tasks: len(notifiers)}}, HeartbeatTimeout: 2 * time.Hour,
	}})
	c := &crew{members: make([]*client.Member, len(notifiers)), syncs: make([]*preempt.Sync, len(notifiers))}
	for i, n := range notifiers {
		c.members[i] = join(t, l, i)
		if n != none {
			c.syncs[i] = newSync(t, c.members[i], n, o)
		}
	}
	return c
}

func join(t *testing.T, l *lab.Lab, i int) *client.Member {
	t.Helper()
	m, err := client.Join(t.Context(), client.Config{
		Transport: l.Line(t, client.DialOptions{}), Task: serry.TaskID{Job: "worker", Index: i}, HeartbeatTimeout: 2 * time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func newSync(t *testing.T, m *client.Member, n preempt.Notifier, o preempt.Options) *preempt.Sync {
	t.Helper()
	if n == quiet {
		n = nil
	}
	s, err := preempt.New(m, m.KV(), n, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// quiet hears the job but has no notices of its own; none takes no part at all.
var (
	quiet preempt.Notifier = notifier("quiet")
	none  preempt.Notifier = notifier("none")
)

type notifier string

func (notifier) Wait(ctx context.Context) (preempt.Notice, error) {
	<-ctx.Done()
	return preempt.Notice{}, context.Cause(ctx)
}

func step(t *testing.T, s *preempt.Sync, n int64) bool {
	t.Helper()
	reached, err := s.Reached(t.Context(), n)
	if err != nil {
		t.Fatalf("Reached(%d) = %v", n, err)
	}
	return reached
}

func post(t *testing.T, s *preempt.Sync, in time.Duration) {
	t.Helper()
	if err := s.Post(t.Context(), preempt.Notice{Deadline: time.Now().Add(in)}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func TestNobodyIsTold(t *testing.T) {
	lab.Clause(t, "T-PRE-6", "T-PRE-10", "T-PRE-11", "T-PRE-12")
	synctest.Test(t, func(t *testing.T) {
		c := hire(t, preempt.Options{}, quiet, quiet)
		for n := range int64(3) {
			if step(t, c.syncs[0], n) || step(t, c.syncs[1], n) {
				t.Fatalf("Reached(%d) = true without a notice", n)
			}
		}
		for i, m := range c.members {
			if err := m.Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.syncs[i].Close()
			if step(t, c.syncs[i], 3) {
				t.Error("Reached(3) = true after the end")
			}
		}
	})
}

func TestNoticeNow(t *testing.T) {
	lab.Clause(t, "A-PRE-8", "A-PRE-15", "T-PRE-7", "T-PRE-13")
	synctest.Test(t, func(t *testing.T) {
		c := hire(t, preempt.Options{}, quiet, quiet)
		step(t, c.syncs[0], 0)
		step(t, c.syncs[0], 1)
		post(t, c.syncs[0], 0)
		if !step(t, c.syncs[0], 2) || step(t, c.syncs[0], 3) {
			t.Error("want true at step 2 and false at step 3")
		}
		c.syncs[0].Close()
	})
}

func TestNoticeFarAhead(t *testing.T) {
	lab.Clause(t, "T-PRE-8", "T-PRE-20", "A-PRE-11")
	synctest.Test(t, func(t *testing.T) {
		c := hire(t, preempt.Options{}, quiet, quiet)
		step(t, c.syncs[0], 1)
		post(t, c.syncs[0], time.Hour)
		if step(t, c.syncs[0], 2) {
			t.Error("Reached(2) = true an hour before the deadline")
		}
		time.Sleep(46 * time.Minute)
		synctest.Wait()
		if point, ok := c.syncs[1].Point(); !ok || point != 3 {
			t.Errorf("14 minutes before the deadline Point() = %d, %v; want 3", point, ok)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := hire(t, preempt.Options{}, quiet, quiet)
		post(t, c.syncs[0], time.Hour)
		c.syncs[0].Close() // between the notice and the protocol: it must return
		if step(t, c.syncs[0], 1) {
			t.Error("Reached(1) = true after Close")
		}
	})
}

func TestFailedTask(t *testing.T) {
	lab.Clause(t, "T-PRE-9")
	synctest.Test(t, func(t *testing.T) {
		c := hire(t, preempt.Options{}, quiet, quiet)
		step(t, c.syncs[0], 1)
		if err := c.members[1].Fail(t.Context(), errors.New("out of memory")); err != nil {
			t.Fatal(err)
		}
		c.syncs[0].Post(t.Context(), preempt.Notice{}) // the job has failed; it may not be taken any more
		synctest.Wait()
		if step(t, c.syncs[0], 2) {
			t.Error("Reached(2) = true with a failed task")
		}
	})
}

func TestSlowerAndFasterTask(t *testing.T) {
	lab.Clause(t, "A-PRE-12", "A-PRE-13", "T-PRE-14", "T-PRE-15")
	for told := range 2 {
		synctest.Test(t, func(t *testing.T) {
			c := hire(t, preempt.Options{}, quiet, quiet)
			step(t, c.syncs[0], 0)
			for n := range int64(3) {
				step(t, c.syncs[1], n)
			}
			post(t, c.syncs[told], 0)
			got := []bool{step(t, c.syncs[0], 1), step(t, c.syncs[0], 2), step(t, c.syncs[0], 3), step(t, c.syncs[1], 3)}
			if got[0] || got[1] || !got[2] || !got[3] {
				t.Errorf("notice to task %d: task 0 at 1, 2, 3 and task 1 at 3: %v; want false false true true", told, got)
			}
		})
	}
}

func TestSecondNotice(t *testing.T) {
	lab.Clause(t, "T-PRE-21")
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c := hire(t, preempt.Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, quiet, quiet)
		post(t, c.syncs[0], 0)
		first, _ := c.syncs[0].Point()
		post(t, c.syncs[1], time.Minute)
		if again, ok := c.syncs[0].Point(); !ok || again != first {
			t.Errorf("Point() = %d, %v after a second notice; want %d", again, ok, first)
		}
		if !strings.Contains(log.String(), "another preemption notice was first") {
			t.Errorf("log does not tell of the second notice:\n%s", &log)
		}
	})
}

func TestUnreadableNotice(t *testing.T) {
	lab.Clause(t, "A-PRE-10", "T-PRE-22")
	synctest.Test(t, func(t *testing.T) {
		c := hire(t, preempt.Options{}, quiet, quiet)
		if err := c.members[0].KV().Create(t.Context(), "RECEIVED_PREEMPTION_NOTICE", []byte("soon")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if point, ok := c.syncs[0].Point(); ok || step(t, c.syncs[0], 1) {
			t.Errorf("Point() = %d, %v; want none", point, ok)
		}
	})
}

func TestTaskWithoutSync(t *testing.T) {
	lab.Clause(t, "T-PRE-23", "A-PRE-21")
	synctest.Test(t, func(t *testing.T) {
		c := hire(t, preempt.Options{}, quiet, none)
		post(t, c.syncs[0], 0)
		began := time.Now()
		if step(t, c.syncs[0], 1) {
			t.Error("Reached(1) = true although a task never answered")
		}
		if waited := time.Since(began); waited != 3*time.Minute {
			t.Errorf("Reached waited %v; want the 3m of the barrier", waited)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := hire(t, preempt.Options{}, quiet, none)
		post(t, c.syncs[0], 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.syncs[0].Reached(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Reached() = %v; want the end of its context", err)
		}
	})
}

func TestRestartedTask(t *testing.T) {
	lab.Clause(t, "T-PRE-28", "A-PRE-18h")
	synctest.Test(t, func(t *testing.T) {
		c := hire(t, preempt.Options{}, quiet, quiet)
		step(t, c.syncs[1], 4)
		post(t, c.syncs[0], 0)
		again := newSync(t, c.members[1], quiet, preempt.Options{}) // the same task, anew
		synctest.Wait()
		if _, ok := again.Point(); ok {
			t.Error("a restarted task found a sync point; want none")
		}
		if point, ok := c.syncs[0].Point(); !ok || point != 5 {
			t.Errorf("Point() of the others = %d, %v; want 5", point, ok)
		}
	})
}

func TestReceipts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := hire(t, preempt.Options{}, quiet, quiet)
		post(t, c.syncs[0], 0)
		if err := c.syncs[1].Saved(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		receipts, err := preempt.Receipts(t.Context(), c.members[0].KV())
		if err != nil || len(receipts) != 1 {
			t.Fatalf("Receipts() = %v, %v; want one", receipts, err)
		}
		if r := receipts[0]; r.Task != "worker/1" || r.Step != 1 || r.Incarnation != c.members[1].Incarnation() {
			t.Errorf("Receipts() = %+v; want that of worker/1 at step 1", r)
		}
	})
}

// A record that cannot be read hides no other.
func TestUnreadableRecords(t *testing.T) {
	lab.Clause(t, "A-PRE-24")
	synctest.Test(t, func(t *testing.T) {
		c := hire(t, preempt.Options{}, quiet, quiet)
		post(t, c.syncs[0], 0)
		if err := c.syncs[1].Saved(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		kv := c.members[0].KV()
		for key, value := range map[string]string{"1/saved/worker-0": "half", "1/told/worker-0": `[]`, "2/saved/x": `{"step": 1}`, "none/saved/worker-0": ""} {
			if err := kv.Put(t.Context(), "serry/preempt/"+key, []byte(value)); err != nil {
				t.Fatal(err)
			}
		}
		r, err := preempt.ReadRecords(t.Context(), kv)
		if err != nil || len(r.Receipts) != 1 || r.Receipts[0].Task != "worker/1" || r.Bad == nil || r.Bad.More != 2 {
			t.Errorf("ReadRecords() = %+v, %v; want the receipt of worker/1, and three records left out", r, err)
		}
		receipts, err := preempt.Receipts(t.Context(), kv)
		if bad, ok := errors.AsType[*preempt.RecordError](err); !ok || bad.Key != "serry/preempt/1/saved/worker-0" || len(receipts) != 1 {
			t.Errorf("Receipts() = %+v, %v; want that of worker/1, and which record was left out first", receipts, err)
		}
	})
}

func TestSwitchedOff(t *testing.T) {
	lab.Clause(t, "TC-MH-13")
	var off *preempt.Sync
	if step(t, off, 1) {
		t.Error("Reached(1) of no Sync = true")
	}
}

func TestOptionsAreChecked(t *testing.T) {
	if _, err := preempt.New(nil, nil, nil, preempt.Options{}); err == nil {
		t.Error("New() without a member = nil")
	}
	memory := client.NewMemory()
	for _, o := range []preempt.Options{{Margin: -1}, {LeadTime: -1}, {BarrierTimeout: -1}} {
		if _, err := preempt.New(loner{}, memory.KV(), nil, o); err == nil {
			t.Errorf("New(%+v) = nil; want an error", o)
		}
	}
}

// A loner is a member of a job of one.
type loner struct{}

func (loner) Task() serry.TaskID             { return serry.TaskID{Job: "worker"} }
func (loner) Incarnation() serry.Incarnation { return 1 }
func (loner) Context() context.Context       { return context.Background() }
func (loner) Barrier(context.Context, string, serry.BarrierOptions) error {
	return nil
}

func ExampleSync() {
	memory := client.NewMemory()
	s, err := preempt.New(loner{}, memory.KV(), nil, preempt.Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	for step := int64(0); ; step++ {
		if step == 3 {
			s.Post(context.Background(), preempt.Notice{Source: "an operator"})
		}
		if save, _ := s.Reached(context.Background(), step); save {
			s.Saved(context.Background(), step)
			break
		}
	}
	receipts, _ := preempt.Receipts(context.Background(), memory.KV())
	fmt.Println(len(receipts), "task has saved:", receipts[0].Task)
	// Output: 1 task has saved: worker/0
}
