package launch

import "time"

// An incident is a failure and all that follow from it. When one task of a job that restarts tasks alone
// dies, the others may lose their connections to it and end, too, each with an error of its own. Those are
// no further causes: they are started again with the first, on its budget, and it is the first that is named.
//
// What follows is found by three facts. It comes soon after another failure of the incident; it is an end
// that a program chooses, not one by a fault or a signal from outside; and its process ran when the incident
// began. A process that was started since may fail of the same incident, too, so the root stays; but it is
// charged, since a task that always fails must not be started for ever.
type incident struct {
	root  *Failure // nil: there was none yet
	began time.Time
	last  time.Time // of its failures
}

// takes says whether a failure is part of the incident, and whether its restart is free. within is how long
// a task may take to notice that another one has gone.
func (i *incident) takes(ev died, now time.Time, within time.Duration) (part, free bool) {
	if i.root == nil || now.Sub(i.last) > within || reaction(ev.Cause) == 0 || ev.host != "" {
		return false, false
	}
	return true, ev.Task != i.root.Task && now.Add(-ev.After).Before(i.began)
}

// add takes a failure into the incident, or begins another with it.
func (i *incident) add(f *Failure, part bool, now time.Time) {
	if !part {
		i.root, i.began = f, now
	}
	i.last = now
}
