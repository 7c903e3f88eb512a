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
	// firstReport is how long a wait may last before it is logged, and lastReport what the pause between
	// two reports of it grows to.
	firstReport = 5 * time.Second
	lastReport  = 60 * time.Second

	// Bounds of what one line, or one wave, may add to the log. Clients choose ids, and errors may name every
	// task.
	namesInLog = 5
	notesInLog = 10   // of one sort, for one wave
	idInLog    = 200  // bytes
	errorInLog = 1000 // bytes
)

// progress logs every wait that lasts for long, with the names of the tasks that are missing (C-REG-16): the
// first question of a person whose job does not start. A wait is logged after 5 s, and then at growing
// intervals, so that a job that waits for an hour for its last host fills no disk. It belongs to the owner, and
// costs nothing while no call waits for other tasks.
type progress struct {
	log   *slog.Logger
	at    coord.Time          // of the next look, or 0: none is planned
	waits map[waitID]reported // waits that have been logged
}

// A waitID names one instance of a barrier. Since tells two instances apart that have the same number in two epochs.
type waitID struct {
	barrier string
	counter int64
	since   coord.Time
}

// reported is when to log a wait again, and how long the pause before that is.
type reported struct {
	next  coord.Time
	pause time.Duration
}

func newProgress(log *slog.Logger) *progress {
	return &progress{log: log, waits: make(map[waitID]reported)}
}

// next says when to look again. While no call waits for other tasks, there is no need to.
func (p *progress) next(meeting bool) (coord.Time, bool) { return p.at, meeting && p.at != 0 }

// due says whether to look now, and plans the next look. The first one is planned when a call begins to wait, and
// all is forgotten when none does. Looks are five seconds apart, so a wait is reported up to five seconds after
// its time.
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

// report logs every wait whose time has come, and forgets those that are over. The view costs a walk over the open
// barriers, once in five seconds at most.
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

// line logs one wait: how many have arrived, which tasks are missing, and since when the first one waits. At most
// five missing tasks are named.
func (p *progress) line(b coord.BarrierView, since time.Duration) {
	facts := []any{
		slog.Int("arrived", b.Arrived), slog.Int("of", b.Members),
		slog.String("missing", names(b.Missing)), slog.Duration("since", since.Round(time.Second)),
	}
	// The barrier of the registrations has a name that no person has chosen.
	if b.ID == coord.RegisterBarrierID {
		p.log.Info("waiting for tasks to register", facts...)
		return
	}
	p.log.Info("waiting at barrier", append([]any{slog.String("barrier", short(b.ID, idInLog)), slog.Int64("counter", b.Counter)}, facts...)...)
}

// names lists tasks, the first few by name and the rest as a number.
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

// short cuts a text that a client chose, or that may be long: a log line must stay a line.
func short(s string, bytes int) string {
	if len(s) <= bytes {
		return s
	}
	return strings.ToValidUTF8(s[:bytes], "") + "..."
}

// A noteLog writes the notes of the machine to the log. The machine does not log: it says what happened, and the
// performer logs it when it is durable, so that the log of a server never tells of what a crash undid.
type noteLog struct{ *slog.Logger }

// notes logs what the machine noted in one wave. Where the same happens to many tasks at once, the first few are
// logged by name and the rest as a number: ten thousand tasks that connect are not ten thousand lines.
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

// level says how important a note is. Failures are what people look for. Ends of barriers are as many as the
// steps of a training run, so they are for debugging.
func level(n coord.Note) slog.Level {
	switch {
	case n.Err != nil:
		return slog.LevelWarn
	case n.Barrier != "":
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// attrs are the facts of a note, under the keys that all logs of serry use.
func attrs(n coord.Note) []any {
	var a []any
	if !n.Task.IsZero() {
		a = append(a, slog.Any("task", n.Task))
	}
	if n.Incarnation != 0 {
		a = append(a, slog.Uint64("incarnation", uint64(n.Incarnation)))
	}
	if n.From != "" {
		a = append(a, slog.String("peer", n.From))
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
