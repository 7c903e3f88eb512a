// Steps kills the workers of a real training at random points, and checks that no step is lost or made twice.
//
// usage: go run ./bench/steps [flags]
//
// Some workers train under serry run with collective.Step (examples/train -atomic). One is killed again and again, at a random point of a step, of the
// forming of the next clique, or of its own start, and started again by the launcher. Every worker prints each step that it has made, with a digest of all
// bits of its parameters. All that have made a step must have the same digest; each worker makes its steps one after the other; and one that comes
// back gets the parameters of the others.
//
// The exit code is 1 if any of this does not hold, or the training stands still for a minute. With -serry and -train it needs no Go.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/bench/internal/sheet"
)

func main() { sheet.Main("bench", run) }

// A plan is what to do.
type plan struct {
	workers, kills int
	seed           uint64
	pace, dead     time.Duration
	serry, train   string // programs
}

// patience is how long the training may stand still.
const patience = time.Minute

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	p, err := parse(args, stderr)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "serry-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if p.serry == "" {
		if p.serry, err = proc.Build(ctx, dir); err != nil {
			return err
		}
	}
	if p.train == "" {
		if p.train, err = proc.BuildProgram(ctx, dir, "examples/train"); err != nil {
			return err
		}
	}
	b, err := p.play(ctx, stderr)
	fmt.Fprintln(stderr)
	if err != nil {
		return fmt.Errorf("seed %d, after %d kills: %w", p.seed, b.kills, err)
	}
	b.show(stdout)
	return nil
}

func parse(args []string, stderr io.Writer) (p plan, err error) {
	flags := flag.NewFlagSet("steps", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&p.workers, "workers", 4, "how many workers train")
	flags.IntVar(&p.kills, "kills", 200, "how often one is killed")
	flags.Uint64Var(&p.seed, "seed", 1, "decides who is killed, and when")
	flags.DurationVar(&p.pace, "pace", 10*time.Millisecond, "how long a step takes at least")
	flags.DurationVar(&p.dead, "dead", 0, "how long a link may be silent (default: as links have it); more where other programs keep the machine busy")
	flags.StringVar(&p.serry, "serry", "", "`binary` of serry (default: build it)")
	flags.StringVar(&p.train, "train", "", "`binary` of examples/train (default: build it)")
	if err := sheet.Parse(flags, args); err != nil {
		return p, err
	}
	if p.workers < 3 || p.workers > 64 || p.kills < 1 || p.pace <= 0 || flags.NArg() > 0 {
		fmt.Fprintln(stderr, "bench: error: want -workers from 3 to 64, -kills of 1 or more, a -pace, and no arguments")
		return p, sheet.ErrUsage
	}
	return p, nil
}

// play runs the training until all kills are done and all workers are back.
func (p plan) play(ctx context.Context, stderr io.Writer) (*book, error) {
	b := newBook(p.workers)
	cmd := exec.CommandContext(ctx, p.serry, "run", "-n", strconv.Itoa(p.workers), "--restart", "failed", "--max-restarts", strconv.Itoa(10*p.kills), "--",
		p.train, "-atomic", "-trace", "-steps", strconv.Itoa(1<<30), "-pace", p.pace.String(), "-dead", p.dead.String())
	log := new(proc.Tail)
	cmd.Stderr = log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return b, err
	}
	lines := make(chan string, 1024)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	err = p.disturb(ctx, b, lines, stderr)
	if ctx.Err() == nil {
		cmd.Cancel()
	}
	for range lines { // until the launcher has ended
	}
	cmd.Wait() // it tells of workers that were told to end
	if err != nil {
		return b, fmt.Errorf("%w\n%s", err, log)
	}
	return b, nil
}

// disturb hears the workers, and kills one after the other.
func (p plan) disturb(ctx context.Context, b *book, lines <-chan string, stderr io.Writer) error {
	dice := rand.New(rand.NewPCG(p.seed, 0))
	due := newSchedule(dice, p.pace)
	stuck := time.NewTimer(patience)
	defer stuck.Stop()
	for b.kills < p.kills || !b.whole() {
		select {
		case line, ok := <-lines:
			if !ok {
				return errors.New("the job has ended")
			}
			made := b.steps()
			if err := b.hear(line); err != nil {
				return err
			}
			if b.steps() > made {
				stuck.Reset(patience)
			}
			if b.kills < p.kills {
				due.look(b)
			}
		case <-due.now():
			if due.strike(b) {
				fmt.Fprintf(stderr, "\rbench: kill %d of %d, step %d", b.kills, p.kills, b.steps())
			}
		case <-stuck.C:
			return fmt.Errorf("no step was made for %v: %s", patience, b.standings())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// A schedule says when the next worker is killed: at a random moment after the training has come to a random step.
type schedule struct {
	dice  *rand.Rand
	pace  time.Duration
	step  int // from which on
	timer *time.Timer
	armed bool
}

func newSchedule(dice *rand.Rand, pace time.Duration) *schedule {
	s := &schedule{dice: dice, pace: pace, timer: time.NewTimer(0)}
	<-s.timer.C
	s.draw(0)
	return s
}

// draw draws the next kill. One in four comes before the training has made a step after the last one.
func (s *schedule) draw(now int) {
	s.step, s.armed = now, false
	if s.dice.IntN(4) > 0 {
		s.step += 1 + s.dice.IntN(30)
	}
}

// look sets the clock when the step has come. A worker must be left that has the parameters.
func (s *schedule) look(b *book) {
	if s.armed || b.steps() < s.step || len(b.established()) < 2 {
		return
	}
	s.armed = true
	s.timer.Reset(time.Duration(s.dice.Int64N(int64(3 * s.pace))))
}

// now has a value when it is time.
func (s *schedule) now() <-chan time.Time { return s.timer.C }

// strike kills a worker, and draws the next kill. One of those that have the parameters is left.
func (s *schedule) strike(b *book) bool {
	all := b.running()
	victim := all[s.dice.IntN(len(all))]
	if has := b.established(); len(has) == 0 || len(has) == 1 && has[0] == victim {
		s.armed = false // a worker has ended since; look again
		return false
	}
	b.kill(victim)
	s.draw(b.steps())
	return true
}

// word splits a line of a worker: "[3] made 17 0123456789abcdef".
func word(line string) (rank int, word string, rest []string, ok bool) {
	head, text, ok := strings.Cut(strings.TrimPrefix(line, "["), "] ")
	rank, err := strconv.Atoi(head)
	fields := strings.Fields(text)
	if !ok || err != nil || len(fields) == 0 {
		return 0, "", nil, false
	}
	return rank, fields[0], fields[1:], true
}
