package server

import (
	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

// This file is the way between the machine and the detector: verdicts in, changes of state back.

// judge steps the machine with what the detector has concluded. A verdict changes states, which the
// detector hears of by [owner.changed], and from which it may conclude more: a task that was lost may have
// departed by that. So this goes on until the detector has nothing to say. It ends, because each verdict
// takes a life further: from connected to failed, and from there to departed.
//
// It is called after each item, after each batch, when graces may have ended, and by calls and commands whose
// outcome depends on the verdicts.
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
	o.dropLinkKeys()
}

// showDeparted publishes which lives are over for good, so that the scanner does not find them silent again and
// again. Lives that depart while they are connected are not over: their silence still means something.
func (o *owner) showDeparted(ev coord.Departed) {
	for _, d := range ev.Tasks {
		if t := o.detector.Task(d.Task); t != nil && t.Departed && t.Incarnation == d.Incarnation {
			o.publish(d.Task)
		}
	}
}

// changed takes over what the machine says of a task. The time of a life begins when it connects (C-ST-2).
//
// Hosts are told of the new standing. If the task has another life now, the hosts of the former one are told,
// too, that it is over, and then forgotten: a life that was replaced changes no more. The detector is told
// before the others, because publish and informHosts read the state of the task from it.
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
	o.accountant.changed(s.number, c.State, o.now)
	o.lifeOver(before, now, c.State)
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

// publish puts on the wave what handlers may know of a task from the commit on.
func (o *owner) publish(task serry.TaskID) {
	o.wave.shown = append(o.wave.shown, showing{o.epoch.task(task), *o.detector.Task(task)})
}
