package storm

import (
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/history"
	"github.com/serry-dev/serry/internal/lab/stock"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
)

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

func (p *proc) callFor(ev coord.Event, late <-chan time.Time) (coord.Result, rpc.Status, bool) {
	d := p.dialectOf(ev)
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
		if err != nil && d == wire.Serry {
			return failure{err: err}, rpc.Status{Code: codes.Unknown, Message: err.Error()}, true
		}
		if err != nil {
			p.world.wrong("task %d: a reply that cannot be read: %v", p.task, err)
		}
		return result, rpc.Status{}, true
	case <-late:
		p.port.cancel(call)
		return nil, stock.Late, true
	case <-p.port.gone:
		return nil, rpc.Status{}, false
	}
}

// A failure is a result of serry's own dialect that is an error.
type failure struct {
	coord.Result
	err error
}

// dialectOf is that in which the process makes a call: serry's own for those that no other has.
func (p *proc) dialectOf(ev coord.Event) wire.Dialect {
	switch ev.(type) {
	case coord.SwapKeyValue, coord.WatchKeys, coord.ListKeys, coord.GetTaskState, coord.Suspect, coord.WaitForAllTasks, coord.ResetTask:
		return wire.Serry
	}
	return p.dialect()
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
	if p.world.plan.mode == quiet {
		p.stayQuiet()
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
	if p.world.plan.mode == comeback || p.world.plan.mode == rounds {
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
		case stock.Ends(coord.KindRegisterTask, st):
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
	if want := w.serves(p.epoch, p.service); p.service != want {
		w.amiss("task %d: the service incarnation is %d; want %d", p.task, p.service, want)
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

// serves is the incarnation of the service in an epoch: that which its first task was told, and another one
// than in the epochs before.
func (w *world) serves(epoch int, told serry.Incarnation) serry.Incarnation {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.services[epoch] == 0 && told != w.mu.services[epoch-1] {
		w.mu.services[epoch] = told
	}
	return w.mu.services[epoch]
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
	if ok && stock.Ends(coord.KindPollForError, st) {
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

// beat sends heartbeats, twice in a heartbeat timeout, until the process ends: also while it waits to be
// let go (A-SHUT-3), when it does not look at the answers any more.
func (p *proc) beat() {
	for p.pause(heartbeatTimeout/2+p.stopped()) && p.beats() {
	}
}

// beats sends a heartbeat, judges the answer, and says whether the process lives on.
func (p *proc) beats() bool {
	result, st, ok := p.beatOnce()
	switch {
	case !ok:
		return false
	case p.left():
		return true
	case stock.Ends(coord.KindHeartbeat, st):
		p.died("heartbeat", st)
		return false
	}
	if s := result.(coord.Registered).Service; s != p.service && s != 0 {
		p.world.amiss("task %d: a heartbeat is answered by service %d; want %d", p.task, s, p.service)
	}
	return true
}

// beatOnce sends one heartbeat, and again when it does not arrive, as
// docs/spec/agent.md has it (1.2).
func (p *proc) beatOnce() (result coord.Result, st rpc.Status, ok bool) {
	const retries = 3
	for i := 0; ; i++ {
		result, st, ok = p.callFor(coord.Heartbeat{Call: p.who()}, time.After(heartbeatTimeout/2))
		if !ok || !stock.BeatsAgain(st) || i == retries || !p.pause(time.Millisecond) {
			return result, st, ok
		}
	}
}

// left says whether the process has said goodbye.
func (p *proc) left() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.leaving
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
	if ok && stock.Ends(coord.KindShutdownTask, st) {
		p.died("shutdown", st)
	} else if ok {
		p.exit(wellDone)
	}
}
