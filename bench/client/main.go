// Client compares the client of serry with the one that ships in jaxlib: the same calls to the same
// serry server, in turn, and one table of medians, spreads and ratios.
//
// usage: go run ./bench/client [flags]
//
// Each client is a process of its own and a task of one job. What is compared is how many calls it
// makes per second, and what a call costs the processors on the side of the client.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/serry-dev/serry/bench/internal/sheet"
)

func main() {
	sheet.Main("bench", run)
}

// options are the flags.
type options struct {
	rounds int
	turn   time.Duration
	python string
	binary string
	pprof  string
	be     string // run as a client instead
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	fs := flag.NewFlagSet("client", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&o.rounds, "rounds", 5, "how often each figure is taken")
	fs.DurationVar(&o.turn, "turn", time.Second, "how long it takes to take one")
	fs.StringVar(&o.python, "python", ".cache/venv/jax-new/bin/python", "`interpreter` with the jaxlib to compare with")
	fs.StringVar(&o.binary, "serry", "bin/serry", "`binary` that serves")
	fs.StringVar(&o.pprof, "pprof", "", "`file` for a profile of our client, in serry's own dialect")
	fs.StringVar(&o.be, "be", "", "be a client of this `dialect` (what the benchmark starts itself with)")
	switch err := sheet.Parse(fs, args); {
	case err != nil:
		return err
	case o.be != "":
		return beClient(ctx, o.be, fs.Args(), os.Stdin, stdout, o.pprof)
	case fs.NArg() > 0 || o.rounds < 1 || o.turn <= 0:
		fmt.Fprintln(stderr, "bench: error: -rounds and -turn: want more than 0, and no arguments")
		return sheet.ErrUsage
	}
	return compare(ctx, o, stdout, stderr)
}

// calls are what is compared.
var calls = []string{"put", "get", "add"}

// crowds are how many callers a client has at one time.
var crowds = []int{1, 16}

// compare measures all clients in turn, every round in another order, so that whatever changes on the
// machine meanwhile changes for all of them.
func compare(ctx context.Context, o options, stdout, stderr io.Writer) error {
	peers, err := newPeers(o)
	if err != nil {
		return err
	}
	server, err := startServer(ctx, o.binary, len(peers))
	if err != nil {
		return err
	}
	defer server.stop()
	for i, p := range peers {
		if err := p.start(ctx, server.addr, i); err != nil {
			return err
		}
		defer p.stop()
	}
	for _, p := range peers { // all have come only now
		if err := p.ready(); err != nil {
			return err
		}
	}
	s := newRecord()
	for round := range o.rounds {
		first := round % len(peers)
		order := slices.Concat(peers[first:], peers[:first])
		for _, call := range calls {
			for _, crowd := range crowds {
				fmt.Fprintf(stderr, "bench: round %d of %d: %s, %d callers\n", round+1, o.rounds, call, crowd)
				for _, p := range order {
					f, err := p.measure(call, crowd, o.turn)
					if err != nil {
						return fmt.Errorf("%s: %w", p.name, err)
					}
					s.add(rowKey{call, crowd}, p.name, f)
				}
			}
		}
	}
	fmt.Fprintf(stdout, "median (least-most) of %d rounds; all processes on the same processors\n", o.rounds)
	return s.print(stdout, peers)
}
