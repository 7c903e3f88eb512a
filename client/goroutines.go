package client

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/serry-dev/serry/wire"
)

const (
	stackBytes      = 1 << 20 // of all goroutines; those that do not fit are left out
	goroutinesShown = 64      // groups
	framesShown     = 64
)

// goroutineStacks says where the goroutines of this process are (D-ST-12): the main goroutine, or with wire.AllThreads all of
// them, those at the same place together. No other goroutine runs for the moment in which they are read.
func goroutineStacks(_ context.Context, argument string, most int) []byte {
	text := make([]byte, stackBytes)
	text = text[:runtime.Stack(text, true)]
	stacks := foldGoroutines(string(text), argument == wire.AllThreads)
	for len(stacks) > 0 {
		if b, err := json.Marshal(stacks); err == nil && len(b) <= most {
			return b
		}
		stacks = stacks[:len(stacks)/2]
	}
	return nil
}

// foldGoroutines reads what runtime.Stack writes: for each goroutine a line that begins "goroutine 7 [select, 3 minutes]:",
// two lines for each frame, and an empty line.
func foldGoroutines(text string, all bool) []wire.ThreadStack {
	var stacks []wire.ThreadStack
	var counts []int
	places := make(map[string]int)
	for block := range strings.SplitSeq(text, "\n\n") {
		head, frames, _ := strings.Cut(block, "\n")
		number, state, ok := parseGoroutine(head)
		if !ok || !all && number != mainGoroutine {
			continue
		}
		s := wire.ThreadStack{Name: "main goroutine", Doing: state, Frames: parseFrames(frames)}
		if !all {
			s.Name = ""
			return []wire.ThreadStack{s}
		}
		key := fmt.Sprint(number == mainGoroutine, s.Frames)
		i, known := places[key]
		if !known && len(stacks) < goroutinesShown {
			i = len(stacks)
			places[key], known = i, true
			stacks, counts = append(stacks, s), append(counts, 0)
		}
		if !known {
			continue
		}
		switch counts[i]++; {
		case number == mainGoroutine:
		case counts[i] == 1:
			stacks[i].Name = "goroutine " + strconv.Itoa(number)
		default:
			stacks[i].Name = fmt.Sprintf("%d goroutines", counts[i])
		}
	}
	return stacks
}

// mainGoroutine is the number of the goroutine that runs main.
const mainGoroutine = 1

func parseGoroutine(head string) (number int, state string, ok bool) {
	word, rest, ok := strings.Cut(strings.TrimPrefix(head, "goroutine "), " [")
	number, err := strconv.Atoi(word)
	return number, strings.TrimSuffix(rest, "]:"), ok && err == nil
}

// parseFrames reads pairs of lines: "pkg.function(0xc000, ...)" and "\t/path/file.go:12 +0x1d".
func parseFrames(text string) (frames []wire.StackFrame) {
	lines := strings.Split(text, "\n")
	for pair := range slices.Chunk(lines, 2) {
		if len(pair) < 2 || len(frames) == framesShown {
			break
		}
		function, place := pair[0], strings.TrimSpace(pair[1])
		if i := strings.LastIndexByte(function, '('); i > 0 {
			function = function[:i]
		}
		place, _, _ = strings.Cut(place, " ")
		file, line, _ := cutLast(place, ":")
		n, _ := strconv.Atoi(line) // 0 where there is none
		frames = append(frames, wire.StackFrame{Function: function, File: file, Line: n})
	}
	return frames
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
