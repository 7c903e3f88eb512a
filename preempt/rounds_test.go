package preempt_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
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

func TestRoundsAgainAndAgain(t *testing.T) {
	lab.Clause(t, "T-PRE-25", "A-PRE-24")
	synctest.Test(t, func(t *testing.T) {
		c := hire(t, preempt.Options{Mode: preempt.Rounds, Margin: 2}, quiet, quiet, quiet)
		for i, n := range []int64{5, 7, 6} {
			step(t, c.syncs[i], n)
		}
		post(t, c.syncs[0], 0)
		for i, s := range c.syncs {
			if point, ok := s.Point(); !ok || point != 9 {
				t.Errorf("first round: Point() of %d = %d, %v; want 9", i, point, ok)
			}
			for n := int64(8); n < 12; n++ {
				if step(t, s, n) != (n == 9) {
					t.Errorf("first round: Reached(%d) of task %d is wrong", n, i)
				}
			}
		}
		post(t, c.syncs[2], 0)
		for i, s := range c.syncs {
			if point, ok := s.Point(); !ok || point != 13 {
				t.Errorf("second round: Point() of %d = %d, %v; want 13", i, point, ok)
			}
		}
	})
}

func TestRoundsNeverWait(t *testing.T) {
	lab.Clause(t, "T-PRE-26", "A-PRE-24")
	synctest.Test(t, func(t *testing.T) {
		c := hire(t, preempt.Options{Mode: preempt.Rounds}, quiet, none)
		post(t, c.syncs[0], 0)
		began := time.Now()
		for n := range int64(100) {
			step(t, c.syncs[0], n)
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("a hundred steps waited %v while another task did not answer", waited)
		}
	})
}

// Steps go on while the tasks agree: one that has passed the proposal before it heard of it makes
// them agree on a later one.
func TestRoundsWithFastSteps(t *testing.T) {
	lab.Clause(t, "A-PRE-24")
	synctest.Test(t, func(t *testing.T) {
		c := hire(t, preempt.Options{Mode: preempt.Rounds, Margin: 1}, quiet, quiet)
		var saved [2][]int64
		ctx, cancel := context.WithCancel(t.Context())
		var loops sync.WaitGroup
		for i, s := range c.syncs {
			loops.Go(func() {
				for n := int64(i * 3); ctx.Err() == nil; n++ {
					time.Sleep(time.Duration(1+i) * time.Millisecond)
					if reached, err := s.Reached(ctx, n); err == nil && reached {
						saved[i] = append(saved[i], n)
					}
				}
			})
		}
		time.Sleep(20 * time.Millisecond)
		c.syncs[1].Post(t.Context(), preempt.Notice{})
		time.Sleep(time.Second)
		cancel()
		loops.Wait()
		for i := range saved {
			point, ok := c.syncs[i].Point()
			if !ok || len(saved[i]) != 1 || saved[i][0] != point {
				t.Errorf("task %d agreed on %d, %v and saved at %v; want it once", i, point, ok, saved[i])
			}
		}
		if a, b := saved[0], saved[1]; len(a) > 0 && len(b) > 0 && a[len(a)-1] != b[len(b)-1] {
			t.Errorf("the tasks saved at %v and %v; want the same last step", a, b)
		}
	})
}

// A task that has a minute must not wait for one that has two hours.
func TestNearestDeadlineDecides(t *testing.T) {
	lab.Clause(t, "A-PRE-24")
	synctest.Test(t, func(t *testing.T) {
		c := hire(t, preempt.Options{Mode: preempt.Rounds}, quiet, quiet)
		for _, s := range c.syncs {
			step(t, s, 1)
		}
		post(t, c.syncs[0], 2*time.Hour)
		if _, ok := c.syncs[0].Point(); ok {
			t.Fatal("the tasks agreed two hours before the deadline")
		}
		post(t, c.syncs[1], time.Minute)
		for i, s := range c.syncs {
			if point, ok := s.Point(); !ok || point != 3 {
				t.Errorf("Point() of %d = %d, %v; want 3 as soon as a task has a minute left", i, point, ok)
			}
		}
		if n := c.syncs[0].Notices(); len(n) != 2 || n[1].Source != "worker/1: " {
			t.Errorf("Notices() = %v; want both, with their tasks", n)
		}
	})
}

