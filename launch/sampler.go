package launch

import (
	"os"
	"time"

	"github.com/serry-dev/serry/diagnose"
)

// A sampler looks at the processes of this host and tells the first launcher when what they do has changed: the class
// of D-HG-2, not the samples, which stay here. A job in which nothing changes costs no message.
type sampler struct {
	crew  *crew
	host  string
	begun time.Time
	ticks int
	tasks map[int]*sampledTask
}

// A sampledTask is a process that is looked at.
type sampledTask struct {
	lifetime
	pid      int
	probe    prober
	runs     diagnose.Program // zero until it is known
	window   diagnose.Window
	told     diagnose.Condition
	asked    time.Duration     // when its native frames were last looked at; 0: not since it stands here
	answer   chan string       // what they say, soon; nil: they are not being looked at
	wait     string            // what they said last
	named    bool              // they have said it of the place where it stands
	steps    string            // file with its step, or empty
	step     string            // what it said last
	declared string            // what it said last, whether or not the service has taken that
	pressure diagnose.Pressure // of its host, as it was told last
	phase    string            // that it has declared, with a limit; or empty
	until    time.Duration     // when that is over
}

const (
	sampleEvery   = time.Second
	deepEvery     = 2                // looks: one in two has a stack
	pressureEvery = 5                // looks: one in five asks for the pressure of the host
	waitsEvery    = 10 * time.Second // native frames, of processes that stand still
	waitsAfter    = 2 * time.Second  // of standing still
	mostText      = 512              // bytes of a text about a place
)

// A classed event says that a task does something else than before.
type classed struct {
	lifetime
	PID       int
	Host      string
	Condition diagnose.Condition
	Age       time.Duration // since the condition began, when it was told
	Left      time.Duration // of the phase that the rank has declared
	Program   diagnose.Program
	from      hand // of the host that says so; nil: this one
}

// sample looks at all tasks once a second until the crew has done its work.
func (c *crew) sample() {
	host, _ := os.Hostname() // empty: it is not shown
	s := &sampler{crew: c, host: host, begun: time.Now(), tasks: make(map[int]*sampledTask)}
	every := time.NewTicker(sampleEvery)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			if !s.round() {
				return
			}
		case <-c.worked:
			return
		}
	}
}

// round looks at every task once. It returns false when the crew has done its work.
func (s *sampler) round() bool {
	s.ticks++
	s.follow()
	if !s.lookForStrays() {
		return false
	}
	for _, task := range sortedKeys(s.tasks) {
		t := s.tasks[task]
		s.readStep(t)
		if !s.look(t, (s.ticks+task)%deepEvery == 0) {
			continue
		}
		now := t.window.Condition()
		now.Phase, now.Until = t.phase, t.until
		if s.ticks%pressureEvery == 1 {
			t.pressure = t.pressure.Next(s.crew.kernel.pressure(t.pid))
		}
		now.Pressure = t.pressure
		if now.Same(t.told) {
			continue
		}
		t.told = now
		if t.runs == (diagnose.Program{}) {
			t.runs = t.probe.program()
			t.runs.Name = clipped(t.runs.Name)
		}
		now.At, now.Doing, now.Wait = clipped(now.At), clipped(now.Doing), clipped(now.Wait)
		now.File = clipped(now.File)
		ev := classed{lifetime: t.lifetime, PID: t.pid, Host: s.host, Condition: now, Age: time.Since(s.begun) - now.Since, Left: now.Until - time.Since(s.begun), Program: t.runs}
		select {
		case s.crew.events <- ev:
		case <-s.crew.worked:
			return false
		}
	}
	return true
}

// lookForStrays looks for processes of attempts that are over, where there have been any. It returns false when the crew has done
// its work.
func (s *sampler) lookForStrays() bool {
	attempt := 0
	for _, t := range s.tasks {
		attempt = max(attempt, t.Attempt)
	}
	if attempt < 2 || s.ticks%strayEvery != 0 {
		return true
	}
	for _, p := range s.crew.kernel.strays(attempt) {
		select {
		case s.crew.events <- strayed{stray: p, Now: attempt, Host: s.host}:
		case <-s.crew.worked:
			return false
		}
	}
	return true
}

// follow takes up processes that were started, and drops those that have ended.
func (s *sampler) follow() {
	s.crew.mu.Lock()
	defer s.crew.mu.Unlock()
	for task, t := range s.tasks {
		if l := s.crew.mu.living[task]; l == nil || l.process == nil || l.seat.lifetime() != t.lifetime {
			delete(s.tasks, task)
		}
	}
	for task, l := range s.crew.mu.living {
		if s.tasks[task] == nil && l.process != nil {
			pid := l.process.pid()
			s.tasks[task] = &sampledTask{lifetime: l.seat.lifetime(), pid: pid, probe: s.crew.kernel.probe(pid, l.process.memory), steps: l.steps}
		}
	}
}

// look takes one sample of a process. The names of native frames cost most, so they are only looked for in a process that
// stands still, seldom, and what they said holds until its stack changes.
func (s *sampler) look(t *sampledTask, deep bool) bool {
	sample, ok := t.probe.look(deep)
	if !ok {
		return false
	}
	sample.At = time.Since(s.begun)
	sample.Wait, sample.Unnamed = s.nameWait(t, sample.At)
	t.window.Add(sample)
	return true
}

// nameWait is what the native frames of a process say, and whether they are yet to be looked at. They are looked at beside the samples: the first look at a large
// library takes as long as reading it does.
func (s *sampler) nameWait(t *sampledTask, now time.Duration) (wait string, unnamed bool) {
	still, since := t.window.Still()
	select {
	case answer := <-t.answer:
		t.answer = nil
		if still && since < t.asked {
			t.wait, t.named = answer, true
		}
	default:
	}
	if !still || since >= t.asked {
		t.wait, t.asked, t.named = "", 0, false
	}
	if !still {
		return "", false
	}
	if t.answer == nil && now-since >= waitsAfter && (t.asked == 0 || now-t.asked >= waitsEvery) {
		answer := make(chan string, 1)
		t.answer, t.asked = answer, now
		s.crew.watch.Go(func() { answer <- t.probe.waits() })
	}
	return t.wait, !t.named
}

func clipped(text string) string {
	if len(text) <= mostText {
		return text
	}
	return text[:mostText]
}
