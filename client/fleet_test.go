package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inDialects runs a test in virtual time, once in each dialect.
func inDialects(t *testing.T, f func(t *testing.T, d client.Dialect)) {
	t.Helper()
	in(t, f, client.Serry, client.XLA, client.TensorFlow)
}

func in(t *testing.T, f func(t *testing.T, d client.Dialect), dialects ...client.Dialect) {
	t.Helper()
	for _, d := range dialects {
		t.Run(d.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, d) })
		})
	}
}

// The settings of the reference's own tests.
const (
	heartbeat = 3 * time.Second
	barrier   = 200 * time.Millisecond
)

// cluster is a job of n tasks that meet when they come and when they go.
func cluster(n int) server.Config {
	return server.Config{
		Cluster: coord.Config{
			Jobs:             []coord.Job{{Name: "worker", Tasks: n}},
			RegisterBarrier:  true,
			RegisterTimeout:  2 * time.Second,
			HeartbeatTimeout: heartbeat,
			ShutdownTimeout:  2 * time.Second,
		},
		HeartbeatSlack: -1,
	}
}

// loose is a job whose tasks come and go as they like.
func loose(n int) server.Config {
	cfg := cluster(n)
	cfg.Cluster.RegisterBarrier, cfg.Cluster.ShutdownTimeout = false, 0
	return cfg
}

// recoverable is a job whose tasks may fail and come back.
func recoverable(n int) server.Config {
	cfg := cluster(n)
	cfg.Cluster.Recoverable = true
	return cfg
}

func worker(i int) serry.TaskID { return serry.TaskID{Job: "worker", Index: i} }

func workers(ids ...int) []serry.TaskID {
	var tasks []serry.TaskID
	for _, i := range ids {
		tasks = append(tasks, worker(i))
	}
	return tasks
}

// A fleet is a server and the way its members are.
type fleet struct {
	*lab.Lab
	t   *testing.T
	cfg client.Config
}

func newFleet(t *testing.T, d client.Dialect, cfg server.Config) *fleet {
	t.Helper()
	return &fleet{Lab: lab.Serve(t, cfg), t: t, cfg: client.Config{
		Dialect: d, RegisterTimeout: heartbeat, HeartbeatTimeout: heartbeat, ShutdownTimeout: heartbeat,
	}}
}

// A task is a member on a line of its own.
type task struct {
	*client.Member
	line *lab.Line
	cfg  client.Config
	err  error         // of Join
	done chan struct{} // closed when Join has returned
}

// begin starts to join as task i.
func (f *fleet) begin(i int) *task {
	f.t.Helper()
	k := &task{line: f.Line(f.t, client.DialOptions{}), cfg: f.cfg, done: make(chan struct{})}
	k.cfg.Task, k.cfg.Transport = worker(i), k.line
	go func() {
		defer close(k.done)
		k.Member, k.err = client.Join(f.t.Context(), k.cfg)
	}()
	f.t.Cleanup(func() {
		if <-k.done; k.Member != nil {
			k.Close()
		}
	})
	return k
}

// joined waits until tasks that have begun to join have joined.
func (f *fleet) joined(tasks ...*task) []*task {
	f.t.Helper()
	for _, k := range tasks {
		if <-k.done; k.err != nil {
			f.t.Fatalf("Join(%v) = %v", k.cfg.Task, k.err)
		}
	}
	synctest.Wait() // until their error polls are at the service
	return tasks
}

// join joins as the tasks 0 to n-1.
func (f *fleet) join(n int) []*task {
	f.t.Helper()
	tasks := make([]*task, n)
	for i := range tasks {
		tasks[i] = f.begin(i)
	}
	return f.joined(tasks...)
}

// again joins as a task whose former life is over.
func (f *fleet) again(i int) *task {
	f.t.Helper()
	return f.joined(f.begin(i))[0]
}

// vanish ends a task without a word. If its process is only stuck, its connection stays.
func (k *task) vanish(stuck bool) {
	k.Close()
	if !stuck {
		k.line.Close()
	}
}

// meet calls a barrier of all tasks.
func (k *task) meet(id string, timeout time.Duration) error {
	return k.Barrier(context.Background(), id, serry.BarrierOptions{Timeout: timeout})
}

// async runs f and returns the place where its error will lie.
func async(f func() error) <-chan error {
	end := make(chan error, 1)
	go func() { end <- f() }()
	return end
}

// atOnce runs f for all tasks at one time and returns how it ended for each.
func atOnce(tasks []*task, f func(k *task) error) []error {
	ends := make([]<-chan error, len(tasks))
	for i, k := range tasks {
		ends[i] = async(func() error { return f(k) })
	}
	errs := make([]error, len(ends))
	for i, end := range ends {
		errs[i] = <-end
	}
	return errs
}

// all runs f for all tasks at one time; it must succeed.
func all(t *testing.T, what string, tasks []*task, f func(k *task) error) {
	t.Helper()
	for i, err := range atOnce(tasks, f) {
		if err != nil {
			t.Fatalf("%s of %v = %v; want OK", what, tasks[i].cfg.Task, err)
		}
	}
}

func leave(k *task) error { return k.Leave(context.Background()) }

// waits checks that a call has not ended when all that can happen now has happened.
func waits(t *testing.T, what string, end <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-end:
		t.Errorf("%s = %v; want it to wait", what, err)
	default:
	}
}

// refused checks how the service refused the last call of a method. In serry's own dialect errors
// travel in replies, so there is nothing to see.
func (k *task) refused(t *testing.T, method string, code codes.Code, text, payload string) {
	t.Helper()
	if k.cfg.Dialect == client.Serry {
		return
	}
	e := k.line.Refused(method)
	if e == nil {
		t.Errorf("%s of %v was not refused; want %v", method, k.cfg.Task, code)
		return
	}
	if _, ok := e.Payloads[payload]; e.Code != code || !strings.Contains(e.Message, text) || payload != "" && !ok {
		t.Errorf("%s of %v = %v with payloads %q; want %v with %q and payload %q",
			method, k.cfg.Task, e, e.Payloads, code, text, payload)
	}
}

// wantIs checks that an error is one of those given.
func wantIs(t *testing.T, what string, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if errors.Is(err, w) {
			return
		}
	}
	t.Errorf("%s = %v; want one of %q", what, err, want)
}

// fault waits until the member is lost, and checks why; nil stands for any reason.
func (k *task) fault(t *testing.T, kind client.FaultKind, why error) *client.Fault {
	t.Helper()
	<-k.Context().Done()
	f, ok := errors.AsType[*client.Fault](k.Err())
	if !ok || f.Kind != kind || why != nil && !errors.Is(f, why) {
		t.Errorf("%v was lost by %v; want %v by %v", k.cfg.Task, k.Err(), kind, why)
	}
	return f
}

// lives checks that the member is not lost.
func (k *task) lives(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if err := k.Err(); err != nil {
		t.Errorf("%v was lost by %v; want it alive", k.cfg.Task, err)
	}
}
