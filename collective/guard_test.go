package collective_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/server"
)

// A journal is a log that counts lines, by the section that they are about.
type journal struct {
	slog.Handler
	mu       sync.Mutex
	sections map[string]int
	text     strings.Builder
}

func newJournal() *journal {
	return &journal{Handler: slog.DiscardHandler, sections: make(map[string]int)}
}

func (j *journal) Enabled(context.Context, slog.Level) bool { return true }

func (j *journal) Handle(_ context.Context, r slog.Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "section" && strings.HasPrefix(r.Message, "guarded section") {
			j.sections[a.Value.String()]++
		}
		fmt.Fprintf(&j.text, "%s: %s=%v\n", r.Message, a.Key, a.Value)
		return true
	})
	return nil
}

// fired is how often guards have fired, by section.
func (j *journal) fired() map[string]int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.sections)
}

func (j *journal) WithAttrs([]slog.Attr) slog.Handler { return j }

// An ending stands for the end of the process.
type ending struct {
	times atomic.Int32
	why   atomic.Pointer[string]
	at    atomic.Pointer[time.Time]
}

func (e *ending) end(why string) {
	now := time.Now()
	e.times.Add(1)
	e.why.Store(&why)
	e.at.Store(&now)
}

// Of many guards that many goroutines set at the same time, those fire that are not released before their time, and each of them once.
func TestGuards(t *testing.T) {
	clause.Cite(t, "CL-TMO-3", "CL-TMO-4", "CLT-TMO-1")
	for _, goroutines := range []int{1, 2, 4, 8} {
		synctest.Test(t, func(t *testing.T) {
			const each = 1000
			var end ending
			journal := newJournal()
			guards := &collective.Guards{End: end.end, Log: slog.New(journal)}
			var all sync.WaitGroup
			for g := range goroutines {
				all.Go(func() {
					list := make([]*collective.Guard, each)
					for i := range list {
						list[i] = guards.Guard(fmt.Sprintf("%d/%d", g, i), time.Duration(1+i)*time.Millisecond)
					}
					pause(each * time.Millisecond / 2) // half of them have expired
					for i := each / 2; i < each; i++ {
						list[i].Release()
					}
					pause(time.Second)
					for _, x := range list { // those that have expired, too, and all others again
						x.Release()
					}
				})
			}
			all.Wait()
			pause(time.Minute)
			fired := journal.fired()
			for g := range goroutines {
				for i := range each {
					n, name := fired[fmt.Sprintf("%d/%d", g, i)], fmt.Sprintf("%d goroutines, guard %d of goroutine %d", goroutines, i, g)
					if late := i < each/2; i != each/2-1 && (n == 1) != late || n > 1 { // at half time it is either
						t.Errorf("%s fired %d times", name, n)
					}
				}
			}
			if n := end.times.Load(); n != 1 {
				t.Errorf("%d goroutines: the process ended %d times; want once", goroutines, n)
			}
		})
	}
}

// Without a handler the process ends 10 s after the first guard has expired. The others say so in their turn, and end nothing.
func TestGuardWithoutAGroup(t *testing.T) {
	clause.Cite(t, "CL-TMO-3", "CL-TMO-4", "CLT-TMO-2")
	synctest.Test(t, func(t *testing.T) {
		var end ending
		journal := newJournal()
		guards := &collective.Guards{End: end.end, Log: slog.New(journal)}
		for _, timeout := range []time.Duration{0, -1} {
			x := guards.Guard("infinite", timeout)
			if x.Release(); x != nil {
				t.Errorf("Guard(%v) = %v; want none", timeout, x)
			}
		}
		began := time.Now()
		guards.Guard("step 12", time.Minute)
		guards.Guard("step 13", time.Minute+9*time.Second)
		pause(time.Minute + 9*time.Second + 1)
		if n, fired := end.times.Load(), journal.fired(); n != 0 || len(fired) != 2 {
			t.Errorf("before the time to log is over the process has ended %d times, and the log has %v", n, fired)
		}
		pause(time.Hour)
		if at := *end.at.Load(); at.Sub(began) != time.Minute+10*time.Second || *end.why.Load() != "step 12 has not ended after 1m0s" || end.times.Load() != 1 {
			t.Errorf("the process ended %d times, after %v: %s", end.times.Load(), at.Sub(began), *end.why.Load())
		}
	})
}

