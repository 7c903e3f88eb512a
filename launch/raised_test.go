package launch

import (
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/transfer"
	"github.com/serry-dev/serry/wire"
)

func TestTracebackReader(t *testing.T) {
	clause.Cite(t, "D-RC-6")
	const header = tracebackHeader + "\n"
	for _, c := range []struct{ name, text, want string }{
		{"plain", header + "  File \"train.py\", line 3, in <module>\n    f()\nValueError: bad sample 17", "ValueError: bad sample 17"},
		{"not a traceback", "ValueError: said, not raised\n  indented", ""},
		{"two, one during the other", header + "  File \"a\"\nKeyError: 1\n\nDuring handling of the above exception, another exception occurred:\n\n" + header + "  File \"a\"\nRuntimeError: b", "KeyError: 1|RuntimeError: b"},
		{"no text", header + "  File \"a\"\n\n\tf()\nmod.Error", "mod.Error"},
		{"several lines", header + "  File \"a\"\nValueError: one\ntwo", "ValueError: one"},
		{"cut off", header + "  File \"a\"", ""},
		{"colours", header + "  File \x1b[35m\"a\"\x1b[0m\n\x1b[1;35mValueError\x1b[0m: \x1b[35mbad\x1b[0m", "ValueError: bad"},
		{"group", "  + Exception Group " + header + "  |   File \"a\", line 1\n  | ExceptionGroup: g (1 sub-exception)\n  +-+--- 1 ---\n    | ValueError: x", "ExceptionGroup: g (1 sub-exception)"},
		{"of a thread", "Exception in thread Thread-1 (f):\n" + header + "  File \"a\"\nValueError: x", ""},
		{"of a finalizer", "Exception ignored in: <function C.__del__ at 0x7f>\n" + header + "  File \"a\"\nValueError: x", ""},
		{"of atexit", "Error in atexit._run_exitfuncs:\n" + header + "  File \"a\"\nValueError: x", ""},
		{"after one of a thread", "Exception in thread Thread-1 (f):\n" + header + "  File \"a\"\nValueError: x\n" + header + "  File \"a\"\nValueError: y", "ValueError: y"},
		{"a very long one", header + "E: " + strings.Repeat("x", 1000), "E: " + strings.Repeat("x", tailLineSize-3)},
	} {
		var r tracebackReader
		var got []string
		for line := range strings.Lines(c.text) {
			if e := r.read([]byte(strings.TrimSuffix(line, "\n"))); e != "" {
				got = append(got, e)
			}
		}
		if text := strings.Join(got, "|"); text != c.want {
			t.Errorf("%s: read() = %q; want %q", c.name, text, c.want)
		}
	}
}

func FuzzTraceback(f *testing.F) {
	f.Add([]byte(tracebackHeader + "\n  File\nValueError: x\n"))
	f.Add([]byte("  + Exception Group " + tracebackHeader + "\n  | E\n\x1b["))
	f.Fuzz(func(t *testing.T, text []byte) {
		var r tracebackReader
		for _, line := range strings.Split(string(text), "\n") {
			if e := r.read([]byte(line)); len(e) > tailLineSize {
				t.Errorf("read() = %d bytes; want at most %d", len(e), tailLineSize)
			}
		}
	})
}

func TestWantToLeave(t *testing.T) {
	clause.Cite(t, "D-RC-6")
	j := &Job{plan: newPlan(4, 0, RestartNever, false)}
	j.plan.begin()
	j.exceptions.last = map[int]printed{0: {raised: raised{lifetime: j.lifetime(0), Text: "OSError: x"}}}
	for want, b := range map[string]coord.BarrierView{
		"rank 2 wants to leave; ranks 0, 1 and 3 do not":                                 {First: worker(2), Members: 4, Arrived: 1, Missing: []serry.TaskID{worker(0), worker(1), worker(3)}},
		"ranks 0, 1 and 2 want to leave; rank 3 does not; rank 0 has printed OSError: x": {Members: 4, Arrived: 3, Missing: []serry.TaskID{worker(3)}},
		"2 ranks want to leave; 2 others do not":                                         {First: worker(1), Members: 4, Arrived: 2, Missing: []serry.TaskID{worker(3)}},
		"1 rank wants to leave; 3 others do not; rank 0 has printed OSError: x":          {First: worker(0), Members: 4, Arrived: 1, Missing: []serry.TaskID{worker(3)}},
	} {
		leaving, named := j.leavingRanks(&b)
		if got := j.wantToLeave(&b, leaving, named); got != want {
			t.Errorf("wantToLeave() = %q; want %q", got, want)
		}
	}
	all := make([]int, 12)
	if got, want := numbered("rank", all), "ranks 0, 0, 0, 0, 0, 0, 0, 0 and 4 more"; got != want {
		t.Errorf("numbered() = %q; want %q", got, want)
	}
}

