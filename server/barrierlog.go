package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/goodput"
	"github.com/serry-dev/serry/wire"
)

// A barrierLog keeps when tasks came to the last barriers, for the page and the commands that show it (D-WEB-2). The owner adds
// barriers and inquiries read them, so a lock guards it. It is not in the journal: it begins anew with each server that leads, and
// with each epoch. What takes a pass over all tasks is computed when the log is read, because the tasks of a barrier wait while one
// is added.
type barrierLog struct {
	mu struct {
		sync.Mutex
		epoch    *epoch
		all      []loggedBarrier // the oldest first
		arrivals int             // of all of them
		number   uint64          // of the newest
	}
}

// A loggedBarrier is a barrier that has ended. Nothing changes it.
type loggedBarrier struct {
	number uint64
	note   wire.NoteStatus
	at     []time.Duration // by number of the task; negative: it has not come. Nil: arrivals were not seen
	began  time.Time       // on the wall
	took   time.Duration
}

// Bounds of a log: 8 bytes an arrival are kept, so it takes 2 MiB at most, and at 10,000 tasks it has 26 barriers.
const (
	maxLogged         = 64
	maxLoggedArrivals = 1 << 18
)

// opened forgets the barriers of the former epoch.
func (l *barrierLog) opened(e *epoch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.epoch, l.mu.all, l.mu.arrivals = e, nil, 0
}

// add takes a barrier that has ended at now. at is when its tasks came, or nil; it is not changed any more. The newest barrier
// stays even if it has more arrivals than the log may hold: then it is the only one.
func (l *barrierLog) add(n coord.Note, at []time.Duration, now coord.Time, wall func(coord.Time) time.Time) {
	began := n.Since
	if first, _ := ends(at); first >= 0 {
		began = coord.Time(at[first])
	}
	b := loggedBarrier{note: wire.NewNote(0, now, n), at: at, began: wall(began).UTC(), took: time.Duration(max(0, now-began))}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.number++
	b.number = l.mu.number
	l.mu.all = append(l.mu.all, b)
	l.mu.arrivals += len(at)
	for len(l.mu.all) > maxLogged || l.mu.arrivals > maxLoggedArrivals && len(l.mu.all) > 1 {
		l.mu.arrivals -= len(l.mu.all[0].at)
		l.mu.all = slices.Delete(l.mu.all, 0, 1)
	}
}

// ends are the numbers of the tasks that came first and last; -1: none came.
func ends(at []time.Duration) (first, last int) {
	first, last = -1, -1
	for i, t := range at {
		if t >= 0 && (first < 0 || t < at[first]) {
			first = i
		}
		if t >= 0 && (last < 0 || t > at[last]) {
			last = i
		}
	}
	return first, last
}

// answer is the body of the answer to a question about barriers. The lock is held for a copy of the list alone, because the
// owner waits for it in add. The rest needs no lock: entries and the order of the tasks in an epoch never change. List and
// epoch are read under the same hold of it, so numbers of tasks in the list mean tasks of that epoch.
func (l *barrierLog) answer(argument string) ([]byte, error) {
	wanted := uint64(0)
	if argument != "" {
		var err error
		if wanted, err = strconv.ParseUint(argument, 10, 64); err != nil || wanted == 0 {
			return nil, fmt.Errorf("barrier %.20q: want its number", argument)
		}
	}
	l.mu.Lock()
	e, all := l.mu.epoch, slices.Clone(l.mu.all)
	l.mu.Unlock()
	doc := wire.BarrierLog{Version: wire.BarrierLogVersion, Jobs: e.jobList(), Barriers: []wire.BarrierRecord{}}
	for _, b := range slices.Backward(all) {
		switch wanted {
		case 0:
			doc.Barriers = append(doc.Barriers, b.record(e))
		case b.number:
			r := b.record(e)
			r.Arrivals = offsets(b.at)
			doc.Barriers = append(doc.Barriers, r)
		}
	}
	return json.Marshal(doc)
}

// jobList are the jobs of an epoch, in the order in which their tasks have numbers; an epoch that is nil has none.
func (e *epoch) jobList() []wire.JobStatus {
	all := []wire.JobStatus{}
	if e == nil {
		return all
	}
	for i := range e.tasks {
		job := e.tasks[i].task.Job
		if last := len(all) - 1; last >= 0 && all[last].Name == job {
			all[last].Tasks++
		} else {
			all = append(all, wire.JobStatus{Name: job, Tasks: 1})
		}
	}
	return all
}

// record is what people are told of a barrier, without its arrivals.
func (b *loggedBarrier) record(e *epoch) wire.BarrierRecord {
	n := b.note
	r := wire.BarrierRecord{
		Number: b.number, ID: n.Barrier, Counter: n.Counter, Began: b.began, Arrived: n.Count, Members: n.Of,
		Seconds: b.took.Seconds(), Missing: n.Missing, Error: n.Error,
	}
	if r.Missing == nil {
		r.Missing = []string{}
	}
	if first, last := ends(b.at); first >= 0 && last < len(e.tasks) {
		r.First, r.Last, r.Lag = e.tasks[first].task.String(), e.tasks[last].task.String(), goodput.Lag(b.at).Seconds()
	}
	return r
}

// offsets are seconds after the first arrival, to the microsecond. A task that has not come has -1. If none has come, first is
// not used.
func offsets(at []time.Duration) []float64 {
	first, _ := ends(at)
	all := make([]float64, len(at))
	for i, t := range at {
		if all[i] = -1; t >= 0 {
			all[i] = (t - at[first]).Round(time.Microsecond).Seconds()
		}
	}
	return all
}
