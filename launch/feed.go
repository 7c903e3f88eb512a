package launch

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	feedBytes = 4 << 20 // of lines that wait to be shown
	feedNotes = 1024    // notes and log records that wait to be shown
	lineCost  = 64      // bytes that a waiting line costs beside its text

	// stallPatience is how long a display may take for one line before it counts as stalled, and
	// flushPatience how long it may take at the end of a job.
	stallPatience = 5 * time.Second
	flushPatience = 10 * time.Second
)

// A feed hands lines, notes and log records on to the display of a job, in the order in which they
// came, on a goroutine of its own. A display may block: it writes to a terminal that a user has
// stopped, or to a pipe whose reader is slow. Nothing that supervises tasks may wait for that, so notes
// and log records never wait, and those that find the feed full are dropped and counted.
//
// Lines are different. Where a log keeps them, they do not wait either. Where the display is the only
// place for them, the task waits while the display makes progress, as it would if it wrote to the pipe
// itself. Once the display has stalled, lines are dropped and counted until it goes on: a job must not
// stand still because a terminal does. What was dropped is said at the place where it is missing.
type feed struct {
	display Display
	quit    chan struct{} // closed by close; what waits is given up
	done    chan struct{} // closed when the goroutine has ended

	some chan struct{} // has a token where there may be an entry
	mu   struct {
		sync.Mutex
		entries []entry
		bytes   int           // that the lines among them cost
		notes   int           // notes and records among them
		missing missing       // dropped since the last entry
		shown   chan struct{} // closed and replaced when an entry has been shown
		stalled bool          // the display takes too long for the present entry
		closed  bool          // no more entries come
	}
}

// An entry is one thing to be shown: the one of these that is set.
type entry struct {
	line    *line
	note    *Note
	record  *record
	missing missing
}

type line struct {
	task   int
	stream Stream
	text   []byte
}

// A record is one of a log, with the handler that would have written it.
type record struct {
	to slog.Handler
	slog.Record
}

// missing counts what was dropped.
type missing struct{ lines, notes int }

func (m missing) String() string {
	switch {
	case m.notes == 0:
		return fmt.Sprintf("%s of output not shown here: what reads this output stood still", counted(m.lines, "line"))
	case m.lines == 0:
		return fmt.Sprintf("%s not shown here: what reads this output stood still", counted(m.notes, "message"))
	}
	return fmt.Sprintf("%s of output and %s not shown here: what reads this output stood still", counted(m.lines, "line"), counted(m.notes, "message"))
}

func newFeed(d Display) *feed {
	f := &feed{display: d, quit: make(chan struct{}), done: make(chan struct{}), some: make(chan struct{}, 1)}
	f.mu.shown = make(chan struct{})
	go f.run()
	return f
}

// note shows what the launcher has to say. It never waits.
func (f *feed) note(n Note) { f.message(entry{note: &n}) }

func (f *feed) message(e entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed || f.mu.notes >= feedNotes {
		f.mu.missing.notes++
		return
	}
	f.mu.notes++
	f.push(e)
}

// line shows what a task wrote. A patient line waits for its place while the display makes progress.
func (f *feed) line(l line, patient bool) {
	var timer *time.Timer
	for {
		shown, taken := f.offer(l, patient)
		if taken {
			return
		}
		if timer == nil {
			timer = time.NewTimer(stallPatience)
			defer timer.Stop()
		}
		timer.Reset(stallPatience)
		select {
		case <-shown:
		case <-timer.C:
			f.stall(shown)
		}
	}
}

// offer adds a line or drops it. A patient line for which there is no place now is neither, and can be
// offered again when something has been shown.
func (f *feed) offer(l line, patient bool) (shown <-chan struct{}, taken bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch cost := lineCost + len(l.text); {
	case f.mu.closed:
		return nil, true
	case f.mu.bytes == 0 || f.mu.bytes+cost <= feedBytes:
		f.mu.bytes += cost
		f.push(entry{line: &l})
	case patient && !f.mu.stalled:
		return f.mu.shown, false
	default:
		f.mu.missing.lines++
	}
	return nil, true
}