// A scene is a job of three tasks on one host, in virtual time, of which each does what a test says.
type scene struct {
	*sky
	service *skyService
	display timedNotes
	runs    map[int]string // programs of tasks, or nil

	transfers func() []transfer.Report         // of its processes, or nil
	pressed   func(task int) diagnose.Pressure // of hosts, or nil
	steps     *wire.GoodputStatus              // what they report, or nil
}

// timedNotes remembers what was said, and when, since the start.
type timedNotes struct {
	mu    sync.Mutex
	begun time.Time
	said  []string
	at    []time.Duration
}

func (d *timedNotes) Line(int, Stream, []byte) {}

func (d *timedNotes) Note(n Note) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.said, d.at = append(d.said, n.Text), append(d.at, time.Since(d.begun))
}

// play runs the job of a scene; each task plays its script.
func (s *scene) play(t *testing.T, cfg Config, scripts ...func(*actorProcess)) Report {
	t.Helper()
	s.sky = newSky()
	s.sky.programs, s.sky.presses = s.runs, s.pressed
	s.service = &skyService{at: "a:1", tasks: len(scripts), tells: s.transfers, steps: s.steps}
	s.sky.service = func(int) (service, error) { return s.service, nil }
	s.script = func(p *actorProcess) {
		if task, _, life := p.seat(); life == 1 {
			scripts[task](p)
		}
		p.end(Cause{}, byItself)
	}
	s.display.begun = time.Now()
	cfg.Command, cfg.Tasks, cfg.Display, cfg.Grace = itself, len(scripts), &s.display, time.Minute
	j, err := start(cfg, s.host("a"))
	if err != nil {
		t.Fatal(err)
	}
	r := j.Wait()
	s.done.Wait()
	return r
}

// raises prints an exception after some time, unless it is negative, and wants to leave after some more. It
// ends when its shutdown call is answered, or by a signal.
func (s *scene) raises(after, leaves time.Duration) func(*actorProcess) {
	return func(p *actorProcess) {
		if after >= 0 {
			<-time.After(after)
			p.raise("ValueError: bad sample 17")
		}
		<-time.After(leaves)
		task, _, _ := p.seat()
		select {
		case <-s.service.leave(task):
		case <-p.dead:
		case sig := <-p.signals:
			p.end(Cause{Signal: sig}, bySignal)
		}
	}
}

