package diagnose

import (
	"path"
	"slices"
	"strings"
	"time"
)

// A Class says what a rank has been doing for the last few seconds (D-HG-2).
type Class string

// The classes. A rank has the first that fits, in this order.
const (
	ClassUnknown   Class = ""                // not watched for long enough, or its process must not be read
	ClassGone      Class = "gone"            // its process has ended with code 0; told by its launcher, not by samples
	ClassStopped   Class = "stopped"         // by a signal
	ClassZombie    Class = "zombie"          // its main thread has ended, and the process has not
	ClassLeaving   Class = "leaving"         // it waits at the shutdown barrier, or is in the shutdown of jax
	ClassWaiting   Class = "waiting"         // for other ranks, in a collective or in another computation
	ClassBlocked   Class = "uninterruptible" // it waits for a device, in one wait
	ClassStatic    Class = "static"          // asleep at one place, without processor time and without bytes
	ClassCompiling Class = "compiling"       // jax traces, lowers or compiles
	ClassIO        Class = "io"              // it reads or writes
	ClassLooping   Class = "looping"         // it computes, and stays inside one function
	ClassMoving    Class = "moving"          // anything else
)

// A Sample is what was seen of the process of a rank at one time.
type Sample struct {
	At      time.Duration // since the sampler was started
	State   string        // of its main thread: running, asleep, uninterruptible, stopped, traced, ended
	CPU     time.Duration // that the process and those below it have used
	Bytes   uint64        // that they have read and written
	Wait    string        // what its main thread waits in where it stands, by native frames: a collective, ResultWait, or empty
	Stack   *Stack        // of its main thread; nil: not read this time
	Traced  bool          // a debugger is attached
	Waits   uint64        // how often its main thread has begun to wait; 0: not counted this time
	File    string        // that its main thread waits for, and its mount, where it is uninterruptible; empty: not known
	Unnamed bool          // native frames have not been looked at yet where it stands: that Wait is empty says nothing
}

// A Condition is the class of a rank, since when it has it, and what was seen.
type Condition struct {
	Class      Class         `json:"class"`
	Since      time.Duration `json:"since"`           // on the clock of the samples
	Wait       string        `json:"wait,omitempty"`  // what a waiting rank waits in: "Gloo all-reduce"
	At         string        `json:"at,omitempty"`    // its place: load_batch (train.py:10) < train_step (train.py:19)
	Doing      string        `json:"doing,omitempty"` // asleep (nanosleep)
	Rate       uint64        `json:"rate,omitempty"`  // bytes a second that it reads and writes
	File       string        `json:"file,omitempty"`  // that it waits for, or was last seen to wait for, and its mount
	Checkpoint bool          `json:"checkpoint,omitempty"`
	Traced     bool          `json:"traced,omitempty"`
	Phase      string        `json:"phase,omitempty"` // that the program has declared, with a limit
	Until      time.Duration `json:"until,omitempty"` // that limit, on the clock of the samples
	Pressure   Pressure      `json:"pressure,omitzero"`
}

// Same says whether two conditions are of one class, held without a break. The place of a rank that makes progress, its rate and its
// file change all the time, so they are not compared. Only whether a file is known is, and the place of a rank that was stopped.
// [Pressure.Next] says when a pressure is another one.
func (c Condition) Same(d Condition) bool {
	if c.Class == ClassStopped && (c.At == "") != (d.At == "") {
		return false
	}
	return c.Class == d.Class && c.Since == d.Since && c.Wait == d.Wait && c.Traced == d.Traced && c.Checkpoint == d.Checkpoint && (c.File == "") == (d.File == "") &&
		c.Phase == d.Phase && c.Until == d.Until && c.Pressure == d.Pressure
}

const (
	classWindow  = 4 * time.Second // that a class is drawn from: with one sample a second, at least 5 samples
	missedAfter  = 3 * time.Second // without a sample the host stood still, not the rank (D-HG-9d)
	idlePercent  = 5               // of a processor: a rank that uses less does not compute
	busyPercent  = 20              // a rank that uses more does
	ioBytes      = 4 << 10         // a second: a rank that moves more reads or writes. Threads that wake each other move some bytes
	loopingDepth = 3               // frames that a loop does not leave
)

// A Window draws the class of a rank from its samples, on the host of the rank. The zero Window is ready for the first
// sample. It keeps times and the last stack instead of the samples, so it does not grow.
type Window struct {
	began time.Duration // of the first sample
	last  Sample
	seen  bool

	// When each of these last changed or was last seen.
	changed   time.Duration // the stack, lines included
	relooped  time.Duration // the innermost functions of the stack, lines aside
	computed  time.Duration // more than idlePercent of a processor
	rested    time.Duration // less than busyPercent of a processor
	moved     time.Duration // more than ioBytes a second
	ran       time.Duration // the main thread ran
	unblocked time.Duration // the main thread was in another state than uninterruptible, or in another wait than before
	state     time.Duration // the state of the main thread changed
	compiled  time.Duration // began to compile: the last sample before that
	compiling time.Duration // was last in the tracing, lowering or compiling of jax; before the first sample: never
	executed  time.Duration // was last elsewhere
	wasOther  time.Duration // the class was another

	stack *Stack
	read  time.Duration // when that was read
	file  string        // Sample.File, when it was last known
	waits uint64        // Sample.Waits, when it was last counted
	rate  uint64
	now   Condition
}

