package launch

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/topo"
	"github.com/serry-dev/serry/transfer"
)

// standsIn moves for a while, then stands in a function for another, and ends well, or by a signal.
func standsIn(after time.Duration, function string, stands time.Duration) func(*actorProcess) {
	return func(p *actorProcess) {
		wait := func(d time.Duration) bool {
			select {
			case <-time.After(d):
				return true
			case sig := <-p.signals:
				p.end(Cause{Signal: sig}, bySignal)
			case <-p.dead:
			}
			return false
		}
		if !wait(after) {
			return
		}
		p.sleeps(function)
		if wait(stands) {
			p.sleeps("")
			wait(20 * time.Second)
		}
	}
}

// A rank that runs another program is named at the start, once.
func TestAnotherProgram(t *testing.T) {
	clause.Cite(t, "D-SC-19")
	synctest.Test(t, func(t *testing.T) {
		s := &scene{runs: map[int]string{0: "train.py", 1: "train.py", 2: "eval.py"}}
		works := standsIn(30*time.Second, "train_step", time.Second)
		if r := s.play(t, Config{}, works, works, works); !r.Well() {
			t.Errorf("Wait() = %+v; want success", r)
		}
		const want = "rank 2 runs a different program: eval.py, ranks 0-1 run train.py"
		i := slices.Index(s.display.said, want)
		if i < 0 || s.display.at[i] > 10*time.Second || slices.Contains(s.display.said[i+1:], want) {
			t.Errorf("said %q at %v; want %q once, within 10 s", s.display.said, s.display.at, want)
		}
	})
}

// What a job does when a rank keeps the others waiting.
func TestOnHang(t *testing.T) {
	clause.Cite(t, "D-HG-4", "D-HG-8", "D-HG-13", "D-RC-9", "D-EV-5", "D-EV-6", "TD-HG-3")
	const long = 10 * time.Minute
	stuckAt := func(text string) string {
		return "rank 1 is stuck since SINCE (LONG); ranks 0,2 wait for it in Gloo all-reduce; it is at load_batch (train.py:10)" + text
	}
	for _, c := range []struct {
		name  string
		cfg   Config
		hangs time.Duration
		code  int
		notes []string
	}{
		{"abort", Config{OnHang: HangAbort, HangAfter: 10 * time.Second}, long, CodeStuck, []string{
			"rank 1 is stalled since SINCE (LONG); ranks 0,2 wait for it in Gloo all-reduce; it is at load_batch (train.py:10)",
			stuckAt("; ending the job"),
		}},
		{"report", Config{HangAfter: 10 * time.Second}, time.Minute, 0, []string{
			"rank 1 is stalled since SINCE (LONG); ranks 0,2 wait for it in Gloo all-reduce; it is at load_batch (train.py:10)",
			stuckAt(""),
			"rank 1 went on after LONG",
		}},
		{"restart", Config{OnHang: HangRestart, Restart: RestartAll, MaxRestarts: 1, HangAfter: 10 * time.Second}, long, 0, []string{
			"rank 1 is stalled since SINCE (LONG); ranks 0,2 wait for it in Gloo all-reduce; it is at load_batch (train.py:10)",
			"rank 1 is stuck since SINCE (LONG); ranks 0,2 wait for it in Gloo all-reduce; it is at load_batch (train.py:10); starting all again, 0 restarts left",
			"attempt 2: 3 ranks, service on a:1",
		}},
		{"it goes on in time", Config{OnHang: HangAbort, HangAfter: time.Minute}, 30 * time.Second, 0, []string{
			"rank 1 is stalled since SINCE (LONG); ranks 0,2 wait for it in Gloo all-reduce; it is at load_batch (train.py:10)",
			"rank 1 went on after LONG",
		}},
		{"nobody looks", Config{OnHang: HangAbort, HangAfter: 10 * time.Second, NoStacks: true}, time.Minute, 0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := new(scene)
				begun := time.Now()
				r := s.playAgain(t, c.cfg, standsIn(20*time.Second, "train_step", c.hangs), standsIn(20*time.Second, "load_batch", c.hangs), standsIn(20*time.Second, "train_step", c.hangs))
				if r.ExitCode() != c.code {
					t.Errorf("ExitCode() = %d (%+v); want %d", r.ExitCode(), r, c.code)
				}
				if c.code == CodeStuck && (r.First == nil || r.First.Task != 1 || !strings.HasPrefix(r.First.Cause.Text, "stuck since ")) {
					t.Errorf("First = %+v; want rank 1, which was stuck", r.First)
				}
				for i, text := range s.display.said {
					s.display.said[i] = withoutTime(text, begun.Add(20*time.Second))
				}
				if got := s.display.said[1:]; !slices.Equal(got, c.notes) {
					t.Errorf("said\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.notes, "\n"))
				}
				said := strings.Join(s.service.said, "\n")
				if stuck := strings.Contains(said, "worker/1 lost: stuck since"); stuck != (c.cfg.OnHang != "" && c.hangs == long) {
					t.Errorf("the service was told %q", said)
				}
			})
		})
	}
}