// A guard ends the process for real.
func TestGuardEndsTheProcess(t *testing.T) {
	clause.Cite(t, "CL-TMO-4", "CLT-TMO-2")
	const child = "SERRY_TEST_GUARD"
	if os.Getenv(child) != "" {
		guards := &collective.Guards{Linger: time.Millisecond}
		guards.Guard("step 12", time.Millisecond)
		<-t.Context().Done()
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestGuardEndsTheProcess$")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.CombinedOutput()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 1 || string(out) != "serry: error: step 12 has not ended after 1ms\n" {
		t.Errorf("the process ends with %v and says %q", err, out)
	}
}

// hangs runs a section of a rank, in which the rank waits for a work that does not end, until stop is closed.
func hangs(g *collective.Group, timeout time.Duration, stop <-chan struct{}) {
	guard := g.Guard("step 12", timeout)
	go func() { // the work goes on when the call that began it has returned
		<-stop
		guard.Release()
	}()
}

// The section of one rank does not end. The operation of the other ends and names this rank, the records of both are told, and the process
// whose section it is takes part in nothing any more.
func TestGuardOfAGroup(t *testing.T) {
	clause.Cite(t, "CL-TMO-5", "CL-TMO-6", "CLT-TMO-2", "CLT-TMO-3")
	for _, ends := range []bool{false, true} { // the section does, when the cliques have ended
		inBubble(t, func(t *testing.T, w *world) {
			var end ending
			journal, flights := newJournal(), make(chan *collective.Flight, 4)
			w.group.Log, w.group.Flights = slog.New(journal), flights
			w.group.Guards = &collective.Guards{End: end.end, Log: slog.New(journal)}
			procs := w.startAll(2)
			comms := w.clique(procs, devices(2))
			works(t, comms, 1000)
			began, stop := time.Now(), make(chan struct{})
			defer func() {
				if !ends {
					close(stop)
				}
			}()
			hangs(procs[1].Group, 30*time.Second, stop)
			hangs(procs[1].Group, 31*time.Second, stop) // a second one does no harm
			err := comms[0].Do(t.Context(), collective.Barrier{})
			e := failure(t, err)
			if !errors.Is(e, collective.ErrPeerFailed) || e.Life != procs[1].life || e.Origin != 1 || !strings.Contains(e.Detail, "step 12 has not ended after 30s") {
				t.Errorf("the operation of the other rank = %v; want that rank 1 is lost", err)
			}
			if d := time.Since(began); d < 30*time.Second || d > 31*time.Second {
				t.Errorf("the operation of the other rank ends after %v; want 30s", d)
			}
			if err := comms[1].Do(t.Context(), collective.Barrier{}); !errors.Is(err, collective.ErrPeerFailed) {
				t.Errorf("an operation of the rank = %v; want ErrPeerFailed", err)
			}
			if _, err := procs[1].Clique(t.Context(), devices(2), collective.CliqueOptions{}); !errors.Is(err, collective.ErrPeerFailed) {
				t.Errorf("Clique() = %v; want ErrPeerFailed", err)
			}
			if _, err := comms[1].Reform(t.Context()); !errors.Is(err, collective.ErrPeerFailed) {
				t.Errorf("Reform() = %v; want ErrPeerFailed", err)
			}
			<-flights
			pause(time.Second)
			if ends {
				close(stop)
			}
			pause(time.Hour)
			if got, want := end.times.Load(), int32(1); (got == want) == ends {
				t.Errorf("the section ends %v: the process ended %d times", ends, got)
			}
			if !ends && end.at.Load().Sub(began) != 30*time.Second+time.Minute+10*time.Second {
				t.Errorf("the process ended after %v", end.at.Load().Sub(began))
			}
			journal.mu.Lock()
			defer journal.mu.Unlock()
			if text := journal.text.String(); !strings.Contains(text, "rank 1 is in no operation, and its last, number 1 (allreduce of 1000 u8 by sum), ended 30s ago: done") {
				t.Errorf("the log does not tell what the rank did:\n%s", text)
			}
		})
	}
}

