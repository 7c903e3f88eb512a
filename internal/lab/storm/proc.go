package storm

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/history"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
)

// A proc is a process with a stock client in it: one life of a task.
type proc struct {
	world  *world
	task   int
	number int    // of the life, from 0
	life   uint64 // its incarnation
	host   *host
	rand   *rand.Rand

	port    *port          // set by run, before anything else is done
	member  *client.Member // of a Go program, set by runMember before the program begins; or nil
	place   *place         // of a Go program, or nil
	service serry.Incarnation

	counters map[string]int64 // owned by the program: the next instance of each barrier

	mu struct {
		sync.Mutex
		doing    string         // what the program waits for
		ended    bool           // finished, killed or dead
		fate     string         // how
		done     bool           // its program is
		leaving  bool           // it has said goodbye
		doomed   bool           // another life is about to take its place
		replaced history.Moment // another life has registered
		lived    history.Lifetime
	}
	quit chan struct{} // closed when it has ended
}

// launch starts a life of a task.
func (w *world) launch(task int, at *host, number int) {
	p := &proc{
		world: w, task: task, number: number, life: uint64(1000*(task+1) + number), host: at,
		rand: dice(w.seed, forProcs, uint64(1000*task+number)), counters: make(map[string]int64),
		quit: make(chan struct{}),
	}
	p.mu.lived.LiveMember = history.LiveMember{Member: task, Life: p.life}
	w.mu.Lock()
	over := w.mu.over
	w.mu.procs = append(w.mu.procs, p)
	w.mu.lives[task] = p
	w.mu.Unlock()
	if over {
		return
	}
	run := p.run
	if task >= w.plan.tasks-w.plan.members {
		p.place = newPlace("go" + strconv.Itoa(task))
		run = p.runMember
	}
	w.living.Add(1)
	w.work.Go(func() {
		defer w.living.Done()
		run()
	})
}

// last is the newest life of a task.
func (w *world) last(task int) *proc {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.lives[task]
}

// ready says whether every task has registered once, so that one may be lost.
func (w *world) ready() bool {
	for _, p := range w.processes() {
		if p.number == 0 && !p.registered() {
			return false
		}
	}
	return true
}

func (p *proc) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.ended
}

// registered says whether the service has taken the process, or it has ended.
func (p *proc) registered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.lived.From != 0 || p.mu.ended
}

// doing says what a process waits for that has not ended.
func (p *proc) doing() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.ended {
		return ""
	}
	return p.mu.doing + " "
}

func (p *proc) does(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.doing = what
}

// exit ends the process, and says whether it was still there.
func (p *proc) exit(fate string) bool {
	p.mu.Lock()
	if p.mu.ended {
		p.mu.Unlock()
		return false
	}
	p.mu.ended, p.mu.fate = true, fate
	if p.mu.lived.Until == 0 {
		p.mu.lived.Until = p.world.clock.Now()
	}
	port := p.port
	p.mu.Unlock()
	p.world.note("task %d life %d: %s", p.task, p.life, fate)
	close(p.quit)
	if port != nil {
		port.close()
	}
	return true
}

// kill ends the process from outside.
func (p *proc) kill(why string) bool { return p.exit(why) }

// replacing notes that another life is about to come.
func (p *proc) replacing() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.doomed = true
	if p.mu.lived.Until == 0 {
		p.mu.lived.Until = p.world.clock.Now()
	}
}

// died judges an error that ends a stock client.
func (p *proc) died(what string, st rpc.Status) {
	err := p.world.plan.dialect.Error(st.Code, st.Message, st.Details)
	p.mu.Lock()
	ended, doomed := p.mu.ended, p.mu.doomed
	p.mu.Unlock()
	if ended {
		return
	}
	excused := doomed || p.world.plan.mode == fatal && p.world.mourns() && len(st.Details) > 0 && p.world.fair(err)
	if !excused {
		p.world.wrong("task %d life %d died of %s: %v: %v (%d bytes of details)", p.task, p.life, what, st.Code, err, len(st.Details))
	}
	p.exit("died of " + what + ": " + st.Code.String() + ": " + st.Message)
}

