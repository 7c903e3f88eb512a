package launch

import (
	"fmt"
	"sync"
	"syscall"
	"time"
)

// A process is one life of a task, with everything in its process group.
type process struct {
	// Set at the start, then constant.
	child
	out    *output
	memory *memoryWatch
	grace  time.Duration
	begun  time.Time

	mu struct {
		sync.Mutex
		gone   bool        // nothing of the group is left, and its number may be given back
		timer  *time.Timer // kills the group; nil until it is told to end
		over   bool        // its first process has ended
		told   bool        // to end, while its first process ran
		ours   bool        // we killed it
		failed bool        // by an exception or because it was stuck, before it ended
		stuck  bool        // it was
	}
}

// ended returns how the first process of the group ended, as soon as it has.
func (p *process) ended() (Cause, error) {
	err := p.await()
	p.mu.Lock()
	p.mu.over = true
	p.mu.Unlock()
	var cause Cause
	if err == nil {
		p.clear() // what it leaves behind
		cause, err = p.cause()
	}
	if err != nil {
		return Cause{}, fmt.Errorf("wait for process %d: %w", p.pid(), err)
	}
	return cause, nil
}

// end asks the group to end by a signal, and kills it after the grace unless it may take as long as it needs.
func (p *process) end(sig syscall.Signal, unlimited bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.told = p.mu.told || !p.mu.over
	p.ask(sig)
	if !unlimited {
		p.limit()
	}
}

// fail asks the group of a task to end that has failed by an exception, or is stuck.
func (p *process) fail(stuck bool) {
	p.mu.Lock()
	p.mu.failed, p.mu.stuck = true, stuck
	p.mu.Unlock()
	p.out.mark()
	p.end(syscall.SIGTERM, false)
}

// failed says whether the task had failed before its process ended.
func (p *process) failed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.failed
}

// clear asks what the first process has left behind in its group to end, and kills it after the grace.
func (p *process) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ask(syscall.SIGTERM)
	p.limit()
}

// ask sends a signal to the whole group. A process that is stopped hears no signal, and is woken up. It needs mu.
func (p *process) ask(sig syscall.Signal) {
	p.tell(sig)
	p.tell(syscall.SIGCONT)
}

// limit kills the group after the grace, counted from the first call. It needs mu.
func (p *process) limit() {
	if p.mu.timer == nil && !p.mu.gone {
		p.mu.timer = time.AfterFunc(p.grace, p.expire)
	}
}

// lastWords is how long a process that is stuck has to say where, before it is killed.
const lastWords = 2 * time.Second

// expire ends the group when the grace is over. A process that is stuck is aborted first: Python, for which PYTHONFAULTHANDLER is set,
// then prints its stack (D-ST-11).
func (p *process) expire() {
	p.mu.Lock()
	stuck := p.mu.stuck
	if stuck {
		p.mu.ours = true
		p.ask(syscall.SIGABRT)
		if !p.mu.gone {
			p.mu.timer = time.AfterFunc(lastWords, p.kill)
		}
	}
	p.mu.Unlock()
	if !stuck {
		p.kill()
	}
}

// pass sends a signal that is not meant to end anything.
func (p *process) pass(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tell(sig)
}

// kill ends the group at once.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.ours = true
	p.tell(syscall.SIGKILL)
}

// tell needs mu.
func (p *process) tell(sig syscall.Signal) {
	if !p.mu.gone {
		p.signal(sig)
	}
}

// killed says whether we killed the group.
func (p *process) killed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.ours
}

// told says whether the first process of the group was told to end while it ran.
func (p *process) told() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.told
}

// obeyed says whether a process ended in this way because we told it to.
func (p *process) obeyed(c Cause) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.ours && (c.Signal == syscall.SIGKILL || p.mu.stuck && c.Signal == syscall.SIGABRT) || p.mu.told && (c.Signal == syscall.SIGTERM || c.Signal == syscall.SIGINT || c.Signal == syscall.SIGHUP)
}

// lastWait is how long a killed process may take to disappear. One that takes longer is stuck in the
// kernel, and no signal helps.
const lastWait = 10 * time.Second

// sweep returns when nothing of the group is left.
func (p *process) sweep() error {
	var err error
	timer := time.NewTimer(p.grace + lastWait)
	defer timer.Stop()
	select {
	case <-p.emptied():
	case <-timer.C:
		err = fmt.Errorf("processes of group %d cannot be killed", p.pid())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.timer != nil {
		p.mu.timer.Stop()
	}
	p.tell(syscall.SIGKILL) // those whose parents left the group
	p.mu.gone = true
	return err
}
