package collective_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/internal/lab/search"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/memory"
)

// A program that knows of a loss before the service does declares it: cliques with the task end on all members, and no
// new one is formed with it.
func TestDeclareLost(t *testing.T) {
	clause.Cite(t, "CL-ABT-2", "CL-ABT-3", "CL-ABT-12", "CL-REC-2", "CLT-ABT-1", "CLT-ABT-2", "CLT-ABT-3", "CLT-ABT-4")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(3)
		comms := w.clique(procs, devices(3))
		pair := w.clique(procs[:2], devices(2))
		if err := procs[0].DeclareLost(life(7, 0).Task, errors.New("smoke")); !errors.Is(err, serry.ErrUnknownTask) {
			t.Errorf("DeclareLost() of an unknown task = %v; want ErrUnknownTask", err)
		}
		if err := procs[0].DeclareLost(procs[2].life.Task, errors.New("smoke")); err != nil {
			t.Errorf("DeclareLost() = %v", err)
		}
		synctest.Wait()
		for turn := range 2 {
			errs := each(procs[:2], func(i int, p *process) error {
				if turn == 0 {
					return comms[i].Do(t.Context(), collective.Barrier{})
				}
				_, err := p.Clique(t.Context(), devices(3), collective.CliqueOptions{})
				return err
			})
			for i, err := range errs {
				if e := failure(t, err); !errors.Is(e, collective.ErrPeerFailed) || e.Life != procs[2].life || !strings.Contains(e.Error(), "smoke") {
					t.Errorf("turn %d, rank %d: %v; want that rank 2 is lost", turn, i, err)
				}
			}
		}
		works(t, pair, 100)
	})
	inBubble(t, func(t *testing.T, w *world) {
		w.blind = true
		if err := w.start(life(0, 10)).DeclareLost(life(1, 0).Task, nil); err != nil {
			t.Errorf("DeclareLost() without word of the service = %v", err)
		}
	})
}

// A process that comes to a meeting before its host hears why the host cannot hold it.
func TestFirstHearsOfTheLoss(t *testing.T) {
	clause.Cite(t, "CL-REC-2", "CL-REC-3")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(3)
		w.clique(procs[:2], devices(2)) // by then the service has told of all tasks
		if err := procs[0].DeclareLost(procs[2].life.Task, errors.New("smoke")); err != nil {
			t.Errorf("DeclareLost() = %v", err)
		}
		first := make(chan error, 1)
		go func() {
			_, err := procs[1].Clique(t.Context(), devices(3), collective.CliqueOptions{})
			first <- err
		}()
		synctest.Wait()
		_, err := procs[0].Clique(t.Context(), devices(3), collective.CliqueOptions{})
		for _, err := range []error{err, <-first} {
			if e := failure(t, err); !errors.Is(e, collective.ErrPeerFailed) || e.Life != procs[2].life || !strings.Contains(e.Error(), "smoke") {
				t.Errorf("Clique() = %v; want that rank 2 is lost", err)
			}
		}
	})
}

// After an abort everything fails with its cause, as often as it is tried.
func TestAbortTwice(t *testing.T) {
	clause.Cite(t, "CL-ABT-8", "CL-ABT-13", "CL-HLT-4", "CL-ABT-14", "CL-HLT-1", "CLT-ABT-5", "CLT-ABT-12")
	onEach(t, func(t *testing.T, w *world) {
		comms := w.clique(w.startAll(2), devices(2))
		windows, _ := offer(t, comms, 8)
		comms[0].Abort(errors.New("enough"))
		comms[0].Abort(errors.New("again"))
		comms[0].Revoke(errors.New("again"))
		b := make([]byte, 8)
		_, offered := comms[0].Offer(t.Context(), memory.Of(b))
		_, parted := comms[0].Split(t.Context(), 0, 0)
		for _, err := range []error{comms[0].Err(), comms[0].Do(t.Context(), sum(b, make([]byte, 8))), comms[0].Start(t.Context(), collective.Barrier{}).Wait(), offered, parted,
			comms[0].Do(t.Context(), collective.Put{Window: windows[0], To: 1, In: memory.Of(b), Count: 1}), comms[0].Do(t.Context(), collective.Quiet{})} {
			if e := failure(t, err); !errors.Is(e, collective.ErrCancelled) || !strings.Contains(e.Error(), "enough") {
				t.Errorf("after Abort: %v; want ErrCancelled with the first cause", err)
			}
		}
		if err := errors.Join(comms[0].Drain(t.Context()), windows[0].Close(t.Context()), comms[0].Close(t.Context())); err != nil {
			t.Errorf("Close() after Abort = %v", err)
		}
	})
}

