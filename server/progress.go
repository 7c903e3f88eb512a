package server

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

const (
	firstReport = 5 * time.Second  // how long a wait may last before people are told of it
	lastReport  = 60 * time.Second // what the pause between two reports grows to
	namesInLog  = 5
	notesInLog  = 10   // of one sort, for one wave
	idInLog     = 200  // bytes of a barrier id, which a client chose
	errorInLog  = 1000 // bytes of an error, which may name every task
)

// progress writes, at times, a line on every wait that has lasted for long, with the names of those
// who are missing (C-REG-16). It belongs to the owner.
type progress struct {
	log   *slog.Logger
	at    coord.Time          // of the next look
	waits map[waitID]reported // that have been reported
}

type waitID struct {
	barrier string
	counter int64
	since   coord.Time
}

type reported struct {
	next  coord.Time
	pause time.Duration
}

func newProgress(log *slog.Logger) *progress {
	return &progress{log: log, waits: make(map[waitID]reported)}
}

// next says when to look again. While nobody waits for others, never.
func (p *progress) next(meeting bool) (coord.Time, bool) { return p.at, meeting && p.at != 0 }

// due says whether to look now, and sets the time of the next look.
func (p *progress) due(now coord.Time, meeting bool) bool {
	if !meeting {
		p.at = 0
		clear(p.waits)
		return false
	}
	was := p.at
	if was == 0 || was <= now {
		p.at = now + coord.Time(firstReport)
	}
	return was != 0 && was <= now
}

// report writes a line for every wait whose time has come.
func (p *progress) report(now coord.Time, v coord.View) {
	seen := make(map[waitID]bool, len(v.Barriers))
	for _, b := range v.Barriers {
		id := waitID{b.ID, b.Counter, b.Since}
		seen[id] = true
		r := p.waits[id]
		if now-b.Since < coord.Time(firstReport) || now < r.next {
			continue
		}
		r.pause = min(max(2*r.pause, firstReport), lastReport)
		r.next = now + coord.Time(r.pause)
		p.waits[id] = r
		p.line(b, time.Duration(now-b.Since))
	}
	for id := range p.waits {
		if !seen[id] {
			delete(p.waits, id)
		}
	}
}

func (p *progress) line(b coord.BarrierView, since time.Duration) {
	facts := []any{
		slog.Int("arrived", b.Arrived), slog.Int("of", b.Members),
		slog.String("missing", names(b.Missing)), slog.Duration("since", since.Round(time.Second)),
	}
	if b.ID == coord.RegisterBarrierID {
		p.log.Info("waiting for tasks to register", facts...)
		return
	}
	p.log.Info("waiting at barrier", append([]any{slog.String("barrier", short(b.ID, idInLog)), slog.Int64("counter", b.Counter)}, facts...)...)
}

// names lists tasks, the first few by name.
func names(tasks []serry.TaskID) string {
	var b strings.Builder
	for i, t := range tasks {
		if i == namesInLog {
			fmt.Fprintf(&b, " and %d more", len(tasks)-i)
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(t.String())
	}
	return b.String()
}

// short cuts a text that a client chose or that may be long.
func short(s string, bytes int) string {
	if len(s) <= bytes {
		return s
	}
	return strings.ToValidUTF8(s[:bytes], "") + "..."
}

// A noteLog writes the notes of the machine to the log.
type noteLog struct{ *slog.Logger }

// notes logs what the machine noted in one wave. What happens to all tasks at once is told of a few.
func (l noteLog) notes(list []coord.Note) {
	var told, left map[string]int
	if len(list) > notesInLog {
		told, left = make(map[string]int), make(map[string]int)
	}
	for i, n := range list {
		level := level(n)
		if !l.Enabled(context.Background(), level) {
			continue
		}
		if i >= notesInLog && told[n.What] >= notesInLog {
			left[n.What]++
			continue
		}
		if told != nil {
			told[n.What]++
		}
		l.Log(context.Background(), level, n.What, attrs(n)...)
	}
	for _, what := range slices.Sorted(maps.Keys(left)) {
		l.Info("more of the same", slog.String("note", what), slog.Int("count", left[what]))
	}
}

// level says how important a note is. Failures are what people look for; ends of barriers are many.
func level(n coord.Note) slog.Level {
	switch {
	case n.Err != nil:
		return slog.LevelWarn
	case n.Barrier != "":
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// attrs are the facts of a note, in the words all logs use.
func attrs(n coord.Note) []any {
	var a []any
	if !n.Task.IsZero() {
		a = append(a, slog.Any("task", n.Task))
	}
	if n.Incarnation != 0 {
		a = append(a, slog.Uint64("incarnation", uint64(n.Incarnation)))
	}
	if n.Barrier != "" {
		a = append(a, slog.String("barrier", short(n.Barrier, idInLog)), slog.Int64("counter", n.Counter))
	}
	if n.Of != 0 {
		a = append(a, slog.Int("count", n.Count), slog.Int("of", n.Of))
	} else if n.Count != 0 {
		a = append(a, slog.Int("count", n.Count))
	}
	if n.Err != nil {
		a = append(a, slog.String("err", short(n.Err.Error(), errorInLog)))
	}
	return a
}
