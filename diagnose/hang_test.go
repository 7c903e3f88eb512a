package diagnose

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// noon is time 0 of the scripts on the wall.
var noon = time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)

// TestHangScripts runs the transcripts of testdata. A block changes the evidence, a line each, and lets time pass, in
// steps of a second; below it is what the watch says:
//
//	# D-HG-4: the comment names the clauses that the block shows.
//	job 4
//	rank 3 static 10s at=load_batch (train.py:10)
//	ranks 0-2 waiting 11s in=Gloo all-reduce
//	until 40s
//	----
//	15s stalled likely: rank 3 is stalled since ...
//
// Options of a rank follow its class and the time from which on it has it. The last line of a block may be "why", for
// all that is known then.
//
// Refresh with go test ./diagnose -rewrite, then read the diff against the specification.
func TestHangScripts(t *testing.T) {
	clause.Cite(t, "D-HG-1", "D-HG-4", "D-HG-5", "D-HG-7", "D-HG-9", "D-HG-10", "D-HG-11", "D-HG-12", "D-HG-13", "D-HG-14", "D-SC-10", "D-CLI-2", "TD-HG-1", "TD-HG-2", "TD-HG-5")
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			s := &hangScript{}
			datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
				return s.block(t, td.FullCmd()+"\n"+td.Input)
			})
		})
	}
}

type hangScript struct {
	t     *testing.T
	now   time.Duration
	e     HangEvidence
	ranks map[int]RankEvidence
	watch Watch
	last  *Hang
	out   strings.Builder
}

func (s *hangScript) block(t *testing.T, text string) string {
	t.Helper()
	s.t = t
	s.out.Reset()
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			s.line(strings.Fields(line), line)
		}
	}
	return s.out.String()
}

func (s *hangScript) line(words []string, line string) {
	switch words[0] {
	case "job":
		*s = hangScript{t: s.t, ranks: make(map[int]RankEvidence)}
		s.e.Size, _ = strconv.Atoi(words[1])
		for i := range s.e.Size {
			s.ranks[i] = RankEvidence{Rank: i, PID: 2000 + i, Host: "node-b", Condition: Condition{Class: ClassMoving}}
		}
		if len(words) > 2 {
			s.e.After = s.duration(strings.TrimPrefix(words[2], "after="))
		}
	case "passed":
		s.watch.passed = true
	case "steps":
		s.e.Step = s.duration(words[1])
	case "steady":
		s.e.Steady = s.duration(words[1])
	case "rank", "ranks":
		s.rank(words, line)
	case "barrier":
		s.barrier(words)
	case "transfer":
		s.transfer(words)
	case "collective":
		s.collective(words)
	case "until":
		s.until(s.duration(words[1]))
	case "why":
		s.why()
	default:
		s.t.Fatalf("unknown line %q", line)
	}
}

func (s *hangScript) duration(text string) time.Duration {
	s.t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// numbers reads 0-2,5.
func (s *hangScript) numbers(text string) []int {
	var all []int
	for part := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		if err != nil {
			s.t.Fatal(err)
		}
		b := a
		if ranged {
			b, _ = strconv.Atoi(to)
		}
		for i := a; i <= b; i++ {
			all = append(all, i)
		}
	}
	return all
}

func (s *hangScript) rank(words []string, line string) {
	for _, n := range s.numbers(words[1]) {
		r := RankEvidence{Rank: n, PID: 2000 + n, Host: "node-b", Condition: Condition{Class: Class(words[2]), Since: s.duration(words[3])}}
		_, r.At, _ = strings.Cut(line, " at=")
		_, rest, _ := strings.Cut(line, " in=")
		r.Wait, _, _ = strings.Cut(rest, " at=")
		for _, word := range words[4:] {
			switch word {
			case "traced":
				r.Traced = true
			case "saving":
				r.Checkpoint = true
			case "raised":
				r.Raised = true
			}
			if text, ok := strings.CutPrefix(word, "phase="); ok {
				name, until, _ := strings.Cut(text, ":")
				r.Phase, r.Until = name, s.duration(until)
			}
			if text, ok := strings.CutPrefix(word, "doing="); ok {
				r.Doing = strings.ReplaceAll(text, "_", " ")
			}
			if text, ok := strings.CutPrefix(word, "rate="); ok {
				r.Rate, _ = strconv.ParseUint(text, 10, 64)
			}
			if text, ok := strings.CutPrefix(word, "memory="); ok {
				r.Pressure.Memory, _ = strconv.Atoi(text)
			}
			if word == "group" {
				r.Pressure.Group = true
			}
		}
		s.ranks[n] = r
	}
}

