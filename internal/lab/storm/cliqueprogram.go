package storm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/trial"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/memory"
)

// A worker is a Go program that runs collective operations. Which operation is due follows from the key of the clique and
// a count, so that a process which has just come needs nothing of the others to know it.
type worker struct {
	*proc
	ctx   context.Context // ends with the process, or with its membership
	group *collective.Group
}

const (
	formTime  = 20 * time.Second // bounds one attempt to form a clique
	askAgain  = 5 * time.Second  // after which a process that waits for the first clique asks whether it has grown
	voteEvery = 4                // operations
	grownKey  = "grown"          // exists when members add tasks to the first clique
)

// workInCliques is the program of a member of cliques.
func (p *proc) workInCliques() {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	defer context.AfterFunc(p.member.Context(), cancel)()
	n, err := link.Open(ctx, p.member, p.member.KV(), link.Options{
		Listen: []string{p.place.name}, Network: memberNetwork{p}, Secret: jobSecret, Lanes: 1, Chunk: link.SmallBytes,
		Timing: p.world.plan.cliques.timing, Collective: link.Always, Planted: p.world.options.Planted, Log: p.world.log(p.place.name),
	})
	if err != nil {
		p.stops(ctx, "open links", err)
		return
	}
	defer n.Close(ctx)
	g, err := collective.New(attentive{p.member, p}, n, collective.Options{
		Timeout: 2 * patience, Idle: p.world.plan.cliques.idle, IdleTime: p.world.plan.cliques.idleFor,
		Planted: p.world.options.Planted, Log: p.world.log(p.place.name),
	})
	if err != nil {
		p.stops(ctx, "make a group", err)
		return
	}
	w := &worker{p, ctx, g}
	if p.world.plan.cliques.steps {
		err = w.trains()
	} else {
		err = w.run()
	}
	p.does("close the group")
	if err == nil {
		err = g.Close(ctx)
	}
	cancelled, stop := context.WithCancel(ctx)
	stop()
	g.Close(cancelled)
	p.stops(ctx, "work", err)
}

var jobSecret = []byte("0123456789abcdef0123456789abcdef")

// stops notes that the program cannot go on, unless it is at its end.
func (p *proc) stops(ctx context.Context, what string, err error) {
	if err != nil || ctx.Err() != nil {
		p.memberDied(what, errors.Join(err, p.member.Err()))
	}
}

// An attentive member notes what its group is told of other tasks.
type attentive struct {
	*client.Member
	proc *proc
}

// Watch implements collective.Member.
func (a attentive) Watch(ctx context.Context) iter.Seq2[serry.Snapshot, error] {
	return func(yield func(serry.Snapshot, error) bool) {
		for s, err := range a.Member.Watch(ctx) {
			a.proc.hears(s)
			if !yield(s, err) {
				return
			}
		}
	}
}

// run works until all members agree that it is time to end.
func (w *worker) run() error {
	c, err := w.enter()
	for err == nil {
		w.world.judge.formed(w.proc, c)
		w.holds(c)
		var failed error
		if failed = w.work(c); failed == nil {
			return nil
		}
		before := c
		if c, err = w.reform(before); err == nil {
			err = before.Close(w.ctx)
		}
	}
	return err
}

// enter forms the first clique of this process. A process that was started again finds out which one the others have.
func (w *worker) enter() (c *collective.Comm, err error) {
	for w.ctx.Err() == nil {
		w.does("form a clique")
		devices, err := w.devices()
		if err != nil {
			return nil, err
		}
		bound := formTime
		if len(devices) < w.world.plan.tasks {
			bound = askAgain
		}
		ctx, cancel := context.WithTimeout(w.ctx, bound)
		c, err = w.group.Clique(ctx, devices, collective.CliqueOptions{})
		cancel()
		if err == nil {
			return c, nil
		}
		w.world.judge.notFormed(w.proc, err)
		w.pause(100 * time.Millisecond)
	}
	return nil, context.Cause(w.ctx)
}

