package storm

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab/history"
	"github.com/serry-dev/serry/wire/rpc"
)

// A proc is a process with a stock client in it: one life of a task.
type proc struct {
	world  *world
	task   int
	number int    // of the life, from 0
	epoch  int    // in which it lives, from 0
	life   uint64 // its incarnation
	host   *host  // or nil: a Go program without a relay
	rand   *rand.Rand
	extra  *rand.Rand // for calls beside the program

	moves   chan *host      // of a quiet process: where it moves to
	port    *port           // set by run, before anything else is done; a quiet process that moves has another
	member  *client.Member  // of a Go program, set by runMember before the program begins; or nil
	ctx     context.Context // of a Go program: it ends with the process
	place   *place          // of a Go program, or nil
	service serry.Incarnation

	// Owned by the program.
	counters map[string]int64  // the next instance of each barrier
	seen     map[string]string // the last value of each key that it knows of

	mu struct {
		sync.Mutex
		doing   string // what the program waits for
		ended   bool   // finished, killed or dead
		fate    string // how
		done    bool   // its program is
		leaving bool   // it has said goodbye
		heard   bool   // it has ended of an error that it was told
		doomed  bool   // another life is about to take its place, or it may be taken for dead

		moved     *host          // where a quiet process has moved to, or nil
		suspected bool           // it may be taken for dead
		replaced  history.Moment // another life has registered
		lived     history.Lifetime
		standing  standing
	}
	quit chan struct{} // closed when it has ended
}

// launch starts a life of a task.
func (w *world) launch(task int, at *host, number, epoch int) {
	p := &proc{
		world: w, task: task, number: number, epoch: epoch, life: uint64(1000*(task+1) + number), host: at,
		rand: dice(w.seed, forProcs, uint64(1000*task+number)), counters: make(map[string]int64), seen: make(map[string]string),
		extra: dice(w.seed, forCalls, uint64(1+1000*task+number)), quit: make(chan struct{}), moves: make(chan *host),
	}
	p.mu.lived.LiveMember = history.LiveMember{Member: task, Life: p.life}
	w.mu.Lock()
	over := w.mu.over || w.mu.reckoned
	w.mu.procs = append(w.mu.procs, p)
	w.mu.lives[task] = p
	w.mu.Unlock()
	if over {
		return
	}
	if at != nil && at.silent() {
		p.suspected()
	}
	run := p.run
	if task >= w.plan.tasks-w.plan.members {
		p.place = newPlace(memberAddress(task, number))
		p.place.refuse(true)
		run = p.runMember
	}
	w.living.Add(1)
	w.work.Go(func() {
		defer w.living.Done()
		run()
		if p.finished() && epoch+1 < w.plan.epochs {
			w.launch(task, at, number+1, epoch+1) // the job is run again
		}
	})
}

// finished says whether the process has come to its good end.
func (p *proc) finished() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.fate == wellDone
}

const wellDone = "finished"

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
	if p.place != nil {
		p.place.kill() // first: a process that is killed says no goodbye
	}
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

// suspected notes that the process may be taken for dead from now on.
func (p *proc) suspected() {
	p.replacing()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.suspected = true
}

// died judges an error that ends a stock client.
func (p *proc) died(what string, st rpc.Status) {
	err := p.world.plan.dialect.Error(st.Code, st.Message, st.Details)
	p.mu.Lock()
	ended, doomed := p.mu.ended, p.mu.doomed
	p.mu.heard = p.mu.heard || !ended
	p.mu.Unlock()
	if ended {
		return
	}
	ends := p.world.plan.mode == fatal || p.world.plan.mode == quiet
	excused := doomed || ends && p.world.hasCasualty() && len(st.Details) > 0 && p.world.fair(err)
	if !excused {
		p.world.amiss("task %d life %d died of %s: %v: %v (%d bytes of details)", p.task, p.life, what, st.Code, err, len(st.Details))
	}
	p.world.revive(p)
	p.exit("died of " + what + ": " + st.Code.String() + ": " + st.Message)
}

// fair says whether an error accuses nobody who certainly lives. That the caller has failed itself, because of
// somebody else, is no accusation.
func (w *world) fair(err error) bool {
	var accused *serry.TaskError
	for errors.As(err, &accused) && errors.Is(accused.Err, serry.ErrAlreadyFailed) {
		err, accused = accused.Reason, nil
	}
	if accused != nil && errors.Is(accused.Err, serry.ErrReported) {
		return w.reported(accused)
	}
	if accused == nil || !errors.Is(accused.Err, serry.ErrTaskDead) || accused.Task.IsZero() {
		return true
	}
	last := w.last(accused.Task.Index)
	if last == nil {
		return false
	}
	last.mu.Lock()
	defer last.mu.Unlock()
	return last.mu.ended || last.mu.suspected
}

// rest waits until the programs of all tasks are done: whoever left earlier would leave a later life of
// another alone in its epoch.
func (p *proc) rest() {
	p.does("rest")
	p.mu.Lock()
	p.mu.done = true
	p.mu.Unlock()
	often := 50 * time.Millisecond
	if p.world.plan.fleet() {
		often = time.Second
	}
	for !p.world.allDone() && p.pause(often) {
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
