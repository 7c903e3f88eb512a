package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/serry-dev/serry/bench/internal/sheet"
)

// A book has what the workers have said, and judges it.
type book struct {
	lives []life
	after map[int]string // the digest of the parameters when so many steps have been made
	most  int            // steps

	kills, commits int
	ends           int // of workers that were not killed
	back           []float64
}

// A life is one process of a worker.
type life struct {
	pid    int       // 0: none runs
	made   int       // steps that its parameters have; -1: it has none yet
	makes  bool      // it has made a step itself
	killed time.Time // when the life before it was killed, or zero
}

func newBook(workers int) *book {
	b := &book{lives: make([]life, workers), after: make(map[int]string)}
	for i := range b.lives {
		b.lives[i].made = -1
	}
	return b
}

// hear takes a line of a worker.
func (b *book) hear(line string) error {
	rank, what, rest, ok := word(line)
	if !ok || rank >= len(b.lives) {
		return nil
	}
	l := &b.lives[rank]
	switch {
	case what == "began" && len(rest) == 1:
		return b.began(l, rest[0])
	case l.pid == 0 && len(rest) == 2 && (what == "has" || what == "made"): // the last words of one that was killed
		_, err := b.same(rank, rest)
		return err
	case what == "has" && len(rest) == 2:
		return b.takes(rank, l, rest)
	case what == "made" && len(rest) == 2:
		return b.makes(rank, l, rest)
	}
	return nil // a word for people
}

func (b *book) began(l *life, pid string) error {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return err
	}
	if l.pid != 0 {
		b.ends++
	}
	*l = life{pid: n, made: -1, killed: l.killed}
	return nil
}

// takes judges the parameters that a worker goes on with in a new clique. One that had parameters keeps them: all that are alive have made the same steps.
func (b *book) takes(rank int, l *life, rest []string) error {
	step, err := b.same(rank, rest)
	if err != nil {
		return err
	}
	if l.made >= 0 && step != l.made {
		return fmt.Errorf("rank %d had made %d steps, and goes on with %d", rank, l.made, step)
	}
	l.made = step
	return nil
}

// makes judges a step that a worker has made.
func (b *book) makes(rank int, l *life, rest []string) error {
	step, err := b.same(rank, rest)
	if err != nil {
		return err
	}
	if step != l.made+1 {
		return fmt.Errorf("rank %d makes step %d after step %d", rank, step, l.made)
	}
	if !l.makes && !l.killed.IsZero() {
		b.back = append(b.back, sheet.Millis(time.Since(l.killed)))
		l.killed = time.Time{}
	}
	l.made, l.makes = step, true
	b.commits++
	b.most = max(b.most, step)
	return nil
}

// same reads how many steps a worker has made and the digest of its parameters, which must be that of all others.
func (b *book) same(rank int, rest []string) (step int, err error) {
	if step, err = strconv.Atoi(rest[0]); err != nil || step < 0 {
		return 0, fmt.Errorf("rank %d says %v", rank, rest)
	}
	if known, ok := b.after[step]; ok && known != rest[1] {
		return 0, fmt.Errorf("rank %d has parameters %s after %d steps, another one %s", rank, rest[1], step, known)
	}
	b.after[step] = rest[1]
	return step, nil
}

// steps is how many steps any worker has made.
func (b *book) steps() int { return b.most }

// running lists the workers that have a process.
func (b *book) running() (ranks []int) {
	for r, l := range b.lives {
		if l.pid != 0 {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// established lists the workers that have made a step in their present life.
func (b *book) established() (ranks []int) {
	for r, l := range b.lives {
		if l.pid != 0 && l.makes {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// whole says whether all workers train together: each has made the last step, or the one before.
func (b *book) whole() bool {
	for _, l := range b.lives {
		if l.pid == 0 || !l.makes || l.made < b.most-1 {
			return false
		}
	}
	return true
}

// kill ends the process of a worker.
func (b *book) kill(rank int) {
	l := &b.lives[rank]
	if syscall.Kill(l.pid, syscall.SIGKILL) != nil {
		return // it has ended by itself
	}
	b.kills++
	*l = life{made: -1, killed: time.Now()}
}

// standings says where all workers are.
func (b *book) standings() string {
	var list []string
	for r, l := range b.lives {
		list = append(list, fmt.Sprintf("rank %d: process %d, %d steps", r, l.pid, l.made))
	}
	return strings.Join(list, "; ")
}

// show prints the result.
func (b *book) show(w io.Writer) {
	fmt.Fprintf(w, "%d kills of %d workers in %d steps: %d commits, parameters equal after every step; no step lost, none made twice\n",
		b.kills, len(b.lives), b.most, b.commits)
	fmt.Fprintf(w, "a killed worker makes steps again after %.0f ms (p50), %.0f ms (p99); %d workers ended without a kill, and came back\n",
		sheet.Quantile(b.back, 0.5), sheet.Quantile(b.back, 0.99), b.ends)
}
