package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
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

// An output takes what one process writes: it shows it line by line, remembers the last lines, and
// copies every byte to a log, if there is one.
type output struct {
	task    int
	display Display

	mu struct {
		sync.Mutex
		log  *os.File // or nil
		tail []string // at most tailLines, oldest first
	}
}

// openLog makes the file that everything is copied to.
func (o *output) openLog(dir string, attempt, life int) error {
	dir = filepath.Join(dir, fmt.Sprintf("attempt-%d", attempt))
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	name := fmt.Sprintf("task-%d.log", o.task)
	if life > 1 {
		name = fmt.Sprintf("task-%d.life-%d.log", o.task, life)
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o666)
	o.mu.log = f
	return err
}

// copy takes a stream until it ends. A line that is longer than lineBytes is shown in pieces.
func (o *output) copy(stream Stream, from io.Reader) {
	buf := make([]byte, readBytes)
	var line []byte // begun, but not ended
	for {
		n, err := from.Read(buf)
		o.record(buf[:n])
		for rest := buf[:n]; len(rest) > 0; {
			i := bytes.IndexByte(rest, '\n')
			if i < 0 {
				line = append(line, rest...)
				break
			}
			o.show(stream, append(line, rest[:i]...))
			line, rest = line[:0], rest[i+1:]
		}
		if len(line) > lineBytes {
			o.show(stream, line)
			line = nil
		}
		if err != nil {
			break
		}
	}
	if len(line) > 0 {
		o.show(stream, line)
	}
}

// show passes a line on without what a terminal would not show: a carriage return at its end, and
// everything that an earlier one let the writer overwrite.
func (o *output) show(stream Stream, line []byte) {
	line = bytes.TrimSuffix(line, []byte("\r"))
	line = line[bytes.LastIndexByte(line, '\r')+1:]
	o.display.Line(o.task, stream, line)
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.mu.tail) == tailLines {
		o.mu.tail = append(o.mu.tail[:0], o.mu.tail[1:]...)
	}
	o.mu.tail = append(o.mu.tail, string(line[:min(len(line), tailLineSize)]))
}

// record copies bytes to the log. A log that cannot be written, because the disk is full for one, is
// given up with a word; the task goes on.
func (o *output) record(b []byte) {
	if err := o.write(b); err != nil {
		o.display.Note(Note{Warning: true, Text: fmt.Sprintf("the log of task %d ends here: %v", o.task, err)})
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

// last returns the last lines.
func (o *output) last() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.mu.tail...)
}

// pipes are the ends of the two pipes of a process.
type pipes struct {
	ours   [2]*os.File // to read from: stdout, stderr
	theirs [2]*os.File
}

func newPipes() (p pipes, err error) {
	for i := range p.ours {
		r, w, e := os.Pipe()
		if e != nil {
			return p, errors.Join(e, p.close())
		}
		p.ours[i], p.theirs[i] = r, w
	}
	return p, nil
}

func (p pipes) close() error {
	return errors.Join(closeAll(p.ours[:]), closeAll(p.theirs[:]))
}

func closeAll(files []*os.File) error {
	var errs []error
	for _, f := range files {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
