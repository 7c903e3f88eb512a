// Loss measures how long the members of a clique take to learn that one of them is lost, and to go on without it.
//
// usage: go run ./bench/loss [flags]
//
// A job of some processes runs all-reduces of 64 MiB under serry run, over links and then through shared memory. One process
// kills itself in the middle of one. Every survivor must get the same error, which names the lost rank; then the survivors
// re-form the clique and run an all-reduce of 1 MiB. Both are timed from the kill, at every survivor. Then the same with a process on another host
// whose link goes down without a word, which needs root and iproute2.
//
// The exit code is 1 if a bar is missed or a survivor gets another error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/bench/internal/sheet"
)

func main() { rankOr(func() int { sheet.Main("bench", run); return 0 }) }

// rankOr makes this process a rank of a job if it was started as one, and else does something else.
func rankOr(otherwise func() int) {
	if len(os.Args) < 2 || os.Args[1] != rankCommand {
		os.Exit(otherwise())
	}
	if err := beRank(context.Background(), os.Args[2:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench: error:", err)
		os.Exit(1)
	}
}

// A plan is what to measure.
type plan struct {
	ranks       []int
	kills, cuts int
	bytes       int64
	binary      string
	self        string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	p, err := parse(args, stderr)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "serry-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if p.binary == "" {
		if p.binary, err = proc.Build(ctx, dir); err != nil {
			return err
		}
	}
	var rows []*row
	for _, way := range []string{overLinks, overMemory} {
		for _, n := range p.ranks {
			r, err := p.killing(ctx, way, n, stderr)
			if err != nil {
				return err
			}
			rows = append(rows, r)
		}
	}
	if p.cuts > 0 {
		r := &row{name: "link of 1 of 3 hosts cut", mostError: cutError}
		for i := range p.cuts {
			fmt.Fprintf(stderr, "\rbench: cut %d of %d", i+1, p.cuts)
			if err := r.add(p.cut(ctx)); err != nil {
				return fmt.Errorf("cut %d: %w", i+1, err)
			}
		}
		fmt.Fprintln(stderr)
		rows = append(rows, r)
	}
	return show(stdout, rows)
}

// The ways between the processes of a job.
const (
	overLinks  = "links"
	overMemory = "memory"
)

// killing kills processes of jobs, one of each.
func (p plan) killing(ctx context.Context, way string, n int, stderr io.Writer) (*row, error) {
	r := &row{name: fmt.Sprintf("1 of %d processes killed, over %s", n, way), mostError: killedError, mostAgain: killedAgain}
	for i := range p.kills {
		fmt.Fprintf(stderr, "\rbench: %d processes over %s, kill %d of %d", n, way, i+1, p.kills)
		if err := r.add(p.kill(ctx, way, n, i)); err != nil {
			return nil, fmt.Errorf("%d processes over %s, kill %d: %w", n, way, i+1, err)
		}
	}
	fmt.Fprintln(stderr)
	return r, nil
}

func parse(args []string, stderr io.Writer) (p plan, err error) {
	flags := flag.NewFlagSet("loss", flag.ContinueOnError)
	flags.SetOutput(stderr)
	ranks := flags.String("ranks", "4,8", "how many processes a job has: a `list`")
	flags.IntVar(&p.kills, "kills", 200, "how often a process is killed, for each of them")
	flags.IntVar(&p.cuts, "cuts", 10, "how often a link is cut; needs root")
	flags.Int64Var(&p.bytes, "size", 64<<20, "`bytes` of the all-reduce that is interrupted")
	flags.StringVar(&p.binary, "serry", "", "`binary` of serry (default: build it)")
	if err := sheet.Parse(flags, args); err != nil {
		return p, err
	}
	for text := range strings.SplitSeq(*ranks, ",") {
		n, bad := strconv.Atoi(text)
		if bad != nil || n < 2 || n > 64 {
			err = errors.Join(err, fmt.Errorf("-ranks %q: want numbers from 2 to 64", text))
		}
		p.ranks = append(p.ranks, n)
	}
	if p.kills < 0 || p.cuts < 0 || p.bytes < 4 || flags.NArg() > 0 {
		err = errors.Join(err, errors.New("want -kills and -cuts of 0 or more, -size of 4 or more, and no arguments"))
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench: error:", err)
		return p, sheet.ErrUsage
	}
	p.self, err = os.Executable()
	return p, err
}

// patience bounds a job.
const patience = time.Minute