// While a step is agreed on, further notices do not move it, also where some tasks have passed it.
func TestAgreedStepStays(t *testing.T) {
	lab.Clause(t, "A-PRE-24")
	synctest.Test(t, func(t *testing.T) {
		c := hire(t, preempt.Options{Mode: preempt.Rounds}, quiet, quiet, quiet)
		for _, s := range c.syncs {
			step(t, s, 100)
		}
		post(t, c.syncs[0], 0)
		post(t, c.syncs[1], 0)
		for n := int64(101); n < 103; n++ {
			if step(t, c.syncs[0], n) != (n == 102) {
				t.Errorf("Reached(%d) of task 0 is wrong; want true at 102", n)
			}
		}
		post(t, c.syncs[1], 0)
		post(t, c.syncs[0], 0) // this task has saved already: the notice begins another round
		for _, s := range c.syncs[1:] {
			if step(t, s, 101) || !step(t, s, 102) {
				t.Error("a later notice moved the step to save at; want 102")
			}
		}
		synctest.Wait()
		for i, s := range c.syncs {
			if point, ok := s.Point(); !ok || point != 104 {
				t.Errorf("second round: Point() of %d = %d, %v; want 104", i, point, ok)
			}
		}
	})
}

// The hosts of a slice are told one after the other, a step apart.
func TestNoticesAStepApart(t *testing.T) {
	lab.Clause(t, "A-PRE-24")
	synctest.Test(t, func(t *testing.T) {
		c := hire(t, preempt.Options{Mode: preempt.Rounds}, quiet, quiet, quiet, quiet)
		for n := int64(0); n < 4; n++ {
			saved := 0
			for _, s := range c.syncs {
				if step(t, s, n) {
					saved++
				}
			}
			if want := map[bool]int{true: 4}[n == 2]; saved != want {
				t.Errorf("step %d: %d tasks save; want all four at step 2", n, saved)
			}
			post(t, c.syncs[n], 0)
		}
	})
}

// A task comes only after the first attempts have failed. The deadline is open.
func TestFailedAttemptIsRepeated(t *testing.T) {
	lab.Clause(t, "A-PRE-24")
	synctest.Test(t, func(t *testing.T) {
		o := preempt.Options{Mode: preempt.Rounds, BarrierTimeout: time.Minute, LeadTime: 2 * time.Hour}
		c := hire(t, o, quiet, none)
		step(t, c.syncs[0], 1)
		post(t, c.syncs[0], time.Hour)
		time.Sleep(5 * time.Minute)
		if _, ok := c.syncs[0].Point(); ok {
			t.Fatal("a step was agreed on without the other task")
		}
		late := newSync(t, c.members[1], quiet, o)
		step(t, late, 1)
		time.Sleep(2 * time.Minute)
		for i, s := range []*preempt.Sync{c.syncs[0], late} {
			if point, ok := s.Point(); !ok || point != 3 {
				t.Errorf("Point() of %d = %d, %v; want 3", i, point, ok)
			}
		}
	})
}

// A notice without a future is tried for a while. The next one can still succeed.
func TestRoundEnds(t *testing.T) {
	lab.Clause(t, "A-PRE-24", "T-PRE-23")
	synctest.Test(t, func(t *testing.T) {
		o := preempt.Options{Mode: preempt.Rounds, BarrierTimeout: time.Minute}
		c := hire(t, o, quiet, none)
		step(t, c.syncs[0], 1)
		post(t, c.syncs[0], 0)
		time.Sleep(5 * time.Minute)
		late := newSync(t, c.members[1], quiet, o)
		step(t, late, 1)
		time.Sleep(5 * time.Minute)
		if _, ok := late.Point(); ok {
			t.Error("a step was agreed on minutes after the deadline")
		}
		post(t, late, 0)
		for i, s := range []*preempt.Sync{c.syncs[0], late} {
			if point, ok := s.Point(); !ok || point != 3 {
				t.Errorf("Point() of %d = %d, %v; want 3", i, point, ok)
			}
		}
	})
}

// A task that restarts finds the step that the others agreed on with its former life.
func TestRestartedTaskSavesToo(t *testing.T) {
	lab.Clause(t, "A-PRE-24", "T-PRE-28")
	synctest.Test(t, func(t *testing.T) {
		o := preempt.Options{Mode: preempt.Rounds}
		c := hire(t, o, quiet, quiet)
		for _, s := range c.syncs {
			step(t, s, 7)
		}
		post(t, c.syncs[0], 0)
		c.syncs[1].Close()
		again := newSync(t, c.members[1], quiet, o)
		if step(t, again, 8) || !step(t, again, 9) || step(t, again, 10) {
			t.Error("the restarted task does not save at step 9")
		}
		after := newSync(t, c.members[1], quiet, o)
		if step(t, after, 11) {
			t.Error("Reached(11) = true for a task that begins after the agreed step")
		}
	})
}

