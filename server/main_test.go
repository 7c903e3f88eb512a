package server_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire/tfpb"
	"github.com/serry-dev/serry/wire/xlapb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// timeout is the heartbeat timeout of the servers in these tests.
const timeout = 10 * time.Second

// cluster is a job of n tasks with the register barrier, a shutdown barrier, and no slack.
func cluster(n int) server.Config {
	return server.Config{
		Cluster: coord.Config{
			Jobs:             []coord.Job{{Name: "worker", Tasks: n}},
			RegisterBarrier:  true,
			RegisterTimeout:  time.Hour,
			HeartbeatTimeout: timeout,
			ShutdownTimeout:  5 * time.Minute,
		},
		HeartbeatSlack: -1,
	}
}

// A task is a client of dialect N that acts for one task.
type task struct {
	*lab.N
	id      int32
	own     uint64
	service uint64
}

// who is what every request of dialect N carries.
func (k *task) who() *xlapb.Incarnations {
	return &xlapb.Incarnations{TaskIncarnation: k.own, ServiceIncarnation: k.service}
}

// register registers the task and returns the error of the call.
func (k *task) register(ctx context.Context) error {
	r, err := k.RegisterTask(ctx, &xlapb.RegisterTaskRequest{SourceTaskId: k.id, Incarnation: k.own})
	k.service = r.GetServiceIncarnation()
	return err
}

func (k *task) beat(ctx context.Context) error {
	_, err := k.Heartbeat(ctx, &xlapb.HeartbeatRequest{Incarnations: k.who(), SourceTaskId: k.id, Incarnation: k.own})
	return err
}

func (k *task) shutdown(ctx context.Context) error {
	_, err := k.ShutdownTask(ctx, &xlapb.ShutdownTaskRequest{Incarnations: k.who(), SourceTaskId: k.id})
	return err
}

func (k *task) barrier(ctx context.Context, id string, counter int64) error {
	_, err := k.Barrier(ctx, &xlapb.BarrierRequest{
		Incarnations: k.who(), SourceTaskId: k.id, BarrierId: id, Counter: counter,
		BarrierTimeoutInMs: time.Hour.Milliseconds(),
	})
	return err
}

// poll starts an error poll, waits until the server has it, and returns the place where its end
// will lie.
func (k *task) poll(ctx context.Context) <-chan error {
	end := async(func() error {
		_, err := k.PollForError(ctx, &xlapb.PollForErrorRequest{Incarnations: k.who(), SourceTaskId: k.id})
		return err
	})
	synctest.Wait()
	return end
}

// beating sends heartbeats until ctx ends, twice a timeout as clients do.
func (k *task) beating(ctx context.Context) {
	go func() {
		for ctx.Err() == nil {
			k.beat(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(timeout / 2):
			}
		}
	}()
}

// async runs f and returns the place where its error will lie.
func async(f func() error) <-chan error {
	end := make(chan error, 1)
	go func() { end <- f() }()
	return end
}

// pending says that a call has not ended when all that can happen now has happened.
func pending(t *testing.T, what string, end <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-end:
		t.Errorf("%s = %v; want it to wait", what, err)
	default:
	}
}

// fleet registers n tasks of dialect N, each on a connection of its own, with incarnations from
// first on.
func fleet(t *testing.T, l *lab.Lab, n int, first uint64) []*task {
	t.Helper()
	tasks := make([]*task, n)
	for i := range tasks {
		tasks[i] = &task{N: l.N(t), id: int32(i), own: first + uint64(i)}
	}
	registerAll(t, tasks)
	return tasks
}

// registerAll registers tasks that wait for each other.
func registerAll(t *testing.T, tasks []*task) {
	t.Helper()
	ends := make([]<-chan error, len(tasks))
	for i, k := range tasks {
		ends[i] = async(func() error { return k.register(t.Context()) })
	}
	for i, end := range ends {
		if err := <-end; err != nil {
			t.Fatalf("RegisterTask(%d) = %v; want OK", i, err)
		}
	}
}

// wantCode checks how a call ended.
func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s = %v; want %v", what, err, want)
	}
}

// tf names a task in dialect O.
func tf(id int32) *tfpb.CoordinatedTask {
	return &tfpb.CoordinatedTask{JobName: "jax_worker", TaskId: id}
}
