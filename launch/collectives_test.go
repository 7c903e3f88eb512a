package launch

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// What members of a clique have recorded says which ranks of the job wait for which, since when.
func TestCollectiveEvidence(t *testing.T) {
	clause.Cite(t, "D-EV-3", "D-HG-1", "TD-EV-4")
	now := time.Now()
	done := func(seq uint64) collective.Record {
		return collective.Record{Seq: seq, All: true, Op: "allreduce", Began: now.Add(-time.Minute), Ended: now.Add(-time.Minute), Outcome: "done"}
	}
	runs := func(seq uint64, ago time.Duration) collective.Record {
		return collective.Record{Seq: seq, All: true, Op: "allreduce", Began: now.Add(-ago), Outcome: "running"}
	}
	track := func(rank int, records ...collective.Record) collective.Track {
		return collective.Track{Rank: rank, Task: worker(rank).String(), Records: append([]collective.Record{}, records...)}
	}
	silent := func(rank int) collective.Track {
		return collective.Track{Rank: rank, Task: worker(rank).String(), Silent: "did not answer"}
	}
	mute := track(1)
	mute.Silent = "it records nothing"
	stranger := track(1)
	stranger.Task = "other/1"
	for _, c := range []struct {
		name    string
		tracks  []collective.Track
		err     string
		before  []int // ranks that were silent in the answer before
		stopped int   // this rank is stopped
		doubts  bool
		want    []diagnose.CollectiveEvidence
	}{
		{name: "all in one operation", tracks: []collective.Track{track(0, runs(7, 9*time.Second)), track(1, runs(7, 8*time.Second))}},
		{name: "a rank that has not begun it", tracks: []collective.Track{track(0, done(6), runs(7, 9*time.Second)), track(1, done(6)), track(2, done(6), runs(7, 8*time.Second))},
			want: []diagnose.CollectiveEvidence{{Seq: 7, Op: "allreduce", Since: 52 * time.Second, Waiters: []int{0, 2}, Missing: []int{1},
				Rows: []string{"operation 6: ranks 0-2 allreduce, done", "operation 7: ranks 0,2 allreduce, running"}}}},
		{name: "a rank far behind", tracks: []collective.Track{track(0, runs(40, 9*time.Second)), track(1, done(6))},
			want: []diagnose.CollectiveEvidence{{Seq: 7, Op: "allreduce", Since: 51 * time.Second, Waiters: []int{0}, Missing: []int{1}}}},
		{name: "one silent for the first time", tracks: []collective.Track{track(0, runs(7, 9*time.Second)), silent(1)}, doubts: true},
		{name: "one silent again", tracks: []collective.Track{track(0, runs(7, 9*time.Second)), silent(1)}, before: []int{1},
			want: []diagnose.CollectiveEvidence{{Seq: 7, Op: "allreduce", Since: 51 * time.Second, Waiters: []int{0}, Missing: []int{1}, Silent: []int{1}, Rows: []string{"operation 7: rank 0 allreduce, running"}}}},
		{name: "one stopped", tracks: []collective.Track{track(0, runs(7, 9*time.Second)), silent(1)}, stopped: 1,
			want: []diagnose.CollectiveEvidence{{Seq: 7, Op: "allreduce", Since: 51 * time.Second, Waiters: []int{0}, Missing: []int{1}, Silent: []int{1}, Rows: []string{"operation 7: rank 0 allreduce, running"}}}},
		{name: "one that records nothing", tracks: []collective.Track{track(0, runs(7, 9*time.Second)), mute}, before: []int{1}},
		{name: "one of another job", tracks: []collective.Track{track(0, done(6), runs(7, 9*time.Second)), stranger}, before: []int{1}},
		{name: "a clique that has failed", tracks: []collective.Track{track(0, done(6), runs(7, 9*time.Second)), track(1, done(6))}, err: "a member was lost"},
		{name: "a number that cannot be", tracks: []collective.Track{track(0, runs(math.MaxUint64, 9*time.Second)), track(1, done(6))},
			want: []diagnose.CollectiveEvidence{{Seq: 7, Op: "allreduce", Since: 51 * time.Second, Waiters: []int{0}, Missing: []int{1}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := &Job{plan: newPlan(3, 0, RestartNever, false), begun: now.Add(-time.Minute)}
			j.hangs.ranks = map[int]diagnose.RankEvidence{}
			j.hangs.collectives.silent = map[int]bool{}
			for _, rank := range c.before {
				j.hangs.collectives.silent[rank] = true
			}
			if c.stopped > 0 {
				j.hangs.keep(diagnose.RankEvidence{Rank: c.stopped, Condition: diagnose.Condition{Class: diagnose.ClassStopped}})
			}
			f := &collective.Flight{Clique: "pair", At: now, Err: c.err, Tracks: c.tracks}
			got, doubts := j.collectiveEvidence(heard{at: now, flights: []*collective.Flight{f}})
			for i := range got {
				if got[i].Clique != "pair" {
					t.Errorf("collectiveEvidence() = clique %q; want pair", got[i].Clique)
				}
				got[i].Clique = ""
				if c.name == "a rank far behind" || c.name == "a number that cannot be" {
					got[i].Rows = nil
				}
				if len(got[i].Silent) == 0 {
					got[i].Silent = nil
				}
			}
			if d := cmp.Diff(c.want, got); d != "" || doubts != c.doubts {
				t.Errorf("collectiveEvidence() doubts %v: %s", doubts, d)
			}
			for _, last := range []uint64{0, 1, 2, math.MaxUint64} {
				if rows := j.rows(f, last); len(rows) > rowsBefore+1 {
					t.Errorf("rows(%d) = %q; want %d at most", last, rows, rowsBefore+1)
				}
			}
		})
	}
}