// Whether a rank that leaves has failed depends on what it printed, and on what the others do.
func TestRaisedAndLeft(t *testing.T) {
	clause.Cite(t, "D-RC-6", "C-LOST-3")
	const never, long = -1, 10 * time.Minute
	for _, c := range []struct {
		name   string
		cfg    Config
		script func(*scene) []func(*actorProcess)
		well   bool
		note   string
		at     time.Duration
	}{
		{"it raises and leaves", Config{}, func(s *scene) []func(*actorProcess) {
			return []func(*actorProcess){s.raises(never, long), s.raises(10*time.Second, 0), s.raises(never, long)}
		}, false, "rank 1 raised ValueError: bad sample 17; ending the job", 10*time.Second + leavePause + checkSoon},
		{"it leaves after its handlers of atexit", Config{}, func(s *scene) []func(*actorProcess) {
			return []func(*actorProcess){s.raises(never, long), s.raises(10*time.Second, 9*time.Second), s.raises(never, long)}
		}, false, "rank 1 raised ValueError: bad sample 17; ending the job", 19*time.Second + leavePause + checkSoon},
		{"two raise", Config{}, func(s *scene) []func(*actorProcess) {
			return []func(*actorProcess){s.raises(never, long), s.raises(10300*time.Millisecond, 0), s.raises(10*time.Second, 0)}
		}, false, "rank 2 raised ValueError: bad sample 17; ending the job", 10*time.Second + leavePause + checkSoon},
		{"it goes on, and the job ends well", Config{}, func(s *scene) []func(*actorProcess) {
			return []func(*actorProcess){s.raises(never, 60*time.Second), s.raises(10*time.Second, 20*time.Second), s.raises(never, 60*time.Second)}
		}, true, "rank 1 wants to leave; ranks 0 and 2 do not; rank 1 has printed ValueError: bad sample 17", 30*time.Second + leaveFirst + checkEvery},
		{"the others follow at once", Config{}, func(s *scene) []func(*actorProcess) {
			return []func(*actorProcess){s.raises(never, 10300*time.Millisecond), s.raises(10*time.Second, 0), s.raises(never, 10400*time.Millisecond)}
		}, true, "", 0},
		{"a rank without an exception leaves, too", Config{}, func(s *scene) []func(*actorProcess) {
			return []func(*actorProcess){s.raises(never, 10*time.Second), s.raises(10*time.Second, 0), s.raises(never, 60*time.Second)}
		}, true, "ranks 0 and 1 want to leave; rank 2 does not; rank 1 has printed ValueError: bad sample 17", 10*time.Second + leaveFirst + checkEvery},
		{"tracebacks are ignored", Config{IgnoreTracebacks: true}, func(s *scene) []func(*actorProcess) {
			return []func(*actorProcess){s.raises(never, 60*time.Second), s.raises(10*time.Second, 0), s.raises(never, 60*time.Second)}
		}, true, "rank 1 wants to leave; ranks 0 and 2 do not", 10*time.Second + leaveFirst + checkEvery},
		{"it is started again", Config{Restart: RestartFailed, MaxRestarts: 1}, func(s *scene) []func(*actorProcess) {
			return []func(*actorProcess){s.raises(never, 60*time.Second), s.raises(10*time.Second, 0), s.raises(never, 60*time.Second)}
		}, true, "rank 1 raised ValueError: bad sample 17; starting it again, 0 restarts left", 10*time.Second + leavePause + checkSoon},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := new(scene)
				r := s.play(t, c.cfg, c.script(s)...)
				if r.Well() != c.well || !c.well && r.ExitCode() != 1 {
					t.Errorf("Wait() = %+v; want well: %v", r, c.well)
				}
				if len(s.display.said) < 2 {
					s.display.said, s.display.at = append(s.display.said, ""), append(s.display.at, 0)
				}
				if got, at := s.display.said[1], s.display.at[1]; got != c.note || at > c.at {
					t.Errorf("said %q after %v; want %q after at most %v", got, at, c.note, c.at)
				}
				if lost := "worker/1 lost: raised ValueError: bad sample 17"; strings.Contains(c.note, "rank 1 raised") && s.service.said[0] != lost {
					t.Errorf("the service was told %q; want %q first", s.service.said, lost)
				}
			})
		})
	}
}

