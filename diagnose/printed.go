package diagnose

import (
	"regexp"
	"strconv"
	"strings"
)

// This file reads the stacks that Python prints by itself: of an exception, and of a crash (PYTHONFAULTHANDLER, D-ST-11).

const (
	tracebackWords = "Traceback (most recent call last):"
	threadWords    = " (most recent call first):"
	crashWords     = "Fatal Python error: "
)

// printedFrame is a frame as either prints it.
var printedFrame = regexp.MustCompile(`^\s*File "([^"]+)", line ([0-9]{1,9})(,?) in (.+)$`)

// PlaceIn is where in its code a Python program was, by the last stack in its output, in the words of [Condition.At]; empty: there
// is none. Of a crash it is the thread that has crashed, or, where that is none of Python's, the main thread, which is printed last. The lines
// are those of any program.
func PlaceIn(output []string) string {
	var frames []Frame
	inside, current := false, false // in a stack; that is the one of the thread that has crashed
	for _, line := range output {
		switch {
		case strings.HasPrefix(line, tracebackWords):
			frames, inside, current = nil, true, false
		case strings.HasSuffix(line, threadWords):
			if inside = !current; inside {
				frames, current = nil, strings.HasPrefix(line, "Current thread ")
			}
			continue
		}
		m := printedFrame.FindStringSubmatch(line)
		if !inside || m == nil {
			continue
		}
		number, _ := strconv.Atoi(m[2]) // it is one
		f := Frame{Function: m[4], File: m[1], Line: number}
		if m[3] != "" { // a traceback begins with the outermost frame
			frames = append([]Frame{f}, frames...)
		} else {
			frames = append(frames, f)
		}
	}
	if len(frames) == 0 {
		return ""
	}
	s := Stack{Frames: frames}
	return s.place()
}

// CrashIn is what Python has printed of a crash: "Fatal Python error: Segmentation fault"; or empty.
func CrashIn(output []string) string {
	for _, line := range output {
		if strings.HasPrefix(line, crashWords) {
			return line
		}
	}
	return ""
}
