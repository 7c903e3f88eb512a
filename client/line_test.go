package client_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/wire/stream"
	"github.com/serry-dev/serry/wire/xlapb"
)

// A town is where servers listen, by address, in memory.
type town struct {
	mu      sync.Mutex
	at      map[string]func(net.Conn)
	dialled []string
	work    sync.WaitGroup
}

func (w *town) connect(_ context.Context, address string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dialled = append(w.dialled, address)
	serve := w.at[address]
	if serve == nil {
		return nil, errors.New("connection refused")
	}
	near, far := net.Pipe()
	w.work.Go(func() { serve(far) })
	return near, nil
}

func TestFollowsTheLeader(t *testing.T) {
	lab.Clause(t, "A-SIDE-18", "C-TERM-1")
	synctest.Test(t, func(t *testing.T) {
		first, second := lab.Serve(t, loose(1)), lab.Serve(t, loose(1))
		w := &town{at: map[string]func(net.Conn){
			"b": func(nc net.Conn) { stream.Redirect(nc, "c") },
			"c": func(nc net.Conn) { first.ServeStream(nc) },
		}}
		defer w.work.Wait()
		line, err := client.Dial("a,b", client.DialOptions{Connect: w.connect})
		if err != nil {
			t.Fatal(err)
		}
		defer line.Close()
		m, err := client.Join(t.Context(), client.Config{Transport: line, Task: worker(0)})
		if err != nil {
			t.Fatalf("Join() = %v", err)
		}
		if m.Service() != first.View().Service {
			t.Error("the member is not with the leader")
		}
		w.mu.Lock()
		w.at["a"], w.at["b"], w.at["c"] = func(nc net.Conn) { second.ServeStream(nc) }, nil, nil
		w.mu.Unlock()
		first.Shutdown(t.Context())
		<-m.Context().Done() // it is another service; this one is not continued
		m.Close()
	})
}

// TestStockServer shows that a server which speaks HTTP/2 alone is found out and spoken to so.
func TestStockServer(t *testing.T) {
	lab.Clause(t, "C-WIRE-14")
	synctest.Test(t, func(t *testing.T) {
		stockAnswers(t, func(nc net.Conn) net.Conn { return nc })
	})
}

// stockAnswers makes a call to a server of gRPC, by connections that pass through the test.
func stockAnswers(t *testing.T, by func(net.Conn) net.Conn) {
	listener := bufconn.Listen(1 << 16)
	stock := grpc.NewServer()
	xlapb.RegisterCoordinationServiceServer(stock, xlapb.UnimplementedCoordinationServiceServer{})
	served := make(chan error, 1)
	go func() { served <- stock.Serve(listener) }()
	line, err := client.Dial("stock", client.DialOptions{Connect: func(ctx context.Context, _ string) (net.Conn, error) {
		nc, err := listener.DialContext(ctx)
		if err != nil {
			return nil, err
		}
		return by(nc), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, st, err := line.Call(ctx, xlapb.CoordinationService_Heartbeat_FullMethodName, nil)
	if err != nil || st.OK() {
		t.Errorf("Call() = %v, %v; want the refusal of the server", st, err)
	}
	line.Close()
	stock.Stop()
	<-served
}

func TestStreamOverTheNetwork(t *testing.T) {
	lab.Clause(t, "C-WIRE-1")
	s, address := serveTCP(t, loose(1))
	m, err := client.Join(t.Context(), client.Config{Address: address, Task: worker(0)})
	if err != nil {
		t.Fatalf("Join() = %v", err)
	}
	defer m.Close()
	if got := s.Hosts(); got != 1 {
		t.Errorf("the server has %d hosts; want the member to have come by a stream", got)
	}
}