// A rank that ends with code 0 while the others work is the cause of the exceptions that follow from it.
func TestEarlyExitIsTheCause(t *testing.T) {
	clause.Cite(t, "D-RC-4", "D-SC-6")
	const reset = "ValueError: UNKNOWN: Gloo all-reduce failed: Read error [127.0.0.1]:21425: Connection reset by peer"
	fails := func(s *scene, after time.Duration, text string) func(*actorProcess) {
		return func(p *actorProcess) {
			<-time.After(after)
			p.raise(text)
			s.raises(-1, 0)(p)
		}
	}
	exits := func(after time.Duration) func(*actorProcess) {
		return func(*actorProcess) { <-time.After(after) }
	}
	for _, c := range []struct {
		name  string
		after time.Duration // the exit, until the exception
		text  string
		task  int
	}{
		{"its peers lose their connections", 100 * time.Millisecond, reset, 2},
		{"another reason", 100 * time.Millisecond, "ValueError: bad sample 17", 1},
		{"long before", 2 * time.Minute, reset, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := new(scene)
				r := s.play(t, Config{}, s.raises(-1, time.Hour), fails(s, 10*time.Second+c.after, c.text), exits(10*time.Second))
				if r.First == nil || r.First.Task != c.task || r.ExitCode() != 1 {
					t.Fatalf("Wait() = %v, code %d; want rank %d and code 1", r.First, r.ExitCode(), c.task)
				}
				said := strings.Join(s.display.said, "\n")
				if want := "rank 2 exited at 00:00:10 with code 0 without saying goodbye\nrank 1 raised " + c.text + "; ending the job"; strings.Contains(said, want) != (c.task == 2) {
					t.Errorf("said:\n%s\nwant %q: %v", said, want, c.task == 2)
				}
			})
		})
	}
}

// That the connection of a host or to the service has closed is no word of a rank about its peers.
func TestLostHostBlamesNoEarlyExit(t *testing.T) {
	clause.Cite(t, "D-RC-4")
	j := new(Job)
	j.exceptions.ended = append(j.exceptions.ended, early{died{lifetime: lifetime{Task: 1, Attempt: 1, Life: 1}}, time.Now()})
	for _, c := range []struct {
		ev     died
		blamed bool
	}{
		{died{host: "connection closed", Cause: Cause{Text: "its host is lost: connection closed"}}, false},
		{died{Cause: Cause{Text: "task worker/2: task is dead: connection closed"}}, false},
		{died{raised: true, Cause: Cause{Text: raisedWords + "OSError: connection closed by peer", Code: 1}}, true},
	} {
		c.ev.lifetime = lifetime{Task: 2, Attempt: 1, Life: 1}
		if f := j.leftEarly(c.ev); (f != nil) != c.blamed {
			t.Errorf("leftEarly(%v) = %v; want a failure: %v", c.ev.Cause, f, c.blamed)
		}
	}
}

// A rank that a signal has stopped cannot end. Those that wait for it do.
func TestStoppedRankIsFirst(t *testing.T) {
	clause.Cite(t, "D-RC-4")
	const lost = "OSError: connection closed by peer"
	stopped := diagnose.Condition{Class: diagnose.ClassStopped, Since: 10 * time.Second}
	held := stopped
	held.Traced = true
	for _, c := range []struct {
		name   string
		rank   int // in that condition
		of     diagnose.Condition
		cause  Cause
		raised string
		blamed bool
	}{
		{"its peer gives it up", 2, stopped, Cause{Code: 1}, "", true},
		{"its peer loses the connection", 2, stopped, Cause{Code: 1}, lost, true},
		{"another exception", 2, stopped, Cause{Code: 1}, "ValueError: bad sample 17", false},
		{"a crash", 2, stopped, Cause{Signal: syscall.SIGSEGV}, "", false},
		{"a lost host", 2, stopped, Cause{Text: "its host is lost"}, "", false},
		{"a good end", 2, stopped, Cause{}, "", false},
		{"a debugger", 2, held, Cause{Code: 1}, "", false},
		{"nobody is stopped", 2, diagnose.Condition{Class: diagnose.ClassMoving}, Cause{Code: 1}, "", false},
		{"it was stopped itself", 1, stopped, Cause{Code: 1}, "", false},
		{"it has ended", 0, stopped, Cause{Code: 1}, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := &Job{begun: time.Now(), plan: newPlan(3, 0, RestartNever, true)}
			j.plan.begin()
			j.plan.tasks[0].phase = gone
			j.hangs.keep(diagnose.RankEvidence{Rank: c.rank, Condition: c.of})
			ev := died{lifetime: j.lifetime(1), Cause: c.cause}
			if c.raised != "" {
				j.exceptions.last = map[int]printed{1: {raised: raised{lifetime: ev.lifetime, Text: c.raised}}}
			}
			f := j.stoppedFirst(ev)
			if (f != nil) != c.blamed {
				t.Fatalf("stoppedFirst() = %v; want a failure: %v", f, c.blamed)
			}
			want := "rank 2: has been stopped by a signal since " + j.begun.Add(stopped.Since).Format(time.TimeOnly)
			if f != nil && f.String() != want {
				t.Errorf("stoppedFirst() = %q; want %q", f, want)
			}
		})
	}
}