// devices are those of the clique that this process shall be in: one of each task.
func (w *worker) devices() (list []serry.DeviceID, err error) {
	plan, kv := w.world.plan, w.member.KV()
	tasks := plan.tasks
	if plan.cliques.first < tasks {
		if !plan.cliques.drawsFirst(w.task) {
			_, err = kv.Wait(w.ctx, grownKey)
		} else if _, err = kv.Get(w.ctx, grownKey); errors.Is(err, serry.ErrNotFound) {
			tasks, err = plan.cliques.first, nil
		}
	}
	return w.firstDevices(tasks), err
}

func (w *worker) firstDevices(n int) (list []serry.DeviceID) {
	for i := range n {
		list = append(list, serry.DeviceID(i))
	}
	return list
}

// reform forms the next clique, with the tasks that were not in the first one.
func (w *worker) reform(c *collective.Comm) (next *collective.Comm, err error) {
	if w.world.plan.cliques.first < w.world.plan.tasks {
		if err := w.member.KV().Put(w.ctx, grownKey, []byte("yes")); err != nil {
			return nil, err
		}
	}
	for w.ctx.Err() == nil {
		w.does("form the next clique")
		ctx, cancel := context.WithTimeout(w.ctx, formTime)
		next, err = c.Extend(ctx, w.firstDevices(w.world.plan.tasks)...)
		cancel()
		if err == nil {
			return next, nil
		}
		w.world.judge.notFormed(w.proc, err)
		w.pause(100 * time.Millisecond)
	}
	return nil, context.Cause(w.ctx)
}

// work runs operations. It returns nil when all members agree to end, or why another clique is needed.
func (w *worker) work(c *collective.Comm) error {
	for n := uint64(1); ; n++ {
		if !w.pause(w.world.plan.pace/2 + time.Duration(w.rand.Int64N(int64(w.world.plan.pace)))) {
			return context.Cause(w.ctx)
		}
		var err error
		ends, again := false, false
		if n%voteEvery == 0 {
			ends, again, err = w.vote(c)
		} else {
			err = w.operate(c, n)
		}
		switch {
		case err != nil:
			if c.Err() == nil { // in a part of the clique: the members that are not in it must hear
				w.world.judge.revoking(c)
				c.Revoke(err)
			}
			return err
		case ends:
			return nil
		case again:
			return errAgain
		}
	}
}

var errAgain = errors.New("tasks wait to be taken in")

// vote is an operation after which all members know whether to end, and whether to form the next clique with tasks
// that wait for it.
func (w *worker) vote(c *collective.Comm) (ends, again bool, err error) {
	all := make([]byte, 4*c.Size())
	mine := binary.LittleEndian.AppendUint32(nil, uint32(w.words(c)))
	err = w.judged(c, "vote", func(ctx context.Context) error {
		return c.Do(ctx, collective.AllGather{In: memory.Of(mine), Out: memory.Of(all), Count: 1, Type: memory.U32})
	})
	ends = true
	for i := range c.Size() {
		word := binary.LittleEndian.Uint32(all[4*i:])
		ends, again = ends && word&mayEnd != 0, again || word&waits != 0
	}
	return ends && !again, again, err
}

// What a member tells the others of its wishes.
const (
	mayEnd = 1 << iota // it may end
	waits              // it knows of tasks that wait to be taken in
)

// words are the wishes of this member.
func (w *worker) words(c *collective.Comm) (mine uint64) {
	if w.world.judge.maysEnd(c) {
		mine |= mayEnd
	}
	if len(c.Returned()) > 0 || w.world.plan.cliques.first < w.world.plan.tasks && c.Key().Generation == 0 {
		mine |= waits
	}
	return mine
}

// operate runs operation n of a clique.
func (w *worker) operate(c *collective.Comm, n uint64) error {
	r := rand.New(rand.NewPCG(c.Key().Fingerprint(), n))
	switch r.IntN(12) {
	case 0:
		return w.exchange(c, n, r)
	case 1:
		return w.split(c, n, r)
	case 2:
		return w.tries(c, n, r, 2)
	case 3:
		return w.puts(c, n, r)
	}
	return w.tries(c, n, r, 1)
}

