package diagnose

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
)

const jaxFolder = "/venv/lib/python3.13/site-packages/jax/_src/"

func at(doing string, frames ...Frame) *Stack { return &Stack{Frames: frames, Doing: doing} }

var (
	trainFrame = Frame{"train_step", "train.py", 19}
	loadStack  = at("asleep (nanosleep)", Frame{"load_batch", "train.py", 10}, trainFrame)
	waitStack  = at("asleep (futex)", Frame{"train_step", "train.py", 21})
)

// A scene of samples: one a second, of a process that uses so much of a processor and moves so many bytes.
type sampled struct {
	state   string
	percent int
	bytes   uint64
	wait    string
	stack   func(i int) *Stack
}

func (s sampled) play(w *Window, from, n int) Condition {
	for i := from; i < from+n; i++ {
		w.Add(Sample{At: time.Duration(i) * time.Second, State: s.state, CPU: time.Duration(i*s.percent) * 10 * time.Millisecond,
			Bytes: uint64(i) * s.bytes, Wait: s.wait, Stack: s.stack(i)})
	}
	return w.Condition()
}

func still(s *Stack) func(int) *Stack { return func(int) *Stack { return s } }

func TestClasses(t *testing.T) {
	clause.Cite(t, "D-HG-2", "TD-HG-1")
	lines := func(i int) *Stack { return at("running", Frame{"work", "train.py", i}, trainFrame) }
	functions := func(i int) *Stack { return at("running", Frame{fmt.Sprint("f", i), "train.py", 1}, trainFrame) }
	compiler := still(at("running", Frame{"backend_compile", jaxFolder + "compiler.py", 300}, trainFrame))
	result := still(at("asleep (futex)", Frame{"ArrayImpl._value", jaxFolder + "array.py", 600}, trainFrame))
	bye := still(at("asleep (futex)", Frame{"shutdown", jaxFolder + "distributed.py", 300}))
	none := func(int) *Stack { return nil }
	for name, c := range map[string]struct {
		sampled
		want  Class
		since time.Duration
	}{
		"asleep":                     {sampled{"asleep", 0, 0, "", still(loadStack)}, ClassStatic, 0},
		"asleep, threads wake":       {sampled{"asleep", 4, 100, "", still(loadStack)}, ClassStatic, 0},
		"asleep, others compute":     {sampled{"asleep", 50, 0, "", still(loadStack)}, ClassLooping, time.Second},
		"stopped":                    {sampled{"stopped", 0, 0, "", still(loadStack)}, ClassStopped, 0},
		"held by a debugger":         {sampled{"traced", 0, 0, "", still(loadStack)}, ClassStopped, 0},
		"a zombie":                   {sampled{"ended", 0, 0, "", none}, ClassZombie, 0},
		"leaving":                    {sampled{"asleep", 0, 0, "", bye}, ClassLeaving, 0},
		"in a collective":            {sampled{"asleep", 0, 0, "Gloo all-reduce", still(waitStack)}, ClassWaiting, 0},
		"in a collective, busy":      {sampled{"asleep", 90, 0, "Gloo all-reduce", still(waitStack)}, ClassWaiting, 0},
		"waits for a result":         {sampled{"asleep", 0, 0, "", result}, ClassWaiting, 0},
		"computes a result":          {sampled{"asleep", 90, 0, "", result}, ClassLooping, time.Second},
		"waits for a device":         {sampled{"uninterruptible", 0, 50 << 10, "", still(loadStack)}, ClassBlocked, 0},
		"compiles":                   {sampled{"running", 200, 0, "", compiler}, ClassCompiling, 0},
		"compiles and writes a file": {sampled{"running", 200, 1 << 20, "", compiler}, ClassCompiling, 0},
		"writes":                     {sampled{"asleep", 2, 1 << 20, "", still(loadStack)}, ClassIO, 5 * time.Second},
		"loops":                      {sampled{"running", 100, 0, "", lines}, ClassLooping, time.Second},
		"moves":                      {sampled{"running", 100, 0, "", functions}, ClassMoving, 5 * time.Second},
		"not Python, asleep":         {sampled{"asleep", 0, 0, "", none}, ClassStatic, 0},
		"not Python, busy":           {sampled{"asleep", 30, 0, "", none}, ClassMoving, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var w Window
			got := c.play(&w, 0, 12)
			if got.Class != c.want {
				t.Errorf("class = %q (%+v); want %q", got.Class, got, c.want)
			}
			if got.Since > c.since+time.Second {
				t.Errorf("since = %v; want about %v", got.Since, c.since)
			}
		})
	}
}

