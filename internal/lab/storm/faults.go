package storm

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/serry-dev/serry/internal/lab/shareddisk"
	"github.com/serry-dev/serry/store"
)

// operation is called before and after everything that is done to the disk. Who leads is known without
// it: a real server watches that, and does not keep a host waiting that asks for it.
func (w *world) operation(op shareddisk.Op) error {
	if !op.Done && op.Action != shareddisk.OpLeader {
		w.mu.Lock()
		d := w.plan.disk.draw(w.mu.disk)
		over := w.mu.over
		w.mu.Unlock()
		if over {
			return nil
		}
		w.pass(d, op.Over)
	}
	s := w.site(op.Leader.Address)
	if s == nil {
		return nil
	}
	return w.strike(func(f fault) bool { return f.chance(op) }, s, op.Over)
}

func (w *world) site(address string) *site {
	for _, s := range w.sites {
		if s.place.name == address {
			return s
		}
	}
	return nil
}

// strike lets faults happen at a site whose chance has come. Those that wait end when over is closed.
func (w *world) strike(chance func(fault) bool, s *site, over <-chan struct{}) error {
	w.mu.Lock()
	var hit []fault
	for i := 0; i < len(w.mu.armed); i++ {
		f := &w.mu.armed[i]
		if !chance(*f) {
			continue
		}
		if f.count--; f.count < 0 {
			hit = append(hit, *f)
			w.mu.armed = slices.Delete(w.mu.armed, i, i+1)
			i--
		}
	}
	w.mu.Unlock()
	for _, f := range hit {
		w.struck(f.kind)
		switch f.kind {
		case lostAck:
			w.note("%s: an acknowledgement is lost", s.place.name)
			return errLostAck
		case stallDisk:
			w.note("%s: the disk stalls for %v", s.place.name, f.lasts)
			w.pass(f.lasts, over)
		default:
			s.kill(f.lasts, string(f.kind))
		}
	}
	return nil
}

// pass lets time pass, unless the schedule ends first, or over is closed.
func (w *world) pass(d time.Duration, over <-chan struct{}) {
	select {
	case <-time.After(d):
	case <-over:
	case <-w.ended:
	}
}

var errLostAck = errors.New("storm: no acknowledgement")

// struck counts a fault that happened.
func (w *world) struck(k kind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.report.Struck[string(k)]++
}

// leader is the site that led last of those that believe they lead, or nil.
func (w *world) leader() (last *site) {
	term := uint64(0)
	for _, s := range w.sites {
		if p := s.running(); p != nil && p.term() > term {
			last, term = s, p.term()
		}
	}
	return last
}

// inflict lets a fault happen, or arms it.
func (w *world) inflict(f fault) {
	switch f.kind {
	case upgrade, goBack:
		w.install(f)
	case breakLink, stallLink, deafLink, muteLink, cutOff, killHost, killProc, moveProc, reportError, resetTask:
		w.harm(f)
	case crash, freeze, depose, handOver, terminate, retire:
		leader := w.leader()
		if leader == nil {
			w.after(20*time.Millisecond, func() { w.inflict(f) })
			return
		}
		w.struck(f.kind)
		w.unseat(f, leader)
	default:
		w.mu.Lock()
		w.mu.armed = append(w.mu.armed, f)
		w.mu.Unlock()
	}
}

// harm lets something happen to a host or a task.
func (w *world) harm(f fault) {
	switch f.kind {
	case breakLink:
		at := w.caller(f.whom)
		w.struck(f.kind)
		w.note("%s: links break", at.name)
		at.sever()
	case stallLink:
		w.struck(f.kind)
		w.stall(w.caller(f.whom), f.lasts, deaf, mute)
	case deafLink:
		w.struck(f.kind)
		w.stall(w.caller(f.whom), f.lasts, deaf)
	case muteLink:
		w.struck(f.kind)
		w.stall(w.caller(f.whom), f.lasts, mute)
	case cutOff:
		w.hosts[f.whom].cutOff(f.lasts, cuts[f.count])
	case killHost:
		w.hosts[f.whom].crash(f.lasts)
	case killProc:
		w.killTask(f.whom, f.lasts)
	case moveProc:
		w.moveTask(f.whom)
	case reportError, resetTask:
		w.lastWord(f.kind, f.whom, f.lasts)
	}
}

// unseat lets something happen to the leader.
func (w *world) unseat(f fault, leader *site) {
	switch f.kind {
	case crash:
		leader.kill(f.lasts, "crash")
	case freeze:
		leader.freeze(f.lasts)
	case depose:
		if w.plan.sites == 1 {
			return // no other server could lead, so a host would find none
		}
		w.note("%s is deposed", leader.place.name)
		w.disk.expire()
		leader.place.refuse(true)
		w.after(w.plan.notice, func() { leader.place.refuse(false) })
		w.caller(f.whom).sever()
	case handOver:
		if p := leader.running(); p != nil {
			p.handOver()
		}
	case terminate:
		leader.terminate(f.lasts)
	case retire:
		for _, s := range w.sites {
			s.terminate(f.lasts)
		}
	}
}

// vacant lets a standby find out, perhaps, that a leader has died.
func (w *world) vacant(term uint64) {
	w.mu.Lock()
	alert := w.mu.restart.Float64() < w.plan.alert
	d := between(w.mu.restart, time.Millisecond, 50*time.Millisecond)
	w.mu.Unlock()
	if _, alone := w.disk.(*realFile); !alert || alone {
		return
	}
	w.after(d, func() {
		seat, err := w.disk.open()
		if err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = seat.Depose(ctx, store.Leader{Term: term})
		_ = seat.Close()
	})
}
