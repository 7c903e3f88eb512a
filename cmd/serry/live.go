package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A live view is a terminal on which a picture is drawn again and again: on its alternate screen, so that what the user had
// before is there afterwards. Only commands whose output is a terminal have one: into a pipe no escape code is ever written.
type live struct {
	out  io.Writer
	fd   int            // of out
	in   *os.File       // where keys come from, or nil
	was  *unix.Termios  // of in, before
	keys chan byte      // what was typed; nil: there are no keys
	size chan os.Signal // the terminal has another size
}

const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // the alternate screen, without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	homeScreen  = "\x1b[H"
	eraseRest   = "\x1b[K" // of a line
	eraseBelow  = "\x1b[J"
)

// openLive takes the terminal over. in is where keys come from; nil: there are none.
func openLive(out io.Writer, in *os.File) *live {
	l := &live{out: out, fd: terminal(out), size: make(chan os.Signal, 1)}
	signal.Notify(l.size, syscall.SIGWINCH)
	if in != nil && terminal(in) >= 0 {
		l.in = in
		l.listen()
	}
	_, _ = io.WriteString(out, enterScreen)
	return l
}

// listen hands every key on as it is pressed. Ctrl-C is still the signal that it was.
func (l *live) listen() {
	was, err := unix.IoctlGetTermios(int(l.in.Fd()), unix.TCGETS)
	if err != nil {
		return
	}
	raw := *was
	raw.Lflag &^= unix.ICANON | unix.ECHO
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if unix.IoctlSetTermios(int(l.in.Fd()), unix.TCSETS, &raw) != nil {
		return
	}
	l.was, l.keys = was, make(chan byte, 64)
	go func() { // it ends with the process: a read of a terminal cannot be broken off
		var b [1]byte
		for {
			if n, err := l.in.Read(b[:]); err != nil || n == 0 {
				return
			}
			l.keys <- b[0]
		}
	}()
}

// close gives the terminal back as it was.
func (l *live) close() {
	signal.Stop(l.size)
	if l.was != nil {
		_ = unix.IoctlSetTermios(int(l.in.Fd()), unix.TCSETS, l.was) // the terminal may be gone
	}
	_, _ = io.WriteString(l.out, leaveScreen)
}

// room is how many columns and lines the terminal has now.
func (l *live) room() (columns, lines int) {
	size, err := unix.IoctlGetWinsize(l.fd, unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 || size.Row == 0 {
		return plainWidth, plainHeight
	}
	return int(size.Col), int(size.Row)
}

const plainHeight = 24 // where a terminal does not say

// draw shows lines that fit in one write, so that nothing flickers, not even over a slow line: each one is drawn over the former
// one, and only the rest of it is erased.
func (l *live) draw(lines []string, most int) error {
	var b bytes.Buffer
	b.WriteString(homeScreen)
	for i, line := range lines[:min(len(lines), most)] {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + eraseRest)
	}
	b.WriteString(eraseBelow)
	_, err := l.out.Write(b.Bytes())
	return err
}

// A picture is what a live view shows.
type picture interface {
	// ask brings the picture up to date. Its error is one that no waiting mends.
	ask(ctx context.Context) error

	// lines draws it for a terminal of a size.
	lines(columns, lines int) []string

	// press takes a key, and says whether it ends the view.
	press(ctx context.Context, key byte) (quit bool)

	// over says whether there is nothing more to come.
	over() bool
}

// show draws a picture until the user or the service ends it.
func (l *live) show(ctx context.Context, p picture, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := p.ask(ctx); err != nil {
			return err
		}
		for fresh := true; fresh; {
			columns, lines := l.room()
			if err := l.draw(p.lines(columns, lines), lines); err != nil {
				return err
			}
			if p.over() {
				return nil
			}
			select {
			case <-tick.C:
				fresh = false
			case <-l.size:
			case key := <-l.keys:
				if p.press(ctx, key) {
					return nil
				}
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}
