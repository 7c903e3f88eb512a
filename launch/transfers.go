package launch

import (
	"context"
	"encoding/json"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/transfer"
	"github.com/serry-dev/serry/wire"
)

// Only processes know what their transfers wait for (D-EV-3, E13). The first launcher asks them when ranks have come to stand still, by
// the service and over their own streams, as serry why --transfers does.

const (
	transfersPatience = 2 * time.Second  // that processes have to answer
	transfersAfter    = 5 * time.Second  // of standing still, until a rank is asked about
	transfersAgain    = 10 * time.Second // between questions while transfers wait
	transfersRarely   = 30 * time.Second // the most between questions while none do
	sameWait          = time.Second      // by how much the beginning of a wait may differ in two answers
)

// transferWaits is what the first launcher knows of transfers that wait, in one attempt.
type transferWaits struct {
	asking bool
	asked  time.Duration // since the job began, when it asked last; 0: it has not
	pause  time.Duration // until it may ask again
	known  []diagnose.TransferEvidence
}

// A transfersTold event is the answer of the processes of an attempt.
type transfersTold struct {
	attempt  int
	at       time.Time
	found    []transfer.Finding
	answered map[serry.TaskID]bool
	err      error
}

// askTransfers asks the processes of the job what their transfers wait for, if ranks have come to stand still since they were asked last,
// or transfers waited then. A job in which nothing changes is asked once.
func (j *Job) askTransfers(now time.Duration) {
	w := &j.hangs.transfers
	if w.asking || j.cfg.NoStacks || w.asked > 0 && now-w.asked < w.pause || len(w.known) == 0 && !j.standsAnew(now) {
		return
	}
	w.asking, w.asked = true, now
	s, attempt := j.service, j.plan.attempt
	j.serviceWork.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), transfersPatience+fetchTimeout)
		defer cancel()
		g, err := s.gather(ctx, wire.Inquiry{Kind: wire.TransfersEvidence, Wait: transfersPatience})
		told := transfersTold{attempt: attempt, at: time.Now(), err: err}
		told.found, told.answered = readTransfers(g)
		select {
		case j.inbox <- told:
		case <-j.over:
		}
	})
}

// standsAnew says whether a rank stands still that did not when processes were asked last.
func (j *Job) standsAnew(now time.Duration) bool {
	for task, r := range j.hangs.ranks {
		still := r.Class == diagnose.ClassStatic || r.Class == diagnose.ClassWaiting
		if j.plan.tasks[task].phase == running && still && now-r.Since >= transfersAfter && (j.hangs.transfers.asked == 0 || r.Since+transfersAfter > j.hangs.transfers.asked) {
			return true
		}
	}
	return false
}

// readTransfers reads answers, but for those that cannot be read: any process can send what it likes.
func readTransfers(g wire.Gathered) (found []transfer.Finding, answered map[serry.TaskID]bool) {
	var reports []transfer.Report
	answered = make(map[serry.TaskID]bool)
	for _, p := range g.Parts {
		var r transfer.Report
		if json.Unmarshal(p.Body, &r) == nil {
			reports = append(reports, r)
			answered[r.Life.Task] = true
		}
	}
	return transfer.Join(reports), answered
}

// transfersTold takes note of what processes say.
func (j *Job) transfersTold(ev transfersTold) {
	if ev.attempt != j.plan.attempt {
		return
	}
	w := &j.hangs.transfers
	w.asking = false
	if ev.err == nil {
		w.known = j.transferEvidence(ev)
	}
	switch {
	case len(w.known) > 0:
		w.pause = transfersAgain
	default:
		w.pause = min(max(2*w.pause, transfersAfter), transfersRarely)
	}
}

// transferEvidence is what an answer means. A wait that was told before keeps its beginning, which is known by messages.
func (j *Job) transferEvidence(ev transfersTold) (all []diagnose.TransferEvidence) {
	type wait struct {
		waiter, peer int
		key          string
	}
	before := make(map[wait]time.Duration)
	for _, t := range j.hangs.transfers.known {
		before[wait{t.Waiter, t.Peer, t.Key}] = t.Since
	}
	for i := range ev.found {
		f := &ev.found[i]
		waiter, half := f.From.Task, f.Send
		if f.Blame == waiter {
			waiter, half = f.To.Task, f.Receive
		}
		if half == nil || waiter == f.Blame || !j.ours(waiter) || !j.ours(f.Blame) {
			continue // the process that does its part has no other one to wait for it yet
		}
		silent := !ev.answered[f.Blame]
		e := diagnose.TransferEvidence{
			Waiter: waiter.Index, Peer: f.Blame.Index, Key: f.Key.String(), Why: cut(f.Why), Since: ev.at.Sub(j.begun) - max(0, f.Long),
			Done: half.Done, Bytes: half.Bytes, Silent: silent, Open: !silent && (f.Send == nil || f.Receive == nil),
		}
		if since, told := before[wait{e.Waiter, e.Peer, e.Key}]; told && (since-e.Since).Abs() < sameWait {
			e.Since = since
		}
		all = append(all, e)
	}
	return all
}

// stillWaiting are the transfers that waited when processes were asked last, but for those of ranks that have gone on since.
func (j *Job) stillWaiting() (all []diagnose.TransferEvidence) {
	for _, t := range j.hangs.transfers.known {
		if r, known := j.hangs.ranks[t.Waiter]; known && r.Since <= j.hangs.transfers.asked {
			all = append(all, t)
		}
	}
	return all
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
