package storm

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/stream"
)

// One in so many fleets is quiet. Its clients register, and beat or do not even that, so that nothing but
// the streams of their hosts tells a new leader where they are. The leader changes, once or several times;
// then a host dies for good. The leader must call the tasks of that host dead as soon as C-LOST-5 has it, and no
// others. In half of these fleets clients move from one host to another, before a change of leader or after it.
const quietFleets = 20

// foundAfter is when the tasks of a dead host must be known as dead: the time for which a host may be
// silent, and a while for the steps of the detector and of the journal.
const foundAfter = stream.SilentAfter + 2*time.Second

// settleTime is how long after it has found a leader a host has told it everything.
const settleTime = time.Second

// quietGust bounds how long an operation of the disk takes: a verdict is known once it is written.
const quietGust = 200 * time.Millisecond

// drawQuiet makes a plan quiet.
func (p *plan) drawQuiet(r *rand.Rand) {
	p.mode, p.members, p.epochs, p.watches = quiet, 0, 1, false
	p.hosts = max(p.hosts, 2) // one dies
	p.program, p.calls = nil, nil
	p.disk.gust = min(p.disk.gust, quietGust)
	p.faults = nil
	for range 1 + r.IntN(2) {
		p.losses = append(p.losses, p.drawFault(r, []kind{crash, crash, freeze, depose, handOver}))
	}
	p.moves = make([][]int, len(p.losses)+1)
	if p.moving = r.IntN(2) == 0; !p.moving {
		return
	}
	for i := range p.moves {
		for task := range p.tasks {
			if r.IntN(2) == 0 {
				p.moves[i] = append(p.moves[i], task)
			}
		}
	}
}

// stayQuiet is the life of a stock client that does nothing but register, and beat in half of all cases.
// It moves to another host when it is told to.
func (p *proc) stayQuiet() {
	p.does("nothing")
	beats := p.rand.IntN(2) == 0 || p.world.plan.moving // which takes time
	for {
		var due <-chan time.Time
		if beats {
			due = time.After(heartbeatTimeout / 2)
		}
		select {
		case <-due:
			if !p.beats() {
				return
			}
		case to := <-p.moves:
			p.moveTo(to)
		case <-p.quit:
			return
		}
	}
}

// moveTo connects the client with the relay of another host, where it sends a heartbeat: the service could not know
// otherwise.
func (p *proc) moveTo(to *host) {
	port := to.connect()
	if port == nil {
		return // the host has died
	}
	p.mu.Lock()
	old, ended := p.port, p.mu.ended
	p.port = port
	p.mu.Unlock()
	old.close()
	if ended {
		port.close()
		return
	}
	if p.beats() {
		p.world.struck(moveClient)
		p.world.note("task %d has moved to %s", p.task, to.place.name)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.mu.moved = to
	}
}

// at is the host that the process is behind.
func (p *proc) at() *host {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.moved != nil {
		return p.mu.moved
	}
	return p.host
}

// moveClients lets clients move to the next host, and says whether the service knows soon.
func (w *world) moveClients(tasks []int) bool {
	began := time.Now()
	for _, task := range tasks {
		p := w.last(task)
		to := w.hosts[(slices.Index(w.hosts, p.at())+1)%len(w.hosts)]
		select {
		case p.moves <- to:
		case <-p.quit:
			return false
		case <-time.After(settleTime):
			return false
		}
		if !w.until(func() bool { return p.at() == to }) {
			return false
		}
	}
	return time.Since(began) <= settleTime
}

// bereave lets the leader change as the plan has it, then a host die, and judges what the leader knows of
// its tasks. It ends the schedule.
func (w *world) bereave() {
	defer w.living.Done()
	w.loseHost(w.hosts[w.seed%uint64(len(w.hosts))])
	for _, p := range w.processes() {
		p.kill("the schedule is over")
	}
}

// allFollow says whether every host is connected to the leader. A deposed leader may keep a host for a while.
func (w *world) allFollow() bool {
	return !slices.ContainsFunc(w.hosts, func(h *host) bool { return !h.follows(w.term()) })
}

func (w *world) loseHost(h *host) {
	if !w.until(w.ready) {
		return
	}
	for i, f := range w.plan.losses {
		if !w.moveClients(w.plan.moves[i]) {
			return
		}
		before := w.term()
		w.inflict(f)
		if !w.until(func() bool { return w.term() > before }) {
			return // the leader has outlived it
		}
	}
	if !w.until(func() bool { return h.follows(w.term()) }) {
		w.wrong("%s does not find the leader of term %d", h.place.name, w.term())
		return
	}
	if last := w.plan.moves[len(w.plan.losses)]; len(last) > 0 {
		if !w.until(w.allFollow) {
			return
		}
		w.pass(settleTime, nil) // before that, what a host has told of its clients may be under way when they leave it
		if !w.moveClients(last) {
			return
		}
	}
	w.pass(settleTime, nil)
	term := w.term()
	if !h.follows(term) {
		return // there is a new leader, which may not know the host yet
	}
	w.struck(loseHost)
	w.casualty()
	w.note("%s dies for good", h.place.name)
	h.stop() // before its clients, so that the relay does not tell the leader of their end
	for _, p := range w.processes() {
		if p.at() == h {
			p.kill("its host died")
		}
	}
	w.pass(foundAfter, nil)
	if w.term() == term {
		w.findDead(h)
	}
}

// findDead judges what the leader knows of the tasks of a host that has died, and of all others.
func (w *world) findDead(h *host) {
	srv := w.leader().running().leads()
	if srv == nil {
		return
	}
	for _, t := range srv.View().Tasks {
		p := w.last(t.Task.Index)
		switch {
		case p.at() == h && t.State == serry.Connected:
			w.wrong("task %d is called connected %v after the end of its host", p.task, foundAfter)
		case p.at() != h && accuses(t.Err, t.Task):
			w.wrong("task %d is called dead: %v; its host lives", p.task, t.Err)
		}
	}
}

// accuses says whether an error calls a task dead, and not only says that the task failed because of others.
func accuses(err error, task serry.TaskID) bool {
	e, ok := errors.AsType[*serry.TaskError](err)
	return ok && e.Task == task && e.Err == serry.ErrTaskDead
}

// term is that of the leader, or 0.
func (w *world) term() uint64 {
	if s := w.leader(); s != nil {
		if p := s.running(); p != nil {
			return p.term()
		}
	}
	return 0
}

// follows says whether the relay of the host is connected with the leader of a term.
func (h *host) follows(term uint64) bool {
	h.mu.Lock()
	r := h.relay
	h.mu.Unlock()
	if r == nil {
		return false
	}
	st := r.Status()
	return term != 0 && st.Term == term && !st.Down
}

// until waits until something is so, and says whether it has become so.
func (w *world) until(so func() bool) bool {
	const often, longest = 10 * time.Millisecond, 5 * time.Second // less than silence is allowed to tasks
	for range longest / often {
		if so() {
			return true
		}
		w.pass(often, nil)
		if w.over() {
			return false
		}
	}
	return false
}