// push needs mu.
func (f *feed) push(e entry) {
	if f.mu.missing != (missing{}) {
		f.mu.entries = append(f.mu.entries, entry{missing: f.mu.missing})
		f.mu.missing = missing{}
	}
	f.mu.entries = append(f.mu.entries, e)
	f.wake()
}

func (f *feed) wake() {
	select {
	case f.some <- struct{}{}:
	default:
	}
}

// stall takes note that the display has shown nothing for too long, unless it has since.
func (f *feed) stall(shown <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.stalled = f.mu.stalled || shown == f.mu.shown
}

// run shows entries until the feed is closed.
func (f *feed) run() {
	defer close(f.done)
	for {
		e, ok := f.next()
		if !ok {
			return
		}
		f.show(e)
		f.mu.Lock()
		if e.line != nil {
			f.mu.bytes -= lineCost + len(e.line.text)
		} else if e.missing == (missing{}) {
			f.mu.notes--
		}
		f.mu.stalled = false
		close(f.mu.shown)
		f.mu.shown = make(chan struct{})
		f.mu.Unlock()
	}
}

// next waits for an entry. It returns false when the feed is closed, and empty or given up.
func (f *feed) next() (e entry, ok bool) {
	for {
		f.mu.Lock()
		if len(f.mu.entries) == 0 && f.mu.closed && f.mu.missing != (missing{}) {
			f.mu.entries, f.mu.missing = append(f.mu.entries, entry{missing: f.mu.missing}), missing{}
		}
		if len(f.mu.entries) > 0 {
			e, f.mu.entries = f.mu.entries[0], f.mu.entries[1:]
			f.mu.Unlock()
			return e, true
		}
		closed := f.mu.closed
		f.mu.Unlock()
		if closed {
			return e, false
		}
		<-f.some
	}
}

func (f *feed) show(e entry) {
	select {
	case <-f.quit:
		return
	default:
	}
	switch {
	case e.line != nil:
		f.display.Line(e.line.task, e.line.stream, e.line.text)
	case e.note != nil:
		f.display.Note(*e.note)
	case e.record != nil:
		_ = e.record.to.Handle(context.Background(), e.record.Record) // an error has no receiver: the log itself has failed
	default:
		f.display.Note(Note{Warning: true, Text: e.missing.String()})
	}
}

// close shows what waits, for as long as the display makes progress and hurry is open, and then no
// more. A display that never returns keeps its goroutine.
func (f *feed) close(hurry <-chan struct{}) {
	f.mu.Lock()
	f.mu.closed = true
	f.wake()
	f.mu.Unlock()
	defer close(f.quit)
	timer := time.NewTimer(flushPatience)
	defer timer.Stop()
	for {
		f.mu.Lock()
		shown := f.mu.shown
		f.mu.Unlock()
		select {
		case <-f.done:
			return
		case <-shown:
			timer.Reset(flushPatience)
		case <-hurry:
			return
		case <-timer.C:
			return
		}
	}
}

// logger returns one whose records come by this feed, so that a service of this process does not wait
// for a terminal either.
func (f *feed) logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return nil
	}
	return slog.New(feedHandler{f, l.Handler()})
}

type feedHandler struct {
	feed *feed
	to   slog.Handler
}

func (h feedHandler) Enabled(ctx context.Context, l slog.Level) bool { return h.to.Enabled(ctx, l) }

func (h feedHandler) Handle(_ context.Context, r slog.Record) error {
	h.feed.message(entry{record: &record{h.to, r.Clone()}})
	return nil
}

func (h feedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return feedHandler{h.feed, h.to.WithAttrs(attrs)}
}

func (h feedHandler) WithGroup(name string) slog.Handler {
	return feedHandler{h.feed, h.to.WithGroup(name)}
}