// transfer reads "transfer KEY WAITER PEER since DONE/BYTES [open] [silent]", or "transfer KEY ends".
func (s *hangScript) transfer(words []string) {
	if words[2] == "ends" {
		s.e.Transfers = slices.DeleteFunc(s.e.Transfers, func(t TransferEvidence) bool { return t.Key == words[1] })
		return
	}
	t := TransferEvidence{Key: words[1], Waiter: s.numbers(words[2])[0], Peer: s.numbers(words[3])[0], Since: s.duration(words[4]), Why: "its data"}
	if _, err := fmt.Sscanf(words[5], "%d/%d", &t.Done, &t.Bytes); err != nil {
		s.t.Fatal(err)
	}
	for _, word := range words[6:] {
		switch word {
		case "open":
			t.Open, t.Why = true, "it has not posted the receive"
		case "silent":
			t.Silent, t.Why = true, "a receive; it has not told what it waits for"
		}
	}
	s.e.Transfers = append(s.e.Transfers, t)
}

// collective reads "collective CLIQUE SEQ since waiters=0-2 missing=3 [silent=3]", or with "calls=0-2:sum/3:max", or "collective CLIQUE ends".
func (s *hangScript) collective(words []string) {
	s.e.Collectives = slices.DeleteFunc(s.e.Collectives, func(c CollectiveEvidence) bool { return c.Clique == words[1] })
	if words[2] == "ends" {
		return
	}
	c := CollectiveEvidence{Clique: words[1], Op: "allreduce of 4 f32 by sum", Since: s.duration(words[3]), Rows: []string{"operation 40: all of them"}}
	c.Seq, _ = strconv.ParseUint(words[2], 10, 64)
	for _, word := range words[4:] {
		switch name, value, _ := strings.Cut(word, "="); name {
		case "waiters":
			c.Waiters = s.numbers(value)
		case "missing":
			c.Missing = s.numbers(value)
		case "silent":
			c.Silent = s.numbers(value)
		case "calls":
			for call := range strings.SplitSeq(value, "/") {
				ranks, by, _ := strings.Cut(call, ":")
				c.Calls = append(c.Calls, CollectiveCall{"allreduce of 4 f32 by " + by, s.numbers(ranks)})
			}
		}
	}
	s.e.Collectives = append(s.e.Collectives, c)
}

// barrier reads "barrier ID since missing=0-2 [usual=1s]", or "barrier ID passes".
func (s *hangScript) barrier(words []string) {
	id := words[1]
	switch id {
	case "start":
		id = coord.RegisterBarrierID
	case "end":
		id = coord.ShutdownBarrierID(1)
	}
	s.e.Barriers = slices.DeleteFunc(s.e.Barriers, func(b BarrierEvidence) bool { return b.ID == id })
	if words[2] == "passes" {
		return
	}
	b := BarrierEvidence{ID: id, Since: s.duration(words[2]), Members: s.e.Size}
	for _, word := range words[3:] {
		if text, ok := strings.CutPrefix(word, "missing="); ok {
			b.Missing = s.numbers(text)
		}
		if text, ok := strings.CutPrefix(word, "usual="); ok {
			b.Usual = s.duration(text)
		}
		if text, ok := strings.CutPrefix(word, "members="); ok {
			b.Members, _ = strconv.Atoi(text)
		}
	}
	b.Arrived = b.Members - len(b.Missing)
	s.e.Barriers = append(s.e.Barriers, b)
}

func (s *hangScript) evidence() HangEvidence {
	e := s.e
	e.Ranks = nil
	for _, r := range s.ranks { // the order of a map: it must not matter
		e.Ranks = append(e.Ranks, r)
	}
	return e
}

func (s *hangScript) until(end time.Duration) {
	for ; s.now <= end; s.now += time.Second {
		h, notes := s.watch.Step(s.now, s.evidence())
		s.last = h
		for _, n := range notes {
			stage := string(n.Hang.Stage)
			if n.Ended {
				stage = "over"
			}
			fmt.Fprintf(&s.out, "%v %s %s: %s\n", s.now, stage, n.Hang.Grade, n.Text(s.now, noon))
		}
	}
}

func (s *hangScript) why() {
	if s.last == nil {
		fmt.Fprintln(&s.out, "nothing")
		return
	}
	fmt.Fprintln(&s.out, s.last.Text(s.now-time.Second, noon))
	for _, l := range s.last.Lines(noon) {
		fmt.Fprintf(&s.out, "  %-8s %s\n", l.Word, l.Text)
	}
}