// fair says whether an error accuses nobody who lives.
func (w *world) fair(err error) bool {
	var accused *serry.TaskError
	if !errors.As(err, &accused) || accused.Task.IsZero() {
		return true
	}
	last := w.last(accused.Task.Index)
	return last != nil && last.over()
}

// who is what every call says of its caller.
func (p *proc) who() coord.Call {
	if p.task < 0 {
		return coord.Call{}
	}
	return coord.Call{
		Task: serry.TaskID{Job: job, Index: p.task}, Incarnation: serry.Incarnation(p.life), Service: p.service,
	}
}

// call makes a call and waits for its end. It is not ok when the process has ended first.
func (p *proc) call(ev coord.Event) (coord.Result, rpc.Status, bool) {
	return p.callFor(ev, nil)
}

// errLate stands for a call that was not answered in time.
var errLate = rpc.Status{Code: codes.DeadlineExceeded, Message: "Deadline Exceeded"}

func (p *proc) callFor(ev coord.Event, late <-chan time.Time) (coord.Result, rpc.Status, bool) {
	d := p.dialect()
	path, body, err := d.Request(ev)
	if err != nil {
		panic(err) // the events are ours
	}
	call, answered := p.port.send(path, body)
	select {
	case a := <-answered:
		if !a.status.OK() {
			return nil, a.status, true
		}
		result, err := d.Result(ev, a.body)
		if err != nil {
			p.world.wrong("task %d: a reply that cannot be read: %v", p.task, err)
		}
		return result, rpc.Status{}, true
	case <-late:
		p.port.cancel(call)
		return nil, errLate, true
	case <-p.port.gone:
		return nil, rpc.Status{}, false
	}
}

func (p *proc) dialect() wire.Dialect {
	if p.task < 0 {
		return wire.XLA
	}
	return p.world.plan.dialect
}

// run is the life of the process.
func (p *proc) run() {
	port := p.host.connect()
	for ; port == nil; port = p.host.connect() {
		if !p.pause(50 * time.Millisecond) { // until the relay is up again
			return
		}
	}
	p.mu.Lock()
	p.port = port
	ended := p.mu.ended
	p.mu.Unlock()
	if ended {
		port.close()
		return
	}
	if !p.register() {
		return
	}
	p.world.work.Go(p.poll)
	p.world.work.Go(p.beat)
	p.world.work.Go(p.watch)
	path, body, err := p.dialect().Request(coord.GetKeyValue{Call: p.who(), Key: "RECEIVED_PREEMPTION_NOTICE"})
	if err != nil {
		panic(err)
	}
	notice, _ := p.port.send(path, body)
	p.program()
	if p.over() {
		return
	}
	if p.world.plan.mode == return_ || p.world.plan.mode == rounds {
		p.rest()
	}
	if p.over() {
		return
	}
	p.port.cancel(notice)
	p.leave()
}

// register follows A-CON-4: errors without a payload, and some with, are tried again.
func (p *proc) register() bool {
	p.does("register")
	for {
		result, st, ok := p.call(coord.RegisterTask{Call: p.who(), Recoverable: p.world.plan.recoverable})
		switch {
		case !ok:
			return false
		case st.OK():
			p.service = result.(coord.Registered).Service
			p.world.registered(p)
			return true
		case len(st.Details) > 0 && st.Code != codes.Aborted && st.Code != codes.Internal:
			p.died("register", st)
			return false
		}
		p.world.note("task %d life %d registers again: %v", p.task, p.life, st.Message)
		if !p.pause(time.Second) {
			return false
		}
	}
}

// registered notes that a life has been taken, in place of all before it.
func (w *world) registered(p *proc) {
	now := w.clock.Now()
	w.note("task %d life %d registered", p.task, p.life)
	if p.service != firstService {
		w.wrong("task %d: the service incarnation is %d; want %d", p.task, p.service, firstService)
	}
	for _, o := range w.processes() {
		o.mu.Lock()
		switch {
		case o == p:
			o.mu.lived.From = now
		case o.task == p.task && o.number < p.number && o.mu.replaced == 0:
			o.mu.replaced = now
		}
		o.mu.Unlock()
	}
}

