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
	"github.com/serry-dev/serry/internal/pause"
)

// follow starts what the other hosts of a job have: a crew that does what the first launcher says.
func (j *Job) follow() error {
	events := make(chan any)
	here, err := j.crew(events)
	if err != nil {
		return err
	}
	j.here = here
	f := newFollower(j, here, events)
	go func() {
		defer close(j.ended)
		j.report = f.run()
		j.report.Took = time.Since(j.begun)
		j.feed.close(here.hurry)
	}()
	return nil
}

// A follower is a launcher that is not the first. As in a [Job], nothing that obey does may block.
type follower struct {
	job    *Job
	crew   *crew
	door   *door
	events chan any // of the crew
	life   serry.Incarnation
	outbox *queue[message]
	seated map[int]lifetime // tasks that have not left
	latest int              // attempt that a task was last started of
	told   syscall.Signal   // to end; or 0
	notes  *nonsenseNotes   // owned by obey
	folder folder           // owned by obey
	flush  *time.Timer      // runs while the folder has changes; owned by obey
}

func newFollower(j *Job, here *crew, events chan any) *follower {
	return &follower{
		job: j, crew: here, door: newDoor(j.world.connect), events: events, life: serry.Incarnation(rand.Uint64() | 1),
		outbox: newQueue[message](messagesAhead), seated: make(map[int]lifetime), notes: newNonsenseNotes(j.feed),
		flush: newStoppedTimer(),
	}
}

// newStoppedTimer is a timer that does not run yet.
func newStoppedTimer() *time.Timer {
	t := time.NewTimer(0)
	t.Stop()
	return t
}

// An offer is an order that came. Whether the follower takes it decides whether it uses up its number.
type offer struct {
	order
	taken chan bool // has room for the answer
}

// messagesAhead is how many messages wait for the first launcher. It is out of reach for
// launcherOutage at most.
const messagesAhead = 1 << 16

// run follows the first launcher until the job is over, it is lost, or we are told to end.
func (f *follower) run() Report {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	m, err := f.join(ctx)
	if err != nil {
		f.waitFor(f.crew.close)
		r := Report{Err: err}
		if f.told == 0 {
			r.Code = CodeStart
		}
		return r
	}
	orders, sent := make(chan offer), make(chan struct{})
	go func() {
		select {
		case <-f.door.shut:
			cancel(fmt.Errorf("the launcher of node 0 has ended: %s refuses connections", f.job.cfg.Coordinator))
			m.Close() // there is no one to say goodbye to
		case <-ctx.Done():
		}
	}()
	go f.receive(ctx, cancel, m, orders)
	go func() {
		defer close(sent)
		f.send(ctx, m)
	}()
	report := f.obey(ctx, cancel, orders)
	f.empty()
	f.waitFor(func() {
		f.crew.close()
		if err := f.leave(m, sent); err != nil && report.Err == nil && report.Tasks == 0 {
			report.Err = err
		}
	})
	return report
}

// join waits for the first launcher and says hello. A signal that means the end ends the wait.
func (f *follower) join(ctx context.Context) (*attendant, error) {
	cfg := f.job.cfg
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Service.Cluster.RegisterTimeout,
		fmt.Errorf("%w: no launcher of node 0 at %s", serry.ErrTimeout, cfg.Coordinator))
	defer cancel()
	type joined struct {
		member *attendant
		err    error
	}
	done := make(chan joined, 1)
	go func() {
		m, err := f.enter(ctx)
		done <- joined{m, err}
	}()
	say := time.NewTimer(waitFirst)
	defer say.Stop()
	for {
		select {
		case <-say.C:
			f.job.note("waiting for node 0 at %s: %s", cfg.Coordinator, f.door.trouble())
			say.Reset(waitAgain)
		case r := <-done:
			return r.member, r.err
		case ev := <-f.job.inbox:
			if s := ev.(signalled); s.ends() {
				f.told = s.Signal
				cancel()
				if r := <-done; r.err == nil {
					r.member.Close()
				}
				return nil, fmt.Errorf("ended by signal %d while waiting for the launcher of node 0", s.Signal)
			}
		}
	}
}

// At the address of the meeting there may be the launcher of another job, one that is about to end for example.
// A follower that is refused there comes again every otherJobPause, and gives up after otherJobPatience.
const (
	otherJobPause    = time.Second
	otherJobPatience = 30 * time.Second
)

