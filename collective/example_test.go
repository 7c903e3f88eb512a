package collective_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/memory"
)

// A program that trains with gradients of all ranks, and goes on with those that are left when one is lost.
func Example() {
	train := func(ctx context.Context, m *client.Member, devices []serry.DeviceID, gradients []float32) error {
		net, err := link.Open(ctx, m, m.KV(), link.Options{})
		if err != nil {
			return err
		}
		defer net.Close(ctx)
		group, err := collective.New(m, net, collective.Options{})
		if err != nil {
			return err
		}
		defer group.Close(ctx)
		comm, err := group.Clique(ctx, devices, collective.CliqueOptions{})
		for step := 0; err == nil && step < 1000; step++ {
			err = collective.AllReduceSlice(ctx, comm, gradients, gradients, collective.Sum)
			if errors.Is(err, collective.ErrPeerFailed) || errors.Is(err, collective.ErrTransport) {
				fmt.Println("going on without", err)
				comm, err = comm.Reform(ctx)
			}
		}
		return err
	}
	_ = train
}

// The sums of two layers do not depend on each other. Each has a communicator of its own, so the second does not wait for the first,
// on whichever rank either is late (CL-BUF-4).
func ExampleComm_Start() {
	step := func(ctx context.Context, layers [2]*collective.Comm, gradients [2][]float32) error {
		var sums [2]*collective.Future
		for i, c := range layers {
			g := memory.OfSlice(gradients[i])
			sums[i] = c.Start(ctx, collective.AllReduce{In: g, Out: g, Count: g.Len() / 4, Type: memory.F32, Reduction: collective.Sum})
		}
		return errors.Join(sums[0].Wait(), sums[1].Wait())
	}

	group, stop := twoDevices() // both in this process
	defer stop()
	ctx := context.Background()
	var layers [2]*collective.Comm
	for i := range layers {
		layers[i], _ = group.Clique(ctx, []serry.DeviceID{0, 1}, collective.CliqueOptions{Traffic: uint64(i)})
	}
	var ranks sync.WaitGroup
	for rank := range 2 {
		ranks.Go(func() {
			mine := [2]*collective.Comm{layers[0].Local()[rank], layers[1].Local()[rank]}
			gradients := [2][]float32{{1, 2}, {3, 4, 5}}
			if err := step(ctx, mine, gradients); err != nil {
				fmt.Println(err)
			}
			if rank == 0 {
				fmt.Println(gradients[0], gradients[1])
			}
		})
	}
	ranks.Wait()
	// Output: [2 4] [6 8 10]
}

// twoDevices is the group of a process that drives two devices.
func twoDevices() (g *collective.Group, stop func()) {
	j, l := newJob(), life(0, 1)
	j.set(serry.TaskInfo{Task: l.Task, Incarnation: l.Incarnation, State: serry.Connected})
	m := member{job: j, life: l}
	net, err := link.Open(context.Background(), m, j, link.Options{})
	if err != nil {
		panic(err)
	}
	g, err = collective.New(m, net, collective.Options{Owners: map[serry.DeviceID]serry.TaskID{0: l.Task, 1: l.Task}})
	if err != nil {
		panic(err)
	}
	return g, func() { g.Close(context.Background()); net.Close(context.Background()) }
}

// A rank writes into the memory of its neighbour, which does something else meanwhile, and signals it.
func ExampleComm_Offer() {
	pass := func(ctx context.Context, c *collective.Comm, gives, gets []byte) error {
		window, err := c.Offer(ctx, memory.Of(gets))
		if err != nil {
			return err
		}
		next, before := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		err = errors.Join(
			c.Do(ctx, collective.Put{Window: window, To: next, In: memory.Of(gives), Count: int64(len(gives))}),
			c.Do(ctx, collective.Signal{To: next}),
			c.Do(ctx, collective.WaitSignal{Signals: []collective.Signals{{From: before, Count: 1}}}))
		if err != nil {
			return err
		}
		return window.Close(ctx)
	}
	_ = pass
}

// A training step with work of a device. Each operation has a deadline of its own; the guard is for a device that does not come to its end: the other
// members do not wait for this process any more, and it ends.
func ExampleGroup_Guard() {
	step := func(ctx context.Context, g *collective.Group, c *collective.Comm, gradients []float32, begin func() (done <-chan struct{})) error {
		guard := g.Guard("training step", 5*time.Minute)
		defer guard.Release()
		<-begin() // the device has computed the gradients
		return collective.AllReduceSlice(ctx, c, gradients, gradients, collective.Sum)
	}
	_ = step
}

// The ranks of a process tell each other where their queues are, without a message.
func ExampleComm_Exchange() {
	type queue struct{ device int }
	group, stop := twoDevices() // both in this process
	defer stop()
	ctx := context.Background()
	c, _ := group.Clique(ctx, []serry.DeviceID{0, 1}, collective.CliqueOptions{})
	var ranks sync.WaitGroup
	for _, mine := range c.Local() {
		ranks.Go(func() {
			values, err := mine.Exchange(ctx, &queue{device: 10 + mine.Rank()})
			if err != nil {
				fmt.Println(err)
				return
			}
			if other, err := collective.ValueOf[*queue](values, 1); err == nil && mine.Rank() == 0 {
				fmt.Println("rank 1 has device", other.device)
			}
		})
	}
	ranks.Wait()
	// Output: rank 1 has device 11
}

// A program with two cliques acquires both for each step, so that another program in the same process, which uses one of
// them too, does not come between.
func ExampleGroup_Requests() {
	train := func(ctx context.Context, g *collective.Group, mine serry.DeviceID, all, row []serry.DeviceID, gradients, sums []float32) error {
		requests := g.Requests(mine)
		every, err := requests.Add(collective.Request{Devices: all})
		if err != nil {
			return err
		}
		some, err := requests.Add(collective.Request{Devices: row})
		if err != nil {
			return err
		}
		for step := uint64(1); step <= 1000; step++ {
			lease, err := requests.Acquire(ctx, collective.Execution{ID: step})
			if err != nil {
				return err
			}
			err = errors.Join(
				collective.AllReduceSlice(ctx, lease.Comm(some), sums, gradients, collective.Sum),
				collective.AllReduceSlice(ctx, lease.Comm(every), sums, sums, collective.Sum))
			lease.Release()
			if err != nil {
				return err
			}
		}
		return nil
	}
	_ = train
}