// pause waits, unless the process ends.
func (p *proc) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-p.quit:
		return false
	}
}

// poll is the error poll, open for life.
func (p *proc) poll() {
	_, st, ok := p.call(coord.PollForError{Call: p.who()})
	if ok && st.Code != codes.Canceled {
		p.died("poll", st)
	}
}

// stopped is how long an idle process is stopped now and then (SIGSTOP), so that its next heartbeat comes
// up to a heartbeat timeout after the last.
func (p *proc) stopped() time.Duration {
	if p.world.plan.mode != idle || p.rand.IntN(20) > 0 {
		return 0
	}
	return between(p.rand, 0, heartbeatTimeout/2)
}

// beat sends heartbeats as A-RPC has it.
func (p *proc) beat() {
	for failed := 0; p.pause(heartbeatTimeout/2 + p.stopped()); {
		p.mu.Lock()
		leaving := p.mu.leaving
		p.mu.Unlock()
		if leaving {
			return
		}
	again:
		result, st, ok := p.callFor(coord.Heartbeat{Call: p.who()}, time.After(heartbeatTimeout/2))
		switch {
		case !ok:
			return
		case st.OK():
			failed = 0
			if s := result.(coord.Registered).Service; s != p.service && s != 0 {
				p.world.wrong("task %d: a heartbeat is answered by service %d; want %d", p.task, s, p.service)
			}
			continue
		case (st.Code == codes.Unavailable || st.Code == codes.Unknown) && failed < 3:
			failed++
			if !p.pause(time.Millisecond) {
				return
			}
			goto again
		}
		p.mu.Lock()
		leaving = p.mu.leaving
		p.mu.Unlock()
		if !leaving {
			p.died("heartbeat", st)
		}
		return
	}
}

// watch follows the states of all tasks.
func (p *proc) watch() {
	version := int64(-1)
	for {
		span := history.Span{Call: p.world.clock.Now()}
		result, st, ok := p.call(coord.WatchTasks{Call: p.who(), Version: version, Job: job})
		if !ok {
			return
		}
		span.Return = p.world.clock.Now()
		picture, _ := result.(*coord.Picture)
		if !st.OK() || picture == nil || picture.Version < 0 {
			if !p.pause(time.Second) {
				return
			}
			continue
		}
		version = picture.Version
		p.world.mu.Lock()
		p.world.mu.report.Sights = append(p.world.mu.report.Sights, history.Sight{Span: span, Client: int(p.life), Version: version})
		p.world.mu.Unlock()
	}
}

// rest waits until the programs of all tasks are done: whoever left earlier would leave a later life of
// another alone in its epoch.
func (p *proc) rest() {
	p.does("rest")
	p.mu.Lock()
	p.mu.done = true
	p.mu.Unlock()
	for !p.world.allDone() && p.pause(50*time.Millisecond) {
		if p.world.plan.mode == rounds {
			p.alive() // for those who are not done yet
		}
	}
}

// allDone says whether the programs of the last lives of all tasks are done. Then no more of them may be
// killed.
func (w *world) allDone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.mu.lives {
		p.mu.Lock()
		done := p.mu.done
		p.mu.Unlock()
		if !done && !w.mu.closing {
			return false
		}
	}
	w.mu.closing = w.mu.closing || w.mu.returning == 0
	return w.mu.closing
}

// mayKill says whether it is not too late to kill processes; if not, then as many return.
func (w *world) mayKill(returns int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.closing {
		return false
	}
	w.mu.returning += returns
	return true
}

// returned notes that a life has come that was announced.
func (w *world) returned() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.returning--
}

// leaves notes that the process is about to say goodbye.
func (p *proc) leaves() {
	p.does("shutdown")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.leaving = true
	if p.mu.lived.Until == 0 {
		p.mu.lived.Until = p.world.clock.Now()
	}
}

// leave is the polite end.
func (p *proc) leave() {
	p.leaves()
	_, st, ok := p.call(coord.ShutdownTask{Call: p.who(), Recoverable: p.world.plan.recoverable})
	if ok && !st.OK() {
		p.died("shutdown", st)
	} else if ok {
		p.exit("finished")
	}
}
