package launch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/wire"
)

const (
	recordsAsked  = 16 // records of each rank: the last operations tell which one it hangs in
	rowsBefore    = 2  // operations that are shown before the one that ranks wait in
	callsInRow    = 4  // groups of ranks of one operation
	cliquesJudged = 64 // that ranks wait in; the oldest tell what is the matter
)

// collectiveWaits is what the first launcher knows of collective operations that wait, in one attempt.
type collectiveWaits struct {
	question
	known  []diagnose.CollectiveEvidence
	silent map[int]bool // ranks of which nothing was known in the last answer
}

// readFlights reads answers, but for those that cannot be read: any process can send what it likes.
func readFlights(g wire.Gathered) []*collective.Flight {
	var told []collective.Testimony
	for _, p := range g.Parts {
		told = append(told, collective.Testimony{Body: p.Body, Asked: p.Asked, Answered: p.Answered})
	}
	flights, _ := collective.MergeTestimonies(told)
	return flights
}

// collectivesTold takes note of what processes say. Cliques in which ranks have begun different operations fail, and are soon told of no
// more; they are kept while their ranks stand still.
func (j *Job) collectivesTold(ev heard) {
	w := &j.hangs.collectives
	doubts := ev.err != nil
	if ev.err == nil {
		before := w.known
		w.known, doubts = j.collectiveEvidence(ev)
		for _, c := range before {
			if len(c.Calls) > 1 && j.stillCalled(c) && !slices.ContainsFunc(w.known, func(o diagnose.CollectiveEvidence) bool { return o.Clique == c.Clique }) {
				w.known = append(w.known, c)
			}
		}
	}
	w.question.answered(len(w.known) > 0, doubts)
}

// collectiveEvidence is what an answer means. A wait that was told before keeps its beginning, which is known by clocks of other hosts.
//
// A process that is about to answer another question has not been asked. So one that has not answered counts only when it has not
// answered the time before, or is stopped; until then there is a doubt.
func (j *Job) collectiveEvidence(ev heard) (all []diagnose.CollectiveEvidence, doubts bool) {
	last, silent, before := lastBegun(ev.flights), make(map[int]bool), j.hangs.collectives.silent
	for _, f := range ev.flights {
		c, at, ok := j.waitIn(f, last)
		if !ok {
			continue
		}
		sure := func(rank int) bool { return before[rank] || j.hangs.ranks[rank].Class == diagnose.ClassStopped }
		for _, rank := range c.Silent {
			silent[rank] = true
			if !sure(rank) {
				doubts = true
				c.Missing = slices.DeleteFunc(c.Missing, func(m int) bool { return m == rank })
			}
		}
		c.Silent = slices.DeleteFunc(c.Silent, func(rank int) bool { return !sure(rank) })
		if len(c.Calls) < 2 && len(c.Missing) == 0 {
			continue
		}
		c.Since = ev.at.Sub(j.begun) - max(0, f.At.Sub(at))
		for _, b := range j.hangs.collectives.known {
			if b.Clique == c.Clique && b.Seq == c.Seq && (b.Since-c.Since).Abs() < sameWait {
				c.Since = b.Since
			}
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b diagnose.CollectiveEvidence) int {
		return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.Clique, b.Clique))
	})
	j.hangs.collectives.silent = silent
	return all[:min(len(all), cliquesJudged)], doubts
}

// lastBegun is when each task has begun its last operation.
func lastBegun(flights []*collective.Flight) map[string]time.Time {
	last := make(map[string]time.Time)
	for _, f := range flights {
		for _, t := range f.Tracks {
			for _, r := range t.Records {
				if r.Began.After(last[t.Task]) {
					last[t.Task] = r.Began
				}
			}
		}
	}
	return last
}

// waitIn is the operation of a clique that ranks of this job wait in, and since when; false: they wait in none.
func (j *Job) waitIn(f *collective.Flight, last map[string]time.Time) (c diagnose.CollectiveEvidence, since time.Time, ok bool) {
	c.Clique = cut(f.Clique)
	d := f.Divergence()
	switch {
	case d != nil && len(d.Ops) > 1:
		return j.different(f, d, last, c)
	case f.Err != "":
		return c, since, false // its members have been told
	case d != nil:
		c.Seq = d.Seq
	default: // all that have answered are in the same operation, and there may be others
		c.Seq = lastOf(f)
	}
	missing, silent, waiters := make(map[int]bool), make(map[int]bool), make(map[int]bool)
	var began []time.Time
	for i := range f.Tracks {
		t := &f.Tracks[i]
		rank, ours := j.rankOf(t)
		r := unended(t, c.Seq)
		switch {
		case !ours, t.Silent != "" && t.Records != nil: // it records nothing
		case t.Silent != "":
			missing[rank], silent[rank] = true, true
		case r != nil:
			waiters[rank], began = true, append(began, r.Began)
			c.Op = cmp.Or(c.Op, cut(r.Op))
		case d != nil && slices.Contains(d.Missing, t.Rank):
			missing[rank] = true
		}
	}
	c.Waiters, c.Missing, c.Silent = sortedKeys(waiters), sortedKeys(missing), sortedKeys(silent)
	if len(c.Waiters) == 0 || len(c.Missing) == 0 {
		return c, since, false
	}
	slices.SortFunc(began, time.Time.Compare)
	c.Rows = j.rows(f, c.Seq)
	return c, began[len(began)/2], true
}

