// Soak runs a job while its coordinator is killed, again and again, and shows that no client noticed: three
// servers with embedded etcd, relays before them, and hundreds of clients that die by the rules of
// jaxlib's. The server that leads is killed with SIGKILL at regular times and started again. The sockets of
// servers and relays are so small that every write is a partial one, and the folder of one server is on a
// filesystem that stands still now and then, as a slow disk does; for that soak must be root.
//
// usage: go run ./bench/soak [flags]
//
// All clients set and read keys, increment counters, meet at barriers with one id, and ask which of them are alive.
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
	"strconv"
	"sync"
	"time"

	"github.com/serry-dev/serry/bench/internal/fleet"
	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/bench/internal/sheet"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == guardCommand {
		if err := guard(os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "soak: guard:", err)
			os.Exit(1)
		}
		return
	}
	sheet.Main("soak", run)
}

// options are the flags.
type options struct {
	length, every   time.Duration
	clients, relays int
	socketBytes     int
	freeze, frozen  time.Duration // how long, and from one to the next
	mustFreeze      bool
	stop, stopped   time.Duration // how long, and from one to the next
	times           bool          // stalls are judged
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
	fs.IntVar(&o.socketBytes, "socket-bytes", 4096, "`bytes` of the buffers of sockets of servers and relays; 0: as the kernel has them")
	fs.DurationVar(&o.freeze, "freeze", 6*time.Second, "how long the folder of one server stands still; 0: never")
	fs.DurationVar(&o.frozen, "freeze-every", time.Minute, "time from one freeze to the next")
	fs.BoolVar(&o.mustFreeze, "must-freeze", false, "fail where no folder can be frozen, instead of doing without")
	fs.DurationVar(&o.stop, "stop", 6*time.Second, "how long the process of a leader is stopped by SIGSTOP; 0: never")
	fs.DurationVar(&o.stopped, "stop-every", time.Minute, "time from one stop to the next")
	fs.BoolVar(&o.times, "times", true, "fail if calls stall for too long; where other programs keep the machine busy, times say little")
	fs.Uint64Var(&o.seed, "seed", 1, "what the clients do depends on it")
	fs.StringVar(&o.binary, "serry", "", "`binary` to run (default: build it)")
	fs.BoolVar(&o.json, "json", false, "print one JSON object instead of a table")
	if err := sheet.Parse(fs, args); err != nil {
		return o, err
	}
	var err error
	switch {
	case fs.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case o.clients < 2 || o.relays < 1 || o.relays > o.clients:
		err = errors.New("want -n of 2 or more, and -relays from 1 to that")
	case o.socketBytes < 0 || o.freeze < 0 || o.freeze > 0 && o.frozen <= o.freeze:
		err = errors.New("want -socket-bytes and -freeze of 0 or more, and -freeze-every above -freeze")
	case o.stop < 0 || o.stop > 0 && o.stopped <= o.stop:
		err = errors.New("want -stop of 0 or more, and -stop-every above it")
	case o.length <= 0 || o.every < restartAfter:
		err = fmt.Errorf("want -for above 0, and -every of %v or more", restartAfter)
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return o, sheet.ErrUsage
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
		err = errors.Join(err, sheet.JSON(stdout, r))
	} else {
		err = errors.Join(err, r.print(stdout))
	}
	return errors.Join(err, r.verdict(o.times))
}

const (
	servers      = 3 // that are one service
	frozenServer = 0 // the one whose folder is frozen
)

// soak starts everything, lets the clients work while leaders are killed, and judges what they saw. The
// report is nil if it never came to that.
func (o options) soak(ctx context.Context, dir string, progress io.Writer) (r *report, failed error) {
	fmt.Fprintf(progress, "soak: starting %d servers, %d relays and %d clients\n", servers, o.relays, o.clients)
	small := "--socket-bytes=" + strconv.Itoa(o.socketBytes)
	cfg := fleet.Config{
		Binary: o.binary, Dir: dir, Tasks: o.clients, Servers: servers,
		Flags: []string{"--heartbeat-timeout", heartbeatTimeout.String(), "--lease", lease.String(), small},
	}
	disk, why, err := o.mount(cfg.Folder(frozenServer), progress)
	if err != nil {
		return nil, err
	}
	if disk != nil {
		defer func() { failed = errors.Join(failed, disk.close()) }()
	}
	svc, err := fleet.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer svc.Close()
	relays, err := fleet.StartRelays(ctx, o.binary, dir, svc.Addresses(), o.relays, small)
	if err != nil {
		return nil, err
	}
	defer relays.Close()
	c, err := o.connect(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer c.close()
	var calm sync.Mutex
	k := &killer{service: svc, every: o.every, calm: &calm, progress: progress}
	f := &freezer{disk: disk, service: svc, server: frozenServer, length: o.freeze, every: o.frozen, calm: &calm, progress: progress}
	s := &stopper{service: svc, length: o.stop, every: o.stopped, calm: &calm, progress: progress}
	disturbers := []func(context.Context, *clients) error{k.run}
	if disk != nil {
		disturbers = append(disturbers, f.run)
	}
	if o.stop > 0 {
		disturbers = append(disturbers, s.run)
	}
	began := time.Now()
	failed = c.workDisturbed(ctx, o.length, disturbers)
	took := time.Since(began)
	if failed == nil {
		failed = c.leave(ctx)
	}
	fmt.Fprintln(progress, "soak: judging what the clients saw")
	r = c.judge(took)
	r.Kills, r.Freezes, r.NoFreeze, r.Stops, r.Relays = k.killed, f.frozen, why, s.stopped, o.relays
	return r, failed
}

// workDisturbed lets all clients work for a time, while the service is disturbed.
func (c *clients) workDisturbed(ctx context.Context, length time.Duration, by []func(context.Context, *clients) error) error {
	working, end := context.WithTimeout(ctx, length)
	defer end()
	disturbed := make(chan error, len(by))
	for _, run := range by {
		go func() { disturbed <- run(working, c) }()
	}
	failed := c.work(ctx, working)
	end()
	for range by {
		failed = errors.Join(failed, <-disturbed)
	}
	return failed
}

// mount makes the folder of a server one that can be frozen, if there are to be freezes. Where that cannot be
// done it says why, loudly.
func (o options) mount(folder string, progress io.Writer) (disk *frozenDisk, why string, err error) {
	if o.freeze == 0 {
		return nil, "", nil
	}
	disk, err = mountFrozen(folder)
	if errors.Is(err, errNoFreeze) && !o.mustFreeze {
		fmt.Fprintf(progress, "soak: WITHOUT FREEZES: %v\n", err)
		return nil, err.Error(), nil
	}
	return disk, "", err
}
