// Transfer measures transfers of serry between two processes of this machine, beside what their bytes go through at best: bare
// sockets, iperf3 and plain copies of memory; and beside the transfer server of JAX, Mooncake and NIXL.
//
// usage: go run ./bench/transfer [flags]
//
// All peers of a section run in turn, in every round in another order, and content is compared once at the end. Rows about JAX,
// Mooncake and NIXL need a Python with them, and mean something on a machine with cores to spare. The exit code is 1 if a bar is missed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/bench/internal/sheet"
)

func main() { farOr(func() { sheet.Main("bench", run) }) }

// A plan is what to measure.
type plan struct {
	rounds  int
	size    int64
	jaxSize int64
	lasts   time.Duration
	trips   int
	group   int
	iperf   string // path, or empty
	python  string // that has jax, or empty

	mooncake, nixl string // Pythons that have these, or empty
	dir            string // for files
	json           bool
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("transfer", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var p plan
	flags.IntVar(&p.rounds, "rounds", 10, "how often each peer is measured")
	flags.Int64Var(&p.size, "size", 64<<20, "bytes of a large buffer")
	flags.Int64Var(&p.jaxSize, "jaxsize", 1<<30, "bytes of an array of JAX, which is faster with large ones")
	flags.DurationVar(&p.lasts, "for", time.Second, "how long each peer moves large buffers in a round")
	flags.IntVar(&p.trips, "trips", 2000, "buffers of 1 KiB in a round, one after the other")
	flags.IntVar(&p.group, "group", 1000, "buffers of 1 KiB in one group")
	flags.StringVar(&p.python, "python", "", "a Python with jax; without it its rows are left out")
	flags.StringVar(&p.mooncake, "mooncake", "", "a Python with Mooncake's transfer engine, likewise")
	flags.StringVar(&p.nixl, "nixl", "", "a Python with NIXL, likewise")
	flags.BoolVar(&p.json, "json", false, "print JSON")
	if err := sheet.Parse(flags, args); err != nil {
		return err
	}
	var err error
	if p.iperf, err = exec.LookPath("iperf3"); err != nil {
		fmt.Fprintln(stderr, "bench: iperf3 is not there, its rows are left out; scripts/iperf3.sh installs it")
	}
	for _, python := range []string{p.python, p.mooncake, p.nixl} {
		if _, err := os.Stat(python); python != "" && err != nil {
			return err
		}
	}
	if p.dir, err = os.MkdirTemp("", "serry-bench"); err != nil {
		return err
	}
	defer os.RemoveAll(p.dir)
	var lines []line
	for _, s := range []section{{"1 connection", 1, overTCP}, {"4 connections", 4, overTCP}, {"8 connections", 8, overTCP}, {"shared memory", 2, overMemory}} {
		more, err := p.measure(ctx, s, stderr)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
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

// A section has peers that are compared with each other.
type section struct {
	name  string
	lanes int
	way   way
}

// A way is how bytes get from one process to the other.
type way string

// The ways.
const (
	overTCP    way = "tcp"
	overMemory way = "memory"
)

// measure runs all peers of a section in turn.
func (p plan) measure(ctx context.Context, s section, stderr io.Writer) ([]line, error) {
	n, err := openNear(ctx, p, s)
	if err != nil {
		return nil, err
	}
	defer n.close()
	peers, err := n.peers(ctx, p, s)
	if err != nil {
		return nil, err
	}
	for round := range p.rounds + 1 {
		for i := range peers {
			peer := peers[(i+round)%len(peers)]
			if err := n.turn(peer, round > 0); err != nil { // the first round touches the memory
				return nil, fmt.Errorf("%s: %w", peer.name, err)
			}
		}
		fmt.Fprintf(stderr, "\rbench: %s, round %d of %d", s.name, round, p.rounds)
	}
	fmt.Fprintln(stderr)
	return judge(s, peers), n.compare(ctx)
}

// turn runs a peer once, and keeps its figures if they count.
func (n *near) turn(q *peer, counts bool) error {
	before, err := n.used()
	if err != nil {
		return err
	}
	begun := time.Now()
	v, err := q.run()
	if err != nil || !counts {
		return err
	}
	took := time.Since(begun)
	after, err := n.used()
	q.rounds, q.cores = append(q.rounds, v), append(q.cores, (after-before).Seconds()/took.Seconds())
	return err
}

// used is the processor time of both processes so far.
func (n *near) used() (time.Duration, error) {
	here, err := proc.CPUTime(os.Getpid())
	there, err2 := proc.CPUTime(n.far.PID)
	return here + there, errors.Join(err, err2)
}

// A peer is something that is measured.
type peer struct {
	name   string
	unit   string // "GB/s", where more is better, or "us"
	run    func() (float64, error)
	rounds []float64
	tails  []float64 // of latencies: the 99th percentile of each round
	cores  []float64 // that both processes of this program had busy in each round
}

// throughput is a peer that moves large buffers, for about as long as the plan says.
func throughput(name string, p plan, move func() (time.Duration, error)) *peer {
	return &peer{name: name, unit: "GB/s", run: func() (float64, error) {
		var took time.Duration
		bytes := int64(0)
		for took < p.lasts {
			more, err := move()
			if err != nil {
				return 0, err
			}
			took += more
			bytes += p.size
		}
		return float64(bytes) / 1e9 / took.Seconds(), nil
	}}
}

// latency is a peer whose figure is the median of times, in microseconds.
func latency(name string, times func() ([]time.Duration, error)) *peer {
	q := &peer{name: name, unit: "us"}
	q.run = func() (float64, error) {
		took, err := times()
		var us []float64
		for _, d := range took {
			us = append(us, float64(d)/1e3)
		}
		if len(us) > 1 {
			q.tails = append(q.tails, sheet.Quantile(us, 0.99))
		}
		return sheet.Median(us), err
	}
	return q
}
