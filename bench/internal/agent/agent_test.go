package agent

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/xlapb"
)

// What ends a client's process, case by case.
func TestDeadly(t *testing.T) {
	const (
		p0    = "type.googleapis.com/tensorflow.CoordinationServiceError"
		pm    = "type.googleapis.com/tensorflow.ServiceMismatchError"
		get   = xlapb.CoordinationService_GetKeyValue_FullMethodName
		watch = xlapb.CoordinationService_WatchTasks_FullMethodName
	)
	broken := errors.New("connection reset")
	for _, tc := range []struct {
		name   string
		method string
		st     rpc.Status
		err    error
		want   bool
	}{
		{"A-DIE-3: a poll whose connection broke", pollForError, rpc.Status{}, broken, true},
		{"a poll answered UNAVAILABLE without payload", pollForError, rpc.Status{Code: codes.Unavailable}, nil, true},
		{"a poll answered with the death of another", pollForError, rpc.Status{Code: codes.Unavailable, Details: []byte(p0)}, nil, true},
		{"a poll answered OK", pollForError, rpc.Status{}, nil, true},
		{"a poll told to be quiet", pollForError, rpc.Status{Code: codes.Canceled, Details: []byte(p0)}, nil, false},
		{"a heartbeat that failed", heartbeat, rpc.Status{Code: codes.Canceled}, nil, true},
		{"A-TOL-3: a heartbeat too late", heartbeat, rpc.Status{}, context.DeadlineExceeded, true},
		{"a heartbeat", heartbeat, rpc.Status{}, nil, false},
		{"A-DIE-4: a shutdown that failed", shutdownTask, rpc.Status{Code: codes.Unavailable}, nil, true},
		{"a shutdown", shutdownTask, rpc.Status{}, nil, false},
		{"A-TOL-1: another service", get, rpc.Status{Code: codes.Internal, Details: []byte(p0 + pm)}, nil, true},
		{"a get that failed", get, rpc.Status{Code: codes.Unavailable}, nil, false},
		{"a watch without an answer", watch, rpc.Status{}, broken, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := deadly(tc.method, tc.st, tc.err); got != tc.want {
				t.Errorf("deadly(%s, %v, %v) = %v; want %v", tc.method, tc.st, tc.err, got, tc.want)
			}
		})
	}
}

func TestAgain(t *testing.T) {
	for _, tc := range []struct {
		name string
		st   rpc.Status
		err  error
		want bool
	}{
		{"refused", rpc.Status{Code: codes.Unavailable}, nil, true},
		{"unknown", rpc.Status{Code: codes.Unknown}, nil, true},
		{"no answer", rpc.Status{}, net.ErrClosed, true},
		{"too late", rpc.Status{}, context.DeadlineExceeded, false},
		{"aborted", rpc.Status{Code: codes.Aborted}, nil, false},
	} {
		if got := again(tc.st, tc.err); got != tc.want {
			t.Errorf("%s: again(%v, %v) = %v; want %v", tc.name, tc.st, tc.err, got, tc.want)
		}
	}
}

// which answers to a registration are final.
func TestRefused(t *testing.T) {
	signed := []byte("type.googleapis.com/tensorflow.CoordinationServiceError")
	for _, tc := range []struct {
		st   rpc.Status
		want bool
	}{
		{rpc.Status{Code: codes.InvalidArgument, Details: signed}, true},
		{rpc.Status{Code: codes.InvalidArgument}, false},
		{rpc.Status{Code: codes.Aborted, Details: signed}, false},
		{rpc.Status{Code: codes.Internal, Details: signed}, false},
	} {
		if got := refused(tc.st); got != tc.want {
			t.Errorf("refused(%v) = %v; want %v", tc.st, got, tc.want)
		}
	}
}

// Two clients at a real server: they call, leave, and come back; then one goes without a word, and the
// other dies of it.
func TestLife(t *testing.T) {
	srv, err := server.New(server.Config{Cluster: coord.Config{
		Jobs: []coord.Job{{Name: "worker", Tasks: 2}}, RegisterBarrier: true,
		HeartbeatTimeout: 2 * time.Second, RegisterTimeout: time.Minute, ShutdownTimeout: time.Minute,
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
			a, err := Connect(t.Context(), Config{Address: addr, Task: i, Incarnation: incarnation + uint64(i), HeartbeatTimeout: 2 * time.Second})
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