// A rank that is stuck and does not end when it is told to is aborted before it is killed, so that it can say where it is.
func TestStuckRankIsAborted(t *testing.T) {
	clause.Cite(t, "D-ST-11", "D-HG-8")
	synctest.Test(t, func(t *testing.T) {
		deaf := func(p *actorProcess) {
			p.sleeps("load_batch")
			<-p.dead
		}
		var stuck *actorProcess
		waits := standsIn(0, "train_step", time.Hour)
		r := new(scene).play(t, Config{OnHang: HangAbort, HangAfter: 10 * time.Second}, waits, func(p *actorProcess) {
			stuck = p
			deaf(p)
		}, waits)
		if r.ExitCode() != CodeStuck {
			t.Errorf("ExitCode() = %d; want %d", r.ExitCode(), CodeStuck)
		}
		var at []time.Time
		var sent []syscall.Signal
		for _, s := range stuck.mu.told {
			if len(sent) == 0 || sent[len(sent)-1] != s.sig {
				sent, at = append(sent, s.sig), append(at, s.at)
			}
		}
		if len(sent) < 2 || sent[0] != syscall.SIGTERM || sent[1] != syscall.SIGABRT || at[1].Sub(at[0]) != time.Minute || stuck.mu.at.Sub(at[1]) != lastWords || stuck.mu.cause.Signal != syscall.SIGKILL {
			t.Errorf("it was sent %v at %v and ended by %v at %v; want SIGTERM, SIGABRT after the grace, SIGKILL %v later", sent, at, stuck.mu.cause, stuck.mu.at, lastWords)
		}
	})
}

// withoutTime puts SINCE in the place of a time that is at most two looks later, and LONG in that of a length of time.
func withoutTime(text string, at time.Time) string {
	for i := range 3 {
		text = strings.ReplaceAll(text, at.Add(time.Duration(i)*time.Second).Format(time.TimeOnly), "SINCE")
	}
	return lengths.ReplaceAllString(text, "LONG")
}

// lengths are lengths of time. Whether a look at a process comes before or after it changes is chance.
var lengths = regexp.MustCompile(`\b[0-9.]+m?[0-9]*s\b`)

// playAgain is play with scripts of the first attempt alone.
func (s *scene) playAgain(t *testing.T, cfg Config, scripts ...func(*actorProcess)) Report {
	t.Helper()
	first := make([]func(*actorProcess), len(scripts))
	for i, script := range scripts {
		first[i] = func(p *actorProcess) {
			if _, attempt, _ := p.seat(); attempt == 1 {
				script(p)
			}
		}
	}
	return s.play(t, cfg, first...)
}

// What a launcher tells the service can be read again, and says the same.
func TestPublishedHang(t *testing.T) {
	clause.Cite(t, "D-EV-7")
	synctest.Test(t, func(t *testing.T) {
		s := new(scene)
		var read *diagnose.HangReport
		look := func(p *actorProcess) {
			<-time.After(20 * time.Second)
			p.sleeps("train_step")
			<-time.After(30 * time.Second)
			s.service.mu.Lock()
			defer s.service.mu.Unlock()
			var err error
			if read, err = diagnose.ReadHang(s.service.published); err != nil {
				t.Error(err)
			}
		}
		s.play(t, Config{}, look, standsIn(20*time.Second, "load_batch", 70*time.Second), standsIn(20*time.Second, "train_step", 40*time.Second))
		if read == nil || read.Hang == nil || read.Hang.Stage != diagnose.Stalled || len(read.Hang.Ranks) != 1 || read.Hang.Ranks[0].Rank != 1 {
			t.Fatalf("published %+v; want that rank 1 has stalled", read)
		}
		now := time.Since(read.Begun)
		if text := read.Hang.Text(now, read.Begun); !strings.HasPrefix(text, "rank 1 is stalled since ") {
			t.Errorf("Text() = %q; want rank 1", text)
		}
	})
}