// Whatever the evidence, its order does not matter, and a rank that is known to wait at a barrier for a rank that
// runs and does not wait is never the one to blame.
func TestHangOfAnyEvidence(t *testing.T) {
	clause.Cite(t, "D-HG-1", "D-EV-1", "TD-HG-1", "TD-EV-1")
	classes := []Class{ClassUnknown, ClassGone, ClassStopped, ClassZombie, ClassLeaving, ClassWaiting, ClassStatic, ClassBlocked, ClassCompiling, ClassIO, ClassLooping, ClassMoving}
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 7))
		e := HangEvidence{Size: 1 + r.IntN(6), Passed: true}
		for i := range e.Size {
			if r.IntN(8) > 0 {
				e.Ranks = append(e.Ranks, RankEvidence{Rank: i, Condition: Condition{Class: classes[r.IntN(len(classes))], Since: time.Duration(r.IntN(300)) * time.Second, Wait: "x"}})
			}
		}
		for _, id := range []string{"a", "b", coord.ShutdownBarrierID(1)}[r.IntN(4):] {
			b := BarrierEvidence{ID: id, Members: e.Size, Since: time.Duration(r.IntN(300)) * time.Second}
			for i := range e.Size {
				if r.IntN(2) == 0 {
					b.Missing = append(b.Missing, i)
				}
			}
			b.Arrived = b.Members - len(b.Missing)
			e.Barriers = append(e.Barriers, b)
		}
		for key := range r.IntN(5) {
			e.Transfers = append(e.Transfers, TransferEvidence{
				Key: fmt.Sprint(key), Waiter: r.IntN(e.Size), Peer: r.IntN(e.Size), Since: time.Duration(r.IntN(300)) * time.Second,
				Bytes: 9, Open: r.IntN(2) == 0, Silent: r.IntN(4) == 0,
			})
		}
		for clique := range r.IntN(4) {
			c := CollectiveEvidence{Clique: fmt.Sprint(clique), Seq: 9, Op: "x", Since: time.Duration(r.IntN(300)) * time.Second}
			for i := range e.Size {
				switch r.IntN(3) {
				case 0:
					c.Waiters = append(c.Waiters, i)
				case 1:
					c.Missing = append(c.Missing, i)
				}
			}
			if len(c.Waiters) > 0 && len(c.Missing) > 0 && r.IntN(3) == 0 {
				c.Calls = []CollectiveCall{{"x", c.Waiters}, {"y", c.Missing}}
			}
			e.Collectives = append(e.Collectives, c)
		}
		now := time.Duration(r.IntN(900)) * time.Second
		h := JudgeHang(now, e)
		r.Shuffle(len(e.Ranks), func(i, k int) { e.Ranks[i], e.Ranks[k] = e.Ranks[k], e.Ranks[i] })
		r.Shuffle(len(e.Transfers), func(i, k int) { e.Transfers[i], e.Transfers[k] = e.Transfers[k], e.Transfers[i] })
		r.Shuffle(len(e.Collectives), func(i, k int) { e.Collectives[i], e.Collectives[k] = e.Collectives[k], e.Collectives[i] })
		if again := JudgeHang(now, e); !reflect.DeepEqual(h, again) {
			t.Fatalf("seed %d: JudgeHang() = %+v, shuffled %+v; want the same", seed, h, again)
		}
		if h == nil {
			continue
		}
		if text := h.Text(now, noon); text == "" || strings.Contains(text, "%!") {
			t.Fatalf("seed %d: Text() = %q", seed, text)
		}
		h.Lines(noon)
		if h.Kind == HangDiffer {
			continue // it names ranks that have not waited in turn
		}
		for _, s := range h.Ranks {
			for _, b := range e.Barriers {
				clear := slices.ContainsFunc(b.Missing, func(m int) bool {
					return !slices.ContainsFunc(e.Barriers, func(o BarrierEvidence) bool { return !slices.Contains(o.Missing, m) && !isEnd(o.ID) }) &&
						slices.ContainsFunc(e.Ranks, func(r RankEvidence) bool { return r.Rank == m && r.Class == ClassMoving })
				})
				if !isEnd(b.ID) && !slices.Contains(b.Missing, s.Rank) && clear {
					t.Fatalf("seed %d: rank %d is blamed, but waits at %s: %+v\n%+v", seed, s.Rank, b.ID, h, e)
				}
			}
		}
	}
}
