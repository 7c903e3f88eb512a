package server

import (
	"testing"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/detect"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/stream"
)

// These tests are inside the package because they need a clock that jumps, which nothing else can
// make: in a bubble every timer fires in time.

const second = coord.Time(time.Second)

// A beat that comes between the scan and the owner's turn counts, and a scan of a former epoch does not.
func TestSilenceIsLookedAtAgain(t *testing.T) {
	clause.Cite(t, "C-HB-6")
	jobs := []coord.Job{{Name: "worker", Tasks: 2}}
	e := newEpoch(coord.Opened{Service: 1, Jobs: jobs}, wire.NewCodec(jobs))
	o := &owner{epoch: e, wave: new(wave), accountant: newAccountant(nil, clock{}), detector: detect.New[*stream.Session](detect.Config{Silence: 10 * time.Second})}
	o.detector.Opened(jobs, serry.Life{})
	o.accountant.opened(e, 0)
	for i := range e.tasks {
		o.changed(coord.Changed{Task: e.tasks[i].task, State: serry.Connected, Incarnation: serry.Incarnation(i + 1)})
	}
	s := &scanner{queue: newQueue(DefaultLimits(), clock{}), silence: detect.NewSilence(10*time.Second, 0)}
	newPerformer(&Server{handler: &handler{}}).publish(o.wave)
	s.scan(20*second, 20*second, e)
	items, _ := s.queue.drain(nil)
	found := items[0].command.(tasksSilent)
	if len(found.tasks) != 2 {
		t.Fatalf("scan() found %d tasks; want 2", len(found.tasks))
	}
	o.now = 20 * second
	tasksSilent{epoch: &epoch{}, tasks: found.tasks}.do(o)
	if ev := o.detector.Next(); ev != nil {
		t.Errorf("Next() after a scan of a former epoch = %v; want nil", ev)
	}
	e.tasks[0].seen.Store(int64(19 * second))
	found.do(o)
	lost, _ := o.detector.Next().(coord.Lost)
	if len(lost.Tasks) != 1 || lost.Tasks[0].Task.Index != 1 {
		t.Errorf("Next() = %v; want worker/1 alone lost", lost)
	}
}

// The machine's time follows the clock, except while the server stands still: then it stands still, too, and
// goes on from there a little later.
func TestTimelineStandsStillInAStall(t *testing.T) {
	clause.Cite(t, "C-TIME-1", "C-BAR-15")
	var l timeline
	at := func(clock coord.Time) coord.Time {
		l.hold(clock)
		l.pass(clock)
		return l.now
	}
	for _, step := range []struct {
		name        string
		stall       stall
		clock, want coord.Time
	}{
		{"no stall", stall{}, 10 * second, 10 * second},
		{"a stall is noticed", stall{12 * second, 15 * second}, 15 * second, 12 * second},
		{"it goes on", stall{12 * second, 17 * second}, 17 * second, 12 * second},
		{"it is over, callers catch up", stall{12 * second, 17 * second}, 17*second + second/2, 12 * second},
		{"time goes on", stall{12 * second, 17 * second}, 18 * second, 12*second + second/2},
		{"and on", stall{12 * second, 17 * second}, 20 * second, 14*second + second/2},
		{"a second stall", stall{21 * second, 30 * second}, 30 * second, 15*second + second/2},
		{"an old stall changes nothing", stall{12 * second, 17 * second}, 32 * second, 17*second + second/2},
	} {
		if step.stall.to > 0 {
			l.stall(step.stall)
		}
		if got := at(step.clock); got != step.want {
			t.Errorf("%s: at %v the machine's time is %v; want %v", step.name, time.Duration(step.clock), time.Duration(got), time.Duration(step.want))
		}
		if got := l.at(step.clock); got != step.want {
			t.Errorf("%s: at(%v) = %v; want %v", step.name, time.Duration(step.clock), time.Duration(got), time.Duration(step.want))
		}
	}
	if got, before := l.at(40*second), l.now; got != 25*second+second/2 || l.now != before {
		t.Errorf("at(40 s) = %v; want 25.5 s, and nothing passed", time.Duration(got))
	}
}

// People are told of waits in the time of the machine, and of barriers that have ended in that of the clock, at which their tasks came.
func TestTimesAfterAStall(t *testing.T) {
	clause.Cite(t, "C-TIME-1", "D-EV-4")
	jobs := []coord.Job{{Name: "worker", Tasks: 2}}
	cfg := coord.Config{Jobs: jobs, Service: 1}
	o := &owner{machine: coord.New(cfg), wave: new(wave), accountant: newAccountant(nil, clock{}), detector: detect.New[*stream.Session](detect.Config{})}
	o.collect(o.machine.Present())
	o.time = timeline{now: 50 * second, behind: 30 * second}
	o.now = 90 * second
	answer := make(chan coord.View, 1)
	viewWanted{answer}.do(o)
	if v := <-answer; v.Now != 60*second {
		t.Errorf("View() at 90 s on the clock, of which 30 s were a stall: %v; want 60 s", time.Duration(v.Now))
	}
	for i := range 2 {
		o.accountant.called(coord.Barrier{Call: coord.Call{Task: serry.TaskID{Job: "worker", Index: i}}, ID: "save", Counter: 0}, coord.Time(70+10*i)*second)
	}
	o.note(coord.Note{What: "barrier ended", Barrier: "save", Since: 40 * second})
	if b := o.accountant.log.mu.all; len(b) != 1 || b[0].took != 10*time.Second {
		t.Errorf("the log of barriers has %+v; want one that took 10 s", b)
	}
}

// A server that did not run when a deadline came, because its machine was suspended, fires it only when
// arrivals that lie unread in its sockets have had time to be read.
func TestFrozenServerWaitsForArrivals(t *testing.T) {
	clause.Cite(t, "C-TIME-1", "C-BAR-15", "C-LOST-6")
	o := &owner{time: timeline{now: 10 * second}, due: 12 * second}
	for _, step := range []struct {
		name  string
		clock coord.Time
		held  bool
		want  coord.Time // of the machine
	}{
		{"in time", 12 * second, false, 12 * second},
		{"half a second late", 12*second + second/2, false, 12*second + second/2},
		{"frozen for a minute", 72 * second, true, 12*second + second/2},
	} {
		o.now = step.clock
		held := o.holdTime()
		if o.time.pass(o.now); held != step.held || o.time.now != step.want {
			t.Errorf("%s: the machine's time is %v, held: %v; want %v, %v", step.name, time.Duration(o.time.now), held, time.Duration(step.want), step.held)
		}
	}
	o.due = never // it has looked
	o.now = 73 * second
	if held := o.holdTime(); held {
		t.Error("a second after the thaw the time is still held")
	}
}