// A rank that writes synchronously waits for a device whenever it is looked at. It reads and writes all the same, since the
// same moment, however seldom the disk answers; a rank in a single wait does not.
func TestWaitsForADeviceAgainAndAgain(t *testing.T) {
	clause.Cite(t, "D-HG-2", "D-HG-10", "D-SC-11")
	for name, c := range map[string]struct {
		bytes, waits uint64 // in a second
		want         Class
	}{
		"a fast disk":                            {30 << 20, 5000, ClassIO},
		"a slow disk":                            {1 << 10, 1, ClassIO},
		"no answer":                              {0, 0, ClassBlocked},
		"no answer, another thread writes lines": {50 << 10, 0, ClassBlocked},
	} {
		var w Window
		functions := func(i int) *Stack { return at("running", Frame{fmt.Sprint("f", i), "train.py", 1}, trainFrame) }
		sampled{"running", 100, 0, "", functions}.play(&w, 0, 30)
		var since time.Duration
		for i := 30; i < 60; i++ {
			s := Sample{At: time.Duration(i) * time.Second, State: "uninterruptible", CPU: 30 * time.Second, Bytes: uint64(i) * c.bytes}
			if i%3 == 0 { // it is not in the system call each time
				s.File = "/data/a on /data (nfs4, server:/export)"
			}
			if i%2 == 0 {
				s.Stack, s.Waits = at("uninterruptible (fsync)", Frame{"save", "train.py", 40}), 100+uint64(i)*c.waits
			}
			w.Add(s)
			got := w.Condition()
			if i < 37 {
				since = got.Since
				continue
			}
			if got.Class != c.want || got.Since != since || since > 35*time.Second {
				t.Fatalf("%s: after %d s %s since %v; want %s since %v", name, i-30, got.Class, got.Since, c.want, since)
			}
			if got.File != "/data/a on /data (nfs4, server:/export)" {
				t.Fatalf("%s: after %d s file %q", name, i-30, got.File)
			}
		}
		for i := 60; i < 70; i++ { // it goes on: the file has nothing to do with what it does then
			w.Add(Sample{At: time.Duration(i) * time.Second, State: "running", CPU: time.Duration(i) * time.Second, Stack: functions(i)})
		}
		if got := w.Condition(); got.File != "" || got.Class != ClassMoving {
			t.Errorf("%s: later %s, file %q; want none", name, got.Class, got.File)
		}
	}
}

// The stack of a rank is read less often than its state. What was read before it was stopped does not say where it stands, and what is read
// afterwards is news.
func TestPlaceOfAStoppedRank(t *testing.T) {
	clause.Cite(t, "D-HG-2", "D-SC-15")
	none := func(int) *Stack { return nil }
	importing := still(at("running", Frame{"<module>", "mhlo.py", 19}))
	loading := still(at("stopped (kill)", Frame{"load_batch", "train.py", 10}))
	var w Window
	sampled{"running", 100, 0, "", importing}.play(&w, 0, 3)
	first := sampled{"stopped", 0, 0, "", none}.play(&w, 3, 1)
	if first.Class != ClassStopped || first.At != "" || first.Doing != "" {
		t.Errorf("Condition() = %+v when it was stopped; want it stopped, and no place", first)
	}
	later := sampled{"stopped", 0, 0, "", loading}.play(&w, 4, 1)
	if later.Class != ClassStopped || later.At != "load_batch (train.py:10)" || later.Doing != "stopped (kill)" || later.Same(first) {
		t.Errorf("Condition() = %+v, Same: %v, when its stack was read; want another one, with the place", later, later.Same(first))
	}
	if last := (sampled{"stopped", 0, 0, "", none}).play(&w, 5, 1); !last.Same(later) || last.At != later.At {
		t.Errorf("Condition() = %+v later; want %+v still", last, later)
	}
}