// Another process that joins as a rank is what ended the job, and not the end of the first, which the service has told to end.
func TestTwoProcessesOfOneRank(t *testing.T) {
	clause.Cite(t, "D-SC-21")
	synctest.Test(t, func(t *testing.T) {
		s := new(scene)
		aborts := func(p *actorProcess) {
			<-time.After(10 * time.Second)
			s.service.mu.Lock()
			s.service.failed = &serry.TaskError{Task: worker(1), Was: 5, Now: 6, Err: serry.ErrRestarted}
			s.service.mu.Unlock()
			p.end(Cause{Signal: syscall.SIGABRT}, byItself)
		}
		r := s.play(t, Config{}, s.raises(-1, time.Hour), aborts, s.raises(-1, time.Hour))
		if r.First == nil || r.First.Task != 1 || !strings.HasPrefix(r.First.Verdict, "two processes claim this rank") || r.ExitCode() != 1 {
			t.Errorf("Wait() = %v, code %d; want two processes, code 1", r.First, r.ExitCode())
		}
		if said := strings.Join(s.display.said, "\n"); !strings.Contains(said, "rank 1: two processes claim this rank") {
			t.Errorf("said:\n%s", said)
		}
	})
}

// A rank that leaves by itself is named within 10 seconds, and again every 30.
func TestEarlyLeaverIsNamed(t *testing.T) {
	clause.Cite(t, "D-RC-6")
	synctest.Test(t, func(t *testing.T) {
		s := new(scene)
		r := s.play(t, Config{}, s.raises(-1, 100*time.Second), s.raises(-1, 100*time.Second), s.raises(-1, 10*time.Second))
		if !r.Well() || len(s.display.said) != 4 {
			t.Fatalf("Wait() = %+v, said %q; want success, and three notes after the first", r, s.display.said)
		}
		for i, at := range s.display.at[1:] {
			due := 10*time.Second + leaveFirst + time.Duration(i)*leaveAgain
			if got := s.display.said[i+1]; got != "rank 2 wants to leave; ranks 0 and 1 do not" || at < due || at > due+5*time.Second {
				t.Errorf("said %q after %v; want that rank 2 wants to leave, after %v", got, at, due)
			}
		}
	})
}

// An exception on another host fails the job there, too; one that the program survives does not.
func TestExceptionOnAnotherHost(t *testing.T) {
	clause.Cite(t, "D-RC-6")
	s := newStage(t)
	cfg := s.several(RestartNever)
	cfg.Spares = 0
	jobs := []*Job{s.startNode(cfg, 0), s.startNode(cfg, 1)}
	tasks := s.all(2, 1)
	do(tasks, "join")
	for _, a := range tasks {
		a.does("complain " + tracebackHeader)
		a.does("complain ValueError: it can go on")
	}
	s.shown("it can go on")
	do(tasks, "barrier both go on")
	tasks[1].does("complain " + tracebackHeader)
	tasks[1].does("complain   File \"train.py\", line 9, in <module>")
	tasks[1].does("complain ValueError: bad sample 17")
	tasks[1].begin("leave") // and waits for task 0, which waits for it
	s.shown("rank 1 raised ValueError: bad sample 17; ending the job")
	for _, j := range jobs {
		r := j.Wait()
		if r.First == nil || r.First.Task != 1 || r.ExitCode() != 1 || len(r.First.Last) != 5 || r.First.Last[4] != "ValueError: bad sample 17" {
			t.Errorf("Wait() = %+v; want task 1, exit code 1, and the exception as its last line", r.First)
		}
	}
}
