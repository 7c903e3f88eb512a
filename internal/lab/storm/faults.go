package storm

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/serry-dev/serry/store"
)

// operation is called before and after everything that is done to the disk. Who leads is known without
// it: a real server watches that, and does not keep a host waiting that asks for it.
func (w *world) operation(op store.Op) error {
	if !op.Done && op.Action != store.OpLeader {
		w.mu.Lock()
		d := w.plan.disk.draw(w.mu.disk)
		over := w.mu.over
		w.mu.Unlock()
		if over {
			return nil
		}
		select {
		case <-time.After(d):
		case <-w.ended:
		}
	}
	s := w.site(op.Leader.Address)
	if s == nil {
		return nil
	}
	return w.strike(func(f fault) bool { return f.chance(op) }, s)
}

func (w *world) site(address string) *site {
	for _, s := range w.sites {
		if s.place.name == address {
			return s
		}
	}
	return nil
}

// strike lets faults happen whose chance has come.
func (w *world) strike(chance func(fault) bool, s *site) error {
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
		if f.kind == lostAck {
			w.note("%s: an acknowledgement is lost", s.place.name)
			return errLostAck
		}
		s.kill(f.lasts, string(f.kind))
	}
	return nil
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
	leader := w.leader()
	switch f.kind {
	case breakLink:
		at := w.caller(f.whom)
		w.struck(f.kind)
		w.note("%s: links break", at.name)
		at.sever()
		return
	case stallLink:
		w.struck(f.kind)
		w.stall(w.caller(f.whom), f.lasts)
		return
	case killHost:
		w.hosts[f.whom].crash(f.lasts)
		return
	case killProc:
		w.killTask(f.whom, f.lasts)
		return
	case moveProc:
		w.moveTask(f.whom)
		return
	}
	if leader == nil && (f.kind == crash || f.kind == freeze || f.kind == depose || f.kind == handOver) {
		w.after(20*time.Millisecond, func() { w.inflict(f) })
		return
	}
	switch f.kind {
	case crash, freeze, depose, handOver:
		w.struck(f.kind)
	}
	switch f.kind {
	case crash:
		leader.kill(f.lasts, "crash")
	case freeze:
		leader.freeze(f.lasts)
	case depose:
		w.note("%s is deposed", leader.place.name)
		w.disk.Expire()
	case handOver:
		if p := leader.running(); p != nil {
			p.handOver()
		}
	default:
		w.mu.Lock()
		w.mu.armed = append(w.mu.armed, f)
		w.mu.Unlock()
	}
}

// vacant lets a standby find out, perhaps, that a leader has died.
func (w *world) vacant(term uint64) {
	w.mu.Lock()
	alert := w.mu.restart.Float64() < w.plan.alert
	d := between(w.mu.restart, time.Millisecond, 50*time.Millisecond)
	w.mu.Unlock()
	if !alert {
		return
	}
	w.after(d, func() {
		seat := w.disk.Open()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = seat.Depose(ctx, store.Leader{Term: term})
		_ = seat.Close()
	})
}
