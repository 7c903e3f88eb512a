package collective_test

import (
	"context"
	"errors"
	"fmt"

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