// A task that has promised to hold must not go on when it can no longer learn the outcome.
func TestLostMemberIsUndecided(t *testing.T) {
	lab.Clause(t, "A-PRE-24")
	synctest.Test(t, func(t *testing.T) {
		c := hire(t, preempt.Options{Mode: preempt.Rounds}, quiet, none)
		slow := &troubled{Member: c.members[1], KV: c.members[1].KV()}
		s := newTroubled(t, slow, preempt.Options{Mode: preempt.Rounds})
		step(t, c.syncs[0], 1)
		step(t, s, 1)
		slow.block("serry/preempt/1/try/0/answer")
		post(t, c.syncs[0], 0)
		step(t, c.syncs[0], 2)
		waits := make(chan error)
		go func() {
			_, err := c.syncs[0].Reached(t.Context(), 3)
			waits <- err
		}()
		synctest.Wait()
		c.members[0].Close()
		if err := <-waits; !errors.Is(err, preempt.ErrUndecided) {
			t.Errorf("Reached(3) = %v; want %v", err, preempt.ErrUndecided)
		}
	})
}

func TestSkippedStep(t *testing.T) {
	lab.Clause(t, "A-PRE-16")
	synctest.Test(t, func(t *testing.T) {
		c := hire(t, preempt.Options{Mode: preempt.Rounds}, quiet)
		step(t, c.syncs[0], 1)
		post(t, c.syncs[0], 0)
		if _, err := c.syncs[0].Reached(t.Context(), 4); !errors.Is(err, preempt.ErrSkipped) {
			t.Errorf("Reached(4) = %v after step 3 was agreed on; want %v", err, preempt.ErrSkipped)
		}
	})
}

// Keys of attempts and rounds that are over are removed; receipts stay, and so does which task was told to go.
func TestRoundsLeaveLittleBehind(t *testing.T) {
	lab.Clause(t, "A-PRE-23", "A-PRE-24")
	synctest.Test(t, func(t *testing.T) {
		c := hire(t, preempt.Options{Mode: preempt.Rounds}, quiet, quiet)
		for n := int64(0); n < 100; n++ {
			for _, s := range c.syncs {
				if step(t, s, n) {
					if err := s.Saved(t.Context(), n); err != nil {
						t.Fatal(err)
					}
				}
			}
			if n%5 == 0 {
				post(t, c.syncs[n%2], 0)
			}
		}
		keys, err := c.members[0].KV().List(t.Context(), "serry/preempt")
		records, err2 := preempt.ReadRecords(t.Context(), c.members[0].KV())
		kept := len(records.Receipts) + len(records.Notices)
		if err := errors.Join(err, err2); err != nil || len(records.Receipts) != 40 || len(records.Notices) != 20 || len(keys)-kept > 20 {
			t.Errorf("after 20 rounds of two tasks there are %d receipts, %d notices and %d other keys, %v; want 40, 20 and those of two rounds",
				len(records.Receipts), len(records.Notices), len(keys)-kept, err)
		}
	})
}

// A notice that cannot be posted at once is posted later.
func TestNoticeIsPostedAgain(t *testing.T) {
	for _, mode := range []preempt.Mode{preempt.Compat, preempt.Rounds} {
		synctest.Test(t, func(t *testing.T) {
			c := hire(t, preempt.Options{Mode: mode}, none)
			m := &troubled{Member: c.members[0], KV: c.members[0].KV(), failures: 3}
			s, err := preempt.New(m, m, preempt.At(time.Now().Add(time.Second)), preempt.Options{Mode: mode})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			step(t, s, 1)
			time.Sleep(time.Minute)
			if _, ok := s.Point(); !ok || m.failures > 0 {
				t.Errorf("mode %v: no point a minute after the notice, %d calls still to fail", mode, m.failures)
			}
		})
	}
}

// TestTroubledRounds plays random histories with real clients and a real server. Calls fail before or
// after they took effect; tasks and notices have their own times. All tasks save at the same steps.
func TestTroubledRounds(t *testing.T) {
	lab.Clause(t, "A-PRE-24")
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { troubledStory(t, rand.New(rand.NewPCG(seed, seed))) })
		})
	}
}

