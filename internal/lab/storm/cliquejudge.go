package storm

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/trial"
)

// What cliques must not show:
//
//   - a result that is not right, byte by byte; memory that is written after the error of its operation was returned;
//   - an error without a type, one that no fault explains, or one that calls a life failed which is not;
//   - another cause than the lost rank, where the service has told the member of the loss;
//   - a member that still succeeds, or hears nothing, long after another one has failed;
//   - two members of a generation with different keys, and an older generation after a newer one;
//   - after the last fault, an operation that fails, a clique that is not formed, a task that does not come to its end.
type cliqueJudge struct {
	world  *world
	faults sync.WaitGroup // under way

	mu struct {
		sync.Mutex
		calm    time.Time                // when the last fault was over, or zero
		cliques map[uint64]*cliqueRecord // by the fingerprint of their key
		held    map[generation]*collective.Key
		newest  map[serry.Life]uint32       // generations
		touched map[*trial.Attempt]*outcome // whose memory must stay as it is
		steps   stepsRecord
	}
}

// A cliqueRecord is what is known of a clique.
type cliqueRecord struct {
	failed    time.Time    // when the first member got an error, or zero
	what      string       // that error
	cancelled map[int]bool // ranks that revoked it, or gave an operation up
}

// A generation is one that a life has formed a clique in. Parts of a clique have traffic.
type generation struct {
	life    serry.Life
	number  uint32
	traffic uint64
}

// An outcome is how an operation ended on one member.
type outcome struct {
	proc   *proc
	comm   *collective.Comm
	what   string
	splits bool
	began  time.Time
	err    error
}

const (
	// soon is how long the word that a clique has ended may take over a network that works.
	soon = 10*longestGust + 500*time.Millisecond

	// Times after the last fault: when members may end; from when on nothing may fail; and when all must have ended.
	peaceful = 6 * time.Second
	settled  = 20 * time.Second
	allEnded = 60 * time.Second
)

func newCliqueJudge(w *world) *cliqueJudge {
	j := &cliqueJudge{world: w}
	j.mu.cliques = make(map[uint64]*cliqueRecord)
	j.mu.held = make(map[generation]*collective.Key)
	j.mu.newest = make(map[serry.Life]uint32)
	j.mu.touched = make(map[*trial.Attempt]*outcome)
	j.mu.steps = newStepsRecord()
	return j
}

// calmDown notes that all faults are over.
func (j *cliqueJudge) calmDown() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.calm = time.Now()
}

// calmFor is how long all faults have been over, or 0.
func (j *cliqueJudge) calmFor() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.calm.IsZero() {
		return 0
	}
	return time.Since(j.mu.calm)
}

// maysEnd says whether a member may end: faults are over, and all tasks are in its clique.
func (j *cliqueJudge) maysEnd(c *collective.Comm) bool {
	return j.calmFor() > peaceful && c.Size() == j.world.plan.tasks
}