// A member dies while one clique works and others are idle: all with it end.
func TestIdleCliquesEndWithAMember(t *testing.T) {
	clause.Cite(t, "CL-HLT-5", "CL-HLT-6", "CL-ABT-5", "CL-ABT-6", "CL-ABT-16", "CLT-ABT-8")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(3)
		all := w.clique(procs, devices(3))
		idle := slices.Concat(w.clique([]*process{procs[0], procs[2]}, ids{0, 2})[:1], w.clique(procs[1:], ids{1, 2})[:1])
		w.delay(100 * time.Microsecond)
		time.AfterFunc(3*time.Millisecond, func() { w.kill(procs[2]) })
		each(all[:2], func(_ int, c *collective.Comm) error {
			go func() { loop(t.Context(), all[2], 100_000) }()
			first, _ := loop(t.Context(), c, 100_000)
			return first
		})
		synctest.Wait()
		for _, c := range append(idle, all[:2]...) {
			if e := failure(t, c.Err()); !errors.Is(e, collective.ErrPeerFailed) || e.Life != procs[2].life {
				t.Errorf("clique %v: %v; want that a member is lost", c.Key(), c.Err())
			}
		}
	})
}

// A member dies while a clique is split.
func TestLossDuringSplit(t *testing.T) {
	clause.Cite(t, "CL-CRE-10", "CL-SPL-1", "CL-SPL-7", "CLT-ABT-10")
	for at := 0; at < 40; at += search.Pick(1, 4) {
		inBubble(t, func(t *testing.T, w *world) {
			procs := w.startAll(4)
			comms := w.clique(procs, devices(4))
			w.delay(100 * time.Microsecond)
			time.AfterFunc(time.Duration(at*40)*time.Microsecond, func() { w.kill(procs[3]) })
			errs := each(comms, func(i int, c *collective.Comm) error {
				part, err := c.Split(t.Context(), i%2, 0)
				if err != nil || i%2 == 0 { // the part of even ranks does not hold the lost one
					return err
				}
				_, err = loop(t.Context(), part, 10)
				return err
			})
			for i, err := range errs[:3] {
				if i%2 == 0 && err == nil {
					continue
				}
				if e := failure(t, err); !errors.Is(e, collective.ErrPeerFailed) || e.Life != procs[3].life {
					t.Errorf("rank 3 dies at %d: rank %d gets %v", at, i, err)
				}
			}
		})
	}
}

// Each of sixteen members of a ring dies at each of its steps: one in some of the scenarios, or all of them with -every 1.
func TestLossInARing(t *testing.T) {
	clause.Cite(t, "CL-ABT-15", "CL-ABT-20", "CL-ERR-9", "CLT-ABT-11")
	const p, steps = 16, 40 // writes of a member: a ring of 16 has 30 rounds
	every, n := max(*every/4, 1)*search.Pick(1, 5), 0
	for victim := range p {
		for step := range steps {
			if n++; n%every != 0 {
				continue
			}
			s := scenario{p, 0, 300_000, kills, victim, step}
			if struck, err := s.play(t, 0); err != nil || !struck {
				t.Fatalf("scenario %+v: struck %v, %v", s, struck, err)
			}
		}
	}
}

// What of the word of the service counts as a loss.
func TestSnapshots(t *testing.T) {
	clause.Cite(t, "CL-ABT-1", "CL-ABT-10", "CL-ABT-4", "CL-ABT-5", "CLT-ABT-16")
	other := serry.TaskID{Job: "worker", Index: 5}
	for _, row := range []struct {
		name string
		next serry.TaskInfo
		lost bool
	}{
		{"it has failed", serry.TaskInfo{State: serry.Failed}, true},
		{"it has left", serry.TaskInfo{State: serry.Disconnected, Incarnation: 11}, true},
		{"it was restarted", serry.TaskInfo{State: serry.Connected, Incarnation: 99}, true},
		{"it is as before", serry.TaskInfo{State: serry.Connected, Incarnation: 11}, false},
		{"another one came", serry.TaskInfo{Task: other, State: serry.Connected, Incarnation: 3}, false},
		{"another one that never was has failed", serry.TaskInfo{Task: other, State: serry.Failed, Incarnation: 3}, false},
	} {
		inBubble(t, func(t *testing.T, w *world) {
			comms := w.clique(w.startAll(2), devices(2))
			if row.next.Task.Job == "" {
				row.next.Task = w.procs[1].life.Task
			}
			w.set(row.next)
			synctest.Wait()
			err := comms[0].Err()
			if lost := errors.Is(err, collective.ErrPeerFailed); lost != row.lost || lost != (err != nil) {
				t.Errorf("%s: the clique = %v; want that it ends: %v", row.name, err, row.lost)
			}
		})
	}
}

