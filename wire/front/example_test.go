package front_test

import (
	"context"
	"fmt"
	"net"

	"github.com/serry-dev/serry/wire/front"
	"github.com/serry-dev/serry/wire/rpc"
)

// A greeter answers at once. A handler that answers later keeps the connection and the call, calls
// Reply when it is time, and Flush after the last Reply.
type greeter struct{}

func (greeter) Open(rpc.Conn)               {}
func (greeter) Close(rpc.Conn, error)       {}
func (greeter) Cancel(rpc.Conn, rpc.CallID) {}
func (greeter) Served(rpc.Conn)             {}
func (greeter) Serve(c rpc.Conn, call rpc.CallID, _ string, body []byte) {
	c.Reply(call, append([]byte("hello "), body...), rpc.Status{})
}

func ExampleNew() {
	server := front.New(front.Config{
		Handler: greeter{},
		Methods: rpc.Methods{"/example.Greeter/Greet": {MaxRequestBytes: 1 << 10}},
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan error)
	go func() { done <- server.Serve(l) }()

	server.Shutdown(context.Background())
	fmt.Println(<-done)
	// Output: front: server closed
}