func troubledStory(t *testing.T, luck *rand.Rand) {
	tasks := 2 + luck.IntN(3)
	l := lab.Serve(t, server.Config{Cluster: coord.Config{
		Jobs: []coord.Job{{Name: "worker", Tasks: tasks}}, HeartbeatTimeout: 2 * time.Hour,
	}})
	o := preempt.Options{Mode: preempt.Rounds, BarrierTimeout: 30 * time.Second}
	const last = 3000
	var (
		loops sync.WaitGroup
		saved = make([][]int64, tasks)
		syncs = make([]*preempt.Sync, tasks)
		ms    = make([]*troubled, tasks)
	)
	for i := range tasks {
		m := join(t, l, i)
		ms[i] = &troubled{Member: m, KV: m.KV(), luck: rand.New(rand.NewPCG(luck.Uint64(), 0)), faulty: luck.Float64() / 5}
		syncs[i] = newTroubled(t, ms[i], o)
		pace := time.Duration(90+luck.IntN(20)) * time.Millisecond
		loops.Go(func() {
			for n := int64(1); n <= last; n++ {
				time.Sleep(pace)
				save, err := syncs[i].Reached(t.Context(), n)
				if err != nil {
					t.Errorf("Reached(%d) of task %d = %v", n, i, err)
				}
				if save {
					saved[i] = append(saved[i], n)
				}
			}
		})
	}
	for range 1 + luck.IntN(3) {
		time.Sleep(time.Duration(luck.IntN(5000)) * time.Millisecond)
		s := syncs[luck.IntN(tasks)]
		for s.Post(t.Context(), preempt.Notice{Deadline: time.Now().Add(4 * time.Minute)}) != nil {
		}
	}
	time.Sleep(30 * time.Second)
	for _, m := range ms {
		m.calm()
	}
	loops.Wait()
	for i := range saved {
		if fmt.Sprint(saved[i]) != fmt.Sprint(saved[0]) || len(saved[i]) == 0 {
			t.Errorf("task 0 saved at %v, task %d at %v", saved[0], i, saved[i])
		}
	}
}

func newTroubled(t *testing.T, m *troubled, o preempt.Options) *preempt.Sync {
	t.Helper()
	s, err := preempt.New(m, m, nil, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// troubled is a member and its keys, of which some calls fail.
type troubled struct {
	*client.Member
	*client.KV

	mu       sync.Mutex
	luck     *rand.Rand // nil: only the first calls fail
	faulty   float64
	failures int    // how many of the first calls to create a key fail
	blocked  string // the barrier that this task does not come to
}

var errTrouble = errors.New("trouble")

// call makes a call, and perhaps lets it fail before or after it took effect.
func (m *troubled) call(f func() error) error {
	m.mu.Lock()
	before := m.faulty > 0 && m.luck.Float64() < m.faulty
	after := m.faulty > 0 && m.luck.Float64() < m.faulty
	m.mu.Unlock()
	if before {
		return errTrouble
	}
	if err := f(); err != nil || !after {
		return err
	}
	return errTrouble
}

func (m *troubled) calm() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faulty = 0
}

func (m *troubled) block(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.blocked = id
}

func (m *troubled) Wait(ctx context.Context, key string) (v []byte, err error) {
	err = m.call(func() error { v, err = m.KV.Wait(ctx, key); return err })
	return v, err
}

func (m *troubled) Create(ctx context.Context, key string, value []byte) error {
	m.mu.Lock()
	fails := m.failures > 0
	if fails {
		m.failures--
	}
	m.mu.Unlock()
	if fails {
		return errTrouble
	}
	return m.call(func() error { return m.KV.Create(ctx, key, value) })
}

func (m *troubled) Put(ctx context.Context, key string, value []byte) error {
	return m.call(func() error { return m.KV.Put(ctx, key, value) })
}

func (m *troubled) Delete(ctx context.Context, key string) error {
	return m.call(func() error { return m.KV.Delete(ctx, key) })
}

func (m *troubled) List(ctx context.Context, dir string) (es []serry.Entry, err error) {
	err = m.call(func() error { es, err = m.KV.List(ctx, dir); return err })
	return es, err
}

func (m *troubled) Barrier(ctx context.Context, id string, o serry.BarrierOptions) error {
	m.mu.Lock()
	blocked := id == m.blocked
	m.mu.Unlock()
	if blocked {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return m.call(func() error { return m.Member.Barrier(ctx, id, o) })
}
