package relay_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/relay"
)

// A relay for the tasks of this host, which are told its address instead of that of the service.
func ExampleNew() {
	r, err := relay.New(relay.Config{Upstream: []string{"host0:8476", "host1:8476", "host2:8476"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	served := make(chan error, 1)
	go func() { served <- r.Serve(l) }()

	// Whoever starts the tasks says how they end.
	r.Exited(serry.TaskID{Job: "worker", Index: 3}, "signal 9")

	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	r.Shutdown(ctx)
	<-served
	fmt.Println(r.Status().Clients, "clients left")
	// Output: 0 clients left
}