// awaitEnd waits until all tasks have ended after the last fault.
func (j *cliqueJudge) awaitEnd() {
	j.world.pass(allEnded, nil)
	for _, p := range j.world.processes() {
		if what := p.doing(); what != "" && !j.world.over() {
			j.world.wrong("task %d life %d has not ended %v after the last fault: %s", p.task, p.life, allEnded, what)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for a := range j.mu.touched {
		j.check(a)
	}
}

// record is what is known of a clique; mu is held.
func (j *cliqueJudge) record(c *collective.Comm) *cliqueRecord {
	name := c.Key().Fingerprint()
	if j.mu.cliques[name] == nil {
		j.mu.cliques[name] = &cliqueRecord{cancelled: make(map[int]bool)}
	}
	return j.mu.cliques[name]
}

// revoking notes that a member is about to revoke a clique, or to give an operation up.
func (j *cliqueJudge) revoking(c *collective.Comm) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.record(c).cancelled[c.Rank()] = true
}

// formed judges a clique that a process has formed.
func (j *cliqueJudge) formed(p *proc, c *collective.Comm) {
	key, life := c.Key(), p.asLife()
	j.mu.Lock()
	defer j.mu.Unlock()
	if key.Ranks[c.Rank()].Life != life {
		j.world.wrong("task %d life %d is not rank %d of %v", p.task, p.life, c.Rank(), key)
	}
	if key.Traffic == 0 {
		j.world.note("task %d life %d is rank %d of %v", p.task, p.life, c.Rank(), key)
		if before, ok := j.mu.newest[life]; ok && before >= key.Generation {
			j.world.wrong("task %d life %d forms generation %d after generation %d", p.task, p.life, key.Generation, before)
		}
		j.mu.newest[life] = key.Generation
	}
	for _, place := range key.Ranks {
		other := j.mu.held[generation{place.Life, key.Generation, key.Traffic}]
		if other == nil || other.Compare(key) == 0 {
			continue
		}
		// No agreement comes before the first clique, so a member may form another one with a process that was restarted.
		if key.Generation > 0 || other.RanksOf(life) != nil {
			j.world.wrong("tasks %d and %d are in different cliques of generation %d: %v and %v", p.task, place.Life.Task.Index, key.Generation, key, other)
		}
	}
	j.mu.held[generation{life, key.Generation, key.Traffic}] = key
}

// notFormed judges the error of an attempt to form a clique.
func (j *cliqueJudge) notFormed(p *proc, err error) {
	if p.over() || p.member.Err() != nil {
		return
	}
	j.world.note("task %d life %d forms no clique: %v", p.task, p.life, err)
	if calm := j.calmFor(); calm > settled && !p.isSuspected() {
		j.world.wrong("task %d life %d forms no clique %v after the last fault: %v", p.task, p.life, calm, err)
	}
	if _, ok := errors.AsType[*collective.Error](err); !ok {
		j.world.wrong("task %d life %d forms no clique: an error without a type: %v", p.task, p.life, err)
	}
}

// judge judges how an operation ended.
func (j *cliqueJudge) judge(o outcome, attempts []*trial.Attempt) {
	if o.proc.over() || o.proc.member.Err() != nil {
		return // a process that is gone sees nothing
	}
	for _, a := range attempts {
		check := a.Check
		if o.err != nil {
			check = a.Poison
		}
		if err := check(); err != nil {
			j.world.wrong("task %d life %d, %s of %v: %v", o.proc.task, o.proc.life, o.what, o.comm.Key(), err)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	rec := j.record(o.comm)
	if o.err == nil {
		j.succeeded(o, rec)
		return
	}
	for _, a := range attempts {
		j.mu.touched[a] = &o
	}
	j.world.note("task %d life %d, %s of %v: %v", o.proc.task, o.proc.life, o.what, o.comm.Key(), o.err)
	j.failed(o, rec)
}

// succeeded judges the success of an operation; mu is held.
func (j *cliqueJudge) succeeded(o outcome, rec *cliqueRecord) {
	if rec.failed.IsZero() || o.proc.isSuspected() {
		return
	}
	if due := j.due(o, rec); o.began.After(due) {
		j.world.wrong("task %d life %d: %s of %v succeeds, and began %v after another member had failed: %s",
			o.proc.task, o.proc.life, o.what, o.comm.Key(), o.began.Sub(rec.failed), rec.what)
	}
}

// due is when a member must know that its clique has failed: soon after the first member knew, or after the network
// works again, or its detector has found that it does not; mu is held.
func (j *cliqueJudge) due(o outcome, rec *cliqueRecord) time.Time {
	due := rec.failed.Add(soon)
	for _, r := range o.comm.Key().Ranks {
		if p := j.world.procOf(r.Life); p != nil {
			if until := p.stalledUntil(); until.After(rec.failed.Add(-2 * settled)) {
				due = later(due, until.Add(j.world.plan.cliques.dead()+soon))
			}
		}
	}
	return due
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// failed judges the error of an operation; mu is held.
func (j *cliqueJudge) failed(o outcome, rec *cliqueRecord) {
	e, ok := errors.AsType[*collective.Error](o.err)
	if !ok {
		j.complain(o, "an error without a type")
		return
	}
	if rec.failed.IsZero() {
		rec.failed, rec.what = time.Now(), o.err.Error()
	}
	if o.proc.isSuspected() {
		return // the others may have gone on without it
	}
	if due := later(j.due(o, rec), o.began.Add(time.Millisecond)); time.Now().After(due) {
		j.complain(o, "it hears "+time.Since(rec.failed).String()+" after another member: "+rec.what)
	}
	if why := j.unexplained(o, rec, e); why != "" {
		j.complain(o, why)
	}
	if !j.mu.calm.IsZero() && time.Since(j.mu.calm) > settled {
		j.complain(o, "and the last fault is long over")
	}
	if lost := o.proc.toldOf(o.comm.Key()); lost != nil && !errors.Is(e, collective.ErrPeerFailed) {
		j.complain(o, "it does not name a lost rank, and the service has said that "+lost.Task.String()+" is lost")
	}
}

func (j *cliqueJudge) complain(o outcome, why string) {
	j.world.wrong("task %d life %d, %s of %v: %v: %s", o.proc.task, o.proc.life, o.what, o.comm.Key(), o.err, why)
}

// unexplained says why no fault explains an error, or nothing; mu is held.
func (j *cliqueJudge) unexplained(o outcome, rec *cliqueRecord, e *collective.Error) string {
	key := o.comm.Key()
	switch {
	case errors.Is(e, collective.ErrPeerFailed):
		if rank := key.RanksOf(e.Life); rank == nil || !slices.Equal(e.Ranks, rank[:1]) {
			return "it names another rank than that of the lost life"
		}
		if p := j.world.procOf(e.Life); p == nil || p.lives() {
			return "that life is not over"
		}
	case errors.Is(e, collective.ErrTransport):
		for _, rank := range append(e.Ranks, e.Origin) {
			if p := j.world.procOf(key.Ranks[rank].Life); p != nil && p.hadTrouble(settled) {
				return ""
			}
		}
		return "nothing has happened to that link"
	case errors.Is(e, collective.ErrCancelled):
		if p := j.world.procOf(key.Ranks[e.Origin].Life); p == nil || !p.lives() {
			return "" // the service told it that it was replaced, and it gave up what it did
		}
		if !rec.cancelled[e.Origin] && key.Traffic == 0 && !o.splits { // a member that has lost the whole gives its part up
			return "that rank has revoked nothing, and given nothing up"
		}
	default:
		return "no member has caused this"
	}
	return ""
}

// check says whether the memory of a failed operation has changed; mu is held.
func (j *cliqueJudge) check(a *trial.Attempt) {
	if o := j.mu.touched[a]; a.Touched() {
		j.world.wrong("task %d life %d, %s of %v: its memory was written after its error: %v", o.proc.task, o.proc.life, o.what, o.comm.Key(), o.err)
	}
}

// procOf is the process of a life, or nil.
func (w *world) procOf(l serry.Life) *proc {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.mu.procs {
		if p.life == uint64(l.Incarnation) && p.task == l.Task.Index {
			return p
		}
	}
	return nil
}

// A standing is what is known of a member of cliques, beside what is known of every process. The lock of the process
// guards it.
type standing struct {
	comm      *collective.Comm    // that it holds, or nil
	cancel    context.CancelFunc  // of its operation, or nil
	stalled   time.Duration       // for which it was stopped or cut off, all in all
	stalledTo time.Time           // when that ends
	trouble   time.Time           // when something last happened to its connections
	connected map[serry.Life]bool // as it was told
	lost      map[serry.Life]time.Time
}

// asLife is the life of the process.
func (p *proc) asLife() serry.Life {
	return serry.Life{Task: serry.TaskID{Job: job, Index: p.task}, Incarnation: serry.Incarnation(p.life)}
}

// holds notes the clique of the process.
func (p *proc) holds(c *collective.Comm) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.standing.comm = c
}

// operates notes how to give the operation up that is under way, or that none is.
func (p *proc) operates(cancel context.CancelFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.standing.cancel = cancel
}

// breaksOff lets the process revoke its clique, or give its operation up.
func (p *proc) breaksOff(k kind) {
	p.mu.Lock()
	c, cancel := p.mu.standing.comm, p.mu.standing.cancel
	p.mu.Unlock()
	if c == nil || p.over() || k == giveUp && cancel == nil {
		return
	}
	p.world.struck(k)
	p.world.note("task %d life %d: %s", p.task, p.life, k)
	p.world.judge.revoking(c)
	if k == giveUp {
		cancel()
		return
	}
	c.Revoke(errors.New("for no reason"))
}

// troubled notes that something happens to the connections of the process until a time.
func (p *proc) troubled(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.standing.trouble = later(p.mu.standing.trouble, until)
}

// stalls notes that the process is stopped or cut off for a while, from all others or from some.
func (p *proc) stalls(lasts time.Duration) {
	until := time.Now().Add(lasts)
	p.troubled(until)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.standing.stalled += lasts
	p.mu.standing.stalledTo = later(p.mu.standing.stalledTo, until)
}

func (p *proc) wasStalled() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.standing.stalled
}

func (p *proc) stalledUntil() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.standing.stalledTo
}

// hadTrouble says whether something happened to the connections of the process not long ago.
func (p *proc) hadTrouble(within time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.mu.standing.trouble.IsZero() && time.Since(p.mu.standing.trouble) < within
}

// isSuspected says whether the process may be taken for dead, or another life takes its place.
func (p *proc) isSuspected() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.suspected || p.mu.doomed
}

// lives says whether the process runs, and may not be taken for dead.
func (p *proc) lives() bool { return !p.over() && !p.isSuspected() }

// hears notes which lives the service calls lost.
func (p *proc) hears(s serry.Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := make(map[serry.Life]bool)
	for _, t := range s.Tasks {
		if t.State == serry.Connected {
			now[serry.Life{Task: t.Task, Incarnation: t.Incarnation}] = true
		}
	}
	for l := range p.mu.standing.connected {
		if !now[l] {
			if p.mu.standing.lost == nil {
				p.mu.standing.lost = make(map[serry.Life]time.Time)
			}
			p.mu.standing.lost[l] = time.Now()
		}
	}
	if s.Tasks != nil {
		p.mu.standing.connected = now
	}
}

// toldOf is a life in a key that the service called lost before now, or nil.
func (p *proc) toldOf(k *collective.Key) *serry.Life {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range k.Ranks {
		if at, lost := p.mu.standing.lost[r.Life]; lost && at.Before(time.Now()) {
			return &r.Life
		}
	}
	return nil
}
