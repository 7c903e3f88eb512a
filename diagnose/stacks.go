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
