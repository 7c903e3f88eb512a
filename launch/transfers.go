package launch

import (
	"encoding/json"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/transfer"
	"github.com/serry-dev/serry/wire"
)

// transferWaits is what the first launcher knows of transfers that wait, in one attempt.
type transferWaits struct {
	question
	known []diagnose.TransferEvidence
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
func (j *Job) transfersTold(ev heard) {
	w := &j.hangs.transfers
	if ev.err == nil {
		w.known = j.transferEvidence(ev)
	}
	w.question.answered(len(w.known) > 0, ev.err != nil)
}

// transferEvidence is what an answer means. A wait that was told before keeps its beginning, which is known by messages.
func (j *Job) transferEvidence(ev heard) (all []diagnose.TransferEvidence) {
	type wait struct {
		waiter, peer int
		key          string
	}
	before := make(map[wait]time.Duration)
	for _, t := range j.hangs.transfers.known {
		before[wait{t.Waiter, t.Peer, t.Key}] = t.Since
	}
	for i := range ev.transfers {
		f := &ev.transfers[i]
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
		if j.stillAt(t.Waiter, &j.hangs.transfers.question) {
			all = append(all, t)
		}
	}
	return all
}
