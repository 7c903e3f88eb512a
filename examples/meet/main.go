// Meet is the smallest job: four members come together, tell each other where they are, work in step,
// and leave. The service runs in the same process, so that there is nothing to start first.
//
//	go run ./examples/meet
//
// In a real job every member is a process of its own, on any host, and the service is `serry serve`.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/server"
)

const (
	members = 4
	steps   = 3
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "meet: error: %v\n", err)
		os.Exit(1)
	}
}

// run starts the service and lets all members meet there.
func run(ctx context.Context, out io.Writer) error {
	s, err := server.New(server.Config{Cluster: coord.Config{
		Jobs:            []coord.Job{{Name: "worker", Tasks: members}},
		RegisterBarrier: true, RegisterTimeout: time.Minute, ShutdownTimeout: time.Minute,
	}})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var all errgroup.Group
	all.Go(func() error { return s.Serve(listener) })

	var job errgroup.Group
	for i := range members {
		job.Go(func() error { return member(ctx, out, listener.Addr().String(), i) })
	}
	err = job.Wait()
	s.Shutdown(ctx)
	return errors.Join(err, all.Wait())
}

// member is what one task does.
func member(ctx context.Context, out io.Writer, address string, i int) error {
	// Join returns when all four have come.
	m, err := client.Join(ctx, client.Config{Address: address, Task: serry.TaskID{Job: "worker", Index: i}})
	if err != nil {
		return err
	}
	defer m.Close()

	// Every task says where it is, and waits for the word of its neighbour.
	addresses := m.KV().Sub("addresses")
	if err := addresses.Create(ctx, fmt.Sprint(i), fmt.Appendf(nil, "10.0.0.%d:9000", i)); err != nil {
		return err
	}
	neighbour, err := addresses.Wait(ctx, fmt.Sprint((i+1)%members))
	if err != nil {
		return err
	}
	for step := range steps {
		// Work goes here. No task begins a step before all have ended the one before it.
		if err := m.Barrier(ctx, "step", serry.BarrierOptions{Timeout: time.Minute}); err != nil {
			return err
		}
		if i == 0 {
			fmt.Fprintf(out, "step %d: all here, the neighbour of %v is at %s\n", step, m.Task(), neighbour)
		}
	}
	// Leave returns when all four are done.
	return m.Leave(ctx)
}
