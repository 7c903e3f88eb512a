package launch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
)

// follow starts what the other hosts of a job have: a crew that does what the first launcher says.
func (j *Job) follow() error {
	events := make(chan any)
	here, err := newCrew(j.cfg, j.run, events)
	if err != nil {
		return err
	}
	f := &follower{job: j, crew: here, events: events, life: serry.Incarnation(rand.Uint64() | 1)}
	go func() {
		defer close(j.ended)
		j.report = f.run()
		j.report.Took = time.Since(j.begun)
	}()
	return nil
}

// A follower is a launcher that is not the first.
type follower struct {
	job    *Job
	crew   *crew
	events chan any // of the crew
	life   serry.Incarnation
	sent   int // messages
	alive  int // tasks that have not left
	told   syscall.Signal
}

// run follows the first launcher until the job is over, it is lost, or we are told to end.
func (f *follower) run() Report {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	m, err := f.join(ctx)
	if err != nil {
		f.crew.close()
		return Report{Err: err}
	}
	orders := make(chan order)
	go f.receive(ctx, cancel, m, orders)
	report := f.obey(ctx, m, orders)
	f.empty(ctx, m)
	f.crew.close()
	leaving, stop := context.WithTimeout(context.Background(), farewellTimeout)
	defer stop()
	if err := m.Leave(leaving); err != nil && report.Err == nil && report.Tasks == 0 {
		report.Err = err
	}
	m.Close()
	return report
}

// join waits for the first launcher and says hello. A signal that means the end ends the wait.
func (f *follower) join(ctx context.Context) (*client.Member, error) {
	cfg := f.job.cfg
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Service.Cluster.RegisterTimeout,
		fmt.Errorf("%w: no launcher of node 0 at %s", serry.ErrTimeout, cfg.Coordinator))
	defer cancel()
	type joined struct {
		member *client.Member
		err    error
	}
	done := make(chan joined, 1)
	go func() {
		m, err := client.Join(ctx, client.Config{
			Address: cfg.Coordinator, Task: launcher(cfg.Node), Incarnation: f.life,
			HeartbeatTimeout: launcherBeat, OutageTolerance: launcherOutage,
		})
		done <- joined{m, err}
	}()
	for {
		select {
		case r := <-done:
			if r.err != nil {
				return nil, r.err
			}
			host, _ := os.Hostname() // only for people to read
			h := hello{Incarnation: f.life, Host: host, Tasks: cfg.Tasks, Nodes: cfg.nodes(), Identity: cfg.identity()}
			return r.member, put(ctx, r.member.KV(), fmt.Sprintf("hello/%d", cfg.Node), h)
		case ev := <-f.job.inbox:
			if s := ev.(signalled); s.ends() {
				cancel()
				if r := <-done; r.err == nil {
					r.member.Close()
				}
				return nil, fmt.Errorf("ended by signal %d while waiting for the launcher of node 0", s.Signal)
			}
		}
	}
}

// receive reads orders until the member is lost.
func (f *follower) receive(ctx context.Context, cancel context.CancelCauseFunc, m *client.Member, to chan<- order) {
	for number := 0; ; number++ {
		var o order
		if err := take(ctx, m.KV(), queueKey("to", f.job.cfg.Node, f.life, number), &o); err != nil {
			if lost := m.Err(); lost != nil {
				err = fmt.Errorf("the launcher of node 0 is lost: %w", lost)
			}
			cancel(err)
			return
		}
		select {
		case to <- o:
		case <-ctx.Done():
			return
		}
	}
}

// obey carries out orders until there will be no more.
func (f *follower) obey(ctx context.Context, m *client.Member, orders <-chan order) Report {
	for {
		select {
		case o := <-orders:
			if o.Over != nil {
				if o.Err != "" {
					o.Over.Err = errors.New(o.Err)
				}
				return *o.Over
			}
			f.carryOut(o)
		case ev := <-f.events:
			f.pass(ctx, m, ev)
			if f.told != 0 && f.alive == 0 {
				return Report{Interrupted: f.told, Tasks: f.job.cfg.Tasks}
			}
		case ev := <-f.job.inbox:
			if f.signalled(ctx, m, ev.(signalled)) && f.alive == 0 {
				return Report{Interrupted: f.told, Tasks: f.job.cfg.Tasks}
			}
		case <-ctx.Done():
			return Report{Err: context.Cause(ctx)}
		}
	}
}

func (f *follower) carryOut(o order) {
	switch {
	case o.Start != nil:
		f.alive++
		f.crew.start(*o.Start, o.Address)
	case o.Signal == syscall.SIGKILL:
		f.crew.kill()
	case o.End:
		f.crew.end(o.Signal)
	case o.Signal != 0:
		f.crew.pass(o.Signal)
	}
}

// pass tells the first launcher what happened here. If it cannot be told it is lost, which is found
// elsewhere.
func (f *follower) pass(ctx context.Context, m *client.Member, ev any) {
	var msg message
	switch ev := ev.(type) {
	case died:
		msg.Died = &ev
	case left:
		f.alive--
		msg.Left = &ev
	}
	f.send(ctx, m, msg)
}

func (f *follower) send(ctx context.Context, m *client.Member, msg message) {
	_ = put(ctx, m.KV(), queueKey("from", f.job.cfg.Node, f.life, f.sent), msg)
	f.sent++
}

// signalled passes a signal on to the tasks of this host, and says whether it means our end.
func (f *follower) signalled(ctx context.Context, m *client.Member, s signalled) bool {
	switch {
	case !s.ends():
		f.crew.pass(s.Signal)
		return false
	case f.told != 0:
		f.crew.kill()
	default:
		f.job.note("signal %d: passed on to the tasks of this host", s.Signal)
		f.told = s.Signal
		f.send(ctx, m, message{Retiring: s.Signal})
		f.crew.end(s.Signal)
	}
	return true
}

// empty ends what still runs here.
func (f *follower) empty(ctx context.Context, m *client.Member) {
	f.crew.kill()
	for f.alive > 0 {
		f.pass(ctx, m, <-f.events)
	}
}