// A program that compiles one function after the other compiles, since the first, although it is elsewhere in between; some seconds
// later it does not any more.
func TestCompilesAgainAndAgain(t *testing.T) {
	clause.Cite(t, "D-HG-2", "D-SC-18")
	compiler := at("running", Frame{"backend_compile", jaxFolder + "compiler.py", 300}, trainFrame)
	elsewhere := func(i int) *Stack { return at("running", Frame{fmt.Sprint("f", i), "train.py", 1}, trainFrame) }
	var w Window
	sampled{"running", 100, 0, "", elsewhere}.play(&w, 0, 10)
	for i := 10; i < 40; i++ {
		s := sampled{"running", 100, 0, "", elsewhere}
		if i%4 < 2 {
			s.stack = still(compiler)
		}
		if c := s.play(&w, i, 1); i > 12 && (c.Class != ClassCompiling || c.Since > 13*time.Second) {
			t.Fatalf("after %d s: %s since %v; want compiling since 12 s", i, c.Class, c.Since)
		}
	}
	if c := (sampled{"running", 100, 0, "", elsewhere}).play(&w, 40, 6); c.Class != ClassMoving {
		t.Errorf("6 s after the last: %s; want moving", c.Class)
	}
}

// A class needs time, and a break begins it anew.
func TestClassSince(t *testing.T) {
	clause.Cite(t, "D-HG-7", "D-HG-9")
	asleep := sampled{"asleep", 0, 0, "", still(loadStack)}
	var w Window
	if c := asleep.play(&w, 0, 3); c.Class != ClassUnknown {
		t.Errorf("after 2 s: %+v; want no class yet", c)
	}
	if c := asleep.play(&w, 3, 20); c.Class != ClassStatic || c.Since != 0 || c.At != "load_batch (train.py:10) < train_step (train.py:19)" {
		t.Errorf("after 22 s: %+v; want static since 0", c)
	}
	sampled{"running", 0, 0, "", still(loadStack)}.play(&w, 23, 1)
	if c := asleep.play(&w, 24, 10); c.Class != ClassStatic || c.Since < 23*time.Second || c.Since > 24*time.Second {
		t.Errorf("after it ran at 23 s: %+v; want static since then", c)
	}
	// The host stands still for 60 s: no sample comes, and the time does not count.
	before := w.Condition().Since
	if c := asleep.play(&w, 93, 1); c.Since != before+60*time.Second {
		t.Errorf("after a pause of the host: %+v; want since %v", c, before+60*time.Second)
	}
}

// A run is a healthy job: ranks that work, each for another time, and meet after every step in a collective or
// at a barrier. Long waits of every kind are mixed in.
type healthyRun struct {
	r     *rand.Rand
	spans [][]span // of each rank
	stall []span   // those that keep the others waiting for long, in order
	ends  time.Duration
}

// A span is what a rank does for a while.
type span struct {
	from, to time.Duration
	rank     int
	does     string
}

const healthyRanks = 4

// work is what a rank does between two meetings, and for how long.
func (h *healthyRun) work(step, rank int) []span {
	one := time.Duration(float64(time.Second) * 0.5 * (1 + 9*h.r.Float64()*h.r.Float64())) // up to ten times as long
	spans := []span{{to: one, does: "compute"}}
	culprit := rank == step%healthyRanks
	switch {
	case culprit && (step == 0 || step%17 == 3):
		spans = append(spans, span{to: 30 * time.Second, does: "compile"})
	case culprit && step%13 == 5:
		spans = append(spans, span{to: 20 * time.Second, does: "stall"})
	case culprit && step%19 == 7:
		spans = append(spans, span{to: 25 * time.Second, does: "write"}, span{to: 35 * time.Second, does: "save"})
	}
	return spans
}

func newHealthyRun(seed uint64) *healthyRun {
	h := &healthyRun{r: rand.New(rand.NewPCG(seed, 29)), spans: make([][]span, healthyRanks)}
	now := time.Duration(0)
	for step := range 30 {
		var met time.Duration
		arrived := make([]time.Duration, healthyRanks)
		for rank := range healthyRanks {
			t := now
			for _, s := range h.work(step, rank) {
				s.from, s.to, s.rank = t, t+s.to, rank
				h.spans[rank] = append(h.spans[rank], s)
				if s.to-s.from >= 20*time.Second {
					h.stall = append(h.stall, s)
				}
				t = s.to
			}
			arrived[rank] = t
			met = max(met, t)
		}
		does := "collective"
		if step%5 == 0 {
			does = "barrier"
		}
		for rank := range healthyRanks {
			h.spans[rank] = append(h.spans[rank], span{arrived[rank], met + 20*time.Millisecond, rank, does})
		}
		now = met + 20*time.Millisecond
	}
	h.ends = now
	return h
}