// tries runs operations whose result is known, all at once.
func (w *worker) tries(c *collective.Comm, n uint64, r *rand.Rand, count int) error {
	var calls []collective.Call
	var attempts []*trial.Attempt
	what := "operation " + strconv.FormatUint(n, 10)
	for i := range count {
		list := trial.All(c.Size(), pick(r, w.world.plan.cliques.sizes...), r.IntN(c.Size()), c.Key().Fingerprint()+n<<8+uint64(i))
		x := pick(r, list...)
		what += ", " + x.Name
		a := x.Prepare(c.Rank(), x.InPlace() && r.IntN(2) == 0)
		attempts = append(attempts, a)
		calls = append(calls, collective.Call{On: c, Op: a.Op})
	}
	return w.judged(c, what, func(ctx context.Context) error {
		if count == 1 {
			return c.Do(ctx, calls[0].Op)
		}
		return collective.Run(ctx, calls...)
	}, attempts...)
}

// exchange passes a vector to the next rank, and takes that of the rank before.
func (w *worker) exchange(c *collective.Comm, n uint64, r *rand.Rand) error {
	size := pick(r, w.world.plan.cliques.sizes...)
	data := func(rank int) []byte { return trial.Fill(size, c.Key().Fingerprint()^n<<8^uint64(rank)) }
	p := c.Size()
	next, before := (c.Rank()+1)%p, (c.Rank()+p-1)%p
	out := make([]byte, size)
	err := w.judged(c, fmt.Sprintf("operation %d, send and receive", n), func(ctx context.Context) error {
		return collective.Run(ctx,
			collective.Call{On: c, Op: collective.Send{In: memory.Of(data(c.Rank())), Count: int64(size), Type: memory.U8, To: next}},
			collective.Call{On: c, Op: collective.Recv{Out: memory.Of(out), Count: int64(size), Type: memory.U8, From: before}})
	})
	if err == nil && !slices.Equal(out, data(before)) && !w.over() {
		w.world.wrong("task %d life %d: other bytes came from rank %d than were sent", w.task, w.life, before)
	}
	return err
}

// puts writes into the memory of all ranks, and waits for what they write.
func (w *worker) puts(c *collective.Comm, n uint64, r *rand.Rand) error {
	x := trial.OneSided(c.Size(), pick(r, w.world.plan.cliques.sizes...), c.Key().Fingerprint()+n<<8)
	a := x.Prepare(c.Rank(), false)
	return w.judged(c, fmt.Sprintf("operation %d, put and signal", n), func(ctx context.Context) error { return a.Run(ctx, c) }, a)
}

const splits = "split"

// split divides the clique, runs an operation in each part, and closes them.
func (w *worker) split(c *collective.Comm, n uint64, r *rand.Rand) error {
	parts := 1 + r.IntN(2)
	var part *collective.Comm
	err := w.judged(c, fmt.Sprintf("operation %d, %s", n, splits), func(ctx context.Context) (err error) {
		part, err = c.Split(ctx, c.Rank()%parts, -c.Rank())
		return err
	})
	if err != nil {
		return err
	}
	w.world.judge.formed(w.proc, part)
	if err := w.tries(part, n, rand.New(rand.NewPCG(part.Key().Fingerprint(), n)), 1); err != nil {
		return err
	}
	return part.Close(w.ctx)
}

// judged runs an operation and has it judged.
func (w *worker) judged(c *collective.Comm, what string, run func(ctx context.Context) error, attempts ...*trial.Attempt) error {
	w.does(what)
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	w.operates(cancel)
	return w.judgedIn(ctx, c, what, func(ctx context.Context) error {
		defer w.operates(nil)
		return run(ctx)
	}, attempts...)
}

// judgedIn is judged with the context of something larger.
func (w *worker) judgedIn(ctx context.Context, c *collective.Comm, what string, run func(ctx context.Context) error, attempts ...*trial.Attempt) error {
	o := outcome{proc: w.proc, comm: c, what: what, splits: strings.HasSuffix(what, splits), began: time.Now()}
	o.err = run(ctx)
	if o.err != nil && c.Err() == nil && ctx.Err() != nil && w.ctx.Err() == nil {
		c.Revoke(o.err) // given up before anything was sent, or in a part of the clique
		o.err = c.Err()
	}
	w.world.judge.judge(o, attempts)
	return o.err
}