// A guard that is released before its time does nothing, also if its group is closed meanwhile; one that is not ends the process then.
func TestGuardOfAClosedGroup(t *testing.T) {
	clause.Cite(t, "CL-TMO-3", "CL-TMO-4")
	inBubble(t, func(t *testing.T, w *world) {
		var end ending
		w.group.Guards = &collective.Guards{End: end.end}
		p := w.startAll(1)[0]
		if x := p.Guard("infinite", 0); x != nil {
			t.Errorf("Guard(0) = %v; want none", x)
		}
		p.Guard("step 12", time.Minute).Release()
		released, left := p.Guard("step 13", time.Minute), p.Guard("step 14", 2*time.Minute)
		p.Close(t.Context())
		released.Release()
		pause(time.Minute + time.Hour/60)
		if n := end.times.Load(); n != 0 {
			t.Errorf("the process ended %d times", n)
		}
		pause(time.Hour)
		if n := end.times.Load(); n != 1 || !strings.HasPrefix(*end.why.Load(), "step 14") {
			t.Errorf("the process ended %d times", n)
		}
		left.Release()
	})
}

// With a real service: a guard of one member expires, its report reaches the service, and the other member sees it and goes on alone.
func TestGuardReports(t *testing.T) {
	clause.Cite(t, "CL-TMO-5", "CLT-TMO-3")
	synctest.Test(t, func(t *testing.T) {
		service := lab.Serve(t, server.Config{Cluster: coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: 2}}, RegisterBarrier: true,
			RegisterTimeout: time.Minute, HeartbeatTimeout: 10 * time.Second, Recoverable: true}})
		network := newNetwork()
		members, groups := make([]*client.Member, 2), make([]*collective.Group, 2)
		comms := make([]*collective.Comm, 2)
		var ended ending
		errs := each([]int{0, 1}, func(i int, _ int) (err error) {
			line := service.Line(t, client.DialOptions{})
			members[i], err = client.Join(t.Context(), client.Config{Task: serry.TaskID{Job: "worker", Index: i}, Transport: line, HeartbeatTimeout: 10 * time.Second, Recoverable: true})
			if err != nil {
				return err
			}
			host := fmt.Sprintf("10.0.0.%d", 1+i)
			n, err := link.Open(t.Context(), members[i], members[i].KV(), link.Options{Network: dialler{network, host}, Listen: []string{host + ":0"}, Secret: secret})
			if err != nil {
				return err
			}
			groups[i], err = collective.New(members[i], n, collective.Options{Guards: &collective.Guards{End: ended.end}})
			if err != nil {
				return err
			}
			t.Cleanup(func() {
				(&process{Group: groups[i], net: n}).end()
				members[i].Close()
			})
			comms[i], err = groups[i].Clique(t.Context(), devices(2), collective.CliqueOptions{})
			return err
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		works(t, comms, 1000)
		guard := groups[1].Guard("step 12", time.Minute)
		if err := comms[0].Do(t.Context(), collective.Barrier{}); !errors.Is(err, collective.ErrPeerFailed) {
			t.Errorf("the operation of the other member = %v; want ErrPeerFailed", err)
		}
		next, err := comms[0].Reform(t.Context())
		if err != nil || next.Size() != 1 {
			t.Errorf("Reform() of the other member = %v, %v; want it alone", next, err)
		}
		tasks, err := members[0].Tasks(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		told, ok := errors.AsType[*serry.TaskError](tasks.Tasks[1].Err)
		if !ok || tasks.Tasks[1].State != serry.Failed || told.Code != int(codes.DeadlineExceeded) || !strings.Contains(told.Text, "step 12 has not ended after 1m0s") {
			t.Errorf("the other member sees %+v; want DEADLINE_EXCEEDED", tasks.Tasks[1])
		}
		if err := members[1].Err(); !errors.Is(err, serry.ErrTimeout) {
			t.Errorf("the member whose guard expired = %v; want that it is over", err)
		}
		guard.Release()
		pause(time.Hour)
		if n := ended.times.Load(); n != 0 {
			t.Errorf("the process ended %d times; its section has ended", n)
		}
	})
}
