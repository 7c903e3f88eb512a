// Soak runs a job while its coordinator is killed, again and again, and shows that nobody noticed: three
// servers with embedded etcd, relays before them, and hundreds of clients that die by the rules of
// jaxlib's. The server that leads is killed with SIGKILL at regular times and started again.
//
// usage: go run ./bench/soak [flags]
//
// All clients set and read keys, increment counters, meet at barriers with one id, and ask who is alive.
// What each of them saw is judged at the end by package internal/lab/history. bench/README.md says what
// the figures mean. The exit code is 0 only if no client died, no call failed, nothing acknowledged was
// lost, all answers agree, and the stalls were short.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/serry-dev/serry/bench/internal/fleet"
	"github.com/serry-dev/serry/bench/internal/proc"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2) // the flag package has said why
	default:
		fmt.Fprintln(os.Stderr, "soak: error:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage")

// options are the flags.
type options struct {
	length, every   time.Duration
	clients, relays int
	seed            uint64
	json            bool
	binary          string
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("soak", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.DurationVar(&o.length, "for", 10*time.Minute, "how long the clients work")
	fs.DurationVar(&o.every, "every", 20*time.Second, "time from one kill of the leader to the next")
	fs.IntVar(&o.clients, "n", 256, "`number` of clients")
	fs.IntVar(&o.relays, "relays", 8, "`number` of relays they connect to")
	fs.Uint64Var(&o.seed, "seed", 1, "what the clients do depends on it")
	fs.StringVar(&o.binary, "serry", "", "`binary` to run (default: build it)")
	fs.BoolVar(&o.json, "json", false, "print one JSON object instead of a table")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, errUsage
	}
	var err error
	switch {
	case fs.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case o.clients < 2 || o.relays < 1 || o.relays > o.clients:
		err = errors.New("want -n of 2 or more, and -relays from 1 to that")
	case o.length <= 0 || o.every < restartAfter:
		err = fmt.Errorf("want -for above 0, and -every of %v or more", restartAfter)
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return o, errUsage
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if err := proc.RaiseFiles(uint64(o.clients + 100)); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "serry-soak")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.binary == "" {
		if o.binary, err = proc.Build(ctx, dir); err != nil {
			return err
		}
	}
	r, err := o.soak(ctx, dir, stderr)
	if r == nil {
		return err
	}
	if o.json {
		err = errors.Join(err, r.printJSON(stdout))
	} else {
		err = errors.Join(err, r.print(stdout))
	}
	return errors.Join(err, r.verdict())
}

// servers is how many of them are one service.
const servers = 3

// soak starts everything, lets the clients work while leaders are killed, and judges what they saw. The
// report is nil if it never came to that.
func (o options) soak(ctx context.Context, dir string, progress io.Writer) (*report, error) {
	fmt.Fprintf(progress, "soak: starting %d servers, %d relays and %d clients\n", servers, o.relays, o.clients)
	svc, err := fleet.Start(ctx, fleet.Config{
		Binary: o.binary, Dir: dir, Tasks: o.clients, Servers: servers,
		Flags: []string{"--heartbeat-timeout", heartbeatTimeout.String()},
	})
	if err != nil {
		return nil, err
	}
	defer svc.Close()
	relays, err := fleet.StartRelays(ctx, o.binary, dir, svc.Addresses(), o.relays)
	if err != nil {
		return nil, err
	}
	defer relays.Close()
	c, err := o.connect(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer c.close()
	k := &killer{service: svc, every: o.every, progress: progress}
	began := time.Now()
	killed := make(chan error, 1)
	working, stop := context.WithTimeout(ctx, o.length)
	defer stop()
	go func() { killed <- k.run(working, c) }()
	failed := c.work(ctx, working)
	stop()
	failed = errors.Join(failed, <-killed)
	took := time.Since(began)
	if failed == nil {
		failed = c.leave(ctx)
	}
	fmt.Fprintln(progress, "soak: judging what the clients saw")
	r := c.judge(took)
	r.Kills, r.Relays = k.killed, o.relays
	return r, failed
}
