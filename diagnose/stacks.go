package diagnose

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/serry-dev/serry"
)

// A Frame is a call of a function that has not returned.
type Frame struct {
	Function string `json:"function"` // qualified: Trainer.step
	File     string `json:"file"`
	Line     int    `json:"line"` // 0: it belongs to no line
}

// A Stack is what a rank does: where its main thread is.
type Stack struct {
	Task   string
	Frames []Frame // the innermost first
	Deeper bool    // there are more frames, further out
	Doing  string  // what the thread does there: "asleep (futex)", "running"
	Error  string  // why there are no frames
}

// A StackGroup are the ranks that are at the same place.
type StackGroup struct {
	Tasks  []string `json:"tasks"` // by number
	Frames []Frame  `json:"frames"`
	Deeper bool     `json:"more,omitempty"`
	Doing  []string `json:"doing"` // what their threads do there, that of most ranks first
	Error  string   `json:"error,omitempty"`
}

// FoldStacks puts ranks with equal stacks together, the smallest group first: the rank that is alone is the one to look
// at (D-ST-14). It is pure, and the order of the stacks does not matter.
func FoldStacks(stacks []Stack) []StackGroup {
	stacks = slices.Clone(stacks)
	slices.SortFunc(stacks, func(a, b Stack) int { return compareTasks(a.Task, b.Task) })
	type doing map[string]int
	groups, did := []StackGroup{}, []doing{}
	places := make(map[string]int)
	for _, s := range stacks {
		key := s.key()
		i, known := places[key]
		if !known {
			i = len(groups)
			places[key] = i
			groups = append(groups, StackGroup{Frames: append([]Frame{}, s.Frames...), Deeper: s.Deeper, Error: s.Error, Doing: []string{}})
			did = append(did, doing{})
		}
		g := &groups[i]
		g.Tasks = append(g.Tasks, s.Task)
		if s.Doing == "" {
			continue
		}
		if did[i][s.Doing]++; did[i][s.Doing] == 1 {
			g.Doing = append(g.Doing, s.Doing)
		}
	}
	for i := range groups {
		slices.SortStableFunc(groups[i].Doing, func(a, b string) int {
			return cmp.Or(cmp.Compare(did[i][b], did[i][a]), strings.Compare(a, b))
		})
	}
	slices.SortStableFunc(groups, func(a, b StackGroup) int { return cmp.Compare(len(a.Tasks), len(b.Tasks)) })
	return groups
}

// key is the same for stacks that are equal, and for no others.
func (s *Stack) key() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q %v", s.Error, s.Deeper)
	for _, f := range s.Frames {
		fmt.Fprintf(&b, " %q %q %d", f.Function, f.File, f.Line)
	}
	return b.String()
}

// compareTasks orders tasks by job and number.
func compareTasks(a, b string) int {
	x, errX := serry.ParseTaskID(a)
	y, errY := serry.ParseTaskID(b)
	if errX != nil || errY != nil {
		return strings.Compare(a, b)
	}
	return cmp.Or(strings.Compare(x.Job, y.Job), cmp.Compare(x.Index, y.Index))
}

// A StackLine is a line that people read of a stack: a frame, or how many were left out and of what.
type StackLine struct {
	Function string // or empty
	Place    string // train.py:10, or "7 frames of jax"
}

// framesShown is how many lines a stack has room for.
const framesShown = 12

// Lines are the frames of a stack for people: frames of jax, numpy and the standard library are one line unless they
// are the innermost, and there are at most 12 lines.
func Lines(frames []Frame, deeper bool) []StackLine {
	var lines []StackLine
	for i := 0; i < len(frames); {
		library := libraryOf(frames[i].File)
		n := i + 1
		for i > 0 && library != "" && n < len(frames) && libraryOf(frames[n].File) == library {
			n++
		}
		if i == 0 || library == "" || n == i+1 {
			lines = append(lines, frames[i].line())
		} else {
			lines = append(lines, StackLine{Place: fmt.Sprintf("%d frames of %s", n-i, library)})
		}
		i = n
	}
	if len(lines) > framesShown {
		// The outermost frame says which program it is.
		left := len(lines) - framesShown + 1
		lines = slices.Concat(lines[:framesShown-2], []StackLine{{Place: counted(left, "line more", "lines more")}}, lines[len(lines)-1:])
	}
	if deeper {
		lines = append(lines, StackLine{Place: "more frames, further out"})
	}
	return lines
}

// AllLines are all frames of a stack, with whole paths.
func AllLines(frames []Frame, deeper bool) []StackLine {
	var lines []StackLine
	for _, f := range frames {
		lines = append(lines, StackLine{f.Function, fmt.Sprintf("%s:%d", f.File, f.Line)})
	}
	if deeper {
		lines = append(lines, StackLine{Place: "more frames, further out"})
	}
	return lines
}

func (f Frame) line() StackLine {
	return StackLine{f.Function, fmt.Sprintf("%s:%d", path.Base(f.File), f.Line)}
}

// libraries are packages whose frames say little about a program.
var libraries = []string{"jax", "jaxlib", "numpy"}

// libraryOf names the library that a file is part of; empty: it may be the program.
func libraryOf(file string) string {
	for _, folder := range []string{"/site-packages/", "/dist-packages/"} {
		if i := strings.LastIndex(file, folder); i >= 0 {
			name, _, _ := strings.Cut(file[i+len(folder):], "/")
			if slices.Contains(libraries, name) {
				return name
			}
			return ""
		}
	}
	if _, rest, ok := strings.Cut(file, "/lib/python3."); ok && strings.Contains(rest, "/") || strings.HasPrefix(file, "<frozen ") {
		return "the standard library"
	}
	return ""
}

// An At are ranks at one place of their code.
type At struct {
	Tasks []string `json:"tasks"`
	Text  string   `json:"text"` // all of it, in a line
}

// WantsStacks says whether stacks would explain something: ranks do nothing that the service sees, and no failure
// says why.
func (r *Report) WantsStacks() bool {
	if r.Kind != Well && r.Kind != Waiting && r.Kind != Deadlock {
		return false
	}
	return r.Stage != OnTime || len(r.Calls) == 0 || slices.ContainsFunc(r.Calls, func(c Calls) bool { return c.Quiet() })
}

// placesShown is how many places of ranks a report has.
const placesShown = 8

// places says where ranks are.
func (j *judge) places(stacks []Stack) []At {
	var all []At
	for _, g := range FoldStacks(stacks) {
		if len(all) == placesShown {
			break
		}
		text := j.ranks(g.Tasks) + " " + verb(len(g.Tasks), "is", "are") + " " + g.where()
		if len(g.Doing) > 0 {
			text += ", " + strings.Join(g.Doing, " or ")
		}
		all = append(all, At{g.Tasks, text})
	}
	return all
}

// linesNamed is how many lines of a stack stand in one line.
const linesNamed = 3

// where is the place of a group: at load_batch (train.py:10) < train_step (train.py:19).
func (g *StackGroup) where() string {
	var parts []string
	for _, l := range Lines(g.Frames, g.Deeper) {
		if l.Function != "" {
			l.Place = fmt.Sprintf("%s (%s)", l.Function, l.Place)
		}
		if parts = append(parts, l.Place); len(parts) == linesNamed {
			break
		}
	}
	switch {
	case g.Error != "":
		return "at an unknown place (" + g.Error + ")"
	case len(parts) == 0:
		return "in no Python function"
	}
	return "at " + strings.Join(parts, " < ")
}
