package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/server"
)

// exampleService runs a service for a job of some tasks and returns its address.
func exampleService(tasks int) (address string, stop func()) {
	s, err := server.New(server.Config{Cluster: coord.Config{
		Jobs: []coord.Job{{Name: "worker", Tasks: tasks}}, RegisterBarrier: true, RegisterTimeout: time.Minute,
	}})
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { s.Serve(listener) })
	return listener.Addr().String(), func() {
		s.Shutdown(context.Background())
		served.Wait()
	}
}

// A job of one task: it joins, stores a value, and leaves.
func ExampleJoin() {
	address, stop := exampleService(1)
	defer stop()
	ctx := context.Background()

	m, err := client.Join(ctx, client.Config{Address: address, Task: serry.TaskID{Job: "worker", Index: 0}})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	if err := m.KV().Put(ctx, "greeting", []byte("hello")); err != nil {
		log.Fatal(err)
	}
	value, err := m.KV().Wait(ctx, "greeting")
	fmt.Printf("%v reads %q, %v\n", m.Task(), value, err)
	fmt.Println("left:", m.Leave(ctx))
	// Output:
	// worker/0 reads "hello", <nil>
	// left: <nil>
}

// Who comes too late is named.
func ExampleMember_Barrier() {
	address, stop := exampleService(3)
	defer stop()
	ctx := context.Background()

	var job sync.WaitGroup
	for i := range 3 {
		job.Go(func() {
			m, err := client.Join(ctx, client.Config{Address: address, Task: serry.TaskID{Job: "worker", Index: i}})
			if err != nil {
				log.Fatal(err)
			}
			defer m.Close()
			if i == 2 { // it does not come at all
				m.KV().Wait(ctx, "the others have given up")
				return
			}
			err = m.Barrier(ctx, "step", serry.BarrierOptions{Timeout: 50 * time.Millisecond})
			if i == 0 {
				var failed *serry.BarrierError
				fmt.Println(errors.Is(err, serry.ErrTimeout), errors.As(err, &failed), failed.Missing)
				m.KV().Put(ctx, "the others have given up", nil)
			}
		})
	}
	job.Wait()
	// Output:
	// true true [worker/2]
}

// All members hear the same, and what each of them said.
func ExampleMember_Agree() {
	address, stop := exampleService(3)
	defer stop()
	ctx := context.Background()

	var job sync.WaitGroup
	for i := range 3 {
		job.Go(func() {
			m, err := client.Join(ctx, client.Config{Address: address, Task: serry.TaskID{Job: "worker", Index: i}})
			if err != nil {
				log.Fatal(err)
			}
			defer m.Close()
			all := []serry.TaskID{{Job: "worker", Index: 0}, {Job: "worker", Index: 1}, {Job: "worker", Index: 2}}
			agreed, err := m.Agree(ctx, fmt.Appendf(nil, "loss %d", 10+i), all...)
			if err != nil {
				log.Fatal(err)
			}
			if i == 1 {
				for _, task := range all {
					fmt.Printf("%v says %q\n", task, agreed.Words[task])
				}
			}
			m.Leave(ctx)
		})
	}
	job.Wait()
	// Output:
	// worker/0 says "loss 10"
	// worker/1 says "loss 11"
	// worker/2 says "loss 12"
}

// The failure of a member ends the context of all others, and says why.
func ExampleMember_Context() {
	address, stop := exampleService(2)
	defer stop()
	ctx := context.Background()

	var job sync.WaitGroup
	for i := range 2 {
		job.Go(func() {
			m, err := client.Join(ctx, client.Config{Address: address, Task: serry.TaskID{Job: "worker", Index: i}})
			if err != nil {
				log.Fatal(err)
			}
			defer m.Close()
			if i == 0 {
				m.Fail(ctx, errors.New("out of memory"))
				return
			}
			<-m.Context().Done() // work would hang on this context
			fmt.Println(context.Cause(m.Context()))
		})
	}
	job.Wait()
	// Output:
	// another task failed: task worker/0: task reported an error: code 13: out of memory
}

// A store in memory behaves as the one of the service: for tests, and for jobs of one process.
func ExampleNewMemory() {
	store := client.NewMemory()
	defer store.Close()
	ctx := context.Background()

	kv := store.KV().Sub("run/7")
	fmt.Println(kv.Create(ctx, "owner", []byte("worker/0")))
	fmt.Println(kv.Create(ctx, "owner", []byte("worker/1")))
	sum, err := kv.Add(ctx, "steps", 10)
	fmt.Println(sum, err)
	all, err := store.KV().List(ctx, "run")
	for _, e := range all {
		fmt.Printf("%s = %s\n", e.Key, e.Value)
	}
	fmt.Println(err)
	// Output:
	// <nil>
	// key "run/7/owner": key already exists
	// 10 <nil>
	// run/7/owner = worker/0
	// run/7/steps = 10
	// <nil>
}

// Two members of one process can share a connection.
func ExampleDial() {
	address, stop := exampleService(2)
	defer stop()
	ctx := context.Background()

	line, err := client.Dial(address, client.DialOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer line.Close()
	var job sync.WaitGroup
	for i := range 2 {
		job.Go(func() {
			m, err := client.Join(ctx, client.Config{Transport: line, Task: serry.TaskID{Job: "worker", Index: i}})
			if err != nil {
				log.Fatal(err)
			}
			defer m.Close()
			if err := m.Barrier(ctx, "both", serry.BarrierOptions{}); err == nil && i == 0 {
				fmt.Println("both are here")
			}
			m.Leave(ctx)
		})
	}
	job.Wait()
	// Output:
	// both are here
}