// different is what ranks have begun under one number. It is over for ranks that have begun another operation since.
func (j *Job) different(f *collective.Flight, d *collective.Divergence, last map[string]time.Time, c diagnose.CollectiveEvidence) (diagnose.CollectiveEvidence, time.Time, bool) {
	c.Seq = d.Seq
	var since time.Time
	for _, v := range d.Ops {
		var ranks []int
		for _, member := range v.Ranks {
			t := &f.Tracks[member]
			r, began := recordOf(t, d.Seq), time.Time{}
			if r != nil {
				began = r.Began
			}
			rank, ours := j.rankOf(t)
			if !ours || last[t.Task].After(began) {
				return c, since, false
			}
			ranks = append(ranks, rank)
			if began.After(since) {
				since = began
			}
		}
		slices.Sort(ranks)
		c.Calls = append(c.Calls, diagnose.CollectiveCall{Op: cut(v.Op), Ranks: slices.Compact(ranks)})
	}
	c.Rows = j.rows(f, c.Seq)
	return c, since, true
}

// rankOf is the rank of this job that a member of a clique is, as far as it is known: in the answers of large cliques those are not named
// that have not answered.
func (j *Job) rankOf(t *collective.Track) (rank int, ours bool) {
	id, err := serry.ParseTaskID(t.Task)
	return id.Index, err == nil && j.ours(id)
}

// lastOf is the number of the last operation of the whole clique that a rank has begun.
func lastOf(f *collective.Flight) (seq uint64) {
	for _, t := range f.Tracks {
		for _, r := range t.Records {
			if r.All {
				seq = max(seq, r.Seq)
			}
		}
	}
	return seq
}

// unended is the first operation of all ranks from a number on that has not ended on a rank, or nil.
func unended(t *collective.Track, from uint64) *collective.Record {
	for i := range t.Records {
		if r := &t.Records[i]; r.All && r.Seq >= from && r.Ended.IsZero() {
			return r
		}
	}
	return nil
}

// recordOf is what a rank has begun under a number, or nil.
func recordOf(t *collective.Track, seq uint64) *collective.Record {
	i := slices.IndexFunc(t.Records, func(r collective.Record) bool { return r.All && r.Seq == seq })
	if i < 0 {
		return nil
	}
	return &t.Records[i]
}

// rows say what ranks did in the operations up to a number: operation 41: ranks 0-2 allreduce of 4 f32 by sum, running.
func (j *Job) rows(f *collective.Flight, last uint64) (rows []string) {
	for i := range uint64(rowsBefore + 1) {
		seq := last - rowsBefore + i
		if seq > last {
			continue // the last one is among the first ones
		}
		did := make(map[string][]int)
		for i := range f.Tracks {
			t := &f.Tracks[i]
			if r, rank, ours := recordOf(t, seq), 0, false; r != nil {
				if rank, ours = j.rankOf(t); ours {
					what := clipped(r.Op) + ", " + r.Outcome
					did[what] = append(did[what], rank)
				}
			}
		}
		first := func(what string) int { return slices.Min(did[what]) }
		var calls []string
		for _, what := range slices.SortedFunc(maps.Keys(did), func(a, b string) int { return cmp.Compare(first(a), first(b)) }) {
			calls = append(calls, diagnose.Ranks(slices.Compact(slices.Sorted(slices.Values(did[what]))))+" "+what)
		}
		if len(calls) > 0 {
			rows = append(rows, fmt.Sprintf("operation %d: %s", seq, strings.Join(calls[:min(len(calls), callsInRow)], "; ")))
		}
	}
	return rows
}

// stillInCollectives are the operations that ranks waited in when processes were asked last, but for ranks that have gone on since.
func (j *Job) stillInCollectives() (all []diagnose.CollectiveEvidence) {
	for _, c := range j.hangs.collectives.known {
		c.Waiters = slices.DeleteFunc(slices.Clone(c.Waiters), func(rank int) bool { return !j.stillAt(rank, &j.hangs.collectives.question) })
		if len(c.Waiters) > 0 || len(c.Calls) > 1 && j.stillCalled(c) {
			all = append(all, c)
		}
	}
	return all
}

// stillCalled says whether all ranks that have begun different operations have stood still since processes were asked.
func (j *Job) stillCalled(c diagnose.CollectiveEvidence) bool {
	for _, call := range c.Calls {
		for _, rank := range call.Ranks {
			if !j.stillAt(rank, &j.hangs.collectives.question) {
				return false
			}
		}
	}
	return true
}
