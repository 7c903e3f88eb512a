package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/launch"
)

// A screen shows a job: what tasks write, with their number in front, what the launcher has to say,
// and on a terminal a last line that says how things are.
type screen struct {
	stdout, stderr io.Writer
	terminal       int  // file descriptor of stderr if that is a terminal, or -1
	colour         bool // of stdout

	mu struct {
		sync.Mutex
		live   string // shown now, or empty
		closed bool   // no live line any more
		broken bool   // the last write to stdout failed, and this has been said
		buf    []byte
	}
}

func newScreen(stdout, stderr io.Writer) *screen {
	s := &screen{stdout: stdout, stderr: stderr, terminal: terminal(stderr)}
	s.colour = terminal(stdout) >= 0 && os.Getenv("NO_COLOR") == ""
	return s
}

// terminal is the file descriptor of w if that is a terminal, else -1.
func terminal(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return -1
	}
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
		return -1
	}
	return int(f.Fd())
}

// Line shows what a task wrote.
func (s *screen) Line(task int, stream launch.Stream, text []byte) {
	to := s.stdout
	if stream == launch.Stderr {
		to = s.stderr
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.prefix(s.mu.buf[:0], task)
	b = append(append(b, text...), '\n')
	s.print(to, b)
	if s.mu.buf = b; cap(b) > 1<<16 {
		s.mu.buf = nil
	}
}

// colours of the numbers of tasks: those that can be read on black and on white.
var colours = []string{"36", "33", "32", "35", "34", "31"}

func (s *screen) prefix(b []byte, task int) []byte {
	if s.colour {
		b = append(append(append(b, "\x1b["...), colours[task%len(colours)]...), 'm')
	}
	b = append(b, '[')
	b = strconv.AppendInt(b, int64(task), 10)
	b = append(b, ']')
	if s.colour {
		b = append(b, "\x1b[0m"...)
	}
	return append(b, ' ')
}

// Note shows what the launcher has to say. Names of hosts, evidence and errors in it come from other hosts.
func (s *screen) Note(n launch.Note) {
	word := "serry: "
	if n.Warning {
		word = "serry: warning: "
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.print(s.stderr, []byte(word+printable(n.Text)+"\n"))
}

const eraseLine = "\r\x1b[2K"

// print writes whole lines above the live one. It needs mu. An error of stderr can be told to no one.
func (s *screen) print(to io.Writer, b []byte) {
	if s.mu.live != "" {
		_, _ = io.WriteString(s.stderr, eraseLine)
	}
	_, err := to.Write(b)
	if to == s.stdout {
		s.judge(err)
	}
	if s.mu.live != "" {
		_, _ = io.WriteString(s.stderr, s.mu.live)
	}
}

// judge says on stderr, once, that stdout takes no more lines: its reader has ended, or a disk is full. The
// job does not depend on a reader, so the ranks go on. It needs mu.
func (s *screen) judge(err error) {
	if err != nil && !s.mu.broken {
		fmt.Fprintf(s.stderr, "serry: warning: standard output takes no more lines: %v; the ranks go on\n", err)
	}
	s.mu.broken = err != nil
}

// refresh is how often the live line is drawn.
const refresh = 200 * time.Millisecond

// follow draws the live line until the job is over.
func (s *screen) follow(job *launch.Job) {
	if s.terminal < 0 {
		return
	}
	tick := time.NewTicker(refresh)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.status(job)
		case <-job.Done():
			return
		}
	}
}

