package detect_test

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/detect"
)

// TestScripts runs the transcripts of testdata. A block is a row of observations, one a line, and the
// events that the detector gives for them:
//
//	# C-LOST-4: the comment names the clauses that the block shows.
//	new
//	connected 0
//	attach 0
//	poll 0
//	close 0
//	after 100ms
//	----
//	100ms lost worker/0#10 "connection closed"
//	100ms departed worker/0#10
//
// A life is the number of a task and an incarnation: 1#77. Where that is left out it is 10 for task 0, 20 for
// task 1, and so on. What the machine would do with an event is done here: a lost task
// fails, one that exited well is disconnected. The observations are the cases of [script.observe].
//
// Refresh with go test ./detect -rewrite, then read the diff against the specification.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			s := &script{}
			datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
				return s.block(t, td.FullCmd()+"\n"+td.Input)
			})
		})
	}
}

// A script is a detector, the time, and the last heartbeats of the tasks.
type script struct {
	t       *testing.T
	out     strings.Builder
	d       *detect.Detector[string]
	silence *detect.Silence
	now     coord.Time
	beats   map[serry.TaskID]coord.Time
}

func (s *script) block(t *testing.T, text string) string {
	t.Helper()
	s.t = t
	s.out.Reset()
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		s.observe(line, words[0], words[1:])
		s.settle()
	}
	return s.out.String()
}

// observe tells the detector of one line.
func (s *script) observe(line, verb string, args []string) {
	s.t.Helper()
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	_, quoted, _ := strings.Cut(line, `"`)
	quoted, _, _ = strings.Cut(quoted, `"`)
	switch verb {
	case "new": // a detector for four tasks: grace 100ms, heartbeats 10s
		s.d = detect.New[string](detect.Config{Grace: 100 * time.Millisecond, Silence: 10 * time.Second})
		s.silence = detect.NewSilence(10*time.Second, 0)
		s.now, s.beats = 0, make(map[serry.TaskID]coord.Time)
		s.d.Opened([]coord.Job{{Name: "worker", Tasks: 4}}, serry.Life{})
	case "epoch": // another one opens, by the registration of a life or by an operator
		s.d.Opened([]coord.Job{{Name: "worker", Tasks: 4}}, s.life(cmp.Or(arg(0), "0#0")))
	case "stopped":
		s.d.Stopped()
	case "connected", "failed", "disconnected": // what the machine says of lives
		for _, a := range args {
			s.changed(s.life(a), map[string]serry.TaskState{"connected": serry.Connected, "failed": serry.Failed}[verb])
		}
	case "await": // lives that a former leader knew
		s.d.Await(s.life(arg(0)), arg(1) == "departed", s.now)
	case "attach": // one more connection carries a life
		s.d.Attached(s.life(arg(0)), arg(1) == "resumes")
	case "close": // a connection ends
		s.d.Detached(s.life(arg(0)), cmp.Or(quoted, detect.ConnectionClosed), s.now)
	case "replace": // a connection carries another life of the task
		s.d.Detached(s.life(arg(0)), "", s.now)
	case "report": // a relay says that the last connection of a life has closed
		s.d.Reported(detect.Report{Life: s.life(arg(0)), Resumes: arg(1) == "resumes", Evidence: detect.ConnectionClosed}, s.now)
	case "poll", "polled": // an error poll waits, or is answered
		s.d.Polled(s.life(arg(0)), verb == "poll")
	case "registering": // a registration waits (1), or does not any more (-1)
		n, _ := strconv.Atoi(arg(1))
		s.d.Registering(s.life(arg(0)), n)
	case "exited": // a process, by the number of its task or by its life
		s.d.Exited(s.witnessed(arg(0)), quoted, s.now)
	case "accused":
		s.d.Accused(s.life(arg(0)).Task, quoted)
	case "online": // a host that is a client or a relay
		s.d.Online(arg(0), arg(1) == "client")
	case "offline":
		s.d.Offline(arg(0), s.now)
	case "came": // a life, by a host
		s.d.Came(s.life(arg(0)), arg(1))
	case "follow": // a host asks for a life that it has no more
		s.d.Follow(s.life(arg(0)), arg(1))
	case "left":
		s.d.Left(arg(0))
	case "silent": // hosts
		s.d.Silenced(args)
	case "hosts":
		fmt.Fprintf(&s.out, "hosts %v\n", s.d.Hosts(s.life(arg(0))))
	case "depart-idle":
		s.d.DepartIdle()
	case "depart-former":
		s.d.DepartFormer(s.life(arg(0)))
	case "returned":
		s.d.Returned(s.life(arg(0)))
	case "beat":
		for _, a := range args {
			s.beats[s.life(a).Task] = s.now
		}
	case "pardon":
		id := s.life(arg(0)).Task
		s.beats[id] = detect.Pardon(s.beats[id], coord.Time(s.duration(arg(1))), s.now)
	case "scan": // at a time, which was due some time before
		s.scan(s.duration(arg(0)), s.duration(cmp.Or(arg(1), "0s")))
	case "after": // some time passes; with "held" the process did not run meanwhile
		s.pass(s.duration(arg(0)), arg(1) == "held")
	default:
		s.t.Fatalf("unknown observation: %s", line)
	}
}

