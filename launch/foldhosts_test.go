package launch

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// playTwoHosts runs a job of two ranks on each of two hosts, and returns what it has said, what it has published last, and how often
// bytes had moved from or to the second host at some moments.
func playTwoHosts(t *testing.T, cfg Config, at []time.Duration, script func(*actorProcess)) (display *timedNotes, published []byte, moves []int64) {
	t.Helper()
	s := newSky()
	s.script = func(p *actorProcess) { script(p); p.end(Cause{}, byItself) }
	told := &skyService{at: "first:1001", tasks: 4}
	s.service = func(int) (_ service, _ error) { return told, nil }
	display = &timedNotes{begun: time.Now()}
	a, b := s.host("a"), s.host("b")
	s.moved = func(h *skyHost) { h.moves.Add(1) }
	var jobs []*Job
	for node, h := range []*skyHost{a, b} {
		c := cfg
		c.Command, c.Tasks, c.Nodes, c.Node, c.Coordinator, c.Grace = itself, 2, 2, node, "first:1", time.Minute
		if node == 0 {
			c.Display = display
		}
		j, err := start(c, h)
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, j)
	}
	for _, d := range at {
		time.Sleep(d - time.Since(display.begun))
		synctest.Wait()
		moves = append(moves, b.moves.Load())
		told.mu.Lock()
		published = told.published
		told.mu.Unlock()
	}
	for _, j := range jobs {
		if r := j.Wait(); !r.Well() {
			t.Errorf("Wait() = %+v; want success", r)
		}
	}
	s.done.Wait()
	return display, published, moves
}

// A rank that keeps the others waiting on another host is told with its place, its process and its host, which come by messages.
func TestHangAcrossHosts(t *testing.T) {
	clause.Cite(t, "D-EV-6", "D-HG-1")
	synctest.Test(t, func(t *testing.T) {
		const hangs = 20 * time.Second
		begun := time.Now()
		display, published, _ := playTwoHosts(t, Config{}, []time.Duration{hangs + 40*time.Second}, func(p *actorProcess) {
			function := "train_step"
			if task, _, _ := p.seat(); task == 3 {
				function = "load_batch"
			}
			standsIn(hangs, function, time.Minute)(p)
		})
		const want = "rank 3 is stalled since SINCE (LONG); ranks 0-2 wait for it in Gloo all-reduce; it is at load_batch (train.py:10)"
		i := slices.IndexFunc(display.said, func(text string) bool {
			return withoutTime(text, begun.Add(hangs)) == want || withoutTime(text, begun.Add(hangs+time.Second)) == want
		})
		if i < 0 || display.at[i] > hangs+12*time.Second {
			t.Errorf("said %q at %v; want %q within 12 s", display.said, display.at, want)
		}
		read, err := diagnose.ReadHang(published)
		if err != nil || read.Hang == nil || len(read.Hang.Ranks) != 1 || read.Hang.Ranks[0].PID == 0 || !slices.Equal(read.Hang.Waits[0].Ranks, []int{0, 1, 2}) {
			t.Errorf("published %s, %v; want rank 3 with its process", published, err)
		}
	})
}

// While ranks do what they did, launchers that look at them say no more to the first one than those that do not.
func TestQuietHosts(t *testing.T) {
	clause.Cite(t, "D-EV-6", "TD-EV-3")
	var moved []int64
	for _, blind := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			_, _, moves := playTwoHosts(t, Config{NoStacks: blind}, []time.Duration{time.Minute, 31 * time.Minute}, func(p *actorProcess) {
				standsIn(32*time.Minute, "", time.Second)(p)
			})
			moved = append(moved, moves[1]-moves[0])
		})
	}
	// Beats come at times that are drawn at random. A message a minute would be 120 moves.
	if more := moved[0] - moved[1]; more > 60 || more < -60 || moved[0] == 0 {
		t.Errorf("in 30 min bytes moved %d times to or from a host that looks at its ranks, %d times otherwise; want the same, for beats", moved[0], moved[1])
	}
}
