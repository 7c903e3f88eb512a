package storm

import (
	"strconv"
	"sync"
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/history"
)

// A keyView is what a process knows of a directory because it watches it.
//
// After every answer it is what the directory held at one moment between the question and the answer. So
// it is judged as if the process had asked for every key then: a change that a watch leaves out, tells
// twice or in a wrong order is an answer that cannot be true.
type keyView struct {
	dir  string
	mark string        // a key that the process itself sets when its program is done
	seen chan struct{} // closed when the watch has told of that key

	mu    sync.Mutex
	there map[string]string
}

// watchKeys begins to watch the directory of the process, in some schedules: by one task of those that
// share it. It returns nil where there is nothing to watch.
func (p *proc) watchKeys() *keyView {
	if !p.world.plan.watches || p.task%4 != 0 {
		return nil
	}
	dir := p.shared("k")
	v := &keyView{dir: dir, mark: dir + "/mark" + strconv.FormatUint(p.life, 10), seen: make(chan struct{}), there: make(map[string]string)}
	if p.member != nil {
		p.world.work.Go(func() { p.memberFollows(v) })
	} else {
		p.world.work.Go(func() { p.follows(v) })
	}
	return v
}

// follows is the watch of a stock process. Stock dialects have no such call: it is one of serry's own.
func (p *proc) follows(v *keyView) {
	for after := int64(-1); ; {
		span := history.Span{Call: p.world.clock.Now()}
		result, st, ok := p.call(coord.WatchKeys{Call: p.who(), Dir: v.dir, After: after})
		if !ok || p.left() {
			return
		}
		changes, is := result.(coord.Changes)
		if !is {
			p.died("watch of keys", st)
			return
		}
		span.Return = p.world.clock.Now()
		after = changes.Revision
		p.saw(span, history.Get, v.dir, v.take(changes))
	}
}

// take brings the view up to date, and returns what is there now.
func (v *keyView) take(c coord.Changes) map[string]string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if c.Reset {
		clear(v.there)
	}
	for _, ch := range c.Changes {
		v.set(ch.Key, brief(ch.Value), !ch.Deleted)
	}
	return v.copied()
}

// set notes the state of a key; mu is held.
func (v *keyView) set(key, value string, is bool) {
	if !is {
		delete(v.there, key)
		return
	}
	v.there[key] = value
	if key == v.mark {
		select {
		case <-v.seen:
		default:
			close(v.seen)
		}
	}
}

// copied is what is there; mu is held.
func (v *keyView) copied() map[string]string {
	there := make(map[string]string, len(v.there))
	for key, value := range v.there {
		there[key] = value
	}
	return there
}

// memberFollows is the watch of a Go program. The client tells the changes of one answer one by one, all at
// one moment of virtual time: two answers are further apart, by the time that bytes need.
func (p *proc) memberFollows(v *keyView) {
	asked := p.world.clock.Now()
	idle, at := asked, time.Now()
	for e, err := range p.member.KV().Watch(p.ctx, v.dir) {
		if err != nil {
			if !p.left() {
				p.memberDied("watch of keys", err)
			}
			return
		}
		if now := time.Now(); now.After(at) {
			asked, at = idle, now
		}
		value := brief(e.Value)
		p.sawKey(history.Span{Call: asked, Return: p.world.clock.Now()}, history.Get, e.Key, value, !e.Deleted)
		v.mu.Lock()
		v.set(e.Key, value, !e.Deleted)
		v.mu.Unlock()
		idle = p.world.clock.Now()
	}
}

// sawAll waits until the watch has told of everything that happened before the end of the program. Then the
// view is what the directory holds.
func (p *proc) sawAll(v *keyView) {
	if v == nil || p.over() {
		return
	}
	span := history.Span{Call: p.world.clock.Now()}
	p.put(history.Overwrite, v.mark, "done")
	p.does("watch of keys")
	select {
	case <-v.seen:
	case <-p.quit:
		return
	}
	if !p.pause(time.Microsecond) { // the other changes of the same answer
		return
	}
	v.mu.Lock()
	there := v.copied()
	v.mu.Unlock()
	span.Return = p.world.clock.Now()
	p.saw(span, history.Get, v.dir, there)
}