// changed says what the machine made of a life.
func (s *script) changed(l serry.Life, state serry.TaskState) {
	s.d.Changed(l, state, s.now)
}

// settle prints the events, a line each, and does with each what the machine would.
func (s *script) settle() {
	for ev := s.d.Next(); ev != nil; ev = s.d.Next() {
		switch ev := ev.(type) {
		case coord.Lost:
			s.print("lost", len(ev.Tasks), func(i int) string {
				return fmt.Sprintf("%s %q", named(ev.Tasks[i].Task, ev.Tasks[i].Incarnation), ev.Tasks[i].Evidence)
			})
			for _, l := range ev.Tasks {
				s.changed(serry.Life{Task: l.Task, Incarnation: l.Incarnation}, serry.Failed)
			}
		case coord.Exited:
			s.print("exited", len(ev.Tasks), func(i int) string { return named(ev.Tasks[i].Task, ev.Tasks[i].Incarnation) })
			for _, l := range ev.Tasks {
				s.changed(serry.Life{Task: l.Task, Incarnation: l.Incarnation}, serry.Disconnected)
			}
		case coord.Departed:
			s.print("departed", len(ev.Tasks), func(i int) string { return named(ev.Tasks[i].Task, ev.Tasks[i].Incarnation) })
		default:
			s.t.Fatalf("Next() = %T; want a verdict", ev)
		}
	}
}

func named(task serry.TaskID, incarnation serry.Incarnation) string {
	return fmt.Sprintf("%v#%d", task, incarnation)
}

func (s *script) print(what string, n int, each func(int) string) {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = each(i)
	}
	fmt.Fprintf(&s.out, "%v %s %s\n", time.Duration(s.now), what, strings.Join(parts, ", "))
}

// pass lets time pass: up to each deadline, or at once if the process was held up.
func (s *script) pass(d time.Duration, held bool) {
	end := s.now + coord.Time(d)
	for {
		due, ok := s.d.Deadline()
		if held || !ok || due > end {
			break
		}
		s.now = due
		s.d.Tick(s.now)
		s.settle()
	}
	s.now = end
	s.d.Tick(s.now)
}

// scan looks for silent tasks at a time, a while after it was due.
func (s *script) scan(at, late time.Duration) {
	s.now = coord.Time(at)
	s.silence.Begin(s.now, s.now-coord.Time(late))
	var found []detect.LastBeat
	for i := range 4 {
		id := serry.TaskID{Job: "worker", Index: i}
		if t := s.d.Task(id); t != nil && t.Watched() && s.silence.Overdue(s.now, s.beats[id]) {
			found = append(found, detect.LastBeat{Task: id, At: s.beats[id]})
		}
	}
	s.d.Silent(found, s.now)
}

// life reads "1" or "1#77".
func (s *script) life(text string) serry.Life {
	s.t.Helper()
	index, incarnation, named := strings.Cut(text, "#")
	i, err := strconv.Atoi(index)
	if err != nil {
		s.t.Fatalf("%q: want a life, such as 1 or 1#77", text)
	}
	l := serry.Life{Task: serry.TaskID{Job: "worker", Index: i}, Incarnation: serry.Incarnation(10 * (i + 1))}
	if named {
		n, err := strconv.ParseUint(incarnation, 10, 64)
		if err != nil {
			s.t.Fatalf("%q: want a life, such as 1 or 1#77", text)
		}
		l.Incarnation = serry.Incarnation(n)
	}
	return l
}

// witnessed is the life that a witness of an exit knows: a bare number is that of the task alone.
func (s *script) witnessed(text string) serry.Life {
	l := s.life(text)
	if !strings.Contains(text, "#") {
		l.Incarnation = 0
	}
	return l
}

func (s *script) duration(text string) time.Duration {
	s.t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// Two detectors that see the same say the same, however their maps are ordered.
func TestSameObservationsSameEvents(t *testing.T) {
	run := func() []coord.Event {
		d := detect.New[int](detect.Config{Grace: time.Second, Silence: time.Minute})
		d.Opened([]coord.Job{{Name: "worker", Tasks: 64}}, serry.Life{})
		d.Online(1, false)
		for i := range 64 {
			l := serry.Life{Task: serry.TaskID{Job: "worker", Index: i}, Incarnation: serry.Incarnation(i + 1)}
			d.Changed(l, serry.Connected, 0)
			d.Attached(l, i%2 == 0)
			d.Came(l, 1)
			d.Detached(l, detect.ConnectionClosed, coord.Time(i))
		}
		var all []coord.Event
		next := func() {
			for ev := d.Next(); ev != nil; ev = d.Next() {
				all = append(all, ev)
			}
		}
		d.Tick(coord.Time(time.Second + 100))
		next()
		d.DepartIdle()
		d.Silenced([]int{1})
		next()
		return all
	}
	want := fmt.Sprint(run())
	for range 8 {
		if got := fmt.Sprint(run()); got != want {
			t.Fatalf("the same observations gave\n%s\nand\n%s", got, want)
		}
	}
	if !slices.ContainsFunc(run(), func(ev coord.Event) bool { _, ok := ev.(coord.Lost); return ok }) {
		t.Errorf("no task was lost in %s", want)
	}
}
