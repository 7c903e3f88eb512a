package storm

import (
	"context"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/serry-dev/serry/relay"
	"github.com/serry-dev/serry/wire/stream"
)

// A host is a machine with a relay, behind which processes run.
type host struct {
	world   *world
	place   *place
	version stream.Version

	mu    sync.Mutex
	relay *relay.Relay // or nil while the machine is down
	lost  int          // cuts that may have made it a silent one
}

func newHost(w *world, index int) *host {
	return &host{world: w, place: newPlace("host" + strconv.Itoa(index)), version: w.version(index)}
}

// start begins a relay.
func (h *host) start() {
	h.place.start()
	r, err := relay.New(relay.Config{
		Upstream: h.world.servers(),
		GiveUp:   -1,
		Log:      h.world.log(h.place.name),
		Planted:  h.world.options.Planted,

		StreamVersion: h.version,
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return h.world.dial(ctx, h.place, address)
		},
	})
	if err != nil {
		panic(err) // the configuration above
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.relay = r
}

// stop ends the relay without a word.
func (h *host) stop() {
	h.mu.Lock()
	r := h.relay
	h.relay = nil
	h.mu.Unlock()
	h.place.kill()
	if r == nil {
		return
	}
	h.world.work.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		r.Shutdown(ctx)
	})
}

// connect gives a process a connection to the relay, or nil while there is none.
func (h *host) connect() *port {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.relay == nil {
		return nil
	}
	return newPort(h.relay.Handler())
}

// crash ends the machine with everything on it. Where tasks may come back they do.
func (h *host) crash(back time.Duration) {
	w := h.world
	if !w.ready() {
		w.after(50*time.Millisecond, func() { h.crash(back) })
		return
	}
	h.mu.Lock()
	down := h.relay == nil
	h.mu.Unlock()
	if down || !w.mayKill(1) { // one for the machine itself
		return
	}
	defer w.returned()
	w.living.Add(1)
	defer w.living.Done()
	w.struck(killHost)
	w.note("%s crashes", h.place.name)
	w.casualty()
	var lost []*proc
	for _, p := range w.processes() {
		if p.host == h && p.kill("its host crashed") && w.last(p.task) == p {
			lost = append(lost, p)
		}
	}
	h.stop()
	if !w.plan.recoverable {
		return
	}
	w.mayKill(1)
	w.living.Add(1) // until they are back
	w.work.Go(func() {
		defer w.living.Done()
		defer w.returned()
		select {
		case <-time.After(back):
		case <-w.ended:
			return
		}
		h.start()
		for _, p := range lost {
			w.succeed(p, h)
		}
	})
}

// stall shuts gates of a place for a while, less than what makes it a silent one.
func (w *world) stall(at *place, lasts time.Duration, which ...gate) {
	w.note("%s: links stall for %v, %v", at.name, lasts, which)
	at.shut(which...)
	w.after(lasts, func() { at.open(which...) })
}

// afterwards is how long after a cut a host is connected again, and its tasks have heard what became of
// them.
const afterwards = 5 * time.Second

// cutOff keeps a host from the network for longer than it may be silent. Its tasks may be taken for dead
// then, and are told so when it is back. Where tasks may come back, these do.
func (h *host) cutOff(lasts time.Duration, which []gate) {
	w := h.world
	if !w.ready() {
		w.after(50*time.Millisecond, func() { h.cutOff(lasts, which) })
		return
	}
	if !w.mayKill(1) { // nobody leaves before it is known who is alive
		return
	}
	w.struck(cutOff)
	w.casualty()
	w.note("%s is cut off for %v, %v", h.place.name, lasts, which)
	h.suspect(1)
	for _, p := range w.processes() {
		if p.host == h {
			p.suspected()
		}
	}
	h.place.shut(which...)
	w.living.Add(1)
	w.work.Go(func() {
		defer w.living.Done()
		defer w.returned()
		w.pass(lasts, nil)
		w.note("%s is reached again", h.place.name)
		h.place.open(which...)
		w.pass(afterwards, nil)
		h.suspect(-1)
	})
}

// suspect counts cuts, and silent says whether tasks behind the host may be taken for dead.
func (h *host) suspect(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost += n
}

func (h *host) silent() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost > 0
}

// revive starts the next life of a task that was taken for dead, and is told so. It is called before the
// process ends.
func (w *world) revive(p *proc) {
	p.mu.Lock()
	again := p.mu.suspected && w.plan.recoverable
	p.mu.Unlock()
	if !again || w.last(p.task) != p || !w.mayKill(1) {
		return
	}
	w.living.Add(1)
	w.work.Go(func() {
		defer w.living.Done()
		defer w.returned()
		w.pass(100*time.Millisecond, nil)
		if w.last(p.task) == p {
			w.succeed(p, p.host)
		}
	})
}

// killTask ends the process of a task, and starts another where that is allowed.
func (w *world) killTask(task int, back time.Duration) {
	if !w.ready() {
		w.after(50*time.Millisecond, func() { w.killTask(task, back) })
		return
	}
	p := w.last(task)
	if !w.mayKill(1) {
		return
	}
	w.struck(killProc)
	w.casualty()
	w.living.Add(1)
	defer w.living.Done()
	if !p.kill("killed") || !w.plan.recoverable {
		w.returned()
		return
	}
	w.living.Add(1)
	w.work.Go(func() {
		defer w.living.Done()
		defer w.returned()
		select {
		case <-time.After(back):
		case <-w.ended:
			return
		}
		w.succeed(p, p.host)
	})
}

// moveTask starts a second process for a task that has one. That must have registered: of two that are
// under way the last to come would win, and nobody can know which that is.
func (w *world) moveTask(task int) {
	if !w.ready() || !w.last(task).registered() {
		w.after(50*time.Millisecond, func() { w.moveTask(task) })
		return
	}
	p := w.last(task)
	if p.over() || !w.mayKill(1) {
		return
	}
	defer w.returned()
	for i, h := range w.hosts {
		if h == p.host {
			w.struck(moveProc)
			w.succeed(p, w.hosts[(i+1)%len(w.hosts)])
			return
		}
	}
}

// succeed starts the next life of a task.
func (w *world) succeed(p *proc, at *host) {
	p.replacing()
	w.launch(p.task, at, p.number+1, p.epoch)
}
