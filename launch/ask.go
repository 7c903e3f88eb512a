package launch

import (
	"context"
	"strconv"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/transfer"
	"github.com/serry-dev/serry/wire"
)

// Only processes know what their transfers wait for, and which collective operations they have begun (D-EV-3, E12 and E13). The first
// launcher asks them when ranks have come to stand still, by the service and over their own streams, as serry why does.

const (
	askPatience = 2 * time.Second        // that processes have to answer
	askAfter    = 5 * time.Second        // of standing still, until a rank is asked about
	askAgain    = 10 * time.Second       // between questions while there are waits
	askRarely   = 30 * time.Second       // the most between questions while there are none
	askTimes    = 3                      // answers without a wait, until that is believed
	askApart    = 100 * time.Millisecond // for processes that have answered one question to be there for the next one
	sameWait    = time.Second            // by how much the beginning of a wait may differ in two answers
)

// A question is what the first launcher asks processes again and again, in one attempt.
type question struct {
	asked time.Duration // since the job began, when it asked last; 0: it has not
	pause time.Duration // until it may ask again
	again bool          // the last answer says nothing, or leaves a doubt
	none  int           // answers in turn without a wait, since a rank has come to stand still
}

// heard is what processes have answered to one question.
type heard struct {
	kind string
	at   time.Time
	err  error

	transfers []transfer.Finding    // of [wire.TransfersEvidence]
	answered  map[serry.TaskID]bool // of the same
	flights   []*collective.Flight  // of [wire.CollectivesEvidence]
}

// A gathered event is what the processes of an attempt have answered.
type gathered struct {
	attempt int
	heard   []heard
}

// askProcesses asks the processes of the job, if ranks have come to stand still since they were asked last, or there were waits then. A
// job in which nothing changes is asked a few times. There is one question at a time: a process that is about to answer another one is not
// asked by the service, and would seem to be silent.
func (j *Job) askProcesses(now time.Duration) {
	h := &j.hangs
	if h.asking || j.cfg.NoStacks {
		return
	}
	var all []wire.Inquiry
	if j.due(&h.transfers.question, now, len(h.transfers.known) > 0) {
		all = append(all, wire.Inquiry{Kind: wire.TransfersEvidence, Wait: askPatience})
	}
	if j.due(&h.collectives.question, now, len(h.collectives.known) > 0) {
		all = append(all, wire.Inquiry{Kind: wire.CollectivesEvidence, Wait: askPatience, Argument: strconv.Itoa(recordsAsked)})
	}
	if len(all) == 0 {
		return
	}
	h.asking = true
	s, attempt := j.service, j.plan.attempt
	j.serviceWork.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(len(all))*(askPatience+fetchTimeout))
		defer cancel()
		ev := gathered{attempt: attempt}
		for i, one := range all {
			if i > 0 {
				_ = pause.For(ctx, askApart)
			}
			g, err := s.gather(ctx, one)
			ev.heard = append(ev.heard, hear(one.Kind, g, err))
		}
		select {
		case j.inbox <- ev:
		case <-j.over:
		}
	})
}

// due says whether to ask now, and takes note of it.
func (j *Job) due(q *question, now time.Duration, waits bool) bool {
	if q.asked > 0 && now-q.asked < q.pause {
		return false
	}
	if j.standsAnew(q, now) {
		q.none = 0
	} else if !waits && !q.again {
		return false
	}
	q.asked = now
	return true
}

// hear reads an answer.
func hear(kind string, g wire.Gathered, err error) heard {
	a := heard{kind: kind, at: time.Now(), err: err}
	switch kind {
	case wire.TransfersEvidence:
		a.transfers, a.answered = readTransfers(g)
	case wire.CollectivesEvidence:
		a.flights = readFlights(g)
	}
	return a
}

// standsAnew says whether a rank stands still that did not when processes were asked last.
func (j *Job) standsAnew(q *question, now time.Duration) bool {
	for task, r := range j.hangs.ranks {
		still := r.Class == diagnose.ClassStatic || r.Class == diagnose.ClassWaiting
		if j.plan.tasks[task].phase == running && still && now-r.Since >= askAfter && (q.asked == 0 || r.Since+askAfter > q.asked) {
			return true
		}
	}
	return false
}

// answered takes note of an answer, after which there are waits or none. None may mean that processes were about to answer another
// question, and were not asked, so it is asked again before it is taken for the truth.
func (q *question) answered(waits, again bool) {
	if q.none++; waits {
		q.none = 0
	}
	if q.pause = min(max(2*q.pause, askAfter), askRarely); waits || again {
		q.pause = askAgain
	}
	q.again = again || !waits && q.none < askTimes
}

// gathered takes note of what processes say. That of a former attempt is no news.
func (j *Job) gathered(ev gathered) {
	if ev.attempt != j.plan.attempt {
		return
	}
	j.hangs.asking = false
	for _, a := range ev.heard {
		switch a.kind {
		case wire.TransfersEvidence:
			j.transfersTold(a)
		case wire.CollectivesEvidence:
			j.collectivesTold(a)
		}
	}
}

// stillAt says whether a rank has stood where it stands since processes were asked.
func (j *Job) stillAt(rank int, q *question) bool {
	r, known := j.hangs.ranks[rank]
	return known && r.Since <= q.asked
}

// gather has a service ask the processes of the job.
func gather(ctx context.Context, line client.Transport, q wire.Inquiry) (wire.Gathered, error) {
	reply, st, err := line.Call(ctx, wire.GatherMethod, q.Bytes())
	switch {
	case err != nil:
		return wire.Gathered{}, err
	case !st.OK():
		return wire.Gathered{}, wire.Serry.Error(st.Code, st.Message, st.Details)
	}
	return wire.ReadGathered(reply)
}
