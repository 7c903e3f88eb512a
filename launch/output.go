package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// A Stream is one of the two that a task writes to.
type Stream int

// The streams.
const (
	Stdout Stream = iota + 1
	Stderr
)

const (
	readBytes    = 32 << 10 // read from a task at a time
	lineBytes    = 1 << 20  // longest line that is shown whole
	tailLines    = 20       // kept for the report
	tailLineSize = 512      // bytes of each
)

// An output takes what one process writes: it copies every byte to a log, if there is one, remembers
// the last lines, looks for exceptions, and shows it line by line.
type output struct {
	task   int
	feed   *feed
	raised chan string // holds the last exception that was printed and not taken
	kept   *lastLines  // of the host, or nil; set by the crew before the process runs, as seat is
	seat   seat

	traceback tracebackReader // owned by the goroutine that copies stderr

	mu struct {
		sync.Mutex
		log    *os.File // or nil
		logged bool     // there was one at the start
		tail   []string // at most tailLines, oldest first
		traced []string // the tail when the last exception came, or when the process failed otherwise; or nil
	}
}

func newOutput(task int, f *feed) *output {
	return &output{task: task, feed: f, raised: make(chan string, 1)}
}

// openLog makes the file that everything is copied to. It is a new one: what an earlier run wrote into the
// same directory stays as it is, and this run writes beside it.
func (o *output) openLog(dir string, attempt, life int) error {
	dir = filepath.Join(dir, fmt.Sprintf("attempt-%d", attempt))
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	name := fmt.Sprintf("rank-%d", o.task)
	if life > 1 {
		name = fmt.Sprintf("rank-%d.life-%d", o.task, life)
	}
	f, err := create(filepath.Join(dir, name), ".log")
	if err != nil {
		return err
	}
	o.mu.log, o.mu.logged = f, true
	return nil
}

// mostRuns bounds the runs whose logs can be in one directory.
const mostRuns = 10_000

// create makes the file base+end, or, where earlier runs have made that, base.run-2+end and so on.
func create(base, end string) (*os.File, error) {
	name := base + end
	for run := 2; ; run++ {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o666)
		if !errors.Is(err, fs.ErrExist) || run > mostRuns {
			return f, err
		}
		name = fmt.Sprintf("%s.run-%d%s", base, run, end)
	}
}

// drainPatience is how long a pipe may be empty and open once the group of its task has ended. Then a
// process that has left the group holds it.
const drainPatience = 200 * time.Millisecond

// copy takes a stream until it ends, and returns true; or until its deadline, and returns false where
// the stream is open and empty. A line that is longer than lineBytes is shown in pieces.
//
// A deadline alone says nothing about the stream: it may have passed while we were busy with what we
// had read. Only a read that had all of drainPatience for itself, and found nothing, tells that the
// stream is empty.
func (o *output) copy(stream Stream, from pipe) (ended bool) {
	buf := make([]byte, readBytes)
	var begun []byte // a line without its end
	waited := false  // the last read had time, and found nothing
	for {
		n, err := from.Read(buf)
		o.record(buf[:n])
		begun = o.lines(stream, begun, buf[:n])
		switch {
		case err == nil:
			waited = false
			continue
		case errors.Is(err, os.ErrDeadlineExceeded) && (!waited || n > 0):
			waited = true
			if from.SetReadDeadline(time.Now().Add(drainPatience)) == nil {
				continue
			}
		}
		if len(begun) > 0 {
			o.show(stream, begun)
		}
		return !errors.Is(err, os.ErrDeadlineExceeded)
	}
}

// lines shows the lines that have ended, and returns the one that has not.
func (o *output) lines(stream Stream, begun, more []byte) []byte {
	for len(more) > 0 {
		i := bytes.IndexByte(more, '\n')
		if i < 0 {
			begun = append(begun, more...)
			break
		}
		o.show(stream, append(begun, more[:i]...))
		begun, more = begun[:0], more[i+1:]
	}
	if len(begun) > lineBytes {
		o.show(stream, begun)
		return nil
	}
	return begun
}

// show passes a line on without what a terminal would not show: a carriage return at its end, and
// everything that an earlier one let the writer overwrite.
func (o *output) show(stream Stream, text []byte) {
	text = bytes.TrimSuffix(text, []byte("\r"))
	text = text[bytes.LastIndexByte(text, '\r')+1:]
	exception := ""
	if stream == Stderr {
		exception = o.traceback.read(text)
	}
	o.mu.Lock()
	if len(o.mu.tail) == tailLines {
		o.mu.tail = append(o.mu.tail[:0], o.mu.tail[1:]...)
	}
	o.mu.tail = append(o.mu.tail, string(text[:min(len(text), tailLineSize)]))
	if exception != "" {
		o.mu.traced = append([]string(nil), o.mu.tail...)
	}
	logged := o.mu.logged
	o.mu.Unlock()
	if o.kept != nil {
		o.kept.add(o.seat, stream, text, time.Now())
	}
	if exception != "" {
		o.raise(exception)
	}
	o.feed.line(line{o.task, stream, bytes.Clone(text)}, !logged)
}

// raise puts an exception into the place of the one before.
func (o *output) raise(exception string) {
	select {
	case <-o.raised:
	default:
	}
	o.raised <- exception // there is room: only one goroutine at a time copies stderr
}

// record copies bytes to the log. A log that cannot be written, because the disk is full for one, is
// given up with a word; the task goes on.
func (o *output) record(b []byte) {
	if err := o.write(b); err != nil {
		o.feed.note(Note{Warning: true, Text: fmt.Sprintf("the log of rank %d ends here: %v", o.task, err)})
	}
}

func (o *output) write(b []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.log == nil {
		return nil
	}
	_, err := o.mu.log.Write(b)
	if err != nil {
		o.mu.log.Close()
		o.mu.log = nil
	}
	return err
}

// close ends the log.
func (o *output) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.log == nil {
		return nil
	}
	err := o.mu.log.Close()
	o.mu.log = nil
	return err
}

// mark keeps the last lines of a process that has failed and runs, unless it was by an exception.
func (o *output) mark() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.traced == nil {
		o.mu.traced = append([]string{}, o.mu.tail...)
	}
}

// last returns the last lines. Those of a process that failed before it ended are those up to then: what came later,
// such as the trace of an abort, says nothing about the cause.
func (o *output) last(early bool) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if early && o.mu.traced != nil {
		return o.mu.traced
	}
	return append([]string(nil), o.mu.tail...)
}
