package link_test

import (
	"context"
	"fmt"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/link"
)

// Two members of a job, which a real program gets from client.Join, exchange a message.
func ExampleOpen() {
	ctx := context.Background()
	job := newJob()
	var nets []*link.Net
	for i := range 2 {
		m := member{job, life(i, uint64(i+1)), 7, false}
		job.set(serry.TaskInfo{Task: m.Task(), Incarnation: m.Incarnation(), State: serry.Connected})
		n, err := link.Open(ctx, m, job, link.Options{})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer n.Close(ctx)
		nets = append(nets, n)
	}
	name := link.Header{Family: link.Collective, Type: link.CollectiveData, Stream: 1, Seq: 1}

	there, err := nets[0].Link(ctx, nets[1].Life())
	if err != nil {
		fmt.Println(err)
		return
	}
	there.Post(name, []byte("hello"))

	back, err := nets[1].Link(ctx, nets[0].Life())
	if err != nil {
		fmt.Println(err)
		return
	}
	memory := make([]byte, 5)
	ticket, _ := back.Expect(name, memory)
	fmt.Println(ticket.Wait(ctx), string(memory))
	// Output: <nil> hello
}
