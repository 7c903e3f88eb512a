package collective_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/link"
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
