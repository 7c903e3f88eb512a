package server

import (
	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

// judge steps the machine with what the detector has concluded. A verdict changes states, which the
// detector hears of by [owner.changed], and from which it may conclude more: so this goes on until it
// has nothing to say.
func (o *owner) judge() {
	for ev := o.detector.Next(); ev != nil; ev = o.detector.Next() {
		switch ev := ev.(type) {
		case coord.Lost:
			o.stats.lost(ev.Tasks)
		case coord.Departed:
			o.showDeparted(ev)
		}
		o.step(ev)
	}
}

// showDeparted publishes which lives are over for good, so that the scanner does not look at them again.
func (o *owner) showDeparted(ev coord.Departed) {
	for _, d := range ev.Tasks {
		if t := o.detector.Task(d.Task); t != nil && t.Departed && t.Incarnation == d.Incarnation {
			o.publish(d.Task)
		}
	}
}

// changed takes over what the machine says of a task. The time of a life begins when it connects
// (C-ST-2).
func (o *owner) changed(c coord.Changed) {
	s, t := o.epoch.task(c.Task), o.detector.Task(c.Task)
	if s == nil || t == nil {
		return
	}
	before, now := t.Life, serry.Life{Task: c.Task, Incarnation: c.Incarnation}
	if c.State == serry.Connected || before != now {
		s.seen.Store(int64(o.now))
	}
	o.detector.Changed(now, c.State, o.now)
	s.err = nil
	if c.Err != nil { // a nil *TaskError in an error would not be nil
		s.err = c.Err
	}
	o.publish(c.Task)
	o.informHosts(now)
	if before != now {
		o.informHosts(before)
		o.detector.Unfollow(before)
	}
}

// publish shows handlers, after the commit, what is known of a task.
func (o *owner) publish(task serry.TaskID) {
	o.wave.shown = append(o.wave.shown, showing{o.epoch.task(task), *o.detector.Task(task)})
}
