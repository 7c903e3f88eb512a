package storm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/stream"
)

// A cliquePlan is what a seed decides for a job whose tasks run collective operations.
type cliquePlan struct {
	first  int // how many tasks the first clique has; the members add the others later
	timing link.Timing
	sizes  []int // of vectors, in bytes
	steps  bool  // the tasks train in steps, see cliquesteps.go

	idle    int           // how many idle cliques a process keeps; 0 is the default
	idleFor time.Duration // for how long; 0 is the default
}

// Kinds of faults that only jobs with cliques have. Where a fault has two tasks, count is the second one.
const (
	stopTask  kind = "stop task"  // it neither reads nor writes
	deafTask  kind = "deaf task"  // nothing comes to it
	muteTask  kind = "mute task"  // nothing comes from it
	cutWay    kind = "cut way"    // from one task to another
	cutPair   kind = "cut pair"   // between two tasks
	breakPair kind = "break pair" // the connections between two tasks
	revoke    kind = "revoke"     // by a task, of its clique
	giveUp    kind = "give up"    // by a task, of its operation
)

// cliqueFaults are what may happen to the tasks of such a job, and coordinatorFaults what may happen to its service, as
// often as they stand here.
var (
	cliqueFaults      = []kind{killProc, killProc, killProc, moveProc, breakLink, stopTask, stopTask, deafTask, muteTask, cutWay, cutWay, cutPair, cutPair, breakPair, breakPair, revoke, giveUp}
	coordinatorFaults = []kind{crash, crash, crashBefore, crashAfter, crashReply, lostAck, freeze, depose, handOver}
)

// CliqueFaults are the kinds of faults that schedules of cliques have.
func CliqueFaults() (names []string) {
	for _, k := range slices.Concat(cliqueFaults, coordinatorFaults) {
		if !slices.Contains(names, string(k)) {
			names = append(names, string(k))
		}
	}
	return names
}

// drawCliques makes the plan of a job of a few tasks that run collective operations, while the tasks and the network
// between them are in trouble and the coordinator fails over.
func drawCliques(seed uint64) *plan {
	r := dice(seed, forCliques, 0)
	p := &plan{
		mode: cliques, recoverable: true, dialect: wire.XLA, sites: 2, epochs: 1, nodes: r.IntN(4) == 0,
		tasks:     pick(r, 2, 3, 3, 4, 4, 5),
		steps:     8,
		pace:      between(r, 100*time.Millisecond, 600*time.Millisecond),
		lease:     between(r, 200*time.Millisecond, time.Second),
		notice:    pick(r, 0, between(r, 0, time.Second)),
		alert:     pick(r, 0, 1.0),
		snapshots: pick(r, 0, 1),
	}
	p.members = p.tasks
	p.net = weather{base: 50 * time.Microsecond, jitter: between(r, 0, time.Millisecond), storms: pick(r, 0, 0.02), gust: between(r, 0, longestGust), choppy: r.IntN(4) == 0}
	if r.IntN(2) == 0 {
		p.net.buffer = 4 << 10 << r.IntN(5)
	}
	p.disk = weather{base: 20 * time.Microsecond, jitter: between(r, 0, 5*time.Millisecond)}
	c := &cliquePlan{first: p.tasks, sizes: []int{1, 1 + r.IntN(100), 1 + r.IntN(9000), pick(r, 0, 20_000)}}
	if p.tasks > 2 && r.IntN(3) == 0 {
		c.first = 2 + r.IntN(p.tasks-2)
	}
	if r.IntN(3) == 0 {
		c.timing = link.Timing{Ping: 100 * time.Millisecond, Suspect: 400 * time.Millisecond, Dead: 1200 * time.Millisecond}
	}
	if r := dice(seed, forCliques, 1); r.IntN(2) == 0 {
		c.idle, c.idleFor = 1+r.IntN(2), between(r, 50*time.Millisecond, 2*time.Second)
	}
	p.cliques = c
	for range 1 + r.IntN(4) {
		p.faults = append(p.faults, p.drawCliqueFault(r))
	}
	for range pick(r, 0, 0, 1, 2) {
		f := p.drawFault(r, coordinatorFaults)
		f.at = between(r, 0, troubleTime)
		f.lasts = min(f.lasts, shortOutage)
		p.faults = append(p.faults, f)
	}
	return p
}

const (
	troubleTime = 4 * time.Second // in which faults begin
	longestGust = 200 * time.Millisecond
)

// drawCliqueFault draws a fault of a task, or of two.
func (p *plan) drawCliqueFault(r *rand.Rand) fault {
	f := fault{kind: pick(r, cliqueFaults...), at: between(r, 0, troubleTime), whom: r.IntN(p.tasks)}
	f.count = (f.whom + 1 + r.IntN(p.tasks-1)) % p.tasks
	f.lasts = between(r, 0, pick(r, time.Second, 3*time.Second, 6*time.Second))
	return f
}

// drawsFirst says whether a task belongs to the first clique.
func (c *cliquePlan) drawsFirst(task int) bool { return task < c.first }

// dead is after what silence a link is given up.
func (c *cliquePlan) dead() time.Duration {
	if c.timing.Dead > 0 {
		return c.timing.Dead
	}
	return 3 * time.Second
}