// status draws the live line.
func (s *screen) status(job *launch.Job) {
	width := 80
	if size, err := unix.IoctlGetWinsize(s.terminal, unix.TIOCGWINSZ); err == nil && size.Col > 0 {
		width = int(size.Col)
	}
	now := job.Status()
	if now.Tasks == 0 {
		return // the launcher of another host knows
	}
	line := oneLine(liveLine(now))
	if len(line) >= width {
		line = line[:width-1]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if line != s.mu.live && !s.mu.closed {
		s.mu.live = line
		_, _ = io.WriteString(s.stderr, eraseLine+line)
	}
}

// liveLine says in one line what a job does, and whom it waits for.
func liveLine(s launch.Status) string {
	var b strings.Builder
	fmt.Fprintf(&b, "serry: %d of %d ranks run", s.Running, s.Tasks)
	for _, part := range []struct {
		n    int
		word string
	}{{s.Ended, "ended"}, {s.Failed, "failed"}} {
		if part.n > 0 {
			fmt.Fprintf(&b, ", %d %s", part.n, part.word)
		}
	}
	if s.Attempt > 1 {
		fmt.Fprintf(&b, ", attempt %d", s.Attempt)
	}
	if s.Restarts > 0 && s.Attempt == 1 {
		fmt.Fprintf(&b, ", %d restarts", s.Restarts)
	}
	if s.Ending {
		b.WriteString(", ending")
	} else if bars := s.Service.Barriers; len(bars) > 0 && len(bars[0].Missing) > 0 {
		oldest := bars[0]
		since := time.Duration(s.Service.Now - oldest.Since).Truncate(time.Second)
		if since >= time.Second {
			fmt.Fprintf(&b, "; %s has waited %v for rank %d", diagnose.Place(oldest.ID), since, oldest.Missing[0].Index)
			if more := len(oldest.Missing) - 1; more > 0 {
				fmt.Fprintf(&b, " and %d more", more)
			}
		}
	}
	return b.String()
}

// close takes the live line away, and says the last words.
func (s *screen) close(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	if s.mu.live != "" {
		_, _ = io.WriteString(s.stderr, eraseLine)
		s.mu.live = ""
	}
	_, _ = io.WriteString(s.stderr, printable(text))
}

const (
	effectsShown = 3   // ways in which ranks ended that failed after the first
	lastColumns  = 200 // of a line that a rank wrote, in the closing report
)

func ranksIn(effects []effect) (n int) {
	for _, e := range effects {
		n += len(e.Ranks)
	}
	return n
}

// closing says what became of a job, in lines and an error, which is nil if all went well.
func closing(r *launch.Report) (lines string, err error) {
	var b strings.Builder
	took := r.Took.Round(time.Millisecond)
	if r.Well() {
		return fmt.Sprintf("serry: %s ended well after %v%s%s\n", everybody(r.Tasks), took, attempts(r), goodputOf(r)), nil
	}
	if f := r.First; f != nil {
		if len(f.Last) > 0 {
			fmt.Fprintf(&b, "serry: the last lines of rank %d, which failed first:\n", f.Task)
			for _, line := range f.Last {
				fmt.Fprintf(&b, "    %s\n", fit(printable(line), lastColumns))
			}
		}
		if a := r.Aftermath; a != nil && a.At != "" {
			fmt.Fprintf(&b, "serry: it was at %s\n", printable(a.At))
		}
		effects := effectsOf(r.Later)
		for i, e := range effects {
			if i == effectsShown {
				fmt.Fprintf(&b, "serry: and %d more ranks\n", ranksIn(effects[i:]))
				break
			}
			fmt.Fprintf(&b, "serry: after that, %v\n", e)
		}
		if r.Goodput != nil {
			fmt.Fprintf(&b, "serry: goodput %s\n", diagnose.GoodputText(r.Goodput))
		}
		first := ""
		if r.Tasks > 1 {
			first = fmt.Sprintf(", first of %d ranks", r.Tasks)
		}
		if f.After > 0 {
			first += fmt.Sprintf(", %v after its start", f.After.Round(time.Millisecond))
		}
		return b.String(), fmt.Errorf("%v%s%s", f, first, attempts(r))
	}
	switch {
	case errors.Is(r.Err, launch.ErrOtherJob):
		return "", hinted{r.Err, "all hosts of a job need the same command, or the same --job-id; another job needs another port"}
	case r.Err != nil:
		return "", r.Err
	case r.Interrupted != 0 && r.Attempts == 0: // on a host that is not the first, which has not heard how the job ended
		return "", fmt.Errorf("this host was told to end by signal %d after %v", r.Interrupted, took)
	case r.Interrupted != 0:
		return "", fmt.Errorf("ended by signal %d after %v, when %d of %d ranks had ended well", r.Interrupted, took, r.Ended, r.Tasks)
	}
	return "", fmt.Errorf("%d of %d ranks ended well", r.Ended, r.Tasks)
}

// goodputOf says how much of the time of a job was of use, if that is known.
func goodputOf(r *launch.Report) string {
	if r.Goodput == nil {
		return ""
	}
	return ", goodput " + diagnose.GoodputText(r.Goodput)
}

func everybody(tasks int) string {
	if tasks == 1 {
		return "rank 0"
	}
	return fmt.Sprintf("all %d ranks", tasks)
}

func attempts(r *launch.Report) string {
	switch {
	case r.Attempts > 1:
		return fmt.Sprintf(", in attempt %d", r.Attempts)
	case r.Restarts == 1:
		return ", with 1 restart"
	case r.Restarts > 0:
		return fmt.Sprintf(", with %d restarts", r.Restarts)
	}
	return ""
}