// A word about a clique that comes when the next one runs does not concern it.
func TestLateNotice(t *testing.T) {
	clause.Cite(t, "CL-KEY-16", "CL-ABT-15", "CLT-ABT-17")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(2)
		old := w.clique(procs, devices(2))
		works(t, old, 10)
		old[0].Revoke(errors.New("enough"))
		synctest.Wait()
		next := reform(t, old, 1, 0, 1)
		notice := (&collective.Error{Err: collective.ErrCancelled, Detail: "late"}).Bytes()
		l, err := procs[0].net.Link(t.Context(), procs[1].life)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range []link.Header{{Stream: old[0].Stream()}, {Stream: next[0].Stream()}, {Stream: old[0].Stream(), Generation: 1}} {
			h.Family, h.Type, h.Class = link.Collective, link.Revoke, link.Control
			if _, err := l.Post(h, notice); err != nil {
				t.Fatal(err)
			}
			h.Type, h.Class, h.Seq = link.CollectiveData, link.Urgent, 1<<24
			if _, err := l.Post(h, []byte("data")); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		works(t, next, 100_000)
	})
}

// A service that knows neither watches nor suspicions: members find the loss themselves.
func TestLossWithAStockService(t *testing.T) {
	clause.Cite(t, "CL-ABT-22", "CLT-ABT-20")
	inBubble(t, func(t *testing.T, w *world) {
		w.blind = true
		procs := w.startAll(3)
		comms := w.clique(procs, devices(3))
		works(t, comms, 1000)
		w.kill(procs[1])
		for _, i := range []int{0, 2} {
			first, _ := loop(t.Context(), comms[i], 1000)
			if e := failure(t, first); !errors.Is(e, collective.ErrPeerFailed) || e.Life != procs[1].life {
				t.Errorf("rank %d: %v; want that rank 1 is lost", i, first)
			}
		}
	})
}

// A process stands still for less than the time of the detector: the operation waits for it.
func TestPausedProcess(t *testing.T) {
	clause.Cite(t, "CL-TRN-7", "CLT-TMO-7")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(4)
		comms := w.clique(procs, devices(4))
		works(t, comms, 100_000)
		stopped, host := time.Now(), hostOf(procs[3].life)
		w.network.mu.Lock()
		w.network.before = func(from string) {
			if from == host {
				pause(2*time.Second - time.Since(stopped))
			}
		}
		w.network.mu.Unlock()
		works(t, comms, 100_000)
		if took := time.Since(stopped); took < 2*time.Second || took > 2500*time.Millisecond {
			t.Errorf("the operation took %v; want the 2 s of the pause", took)
		}
	})
}

// The network falls into two halves: all members fail, and the half that the service decides for goes on.
func TestPartition(t *testing.T) {
	clause.Cite(t, "CL-REC-11", "CLT-RCV-6")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(4)
		comms := w.clique(procs, devices(4))
		works(t, comms, 1000)
		for _, a := range procs[:2] {
			for _, b := range procs[2:] {
				w.network.cut(hostOf(a.life), hostOf(b.life))
			}
		}
		each(comms, func(i int, c *collective.Comm) error {
			if first, _ := loop(t.Context(), c, 1000); !errors.Is(first, collective.ErrTransport) {
				t.Errorf("rank %d: %v; want that a link broke", i, first)
			}
			return nil
		})
		for _, p := range procs[2:] {
			w.mu.Lock()
			w.dead[p.life] = true // the service does not hear it any more
			w.mu.Unlock()
			w.lose(p.life, "no heart-beat")
		}
		works(t, reform(t, comms[:2], 1, 0, 1), 1000)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for i, err := range each(comms[2:], func(_ int, c *collective.Comm) error { _, err := c.Reform(ctx); return err }) {
			if err == nil {
				t.Errorf("rank %d goes on without the service", i+2)
			}
		}
	})
}

// No clique is formed with a life that is over, although there was none with it before.
func TestStaleLife(t *testing.T) {
	clause.Cite(t, "CL-REC-3", "CLT-RCV-7", "CLT-KEY-9")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(3)
		w.lose(procs[2].life, "process exited: signal 9")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		errs := each(procs[:2], func(_ int, p *process) error {
			_, err := p.Clique(ctx, devices(3), collective.CliqueOptions{})
			return err
		})
		for i, err := range errs {
			if e := failure(t, err); !slices.Equal(e.Ranks, []int{2}) {
				t.Errorf("process %d: Clique() with a dead task = %v; want that rank 2 is missing", i, err)
			}
		}
		works(t, w.clique(procs[:2], devices(2)), 10) // tasks that are not in a clique do not concern it
	})
}

