package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/collective"
)

// A trial is what the ranks of one job said.
type trial struct {
	lost   time.Time         // when the process was killed, or the link cut
	victim int               // the rank that was lost
	cut    bool              // its link was cut, and no process saw it end
	failed map[int]time.Time // by survivor: when its operation failed
	again  map[int]time.Time // by survivor: when the next clique worked
	texts  map[int]string    // by survivor: its error
	held   map[int]int       // by survivor: segments that it holds when the next clique works
	left   map[int]int       // by survivor: segments that are left when it has closed its links
}

// kill runs a job of n processes, of which one kills itself.
func (p plan) kill(ctx context.Context, way string, n, number int) (trial, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	t := newTrial(number % n)
	dice := rand.New(rand.NewPCG(uint64(n), uint64(number)))
	cmd := exec.CommandContext(ctx, p.binary, "run", "-n", strconv.Itoa(n), "--recoverable", "--restart", "never", "--",
		p.self, rankCommand, "-over", way, "-size", fmt.Sprint(p.bytes), "-dead", p.dead.String(), "-victim", fmt.Sprint(t.victim), "-after", fmt.Sprint(time.Duration(dice.Int64N(int64(200*time.Millisecond)))))
	var log bytes.Buffer
	cmd.Stderr = &log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return t, err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		rank, text, ok := strings.Cut(strings.TrimPrefix(lines.Text(), "["), "] ")
		if r, err := strconv.Atoi(rank); ok && err == nil {
			t.heard(r, text)
		}
	}
	cmd.Wait() // it tells of the process that was killed
	if err := errors.Join(t.check(n), t.checkSegments(n)); err != nil {
		return t, fmt.Errorf("%w\n%s", err, log.String())
	}
	return t, nil
}

func newTrial(victim int) trial {
	return trial{victim: victim, failed: make(map[int]time.Time), again: make(map[int]time.Time), texts: make(map[int]string),
		held: make(map[int]int), left: make(map[int]int)}
}

// heard takes a line of a rank.
func (t *trial) heard(rank int, line string) {
	word, rest, _ := strings.Cut(line, " ")
	nanos, text, _ := strings.Cut(rest, " ")
	n, err := strconv.ParseInt(nanos, 10, 64)
	if err != nil {
		return
	}
	switch at := time.Unix(0, n); word {
	case wordKill:
		t.lost = at
	case wordError:
		t.failed[rank], t.texts[rank] = at, text
	case wordAgain:
		t.again[rank] = at
	case wordHeld, wordLeft:
		if count, err := strconv.Atoi(text); err == nil && word == wordHeld {
			t.held[rank] = count
		} else if err == nil {
			t.left[rank] = count
		}
	}
}

// checkSegments says which survivor holds segments that it should not. Of the next clique it has one for each process.
func (t trial) checkSegments(n int) error {
	for r := range n {
		if r == t.victim {
			continue
		}
		held, told := t.held[r]
		left, ended := t.left[r]
		switch {
		case !told || !ended:
			return fmt.Errorf("rank %d did not come to its end", r)
		case held > n-1:
			return fmt.Errorf("rank %d holds %d segments in a clique of %d processes: those of the clique before are leaked", r, held, n-1)
		case left > 0:
			return fmt.Errorf("rank %d has closed its links, and %d segments are left", r, left)
		}
	}
	return nil
}

// check says what a survivor did not do. Every survivor must blame the rank that was lost, and go on.
func (t trial) check(n int) error {
	for r := range n {
		switch text := t.texts[r]; {
		case r == t.victim:
		case !t.blamed(text):
			return fmt.Errorf("rank %d got the error %q; want one that blames rank %d", r, text, t.victim)
		case t.again[r].IsZero():
			return fmt.Errorf("rank %d did not go on", r)
		}
	}
	if t.lost.IsZero() {
		return errors.New("no process was lost")
	}
	return nil
}

// blamed says whether an error names the rank that was lost. Where a link is cut, the members know only that: the error
// names its two ends.
func (t trial) blamed(text string) bool {
	if strings.HasPrefix(text, fmt.Sprintf("rank %d (", t.victim)) {
		return strings.Contains(text, collective.ErrPeerFailed.Error())
	}
	return t.cut && strings.HasPrefix(text, "ranks ") && strings.Contains(text, fmt.Sprintf(" and %d: %v", t.victim, collective.ErrTransport))
}

// Ranks of a job whose last one is on another host.
const cutRanks = 3

// cut runs a job with a process on another host, whose link goes down.
func (p plan) cut(ctx context.Context) (t trial, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	t = newTrial(cutRanks - 1)
	t.cut = true
	h, err := proc.NewHost(ctx)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, h.Remove()) }()
	service, err := proc.Start(ctx, p.binary, "serve", "--tasks", fmt.Sprint(cutRanks), "--recoverable", "--listen", net.JoinHostPort(h.NearIP, "0"))
	if err != nil {
		return t, err
	}
	defer service.Kill()
	address, err := service.Address()
	if err != nil {
		return t, err
	}
	var all hosted
	defer all.kill()
	for r := range cutRanks {
		command := []string{p.self, rankCommand, "-size", "1048576"}
		if r == t.victim {
			command = append(h.Prefix(), command...)
		}
		if err := all.start(r, address, command); err != nil {
			return t, err
		}
	}
	if err := all.until(ctx, &t, func(ready int) bool { return ready == cutRanks }); err != nil {
		return t, err
	}
	t.lost = time.Now()
	if err := h.Link(ctx, "down"); err != nil {
		return t, err
	}
	err = all.until(ctx, &t, func(int) bool { return t.check(cutRanks) == nil })
	return t, err
}

// hosted are the ranks of a job that no launcher started.
type hosted struct {
	all   []*exec.Cmd
	lines chan said
	ready int
	done  sync.WaitGroup
}

// said is a line of a rank.
type said struct {
	rank int
	line string
}

// start starts a rank.
func (h *hosted) start(rank int, address string, command []string) error {
	if h.lines == nil {
		h.lines = make(chan said, 64)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "SERRY_ADDRESS="+address, "SERRY_TASK="+strconv.Itoa(rank), "SERRY_TASKS="+strconv.Itoa(cutRanks))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	h.all = append(h.all, cmd)
	h.done.Go(func() { h.read(rank, out) })
	return nil
}

// read takes the lines of a rank.
func (h *hosted) read(rank int, out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		select {
		case h.lines <- said{rank, lines.Text()}:
		default: // more than a rank says
		}
	}
}

// until hears the ranks until something holds.
func (h *hosted) until(ctx context.Context, t *trial, holds func(ready int) bool) error {
	for !holds(h.ready) {
		select {
		case s := <-h.lines:
			if strings.HasPrefix(s.line, wordReady) {
				h.ready++
			}
			t.heard(s.rank, s.line)
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), t.check(cutRanks))
		}
	}
	return nil
}

// kill ends all ranks.
func (h *hosted) kill() {
	for _, cmd := range h.all {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // fails only if it has ended
	}
	h.done.Wait()
	for _, cmd := range h.all {
		cmd.Wait() // it was killed
	}
}
