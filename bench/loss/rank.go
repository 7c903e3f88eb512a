package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/memory"
)

// rankCommand makes this program a rank of a job. The variables of a task say which.
const rankCommand = "rank"

// Words of a rank, each followed by the time in nanoseconds of the clock that all processes of the machine share.
const (
	wordReady = "ready" // the clique works
	wordKill  = "kill"  // this process ends now
	wordError = "error" // an operation failed; the error follows
	wordAgain = "again" // the next clique works; its size follows
	wordHeld  = "held"  // then: how many segments of shared memory the process holds
	wordLeft  = "left"  // the same, when it has closed its links
)

// againBytes is the size of the first all-reduce in the next clique.
const againBytes = 1 << 20

// A rank is one process of the job.
type rank struct {
	bytes  int64
	victim int           // the rank that kills itself, or -1
	after  time.Duration // how long after all are ready
	over   string        // the way to the others
	dead   time.Duration // how long a link may be silent; 0: the default
	out    io.Writer

	member *client.Member
	comm   *collective.Comm
}

func beRank(ctx context.Context, args []string, out io.Writer) error {
	r := &rank{out: out}
	flags := flag.NewFlagSet(rankCommand, flag.ContinueOnError)
	flags.Int64Var(&r.bytes, "size", 64<<20, "bytes")
	flags.IntVar(&r.victim, "victim", -1, "rank")
	flags.DurationVar(&r.after, "after", 0, "time")
	flags.StringVar(&r.over, "over", overMemory, "way")
	flags.DurationVar(&r.dead, "dead", 0, "time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	cfg, tasks, err := client.ConfigFromEnv()
	if err != nil {
		return err
	}
	cfg.Recoverable = true
	if r.member, err = client.Join(ctx, cfg); err != nil {
		return err
	}
	defer r.member.Close()
	n, err := link.Open(ctx, r.member, r.member.KV(), link.Options{
		Plain: os.Getenv("SERRY_JOB_SECRET_FILE") == "", Timing: link.Timing{Dead: r.dead},
	})
	if err != nil {
		return err
	}
	g, err := collective.New(r.member, n, collective.Options{LinksOnly: r.over == overLinks})
	if err != nil {
		return err
	}
	devices := make([]serry.DeviceID, tasks)
	for i := range devices {
		devices[i] = serry.DeviceID(i)
	}
	if r.comm, err = g.Clique(ctx, devices, collective.CliqueOptions{}); err != nil {
		return err
	}
	// A member that left before its group is closed would be missed by operations that have not ended everywhere.
	err = errors.Join(r.work(ctx), g.Close(ctx), n.Close(ctx))
	return errors.Join(err, r.saySegments(wordLeft), r.member.Leave(ctx))
}

// saySegments tells how many segments the process holds.
func (r *rank) saySegments(word string) error {
	n, err := heldSegments()
	if err != nil {
		return err
	}
	r.say(word, n)
	return nil
}

// work sums until an operation fails, and goes on with the members that are left.
func (r *rank) work(ctx context.Context) error {
	data := make([]float32, r.bytes/4)
	all := memory.OfSlice(data)
	sum := collective.AllReduce{Out: all, In: all, Count: int64(len(data)), Type: memory.F32, Reduction: collective.Sum}
	if err := r.comm.Do(ctx, sum); err != nil { // it touches the memory
		return err
	}
	// When the second one has ended for the victim, all have begun it. Some may still be in it when the victim dies: then it is
	// the operation that fails for them.
	err := r.comm.Do(ctx, sum)
	r.say(wordReady)
	if r.comm.Rank() == r.victim {
		go r.die(ctx)
	}
	for err == nil {
		err = r.comm.Do(ctx, sum)
	}
	r.say(wordError, err)
	if _, ok := errors.AsType[*collective.Error](err); !ok {
		return err
	}
	return r.again(ctx)
}

// die kills this process.
func (r *rank) die(ctx context.Context) {
	_ = pause.For(ctx, r.after)
	r.say(wordKill)
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// again forms the next clique and sums in it.
func (r *rank) again(ctx context.Context) error {
	next, err := r.comm.Reform(ctx)
	if err != nil {
		return err
	}
	data := make([]float32, againBytes/4)
	for i := range data {
		data[i] = 1
	}
	all := memory.OfSlice(data)
	if err := next.Do(ctx, collective.AllReduce{Out: all, In: all, Count: int64(len(data)), Type: memory.F32, Reduction: collective.Sum}); err != nil {
		return err
	}
	r.say(wordAgain, next.Size())
	for i, v := range data {
		if v != float32(next.Size()) {
			return fmt.Errorf("element %d is %v; want %d", i, v, next.Size())
		}
	}
	return r.saySegments(wordHeld)
}

// say writes one line at once.
func (r *rank) say(word string, more ...any) {
	line := fmt.Sprintln(append([]any{word, time.Now().UnixNano()}, more...)...)
	io.WriteString(r.out, line)
}
