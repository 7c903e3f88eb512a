package launch

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/topo"
)

// Jobs of these tests come to one address, as steps of a scheduler may.

// stepOf is the configuration of a launcher of a job of two hosts.
func stepOf(job string, node int, notes Display) Config {
	return Config{
		Command: itself, Tasks: 1, Nodes: 2, Node: node, Coordinator: "first:1", Job: job, Display: notes, Grace: time.Second,
		Identity: &topo.TaskRecord{}, Devices: []int{}, Service: server.Config{Cluster: coord.Config{RegisterTimeout: time.Hour}},
	}
}

// launchOn starts a launcher on a host.
func launchOn(t *testing.T, h *skyHost, cfg Config) *Job {
	t.Helper()
	j, err := start(cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// lasting plays a task that ends well after a time.
func lasting(d time.Duration) func(*actorProcess) {
	return func(p *actorProcess) {
		select {
		case <-time.After(d):
			p.end(Cause{}, byItself)
		case <-p.dead:
		}
	}
}

// DLV-21: the launcher of another job changes nothing at a meeting. It waits there until its own first launcher comes.
func TestLauncherOfAnotherJob(t *testing.T) {
	clause.Cite(t, "DLV-21")
	synctest.Test(t, func(t *testing.T) {
		s := newSky()
		s.script = lasting(20 * time.Second)
		notes := &timedNotes{begun: time.Now()}
		told := &timedNotes{begun: time.Now()}
		var jobs []*Job
		for node, h := range []*skyHost{s.host("a"), s.host("b")} {
			jobs = append(jobs, launchOn(t, h, stepOf("12.0", node, told)))
		}
		<-time.After(time.Second)
		other := launchOn(t, s.host("b"), stepOf("12.1", 1, notes))
		for _, j := range jobs {
			if r := j.Wait(); !r.Well() || r.Took > 22*time.Second {
				t.Errorf("the first job, node %d: %+v; want that it ends well, undisturbed", j.cfg.Node, r)
			}
		}
		<-time.After(5 * time.Second) // no launcher listens
		first := launchOn(t, s.host("a"), stepOf("12.1", 0, nil))
		for _, j := range []*Job{first, other} {
			if r := j.Wait(); !r.Well() {
				t.Errorf("the second job, node %d: %+v; want that it ends well", j.cfg.Node, r)
			}
		}
		s.done.Wait()
		const want = "waiting for node 0 at first:1: the launcher there refuses this one: it runs another job, or one with fewer hosts"
		if !slices.Contains(notes.said, want) {
			t.Errorf("said %q; want %q", notes.said, want)
		}
		if n := strings.Count(strings.Join(told.said, "\n"), "was refused: it is of another job, or its node is none of this one"); n != 1 {
			t.Errorf("the first job said %q; want once that a launcher was refused", told.said)
		}
	})
}

// A launcher that finds another job where its own should be says so in the end, and does not wait for an hour.
func TestLauncherGivesUpAnotherJob(t *testing.T) {
	clause.Cite(t, "DLV-21")
	synctest.Test(t, func(t *testing.T) {
		s := newSky()
		s.script = until
		first := launchOn(t, s.host("a"), stepOf("", 0, nil))
		cfg := stepOf("", 1, nil)
		cfg.Command = append([]string{itself[0]}, "other")
		begun := time.Now()
		r := launchOn(t, s.host("b"), cfg).Wait()
		if took := time.Since(begun); !errors.Is(r.Err, ErrOtherJob) || !strings.Contains(r.Err.Error(), "first:1") || took < otherJobPatience || took > 2*otherJobPatience {
			t.Errorf("Wait() = %v after %v; want ErrOtherJob after %v", r.Err, took, otherJobPatience)
		}
		first.Signal(syscall.SIGINT)
		first.Wait()
		s.done.Wait()
	})
}

// DLV-26: after SIGTERM of a scheduler tasks have the time that the scheduler gives, on all hosts, however often it
// comes. A person who presses Ctrl-C then kills them. Without a scheduler tasks have the grace.
func TestSchedulerKeepsTheDeadline(t *testing.T) {
	clause.Cite(t, "DLV-26")
	const saves = 5 * time.Minute
	for _, c := range []struct {
		name      string
		scheduler bool
		signals   []syscall.Signal
		takes     time.Duration // until the tasks have ended
	}{
		{"a scheduler", true, []syscall.Signal{syscall.SIGTERM}, saves},
		{"a scheduler that repeats itself", true, []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM}, saves},
		{"Ctrl-C under a scheduler", true, []syscall.Signal{syscall.SIGINT}, time.Second},
		{"a scheduler, then Ctrl-C", true, []syscall.Signal{syscall.SIGTERM, syscall.SIGINT}, 0},
		{"no scheduler", false, []syscall.Signal{syscall.SIGTERM}, time.Second},
		{"no scheduler, twice", false, []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM}, 0},
	} {
		for _, to := range []struct {
			name  string
			nodes []int
		}{{"all launchers", []int{0, 1}}, {"the first launcher", []int{0}}} {
			t.Run(c.name+", "+to.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newSky()
					s.script = func(p *actorProcess) {
						select {
						case <-p.signals:
							lasting(saves)(p)
						case <-p.dead:
						}
					}
					var jobs []*Job
					for node, h := range []*skyHost{s.host("a"), s.host("b")} {
						cfg := stepOf("", node, nil)
						cfg.SchedulerKills = c.scheduler
						jobs = append(jobs, launchOn(t, h, cfg))
					}
					<-time.After(time.Minute)
					begun := time.Now()
					for _, sig := range c.signals {
						for _, node := range to.nodes {
							jobs[node].Signal(sig)
						}
					}
					for _, j := range jobs {
						j.Wait() // a launcher that is killed in a hurry may leave the other behind
					}
					if r := jobs[0].Wait(); r.Interrupted != c.signals[0] {
						t.Errorf("Wait() = %+v; want that it was interrupted by %v", r, c.signals[0])
					}
					for _, p := range s.processes() {
						if took := p.mu.at.Sub(begun); took != c.takes {
							t.Errorf("task %s ended after %v; want %v", p.env[EnvTask], took, c.takes)
						}
					}
					s.done.Wait()
				})
			})
		}
	}
}
