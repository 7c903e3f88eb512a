// Link measures the links of serry beside bare Go sockets and iperf3, between two processes on loopback:
// messages of 64 MiB, and 8 bytes there and back.
//
// usage: go run ./bench/link [flags]
//
// All peers run in turn, in every round in another order, over the same number of connections. Bare sockets
// write 256 KiB, 1 MiB and 4 MiB at a time; the best of the three is what links are compared with. The exit
// code is 1 if a bar is missed. With -buffers there is a row for bare sockets whose buffers have a fixed size.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/bench/internal/sheet"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == farCommand {
		if err := beFar(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "bench: error:", err)
			os.Exit(1)
		}
		return
	}
	sheet.Main("bench", run)
}

// A plan is what to measure.
type plan struct {
	lanes   []int
	rounds  int
	size    int64
	lasts   time.Duration
	trips   int
	buffers int    // bytes; 0 leaves the row out
	iperf   string // path, or empty
	json    bool
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("link", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var p plan
	lanes := flags.String("lanes", "1,2,4", "how many connections carry data: a `list`")
	flags.IntVar(&p.rounds, "rounds", 7, "how often each peer is measured")
	flags.Int64Var(&p.size, "size", 64<<20, "bytes of a message")
	flags.DurationVar(&p.lasts, "for", time.Second, "how long each peer moves bytes in a round")
	flags.IntVar(&p.trips, "trips", 5000, "messages there and back in a round")
	flags.IntVar(&p.buffers, "buffers", 0, "measure bare sockets with buffers of so many `bytes` as well; else the system sizes them")
	flags.BoolVar(&p.json, "json", false, "print JSON")
	if err := sheet.Parse(flags, args); err != nil {
		return err
	}
	for n := range strings.SplitSeq(*lanes, ",") {
		lane, err := strconv.Atoi(n)
		if err != nil || lane < 1 || lane > 8 {
			fmt.Fprintf(stderr, "bench: error: %q connections: want 1 to 8\n", n)
			return sheet.ErrUsage
		}
		p.lanes = append(p.lanes, lane)
	}
	var err error
	if p.iperf, err = exec.LookPath("iperf3"); err != nil {
		fmt.Fprintln(stderr, "bench: iperf3 is not there, its rows are left out; scripts/iperf3.sh installs it")
	}
	var lines []line
	for _, lanes := range p.lanes {
		more, err := measure(ctx, p, lanes, stderr)
		if err != nil {
			return err
		}
		lines = append(lines, more...)
	}
	if p.json {
		err = sheet.JSON(stdout, lines)
	} else {
		err = show(stdout, lines)
	}
	return errors.Join(err, missed(lines))
}

// measure runs all peers in turn over a number of connections.
func measure(ctx context.Context, p plan, lanes int, stderr io.Writer) ([]line, error) {
	far, err := startFar(ctx, lanes)
	if err != nil {
		return nil, err
	}
	defer far.stop()
	peers, closeAll, err := open(ctx, p, lanes, far)
	defer closeAll()
	if err != nil {
		return nil, err
	}
	for round := range p.rounds + 1 {
		for i := range peers {
			peer := peers[(i+round)%len(peers)]
			v, err := once(peer, far.PID)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", peer.name, err)
			}
			if round > 0 { // the first touches the memory
				peer.rounds = append(peer.rounds, v)
			}
		}
		fmt.Fprintf(stderr, "\rbench: %d connections, round %d of %d", lanes, round, p.rounds)
	}
	fmt.Fprintln(stderr)
	return judge(p, lanes, peers), nil
}

// A figure is what a peer did in one round.
type figure struct {
	value float64 // gigabytes a second, or microseconds a trip
	cpu   float64 // processor seconds of both processes for a gigabyte
}

// A peer is something that is measured.
type peer struct {
	name   string
	latent bool // it measures latency, not throughput
	run    func() (value float64, bytes int64, spent time.Duration, err error)
	rounds []figure
}

// once measures a peer, with the processor time of this process and the far one. A peer that has processes of its
// own says what they spent.
func once(p *peer, far int) (figure, error) {
	before, err := spent(far)
	if err != nil {
		return figure{}, err
	}
	value, bytes, own, err := p.run()
	if err != nil {
		return figure{}, err
	}
	after, err := spent(far)
	if own > 0 {
		before, after = 0, own
	}
	f := figure{value: value}
	if bytes > 0 {
		f.cpu = (after - before).Seconds() / (float64(bytes) / 1e9)
	}
	return f, err
}

// spent is the processor time of this process and the far one.
func spent(far int) (time.Duration, error) {
	here, err := proc.CPUTime(os.Getpid())
	if err != nil {
		return 0, err
	}
	there, err := proc.CPUTime(far)
	return here + there, err
}