// Add takes the next sample. Samples come in the order of their times.
func (w *Window) Add(s Sample) {
	if !w.seen {
		*w = Window{began: s.At, last: s, seen: true}
		for _, t := range w.times() {
			*t = s.At
		}
		w.compiling = s.At - classWindow
	}
	if gap := s.At - w.last.At; gap >= missedAfter {
		w.shift(gap)
		w.last.At = s.At
	}
	w.measure(s)
	w.compare(s)
	w.last = s
	w.classify(s.At)
}

// Condition is what the samples say up to now.
func (w *Window) Condition() Condition { return w.now }

// Still says whether the main thread sleeps at the place where it slept before, and since when it does.
func (w *Window) Still() (still bool, since time.Duration) {
	return w.seen && w.last.State == "asleep" && w.changed < w.last.At, max(w.changed, w.ran, w.state)
}

func (w *Window) times() []*time.Duration {
	return []*time.Duration{&w.read, &w.changed, &w.relooped, &w.computed, &w.rested, &w.moved, &w.ran, &w.unblocked, &w.state, &w.compiled, &w.compiling, &w.executed, &w.wasOther}
}

// shift leaves a time out in which the host itself stood still: nothing in it counts for or against the rank.
func (w *Window) shift(gap time.Duration) {
	w.began += gap
	for _, t := range w.times() {
		*t += gap
	}
	w.now.Since += gap
}

// measure compares counters. Processes below the rank may have ended since, and taken their counts with them.
func (w *Window) measure(s Sample) {
	past := s.At - w.last.At
	if past <= 0 {
		return
	}
	used := 100 * max(0, s.CPU-w.last.CPU) / past
	if used >= idlePercent {
		w.computed = s.At
	}
	if used < busyPercent {
		w.rested = s.At
	}
	moved := uint64(0)
	if s.Bytes > w.last.Bytes {
		moved = s.Bytes - w.last.Bytes
	}
	if w.rate = uint64(float64(moved) / past.Seconds()); w.rate >= ioBytes {
		w.moved = s.At
	}
}

// compare looks for changes of state, stack and wait.
func (w *Window) compare(s Sample) {
	if s.State != w.last.State {
		w.state = s.At
	}
	if s.State == "running" {
		w.ran = s.At
	}
	if s.State != "uninterruptible" {
		w.unblocked = s.At
	}
	w.countWaits(s)
	if s.File != "" {
		w.file = s.File
	}
	if s.Stack == nil {
		return
	}
	if w.stack == nil || !s.Stack.sameAs(w.stack) {
		w.changed = s.At
	}
	if w.stack == nil || !s.Stack.loopsAs(w.stack) {
		w.relooped = s.At
	}
	w.compile(s)
	w.stack, w.read = s.Stack, s.At
}

// compile takes note whether jax compiles. A program that compiles one function after the other is elsewhere in between, for less than
// the window, and compiles all the same.
func (w *Window) compile(s Sample) {
	if !s.Stack.compiles() {
		w.executed = s.At
		return
	}
	if s.At-w.compiling >= classWindow {
		w.compiled = w.executed
	}
	w.compiling = s.At
}

// countWaits tells a main thread that waits for a device again and again from one that is in a single wait. A rank that writes
// synchronously is uninterruptible in nearly every sample, and goes on all the same.
func (w *Window) countWaits(s Sample) {
	if s.Waits == 0 {
		return
	}
	if w.waits != 0 && s.Waits != w.waits && s.State == "uninterruptible" {
		w.unblocked, w.moved = s.At, s.At
	}
	w.waits = s.Waits
}

