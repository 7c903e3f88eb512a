package launch

import (
	"fmt"
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

// The clock of the second host is five minutes ahead. Its rank crashes 50 ms after that of the first host, and is not taken for the
// first.
func TestClockOfAnotherHost(t *testing.T) {
	clause.Cite(t, "D-SC-26", "D-EV-3")
	synctest.Test(t, func(t *testing.T) {
		s := newSky()
		begun := time.Now()
		s.script = func(p *actorProcess) {
			task, _, _ := p.seat()
			<-time.After(time.Until(begun.Add(20*time.Second + time.Duration(task)*50*time.Millisecond)))
			p.end(Cause{Signal: syscall.SIGSEGV}, byItself)
		}
		notes := &timedNotes{begun: begun}
		cfg := Config{
			Command: itself, Tasks: 1, Nodes: 2, Coordinator: "first:1", Grace: time.Second, Display: notes,
			Identity: &topo.TaskRecord{}, Devices: []int{}, Service: server.Config{Cluster: coord.Config{RegisterTimeout: time.Hour}},
		}
		var jobs []*Job
		for node := range 2 {
			if cfg.Node = node; node == 1 {
				cfg.Display, cfg.Wall = nil, func() time.Time { return time.Now().Add(5 * time.Minute) }
			}
			j, err := start(cfg, s.host(fmt.Sprint("h", node)))
			if err != nil {
				t.Fatal(err)
			}
			jobs = append(jobs, j)
		}
		for _, j := range jobs {
			if r := j.Wait(); r.First == nil || r.First.Task != 0 || r.ExitCode() != 139 {
				t.Errorf("node %d: Wait() = %+v; want rank 0 first", j.cfg.Node, r.First)
			}
		}
		s.done.Wait()
		if !slices.ContainsFunc(notes.said, func(text string) bool {
			return strings.HasPrefix(text, "clock of ") && strings.Contains(text, " is 5m00s ahead")
		}) {
			t.Errorf("said %q; want that a clock is 5 minutes ahead", notes.said)
		}
	})
}

// A message that took long does not make a clock look slow; one that is slow is found after some messages.
func TestSkewMeter(t *testing.T) {
	clause.Cite(t, "D-SC-26")
	now := time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		walls []time.Duration // of messages, beside the clock of this host
		want  time.Duration   // that is told; 0: nothing
	}{
		"the same":        {[]time.Duration{0, -1, 0, -2, 0, 0, 0, 0, 0}, 0},
		"ahead":           {[]time.Duration{300 * time.Second}, 300 * time.Second},
		"one came late":   {[]time.Duration{-time.Minute, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0},
		"behind":          {slices.Repeat([]time.Duration{-time.Minute}, skewSamples), -time.Minute},
		"behind, unsure":  {slices.Repeat([]time.Duration{-time.Minute}, skewSamples-1), 0},
		"a little behind": {slices.Repeat([]time.Duration{-time.Second}, 100), 0},
	} {
		var s skewMeter
		var got time.Duration
		s.hear(time.Time{}, now) // an older launcher
		for _, w := range c.walls {
			if ahead, news := s.hear(now.Add(w), now); news {
				got = ahead
			}
		}
		if got != c.want {
			t.Errorf("%s: told %v; want %v", name, got, c.want)
		}
	}
}
