// Loss measures how long the members of a clique take to learn that one of them is lost, and to go on without it.
//
// usage: go run ./bench/loss [flags]
//
// A job of some processes runs all-reduces of 64 MiB under serry run, over links and then through shared memory. One process
// kills itself at a random point of one. Every survivor must get the same error, which names the lost rank; then the survivors
// re-form the clique and run an all-reduce of 1 MiB. Both are timed from the kill, at every survivor. Then the same with a process on another host
// whose link goes down without a word, which needs root and iproute2.
//
// Shared memory must not leak: when the next clique works, each survivor holds one segment for each of its processes and none of the clique before; when
// it has closed its links it holds none; and the shared memory of the host does not grow.
//
// With -serry it needs no Go. A thousand kills through shared memory:
//
//	loss -serry bin/serry -over memory -ranks 2,4,8 -kills 334 -cuts 0
//
// The exit code is 1 if a bar is missed, a survivor gets another error or does not go on, or a segment is left.
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
	ways        []string
	ranks       []int
	kills, cuts int
	first       int // the number of the first kill: it decides who is killed, and when
	bytes       int64
	dead        time.Duration // 0: the default of links
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
	before, err := sharedMemory()
	if err != nil {
		return err
	}
	var rows []*row
	for _, way := range p.ways {
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
	after, err := sharedMemory()
	if err != nil {
		return err
	}
	return errors.Join(show(stdout, rows), showMemory(stdout, rows, after-before))
}

// The ways between the processes of a job.
const (
	overLinks  = "links"
	overMemory = "memory"
)

// killing kills processes of jobs, one of each.
func (p plan) killing(ctx context.Context, way string, n int, stderr io.Writer) (*row, error) {
	r := &row{name: fmt.Sprintf("1 of %d processes killed, over %s", n, way), mostError: killedError, mostAgain: killedAgain, segments: true}
	for i := range p.kills {
		fmt.Fprintf(stderr, "\rbench: %d processes over %s, kill %d of %d", n, way, i+1, p.kills)
		if err := r.add(p.kill(ctx, way, n, p.first+i)); err != nil {
			return nil, fmt.Errorf("%d processes over %s, kill %d: %w", n, way, p.first+i, err)
		}
	}
	fmt.Fprintln(stderr)
	return r, nil
}

func parse(args []string, stderr io.Writer) (p plan, err error) {
	flags := flag.NewFlagSet("loss", flag.ContinueOnError)
	flags.SetOutput(stderr)
	ways := flags.String("over", overLinks+","+overMemory, "between the processes: a `list`")
	ranks := flags.String("ranks", "4,8", "how many processes a job has: a `list`")
	flags.IntVar(&p.kills, "kills", 200, "how often a process is killed, for each of them")
	flags.IntVar(&p.first, "first", 0, "`number` of the first kill, which decides the rank and the time")
	flags.IntVar(&p.cuts, "cuts", 10, "how often a link is cut; needs root")
	flags.Int64Var(&p.bytes, "size", 64<<20, "`bytes` of the all-reduce that is interrupted")
	flags.DurationVar(&p.dead, "dead", 0, "how long a link may be silent (default: as links have it); more where other programs keep the machine busy")
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
	for way := range strings.SplitSeq(*ways, ",") {
		if way != overLinks && way != overMemory {
			err = errors.Join(err, fmt.Errorf("-over %q: want %s, %s or both", way, overLinks, overMemory))
		}
		p.ways = append(p.ways, way)
	}
	if p.kills < 0 || p.cuts < 0 || p.dead < 0 || p.first < 0 || p.bytes < 4 || flags.NArg() > 0 {
		err = errors.Join(err, errors.New("want -kills, -cuts, -first and -dead of 0 or more, -size of 4 or more, and no arguments"))
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