func (h *healthyRun) at(rank int, t time.Duration) span {
	i, _ := slices.BinarySearchFunc(h.spans[rank], t, func(s span, t time.Duration) int {
		if s.to <= t {
			return -1
		}
		return 1
	})
	return h.spans[rank][min(i, len(h.spans[rank])-1)]
}

// sample is what a process of a rank would show; cpu and bytes are counters that it raises.
func (h *healthyRun) sample(rank int, t time.Duration, cpu *time.Duration, bytes *uint64) Sample {
	does := h.at(rank, t).does
	s := Sample{At: t, State: "asleep"}
	switch does {
	case "compute":
		s.State, s.Stack = "running", at("running", Frame{fmt.Sprint("f", h.r.IntN(100)), "train.py", 1}, trainFrame)
		*cpu += time.Second
	case "compile":
		s.State, s.Stack = "running", at("running", Frame{"backend_compile", jaxFolder + "compiler.py", 300}, trainFrame)
		*cpu += 2 * time.Second
	case "stall":
		s.Stack = loadStack
	case "write":
		s.Stack = at("asleep (write)", Frame{"save", "train.py", 40})
		*bytes += 30 << 20
	case "save":
		s.Stack = at("asleep (futex)", Frame{"wait_until_finished", "/venv/lib/python3.13/site-packages/orbax/checkpoint/c.py", 7}, Frame{"save", "train.py", 41})
	case "collective":
		s.Stack, s.Wait = waitStack, "Gloo all-reduce"
	case "barrier":
		s.Stack = at("asleep (futex)", Frame{"wait_at_barrier", "train.py", 50})
	}
	s.CPU, s.Bytes = *cpu, *bytes
	return s
}

// barriers are the open ones.
func (h *healthyRun) barriers(t time.Duration) []BarrierEvidence {
	b := BarrierEvidence{ID: "step", Members: healthyRanks, Since: t}
	for rank := range healthyRanks {
		if s := h.at(rank, t); s.does == "barrier" {
			b.Arrived++
			b.Since = min(b.Since, s.from)
		} else {
			b.Missing = append(b.Missing, rank)
		}
	}
	if b.Arrived == 0 || b.Arrived == healthyRanks {
		return nil
	}
	return []BarrierEvidence{b}
}

// wantKinds is how each of the long waits must be named while it lasts.
var wantKinds = map[string][]HangKind{
	"compile": {HangCompiling}, "stall": {HangStill}, "write": {HangIO}, "save": {HangStill},
}

// TestHealthyRuns is the healthy set: not one of them is ever called stuck, and each stall is named right.
func TestHealthyRuns(t *testing.T) {
	clause.Cite(t, "D-SC-29", "TD-HG-4")
	for seed := range uint64(200) {
		h := newHealthyRun(seed)
		var watch Watch
		windows := make([]Window, healthyRanks)
		cpu, bytes := make([]time.Duration, healthyRanks), make([]uint64, healthyRanks)
		steady, lost := time.Duration(0), time.Duration(h.r.IntN(300))*time.Second // a fail-over at some time
		named := make(map[int]bool)
		for now := time.Second; now < h.ends; now += time.Second {
			if h.r.IntN(60) == 0 {
				now += 2 * time.Second // the host stands still, and so does the sampler
			}
			if now >= lost && steady == 0 {
				steady = now
			}
			e := HangEvidence{Size: healthyRanks, Steady: steady, Barriers: h.barriers(now)}
			for rank := range windows {
				windows[rank].Add(h.sample(rank, now, &cpu[rank], &bytes[rank]))
				e.Ranks = append(e.Ranks, RankEvidence{Rank: rank, Condition: windows[rank].Condition()})
			}
			if seed%2 == 1 && now > time.Minute {
				e.Step = 2 * time.Second // its programs report steps
			}
			hang, _ := watch.Step(now, e)
			if hang == nil {
				continue
			}
			if hang.Stage == Stuck {
				t.Fatalf("seed %d: at %v %s", seed, now, hang.Text(now, noon))
			}
			for i, s := range h.stall {
				right := len(hang.Ranks) == 1 && hang.Ranks[0].Rank == s.rank && slices.Contains(wantKinds[s.does], hang.Kind)
				if now > s.from && now < s.to && right {
					named[i] = true
				}
			}
		}
		for i, s := range h.stall {
			if !named[i] {
				t.Fatalf("seed %d: %+v was never named", seed, s)
			}
		}
	}
}
