package launch

import (
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A gate blocks everyone that comes to it until it opens.
type gate struct {
	open   chan struct{}
	here   chan struct{} // closed when the first has come
	once   sync.Once
	opened sync.Once
}

func newGate() *gate { return &gate{open: make(chan struct{}), here: make(chan struct{})} }

func (g *gate) pass() {
	g.once.Do(func() { close(g.here) })
	<-g.open
}

func (g *gate) lift() { g.opened.Do(func() { close(g.open) }) }

// until plays a task that runs until it is told to end, and then ends well.
func until(p *actorProcess) {
	select {
	case <-p.signals:
		p.end(Cause{}, byItself)
	case <-p.dead:
	}
}

// The loop of a launcher blocks on nothing: whatever a terminal, a child, a sweep, a service or a disk
// does, a signal is passed on in the moment in which it comes. Time is virtual, so a loop that waits for
// anything at all is one that lets time pass.
func TestLoopNeverBlocks(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*sky, *skyHost, *Config, *gate)
	}{
		{"display", func(_ *sky, _ *skyHost, cfg *Config, g *gate) { cfg.Display = stuck{g} }},
		{"start of a process", func(_ *sky, h *skyHost, _ *Config, g *gate) {
			h.starts = func(n int) {
				if n > 1 {
					g.pass()
				}
			}
		}},
		{"sweep between attempts", func(s *sky, h *skyHost, _ *Config, g *gate) {
			failFirst(s)
			h.sweeps = g.pass
		}},
		{"service that opens", func(s *sky, _ *skyHost, _ *Config, g *gate) {
			failFirst(s)
			s.service = func(attempt int) (service, error) {
				if attempt > 1 {
					g.pass()
				}
				return &skyService{at: "a:1"}, nil
			}
		}},
		{"service that closes", func(s *sky, _ *skyHost, _ *Config, g *gate) {
			failFirst(s)
			s.service = func(int) (service, error) { return &skyService{at: "a:1", closes: g.pass}, nil }
		}},
		{"service that is out of reach", func(s *sky, _ *skyHost, _ *Config, g *gate) {
			failFirst(s)
			s.service = func(int) (service, error) {
				return &skyService{at: "a:1", slow: func() <-chan struct{} { go g.pass(); return g.open }}, nil
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, g := newSky(), newGate()
				h := s.host("a")
				s.script = until
				cfg := Config{Command: itself, Tasks: 2, Restart: RestartAll, MaxRestarts: 3, Grace: time.Minute}
				c.set(s, h, &cfg, g)
				j, err := start(cfg, h)
				if err != nil {
					t.Fatal(err)
				}
				<-g.here
				synctest.Wait()
				before := time.Now()
				j.Signal(syscall.SIGTERM)
				synctest.Wait()
				if took := time.Since(before); took != 0 || !j.interrupted() {
					t.Errorf("the signal was taken after %v (%v); want at once", took, j.interrupted())
				}
				for _, p := range s.processes() {
					if p.running() {
						t.Errorf("task %v was not told to end", p.env[EnvTask])
					}
				}
				g.lift()
				if r := j.Wait(); r.Interrupted != syscall.SIGTERM {
					t.Errorf("Wait() = %+v; want interrupted by SIGTERM", r)
				}
				s.done.Wait()
			})
		})
	}
}

// failFirst has task 1 of the first attempt fail, and all others run until they are told to end.
func failFirst(s *sky) {
	s.script = func(p *actorProcess) {
		if task, attempt, _ := p.seat(); task == 1 && attempt == 1 {
			p.end(Cause{Code: 1}, byItself)
			return
		}
		until(p)
	}
}

// stuck is a display that blocks.
type stuck struct{ *gate }

func (s stuck) Line(int, Stream, []byte) { s.pass() }
func (s stuck) Note(Note)                { s.pass() }

// interrupted says whether the job shows that it is ending.
func (j *Job) interrupted() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.status.Ending
}

// A signal ends the grace of processes that tasks left behind when it is the second.
func TestSecondSignalEndsTheSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSky()
		h := s.host("a")
		s.script = func(p *actorProcess) {
			p.leave(true, 0)
			p.end(Cause{}, byItself)
		}
		begun := time.Now()
		j, err := start(Config{Command: itself, Tasks: 1, Grace: time.Hour}, h)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			time.Sleep(time.Second)
			j.Signal(syscall.SIGINT)
		}
		if r := j.Wait(); !r.Well() || time.Since(begun) != 2*time.Second || h.orphans() {
			t.Errorf("Wait() = %+v after %v, orphans %v; want all ended well, and the sweep cut short after 2s", r, time.Since(begun), h.orphans())
		}
		s.done.Wait()
	})
}

// recorder is a display that keeps what it is shown, as fast as it is let.
type recorder struct {
	mu    sync.Mutex
	lines []string
	notes []string
	wait  func() // before each, or nil
}

func (r *recorder) Line(_ int, _ Stream, text []byte) { r.add(&r.lines, string(text)) }
func (r *recorder) Note(n Note)                       { r.add(&r.notes, n.Text) }

func (r *recorder) add(to *[]string, text string) {
	if r.wait != nil {
		r.wait()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	*to = append(*to, text)
}

// A display that is slow but moves is shown everything; the task waits for it.
func TestSlowDisplayIsShownEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{wait: func() { time.Sleep(time.Second) }}
		f := newFeed(r)
		text := []byte(strings.Repeat("x", feedBytes/4))
		for range 20 {
			f.line(line{0, Stdout, text}, true)
		}
		f.close(nil)
		if len(r.lines) != 20 || len(r.notes) != 0 {
			t.Errorf("%d lines shown, notes %q; want 20, none", len(r.lines), r.notes)
		}
	})
}

// A display that has stalled costs lines, and says so when it goes on. The task waits no longer than it
// takes to find that out, and where a log has the lines, not at all. Notes never wait.
func TestStalledDisplayCostsLines(t *testing.T) {
	for _, logged := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			r := &recorder{wait: g.pass}
			f := newFeed(r)
			begun := time.Now()
			text := []byte(strings.Repeat("x", feedBytes/4))
			for range 20 {
				f.line(line{0, Stdout, text}, !logged)
			}
			f.note(Note{Text: "all is well"})
			if took := time.Since(begun); logged && took != 0 || took > stallPatience {
				t.Errorf("logged %v: tasks waited %v", logged, took)
			}
			g.lift()
			f.close(nil)
			if lost := 20 - len(r.lines); lost == 0 || len(r.notes) != 2 || !strings.Contains(r.notes[0], counted(lost, "line")+" of output not shown here") {
				t.Errorf("logged %v: %d lines shown, notes %q; want the missing ones counted, then the other note", logged, len(r.lines), r.notes)
			}
		})
	}
}

// A display that never returns does not keep a job from ending.
func TestDisplayThatNeverReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g := newSky(), newGate()
		h := s.host("a")
		s.script = func(p *actorProcess) {
			p.say("hello")
			p.end(Cause{Code: 3}, byItself)
		}
		begun := time.Now()
		j, err := start(Config{Command: itself, Tasks: 1, Display: stuck{g}}, h)
		if err != nil {
			t.Fatal(err)
		}
		if r := j.Wait(); r.ExitCode() != 3 || time.Since(begun) > 2*flushPatience {
			t.Errorf("Wait() = %+v after %v; want exit code 3 in time", r, time.Since(begun))
		}
		g.lift()
		s.done.Wait()
	})
}