// disturbCliques lets all faults happen, and then watches that the job comes to its end.
func (w *world) disturbCliques() {
	defer w.living.Done()
	for !w.ready() {
		w.pass(50*time.Millisecond, nil)
	}
	for _, f := range w.plan.faults {
		if slices.Contains(w.options.Without, string(f.kind)) {
			continue
		}
		w.judge.faults.Go(func() {
			w.pass(f.at, nil)
			w.strikeClique(f)
		})
	}
	w.judge.faults.Wait()
	w.mu.Lock()
	w.mu.armed = nil
	w.mu.Unlock()
	w.note("all faults are over")
	w.judge.calmDown()
	w.work.Go(w.judge.awaitEnd)
}

// strikeClique lets one fault happen, and returns when it is over.
func (w *world) strikeClique(f fault) {
	p, other := w.last(f.whom), w.last(f.count%w.plan.tasks)
	switch f.kind {
	case killProc:
		w.killMember(p, f.lasts)
	case moveProc:
		w.moveMember(p)
	case stopTask:
		w.stallMember(f, p, frozen)
	case deafTask:
		w.stallMember(f, p, deaf)
	case muteTask:
		w.stallMember(f, p, mute)
	case cutWay:
		w.cutMembers(f, p, other, way{p.place, other.place})
	case cutPair:
		w.cutMembers(f, p, other, way{p.place, other.place}, way{other.place, p.place})
	case breakLink:
		w.strikesMember(f, p)
		p.place.sever()
	case breakPair:
		w.strikesMember(f, p, other)
		p.place.part(other.place)
	case revoke, giveUp:
		p.breaksOff(f.kind)
	default:
		if f.kind == depose { // it breaks the connections of one caller
			p = w.last(w.plan.tasks - 1 - f.whom)
			p.troubled(time.Now().Add(time.Second))
		}
		w.inflict(f)
		w.pass(f.lasts, nil)
	}
}

// strikesMember notes that something happens to the connections of members.
func (w *world) strikesMember(f fault, all ...*proc) {
	w.struck(f.kind)
	for _, p := range all {
		w.note("%s: %s for %v", p.place.name, f.kind, f.lasts)
		p.troubled(time.Now())
	}
}

// killMember ends the process of a task, and starts another one later.
func (w *world) killMember(p *proc, back time.Duration) {
	w.living.Add(1) // for the life that comes
	defer w.living.Done()
	p.troubled(time.Now())
	if !p.kill("killed") {
		return // it has ended by itself, and comes back by itself
	}
	w.struck(killProc)
	w.pass(back, nil)
	w.succeed(p, nil)
}

// moveMember starts a second process for a task that has one.
func (w *world) moveMember(p *proc) {
	if p.over() || !p.registered() {
		return
	}
	w.struck(moveProc)
	p.troubled(time.Now())
	w.succeed(p, nil)
}

// stallMember shuts a gate of a process for a while.
func (w *world) stallMember(f fault, p *proc, which gate) {
	w.strikesMember(f, p)
	p.stalls(f.lasts)
	if p.wasStalled() > mayBeSilent {
		p.suspected()
	}
	p.place.shut(which)
	w.pass(f.lasts, nil)
	p.place.open(which)
}

// mayBeSilent is how long a process may stand still, or be cut off from the service, without being taken for dead.
const mayBeSilent = stream.SilentAfter - 1500*time.Millisecond

// cutMembers cuts ways between two processes for a while.
func (w *world) cutMembers(f fault, p, other *proc, ways ...way) {
	w.strikesMember(f, p, other)
	p.stalls(f.lasts)
	other.stalls(f.lasts)
	w.fabric.cut(ways...)
	w.pass(f.lasts, nil)
	w.fabric.heal(ways...)
	w.note("%s and %s reach each other again", p.place.name, other.place.name)
}

// placeAt is the place of the process that was the last to take an address.
func (w *world) placeAt(address string) *place {
	for _, p := range slices.Backward(w.processes()) {
		if p.place.name == address {
			return p.place
		}
	}
	return nil
}

// memberAddress is where a life of a task is reached by other tasks. The life after the next one has the same address.
func memberAddress(task, life int) string { return fmt.Sprintf("go%d:%d", task, 1+life%2) }

// A memberNetwork is the network as the links of a process see it. It implements link.Network.
type memberNetwork struct{ *proc }

// Listen implements link.Network.
func (n memberNetwork) Listen(context.Context, string) (net.Listener, error) {
	l := memberDoors{newListener(n.place)}
	n.place.accept = l.take
	n.place.refuse(false)
	return l, nil
}

// Dial implements link.Network.
func (n memberNetwork) Dial(ctx context.Context, address string) (net.Conn, error) {
	to := n.world.placeAt(address)
	if to == nil {
		return nil, errRefused
	}
	return n.world.fabric.dial(ctx, n.place, to)
}

// memberDoors are where the links of a process come in. When they are closed the kernel refuses connections.
type memberDoors struct{ *listener }

// Close implements net.Listener.
func (d memberDoors) Close() error {
	d.place.refuse(true)
	return d.listener.Close()
}
