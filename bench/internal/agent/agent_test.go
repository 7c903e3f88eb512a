package agent

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire/xlapb"
)

// Two clients at a real server: they call, leave, and come back; then one goes without a word, and the
// other dies of it.
func TestLife(t *testing.T) {
	srv, err := server.New(server.Config{Cluster: coord.Config{
		Jobs: []coord.Job{{Name: "worker", Tasks: 2}}, RegisterBarrier: true,
		HeartbeatTimeout: time.Minute, RegisterTimeout: time.Minute, ShutdownTimeout: time.Minute,
	}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go srv.Serve(l)
	defer srv.Shutdown(context.Background())

	first := connectAll(t, l.Addr().String(), 2, 100)
	var sum xlapb.IncrementKeyValueResponse
	for _, a := range first {
		if err := a.Call(t.Context(), xlapb.CoordinationService_IncrementKeyValue_FullMethodName,
			&xlapb.IncrementKeyValueRequest{Incarnations: a.Incarnations(), Key: "n", Increment: 1}, &sum); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(sum.GetKv().GetValue()); got != "2" {
		t.Errorf("sum of two increments %q; want 2", got)
	}
	var wg sync.WaitGroup
	for _, a := range first {
		wg.Go(func() {
			if err := a.Shutdown(t.Context()); err != nil {
				t.Errorf("Shutdown() = %v", err)
			}
		})
	}
	wg.Wait()
	for _, a := range first {
		select {
		case <-a.Dead():
			_, err := a.Death()
			t.Errorf("task %d died: %v; want it to leave in peace", a.Task(), err)
		default:
		}
		a.Close()
	}

	second := connectAll(t, l.Addr().String(), 2, 200)
	second[1].Close()
	<-second[0].Dead()
	if _, err := second[0].Death(); !strings.Contains(err.Error(), pollForError) {
		t.Errorf("death of %v; want the error poll", err)
	}
	second[0].Close()
}

func connectAll(t *testing.T, addr string, n int, incarnation uint64) []*Agent {
	t.Helper()
	all := make([]*Agent, n)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			a, err := Connect(t.Context(), Config{Address: addr, Task: i, Incarnation: incarnation + uint64(i), HeartbeatTimeout: time.Minute})
			if err != nil {
				t.Error(err)
			}
			all[i] = a
		})
	}
	wg.Wait()
	if slices.Contains(all, nil) {
		t.FailNow()
	}
	return all
}