// classify draws the class, the first that fits.
func (w *Window) classify(at time.Duration) {
	before := w.now.Class
	c := Condition{Traced: w.last.Traced, Wait: w.last.Wait}
	if w.stack != nil {
		c.At, c.Doing, c.Checkpoint = w.stack.place(), w.stack.Doing, w.stack.saves()
	}
	held := func(since time.Duration) bool { return at-since >= classWindow }
	still := max(w.changed, w.ran, w.state)
	switch {
	case w.last.State == "stopped" || w.last.State == "traced":
		c.Class, c.Since = ClassStopped, w.state
		if w.read < w.state {
			c.At, c.Doing = "", "" // where it was before
		}
	case w.last.State == "ended":
		c.Class, c.Since = ClassZombie, w.state
	case w.stack != nil && w.stack.leaves():
		c.Class, c.Since = ClassLeaving, w.changed
	case c.Wait != "" && c.Wait != ResultWait && held(still):
		c.Class, c.Since = ClassWaiting, still // whatever other threads do
	case held(w.unblocked):
		c.Class, c.Since = ClassBlocked, w.unblocked
	case held(max(still, w.computed, w.moved)) && !w.last.Unnamed:
		c.Class, c.Since = ClassStatic, max(still, w.computed, w.moved)
		if c.Wait == ResultWait || w.stack != nil && w.stack.awaitsResult() {
			c.Class, c.Wait = ClassWaiting, ResultWait
		}
	case !held(w.began):
		c.Class, c.Since = ClassUnknown, w.began
	case at-w.compiling < classWindow || w.stack != nil && w.stack.compiles():
		c.Class, c.Since = ClassCompiling, w.compiled
	case at-w.moved < classWindow:
		c.Class = ClassIO
	case w.stack != nil && held(max(w.relooped, w.rested)):
		c.Class, c.Since = ClassLooping, max(w.relooped, w.rested)
	default:
		c.Class = ClassMoving
	}
	if c.Class != before {
		w.wasOther = at
	}
	if c.Class == ClassIO || c.Class == ClassMoving {
		c.Since = w.wasOther
	}
	if c.Class != ClassWaiting {
		c.Wait = ""
	}
	if c.Class == ClassIO {
		c.Rate = w.rate
	}
	if c.Class == ClassIO || c.Class == ClassBlocked {
		c.File = w.file
	} else {
		w.file = ""
	}
	w.now = c
}

// ResultWait is the wait of a rank whose main thread waits for jax to compute, where no native frame tells more.
const ResultWait = "a computation of jax"

// sameAs says whether two stacks are at the same place.
func (s *Stack) sameAs(o *Stack) bool {
	return s.Error == o.Error && s.Deeper == o.Deeper && slices.Equal(s.Frames, o.Frames)
}

// loopsAs says whether the innermost functions of two stacks are the same.
func (s *Stack) loopsAs(o *Stack) bool {
	inner, other := s.Frames[:min(len(s.Frames), loopingDepth)], o.Frames[:min(len(o.Frames), loopingDepth)]
	return slices.EqualFunc(inner, other, func(a, b Frame) bool { return a.Function == b.Function && a.File == b.File })
}

// place is where the stack is, in a line.
func (s *Stack) place() string {
	g := StackGroup{Frames: s.Frames, Deeper: s.Deeper, Error: s.Error}
	return strings.TrimPrefix(g.where(), "at ")
}

// inJax finds a frame of jax: in one of its files, with one of these functions, or any.
func inJax(f Frame, file string, functions ...string) bool {
	if libraryOf(f.File) != "jax" || !strings.HasSuffix(f.File, "/"+file) {
		return false
	}
	name := f.Function[strings.LastIndexByte(f.Function, '.')+1:]
	return len(functions) == 0 || slices.Contains(functions, name)
}

// leaves says whether the program is in the shutdown of jax, which waits for the other ranks.
func (s *Stack) leaves() bool {
	return slices.ContainsFunc(s.Frames, func(f Frame) bool { return inJax(f, "distributed.py", "shutdown") })
}

// compilerFiles are those parts of jax in which programs are traced, lowered and compiled.
var compilerFiles = []string{"compiler.py", "mlir.py", "partial_eval.py", "pxla.py", "pjit.py", "stages.py", "compilation_cache.py", "linear_util.py"}

// compilerFunctions are the functions in these files that do it. The others also run compiled programs.
var compilerFunctions = []string{
	"backend_compile", "backend_compile_and_load", "compile_or_get_cached", "_compile_and_write_cache", "_cached_compilation", "compile",
	"lower_jaxpr_to_module", "lower_jaxpr_to_fun", "jaxpr_subcomp", "lower_sharding_computation", "lower", "_cached_lowering_to_hlo",
	"trace_to_jaxpr", "trace_to_jaxpr_dynamic", "trace_to_jaxpr_nounits", "_create_pjit_jaxpr", "_infer_params", "_infer_params_impl", "call_wrapped",
}

// compiles says whether jax traces, lowers or compiles.
func (s *Stack) compiles() bool {
	return slices.ContainsFunc(s.Frames, func(f Frame) bool {
		return slices.Contains(compilerFiles, path.Base(f.File)) && inJax(f, path.Base(f.File), compilerFunctions...)
	})
}

// awaitsResult says whether the innermost frame is one of jax, and the thread waits there for another thread of its
// process: for a computation, of which collectives are a part. A compilation is none.
func (s *Stack) awaitsResult() bool {
	if len(s.Frames) == 0 || s.compiles() {
		return false
	}
	inner := libraryOf(s.Frames[0].File)
	return (inner == "jax" || inner == "jaxlib") && strings.HasPrefix(s.Doing, "asleep (futex)")
}

// saverWords are in the paths of libraries that save checkpoints, and in the names of functions that do (D-HG-10).
var saverWords = []string{"orbax", "tensorstore", "array_serialization", "checkpoint", "torch/serialization"}

// saves says whether the program writes a checkpoint.
func (s *Stack) saves() bool {
	return slices.ContainsFunc(s.Frames, func(f Frame) bool {
		name := strings.ToLower(f.File + " " + f.Function)
		return slices.ContainsFunc(saverWords, func(word string) bool { return strings.Contains(name, word) })
	})
}
