package launch

import (
	"bytes"
	"regexp"
	"slices"
)

// A tracebackReader finds the exceptions in the lines that a Python program writes to stderr. The zero value
// is ready for the first line.
type tracebackReader struct {
	inside   bool // the lines are those of a traceback, whose exception has not come yet
	harmless bool // the line before said that Python goes on after the exception
}

const tracebackHeader = "Traceback (most recent call last):"

var (
	// Python writes a traceback below each of these, and goes on: an exception that ended a thread, one in a
	// finalizer, one in a handler of atexit, and one while a record was logged.
	goesOn = [][]byte{
		[]byte("Exception in thread "), []byte("Exception ignored "), []byte("Error in atexit."), []byte("--- Logging error ---"),
	}

	// An exception group has its own header, and a margin before every line.
	groupMargin = []byte("  | ")
	groupHeader = []byte("  + Exception Group " + tracebackHeader)

	colours = regexp.MustCompile("\x1b\\[[0-9;]*m") // Python writes them where FORCE_COLOR is set
)

// read takes a line and returns the exception, if that line is the end of a traceback: "ValueError: bad sample
// 17". Of an exception in several lines it is the first. After an exception that Python handles by itself the
// program goes on, so such exceptions are left out.
func (r *tracebackReader) read(line []byte) (exception string) {
	if !r.inside && !bytes.Contains(line, []byte(tracebackHeader)) { // as nearly every line
		r.harmless = slices.ContainsFunc(goesOn, func(begin []byte) bool { return bytes.HasPrefix(line, begin) })
		return ""
	}
	line = bytes.TrimPrefix(colours.ReplaceAll(line, nil), groupMargin)
	switch {
	case bytes.HasPrefix(line, []byte(tracebackHeader)), bytes.HasPrefix(line, groupHeader):
		r.inside = !r.harmless
	case !r.inside || len(line) == 0 || line[0] == ' ' || line[0] == '\t': // a frame, or the code in it
	default:
		r.inside = false
		exception = string(line[:min(len(line), tailLineSize)])
	}
	r.harmless = false
	return exception
}
