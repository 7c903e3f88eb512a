package server

import (
	"testing"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
)

// These tests are inside the package because they need a clock that jumps, which nothing else can
// make: in a bubble every timer fires in time.

const second = coord.Time(time.Second)

// connectedSilence is a detector with a timeout of ten seconds over two connected tasks that beat
// last at time zero.
func connectedSilence() (*silence, *epoch) {
	cfg := Config{HeartbeatSlack: -1}
	cfg.Cluster = coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: 2}}, HeartbeatTimeout: 10 * time.Second}
	cfg, err := cfg.withDefaults()
	if err != nil {
		panic(err)
	}
	h := &handler{limits: cfg.Limits, queue: newQueue(cfg.Limits, clock{})}
	e := newEpoch(coord.Opened{Service: 1, Jobs: cfg.Cluster.Jobs}, wire.NewCodec(cfg.Cluster.Jobs))
	for i := range e.seats {
		e.seats[i].known = standing{state: serry.Connected, incarnation: serry.Incarnation(i + 1)}
		e.seats[i].shown.Store(&e.seats[i].known)
	}
	return newSilence(cfg, clock{}, h), e
}

// found is who a scan at now told the owner of.
func found(s *silence, e *epoch, now, due coord.Time) []serry.TaskID {
	s.scan(now, due, e)
	items, _ := s.queue.drain(nil)
	var tasks []serry.TaskID
	for _, it := range items {
		for _, t := range it.word.(silences).seats {
			tasks = append(tasks, t.task)
		}
	}
	return tasks
}

func TestStalledServerCallsNobodySilent(t *testing.T) {
	t.Attr("clause", "C-LOST-6 NEW-37")
	s, e := connectedSilence()
	for now := second; now <= 5*second; now += second {
		if got := found(s, e, now, now); got != nil {
			t.Fatalf("scan at %v = %v; want nobody", time.Duration(now), got)
		}
	}
	// The process stands still for three timeouts. Beats lie unread in its sockets.
	if got := found(s, e, 35*second, 6*second); got != nil {
		t.Fatalf("scan after a stall = %v; want nobody", got)
	}
	e.seats[0].seen.Store(int64(36 * second))
	for now := 36 * second; now <= 45*second; now += second {
		if got := found(s, e, now, now); got != nil {
			t.Fatalf("scan at %v = %v; want nobody, the budget is fresh", time.Duration(now), got)
		}
	}
	if got := found(s, e, 46*second, 46*second); len(got) != 1 || got[0].Index != 1 {
		t.Errorf("scan a timeout after the stall = %v; want worker/1, which has not beaten since", got)
	}
}

func TestScanThatIsALittleLateStillJudges(t *testing.T) {
	t.Attr("clause", "C-LOST-6 C-HB-6")
	s, e := connectedSilence()
	if got := found(s, e, 10*second, 10*second); got != nil {
		t.Errorf("scan at the timeout = %v; want nobody: silence must be longer", got)
	}
	if got := found(s, e, 10*second+second/2, 10*second); len(got) != 2 {
		t.Errorf("scan half a second late = %v; want both tasks", got)
	}
	if got := found(s, e, 10*second+second/2000, 10*second); got != nil {
		t.Errorf("scan half a millisecond after the timeout = %v; want nobody: whole milliseconds count", got)
	}
}

func TestStalledServerTakesNoClosedConnectionForDeath(t *testing.T) {
	t.Attr("clause", "C-LOST-6 NEW-37")
	l := life{serry.TaskID{Job: "worker", Index: 1}, 7}
	k := newLinks(100 * time.Millisecond)
	k.attach(l, false)
	k.polled(l, true)
	k.detach(l, second, evidenceClosed)
	// The grace ends while the process stands still. The client may have come back meanwhile; its
	// connection lies unaccepted.
	if got := k.due(60 * second); got != nil {
		t.Fatalf("due() after a stall = %v; want nobody", got)
	}
	if got := k.due(60*second + second/20); got != nil {
		t.Fatalf("due() within the new grace = %v; want nobody", got)
	}
	got := k.due(60*second + second/10)
	if len(got) != 1 || got[0].life != l || !got[0].lost {
		t.Errorf("due() after the new grace = %v; want %v lost", got, l)
	}
}

func TestSilenceIsLookedAtAgain(t *testing.T) {
	t.Attr("clause", "C-HB-6")
	s, e := connectedSilence()
	o := &owner{epoch: e, silence: s, now: 20 * second}
	w := silences{epoch: e, seats: []*seat{&e.seats[0], &e.seats[1]}}
	e.seats[0].seen.Store(int64(19 * second)) // between the scan and the owner's turn
	got := o.silent(w)
	if len(got) != 1 || got[0].task.Index != 1 {
		t.Errorf("silent() = %v; want worker/1 alone", got)
	}
	w.epoch = &epoch{}
	if got := o.silent(w); got != nil {
		t.Errorf("silent() of a former epoch = %v; want nobody", got)
	}
}

// The machine's time follows the clock, except while the server stands still: then it stands still, too, and
// goes on from there a little later.
func TestTimelineStandsStillInAStall(t *testing.T) {
	t.Attr("clause", "C-TIME-1 C-BAR-15")
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
	}
}

// A server that did not run when a deadline came, because its machine was suspended, fires it only when
// arrivals that lie unread in its sockets have had time to be read.
func TestFrozenServerWaitsForArrivals(t *testing.T) {
	t.Attr("clause", "C-TIME-1 C-BAR-15 C-LOST-6")
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