// A backend that cannot serve a clique on one process ends it on all.
func TestBackendFails(t *testing.T) {
	clause.Cite(t, "CL-CRE-6", "CL-CRE-1", "CLT-ACQ-6")
	inBubble(t, func(t *testing.T, w *world) {
		for i := range 3 {
			w.group.Backends = []collective.Backend{failing{collective.Host{}, i == 1}}
			w.start(life(i, uint64(10+i)))
		}
		errs := each(w.procs, func(_ int, p *process) error {
			c, err := p.Clique(t.Context(), devices(3), collective.CliqueOptions{})
			if err != nil {
				return err
			}
			return c.Do(t.Context(), collective.Barrier{})
		})
		for i, err := range errs {
			if e := failure(t, err); !errors.Is(e, collective.ErrFault) || e.Origin != 1 || !strings.Contains(e.Error(), "no device") {
				t.Errorf("process %d: %v; want the fault of rank 1", i, err)
			}
		}
	})
}

// A failing backend cannot create communicators.
type failing struct {
	collective.Backend
	fails bool
}

func (b failing) Create(ctx context.Context, k *collective.Key, local []int) ([]collective.Communicator, error) {
	if b.fails {
		return nil, errors.New("no device")
	}
	return b.Backend.Create(ctx, k, local)
}

// Groups share nothing: cliques of the same devices in two of them, with two backends, are two.
func TestTwoGroups(t *testing.T) {
	clause.Cite(t, "CL-CCH-1", "CL-DES-4", "CLT-ACQ-3", "CLT-DES-13")
	synctest.Test(t, func(t *testing.T) {
		created := new(atomic.Int32)
		a, b := &world{job: newJob(), t: t, network: newNetwork()}, &world{job: newJob(), t: t, network: newNetwork()}
		b.group.Backends = []collective.Backend{counting{collective.Host{}, created}}
		first, second := a.clique(a.startAll(2), devices(2)), b.clique(b.startAll(2), devices(2))
		first[0].Revoke(errors.New("enough"))
		works(t, second, 100)
		if created.Load() != 2 {
			t.Errorf("the backend of the second group created %d communicators; want one in each process", created.Load())
		}
	})
}

// A member is restarted many times: nothing grows.
func TestManyRestarts(t *testing.T) {
	clause.Cite(t, "CL-CCH-2", "CL-REC-5", "CLT-CCH-4")
	restarts := search.Pick(1000, 200)
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(2)
		comms := w.clique(procs, devices(2))
		keys, running := len(w.keys), bubbled()
		for generation := range uint32(restarts) {
			w.kill(procs[1])
			_, err := loop(t.Context(), comms[0], 10)
			if !errors.Is(err, collective.ErrPeerFailed) {
				t.Fatalf("generation %d: %v", generation, err)
			}
			procs[1].end()
			procs[1] = w.start(life(1, uint64(100+generation)))
			newcomer := make(chan *collective.Comm, 1)
			go func() {
				c, err := procs[1].Clique(t.Context(), devices(2), collective.CliqueOptions{})
				if err != nil {
					t.Errorf("Clique() of the restarted process = %v", err)
				}
				newcomer <- c
			}()
			next := reform(t, comms[:1], generation+1, 0, 1)
			comms[0].Close(t.Context())
			comms = []*collective.Comm{next[0], <-newcomer}
			works(t, comms, 100)
		}
		time.Sleep(time.Minute) // connections of lives that were killed while they introduced themselves have been given up then
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if n := len(procs[0].net.Links()); n != 1 || len(w.keys) > keys {
			t.Errorf("after %d restarts there are %d links and %d keys; want 1 and %d", restarts, n, len(w.keys), keys)
		}
		if n := bubbled(); n > running+8 {
			t.Errorf("after %d restarts %d goroutines run; want about %d", restarts, n, running)
		}
	})
}

// A process that was replaced by a newer life forms no clique: the places of its devices are those of the other.
func TestReplacedProcessFormsNone(t *testing.T) {
	clause.Cite(t, "CL-KEY-13")
	for _, blind := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world) {
			w.blind = blind
			procs := w.startAll(2)
			w.set(serry.TaskInfo{Task: procs[1].life.Task, Incarnation: 99, State: serry.Connected})
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := procs[1].Clique(ctx, devices(2), collective.CliqueOptions{}); err == nil || !blind && !errors.Is(err, serry.ErrStale) {
				t.Errorf("Clique() of a process that was replaced = %v; want ErrStale", err)
			}
		})
	}
}

// bubbled counts the goroutines in bubbles: those of the test, and none that an earlier one has left to end.
func bubbled() int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "synctest bubble")
}
