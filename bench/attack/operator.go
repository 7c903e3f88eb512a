package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/serry-dev/serry/internal/pause"
)

// lookOn runs commands of serry as an operator does, all the time and each on a terminal, until ctx ends (row 20).
func (v *victim) lookOn(ctx context.Context, binary string) {
	var wg sync.WaitGroup
	for _, args := range [][]string{{"status", "--watch"}, {"watch"}, {"why"}} {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := v.read(ctx, exec.Command(binary, append(args, "--address", v.addr, "--timeout", "5s")...)); err != nil {
					v.spoil(err.Error())
				}
				_ = pause.For(ctx, 200*time.Millisecond) // ends with ctx
			}
		})
	}
	wg.Wait()
}

// read runs a command on a terminal, and reads what it prints until it ends. Its exit status is that of the job that it
// was asked about, so it does not matter here.
func (v *victim) read(ctx context.Context, cmd *exec.Cmd) error {
	person, terminal, err := openTerminal()
	if err != nil {
		return err
	}
	defer person.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	err = cmd.Start()
	terminal.Close()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { cmd.Process.Kill() })()
	lines := bufio.NewScanner(person) // the longest line is an error of it
	for lines.Scan() {
		v.look(lines.Text())
	}
	cmd.Wait() // see above
	if err := lines.Err(); err == bufio.ErrTooLong {
		return err
	}
	return nil // the end of a terminal is an error to read
}

// openTerminal opens a terminal, and the side of it at which a person sits.
func openTerminal() (person, terminal *os.File, err error) {
	person, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	fd := int(person.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		terminal, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		person.Close()
		return nil, nil, fmt.Errorf("terminal: %w", err)
	}
	return person, terminal, nil
}

// ownSteering is what serry itself writes to steer a terminal: to the top, clear what is right or below, colours, another screen
// and back, without a cursor and with it.
var ownSteering = regexp.MustCompile(`\x1b\[(H|J|K|\d*m|\?1049[hl]|\?25[hl])`)

// look checks a line that a person reads.
func (v *victim) look(line string) {
	rest := ownSteering.ReplaceAllString(strings.TrimSuffix(line, "\r"), "")
	steers := strings.ContainsFunc(rest, func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == utf8.RuneError
	})
	v.mu.Lock()
	v.mu.lines++
	if strings.Contains(rest, theirs) {
		v.mu.theirs++
	}
	v.mu.Unlock()
	if steers {
		v.spoil(fmt.Sprintf("%q", line))
	}
}

// spoil keeps the first line that a person should not have read.
func (v *victim) spoil(line string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mu.spoiled == "" {
		v.mu.spoiled = line
	}
}