// A rank on another host that hangs is named by the first launcher.
func TestHangOnAnotherHost(t *testing.T) {
	clause.Cite(t, "D-EV-6", "D-HG-4")
	synctest.Test(t, func(t *testing.T) {
		s := newSky()
		s.script = func(p *actorProcess) {
			task, _, _ := p.seat()
			function := "train_step"
			if task == 2 {
				function = "load_batch"
			}
			standsIn(20*time.Second, function, time.Hour)(p)
		}
		notes := &timedNotes{begun: time.Now()}
		cfg := Config{
			Command: itself, Tasks: 1, Nodes: 3, Coordinator: "first:1", Grace: time.Second, OnHang: HangAbort, HangAfter: 10 * time.Second,
			Identity: &topo.TaskRecord{}, Devices: []int{}, Service: server.Config{Cluster: coord.Config{RegisterTimeout: time.Hour}},
		}
		var jobs []*Job
		for node := range 3 {
			if cfg.Node = node; node == 0 {
				cfg.Display = notes
			} else {
				cfg.Display = nil
			}
			j, err := start(cfg, s.host(fmt.Sprint("h", node)))
			if err != nil {
				t.Fatal(err)
			}
			jobs = append(jobs, j)
		}
		for _, j := range jobs {
			if r := j.Wait(); r.ExitCode() != CodeStuck || r.First == nil || r.First.Task != 2 {
				t.Errorf("node %d: Wait() = %+v; want rank 2 stuck", j.cfg.Node, r)
			}
		}
		s.done.Wait()
		if !slices.ContainsFunc(notes.said, func(text string) bool { return strings.HasPrefix(text, "rank 2 is stuck since ") }) {
			t.Errorf("said %q; want that rank 2 is stuck", notes.said)
		}
	})
}

// A wrong policy is refused before anything starts.
func TestHangPolicies(t *testing.T) {
	clause.Cite(t, "D-HG-8")
	for want, c := range map[string]Config{
		`after a hang "kill": want report, abort or restart`:                     {OnHang: "kill"},
		"a job that restarts after a hang needs a restart policy: failed or all": {OnHang: HangRestart},
		"a hang after -1s: want 0 or more":                                       {HangAfter: -time.Second},
	} {
		c.Command, c.Tasks = itself, 1
		if err := c.Validate(); err == nil || err.Error() != want {
			t.Errorf("Validate() = %v; want %q", err, want)
		}
	}
}