// ErrOtherJob is why a launcher is not let in by another one.
var ErrOtherJob = errors.New("it runs another job, or one with fewer hosts")

// enter joins the meeting of this job. The meeting of another job refuses this launcher, and nothing changes there:
// no launcher of that job loses its place (DLV-21).
func (f *follower) enter(ctx context.Context) (*attendant, error) {
	var since time.Time // the first refusal
	for {
		m, err := f.introduce(ctx)
		if !errors.Is(err, serry.ErrUnknownTask) {
			return m, err
		}
		if f.door.refuse(); since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) >= otherJobPatience {
			return nil, fmt.Errorf("the launcher at %s refuses this one, of node %d: %w", f.job.cfg.Coordinator, f.job.cfg.Node, ErrOtherJob)
		}
		if err := pause.For(ctx, otherJobPause); err != nil {
			return nil, err
		}
	}
}

// introduce joins the meeting and says hello.
func (f *follower) introduce(ctx context.Context) (*attendant, error) {
	cfg := f.job.cfg
	m, err := joinMeeting(ctx, f.door.connect, cfg.Coordinator, client.Config{
		Task: cfg.launcher(cfg.Node), Incarnation: f.life, HeartbeatTimeout: launcherBeat, OutageTolerance: launcherOutage,
	})
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // only for people to read
	h := hello{Incarnation: f.life, Host: host, Tasks: cfg.Tasks, Nodes: cfg.nodes(), Identity: cfg.identity(), Wall: cfg.wall()}
	if err := put(ctx, m.KV(), fmt.Sprintf("hello/%d", cfg.Node), h); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// receive reads orders until the member is lost.
func (f *follower) receive(ctx context.Context, cancel context.CancelCauseFunc, m *attendant, to chan<- offer) {
	notes := newNonsenseNotes(f.job.feed)
	for number := 0; ; {
		o := offer{taken: make(chan bool, 1)}
		err := take(ctx, m.KV(), queueKey("to", f.job.cfg.Node, f.life, number), &o.order)
		switch {
		case errors.Is(err, errNonsense):
			notes.drop("an order for this host", err)
			continue
		case err != nil:
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
		if <-o.taken {
			number++
		}
	}
}

// send stores messages for the first launcher. If it cannot be told it is lost, which receive finds.
func (f *follower) send(ctx context.Context, m *attendant) {
	for number := 0; ; number++ {
		msg, ok := f.outbox.next(ctx.Done())
		if msg.Folded == "" {
			msg.Wall = f.job.cfg.wall()
		}
		if !ok || enqueue(ctx, m.KV(), queueKey("from", f.job.cfg.Node, f.life, number), msg) != nil {
			return
		}
	}
}

// obey carries out orders until there will be no more.
func (f *follower) obey(ctx context.Context, cancel context.CancelCauseFunc, orders <-chan offer) Report {
	defer f.flush.Stop()
	for f.told == 0 || len(f.seated) > 0 {
		select {
		case <-f.flush.C:
			if line := f.folder.line(); line != "" {
				f.outbox.put(message{Folded: line}) // one that finds no room is made good by the next
			}
		case o := <-orders:
			err := f.check(&o.order)
			o.taken <- err == nil
			if err != nil {
				f.notes.drop("an order for this host", err)
				continue
			}
			if o.Over != nil {
				if o.Err != "" {
					o.Over.Err = errors.New(o.Err)
				}
				return *o.Over
			}
			f.carryOut(o.order)
		case ev := <-f.events:
			if !f.pass(ev) {
				cancel(errors.New("the launcher of node 0 does not take messages"))
			}
		case ev := <-f.job.inbox:
			f.signalled(ev.(signalled))
		case <-ctx.Done():
			return Report{Err: context.Cause(ctx), Code: CodeLost}
		}
	}
	return Report{Interrupted: f.told, Tasks: f.job.cfg.Tasks}
}

// check says what is wrong with an order, if anything. A task that has not left is not started again, and no
// host has more tasks than it has seats: the first launcher waits for one life to leave before it starts the
// next.
func (f *follower) check(o *order) error {
	if err := o.check(f.job.cfg); err != nil || o.Start == nil {
		return err
	}
	s := o.Start
	if _, here := f.seated[s.Task]; here || len(f.seated) >= f.job.cfg.Tasks {
		return nonsense("to start rank %d when %s of this host must leave first", s.Task, counted(len(f.seated), "rank"))
	}
	if s.Attempt < f.latest {
		return nonsense("to start rank %d of attempt %d after attempt %d", s.Task, s.Attempt, f.latest)
	}
	return nil
}

// carryOut does what an order says that was checked.
func (f *follower) carryOut(o order) {
	switch {
	case o.Start != nil && f.told != 0 && f.job.cfg.planted != startAfterEnd:
		f.refuse(*o.Start)
	case o.Start != nil:
		f.seated[o.Start.Task], f.latest = o.Start.lifetime(), o.Start.Attempt
		f.crew.start(*o.Start, contact{address: o.Address, secret: o.Secret})
	case o.Fail != nil:
		f.crew.fail(o.Fail.lifetime, o.Fail.Why)
	case o.Signal == syscall.SIGKILL:
		f.crew.kill()
	case o.End:
		f.crew.end(o.Signal, o.NoLimit)
	case o.Signal != 0:
		f.crew.pass(o.Signal)
	case len(o.Tell) > 0:
		f.tell(o.Tell)
	}
}

// tell says what digests of what ranks do mean.
func (f *follower) tell(digests []string) {
	for _, digest := range digests {
		if text, known := f.folder.kept[digest]; known {
			f.outbox.put(message{Detail: text})
		}
	}
}

// refuse answers an order to start a task that came when we had been told to end: the first launcher
// did not know yet. The task has ended as the others here do.
func (f *follower) refuse(s seat) {
	f.pass(died{lifetime: s.lifetime(), Cause: Cause{Signal: f.told}, Ours: true})
	f.outbox.put(message{Left: &left{lifetime: s.lifetime()}})
}

// pass tells the first launcher what happened here. It says whether there was room for that.
func (f *follower) pass(ev any) bool {
	var msg message
	switch ev := ev.(type) {
	case died:
		f.folder.drop(ev.Task)
		msg.Died = &ev
	case raised:
		msg.Raised = &ev
	case classed:
		if f.folder.add(ev) {
			f.flush.Reset(foldAfter)
		}
		return true
	case strayed:
		f.outbox.put(message{Strayed: &ev}) // where there is no room there is worse to tell
		return true
	case left:
		delete(f.seated, ev.Task)
		msg.Left = &ev
	}
	return f.outbox.put(msg)
}

// signalled passes a signal on to the tasks of this host. The first that means the end gives them the
// grace, the second none.
func (f *follower) signalled(s signalled) {
	switch {
	case !s.ends():
		f.crew.pass(s.Signal)
	case f.told == s.Signal && f.job.cfg.unlimited(s.Signal):
	case f.told != 0:
		f.crew.kill()
	default:
		f.told = s.Signal
		f.crew.end(s.Signal, f.job.cfg.unlimited(s.Signal))
		f.outbox.put(message{Retiring: s.Signal})
		f.job.note("signal %d: passed on to the ranks of this host, which %s", s.Signal, f.job.cfg.timeToEnd(s.Signal))
	}
}

// empty ends what still runs here.
func (f *follower) empty() {
	f.crew.killTasks()
	for len(f.seated) > 0 {
		select {
		case ev := <-f.events:
			f.pass(ev)
		case ev := <-f.job.inbox:
			f.rush(ev.(signalled))
		}
	}
}

// waitFor runs what may take its time when no task is left, and takes signals meanwhile.
func (f *follower) waitFor(last func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		last()
	}()
	for {
		select {
		case ev := <-f.job.inbox:
			f.rush(ev.(signalled))
		case <-done:
			return
		}
	}
}

// rush takes a signal when all tasks have been killed. The second that means the end, if no other came
// before, ends all waiting.
func (f *follower) rush(s signalled) {
	switch {
	case !s.ends():
	case f.told != 0:
		f.crew.rush()
	default:
		f.told = s.Signal
	}
}

// leave says what there is to be said, and goodbye, unless there is no grace any more.
func (f *follower) leave(m *attendant, sent <-chan struct{}) error {
	ctx, stop := context.WithTimeout(context.Background(), farewellTimeout)
	defer stop()
	go func() {
		select {
		case <-f.crew.hurry:
			stop()
		case <-ctx.Done():
		}
	}()
	f.outbox.close()
	select {
	case <-sent:
	case <-ctx.Done():
	}
	err := m.Leave(ctx)
	m.Close()
	return err
}