// A real process that sleeps, one that computes and one that was stopped look like that from outside.
func TestProbe(t *testing.T) {
	clause.Cite(t, "D-EV-3")
	s := newStage(t)
	j := s.start(s.config(1))
	a := s.all(1, 1)[0]
	pid := j.here.process(0).pid()
	probe := j.here.kernel.probe(pid, j.here.process(0).memory)
	look := func() diagnose.Sample {
		t.Helper()
		sample, ok := probe.look(true)
		if !ok {
			t.Fatalf("look(%d): it has ended", pid)
		}
		return sample
	}
	if sample := look(); sample.State == "" || sample.Bytes == 0 || sample.Traced {
		t.Errorf("look() = %+v; want a state and bytes", sample)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for look().State != "stopped" { // the signal takes a moment
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	a.begin("exit 0")
	if r := j.Wait(); !r.Well() {
		t.Errorf("Wait() = %+v; want success", r)
	}
	if _, ok := probe.look(true); ok {
		t.Errorf("look() of a process that has ended is ok")
	}
}

func (c *crew) process(task int) *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.living[task].process
}

// A rank that waits in a transfer is told with the peer that does not move, and that its host is short of memory. Processes are asked
// when ranks come to stand still, and again while transfers wait, and not while nothing changes.
func TestHangInATransfer(t *testing.T) {
	clause.Cite(t, "D-EV-3", "D-EV-6", "D-EV-7", "D-HG-1")
	synctest.Test(t, func(t *testing.T) {
		const stands, lasts = 20 * time.Second, time.Minute
		begun := time.Now()
		life := func(task int) serry.Life { return serry.Life{Task: worker(task), Incarnation: 5} }
		s := &scene{transfers: func() []transfer.Report {
			if at := time.Since(begun); at > stands+lasts {
				return nil
			}
			half := transfer.Waiting{Key: transfer.Key{Seq: 7}, Src: 1, Dst: 0, Peer: life(1), Done: 3, Bytes: 9, For: "bytes to come", Long: time.Since(begun) - stands}
			other := half
			other.Send, other.Peer, other.Self, other.For = true, life(0), true, "its data"
			return []transfer.Report{{Life: life(0), Waiting: []transfer.Waiting{half}}, {Life: life(1), Waiting: []transfer.Waiting{other}}}
		}, pressed: func(task int) diagnose.Pressure { return diagnose.Pressure{Memory: 83 * (task % 2), CPU: 10} }}
		var read *diagnose.HangReport
		look := func(p *actorProcess) {
			<-time.After(stands + lasts - time.Second)
			s.service.mu.Lock()
			defer s.service.mu.Unlock()
			var err error
			if read, err = diagnose.ReadHang(s.service.published); err != nil {
				t.Error(err)
			}
		}
		if r := s.play(t, Config{}, standsIn(stands, "pull", lasts), standsIn(stands, "load_batch", lasts), look); !r.Well() {
			t.Errorf("Wait() = %+v; want success", r)
		}
		const want = "rank 1 is stalled since SINCE (LONG); rank 0 waits for it in transfer 7; it is at load_batch (train.py:10); its host is short of memory (PSI some 83 %)"
		i := slices.IndexFunc(s.display.said, func(text string) bool { return withoutTime(text, begun.Add(stands)) == want })
		if i < 0 || s.display.at[i] > stands+12*time.Second {
			t.Errorf("said %q at %v; want %q within 12 s", s.display.said, s.display.at, want)
		}
		if s.service.asked < 2 || s.service.asked > 8 {
			t.Errorf("processes were asked %d times; want once for each 10 s that ranks stood still", s.service.asked)
		}
		if read == nil || read.Hang == nil || len(read.Hang.Waits) != 1 || len(read.Short) != 1 || !slices.Equal(read.Short[0].Ranks, []int{1}) {
			t.Fatalf("published %+v; want a hang and a host under pressure", read)
		}
		if w := read.Hang.Waits[0].Transfer; w.Key != "7" || w.From != 0 || w.Peer != 1 || w.Done != 3 || w.Bytes != 9 || w.Why != "its data" || w.Open || w.Silent {
			t.Errorf("published %+v; want transfer 7, 3 of 9 bytes, which waits for rank 1", w)
		}
	})
}

// The pressure of a real process is that of its control group where this is worse, else that of the host.
func TestPressure(t *testing.T) {
	clause.Cite(t, "D-EV-3", "TD-EV-4")
	s := newStage(t)
	j := s.start(s.config(1))
	a := s.all(1, 1)[0]
	pid := j.here.process(0).pid()
	if p := j.here.kernel.pressure(pid); p != (diagnose.Pressure{}) && p.Worst() > 100 {
		t.Errorf("pressure(%d) = %+v; want percents", pid, p)
	}
	group, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	a.begin("exit 0")
	j.Wait()
	const some = "some avg10=%s avg60=1.00 avg300=0.00 total=123\nfull avg10=99.00 avg60=0.00 avg300=0.00 total=1\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  diagnose.Pressure
	}{
		{"of the host", map[string]string{"proc/pressure/memory": "83.40", "proc/pressure/cpu": "7.00", "sys/fs/cgroup/memory.pressure": "1.00"}, diagnose.Pressure{Memory: 83, CPU: 7}},
		{"of the group", map[string]string{"proc/pressure/memory": "1.00", "sys/fs/cgroup/memory.pressure": "50.00"}, diagnose.Pressure{Memory: 50, Group: true}},
		{"beside groups of version 1", map[string]string{"sys/fs/cgroup/unified/memory.pressure": "0.00", "sys/fs/cgroup/unified/io.pressure": "41.00"}, diagnose.Pressure{IO: 41, Group: true}},
		{"not counted", nil, diagnose.Pressure{}},
		{"nonsense", map[string]string{"proc/pressure/memory": "-5", "proc/pressure/cpu": "1e9", "proc/pressure/io": "many"}, diagnose.Pressure{}},
	} {
		root := t.TempDir()
		write(t, root, fmt.Sprintf("proc/%d/cgroup", pid), string(group)+"0::/nowhere\n")
		for name, share := range c.files {
			write(t, root, name, fmt.Sprintf(some, share))
		}
		if got := (&local{root: root}).pressure(pid); got != c.want {
			t.Errorf("%s: pressure(%d) = %+v; want %+v", c.name, pid, got, c.want)
		}
	}
}
