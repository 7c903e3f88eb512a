package storm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/serry-dev/serry/internal/lab/faultyetcd"
	"github.com/serry-dev/serry/internal/lab/shareddisk"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/stream"
)

// A mode is what may happen to clients, and so what may be asked of them.
type mode string

const (
	steady   mode = "steady"   // clients and relays live: every call must succeed
	fatal    mode = "fatal"    // one dies, and the others must be told and end
	comeback mode = "comeback" // recoverable: they come back and meet at barriers again
	rounds   mode = "rounds"   // recoverable: they come back and meet in live sets
	idle     mode = "idle"     // see Idle
	quiet    mode = "quiet"    // clients do next to nothing, and those of a host that dies must be found dead
	cliques  mode = "cliques"  // recoverable: they run collective operations
)

// A plan is everything that a seed decides before a schedule begins.
type plan struct {
	mode        mode
	recoverable bool
	dialect     wire.Dialect
	tasks       int
	members     int     // of the tasks: the last ones, which are Go programs
	large       bool    // some values are
	rate        float64 // of commits that fail, in a real file
	lies        bool    // the disk of that file says that it has synced, and has not
	rates       faultyetcd.Rates
	snapshots   int // after how many bytes of records; 0: as in real life
	hosts       int
	sites       int
	mixed       bool // half of the hosts, and every second process of a site, are of a newer version of the stream
	rolls       bool // servers are upgraded to the next version of the journal
	nodes       bool // sites are nodes of package node
	steps       int  // of each program
	epochs      int  // how often the job is run
	pace        time.Duration
	net, disk   weather
	lease       time.Duration
	notice      time.Duration
	alert       float64       // how often a standby notices that the leader is gone, before its lease ends
	lasts       time.Duration // of an idle job
	stall       time.Duration // of its hosts, at most
	program     []step
	calls       []calls // beside the program, by step; or nil
	watches     bool    // some tasks watch their keys
	faults      []fault
	losses      []fault // of leaders, one after the other, in a quiet job
	moving      bool    // some clients of a quiet job move
	moves       [][]int // in a quiet job: the tasks that move before each of the losses, and after the last
	cliques     *cliquePlan
}

// A step is what all programs do at the same point.
type step struct {
	keys   int  // calls on keys
	pass   bool // something to the next task
	adds   int  // increments, by each of two callers at once
	burst  int  // increments, one shortly after the other
	meet   bool // at the barrier of all
	subset bool // at the barrier of some
	alive  bool // who is alive
}

// A fault is something that goes wrong: at a time, or, from then on, at the count-th chance.
type fault struct {
	kind  kind
	at    time.Duration
	count int
	whom  int           // a task, a host
	lasts time.Duration // how long, or when what was killed comes back
}

type kind string

const (
	crash       kind = "crash"        // of the leader, at a time
	crashBefore kind = "crash before" // a write of the journal
	crashAfter  kind = "crash after"  // a write of the journal
	crashReply  kind = "crash reply"  // between two writes to hosts
	crashSave   kind = "crash save"   // before or after a snapshot is saved
	crashAside  kind = "crash aside"  // before or after a large value is written or read
	crashLoad   kind = "crash load"   // of who is about to lead
	crashRead   kind = "crash read"   // before or after a leader makes sure that it is one
	lostAck     kind = "lost ack"     // the write is down, but the store does not say so
	freeze      kind = "freeze"       // of the leader
	depose      kind = "depose"       // of a leader that is well; one host finds the next at once
	handOver    kind = "hand over"
	breakLink   kind = "break link"   // of a host
	stallLink   kind = "stall link"   // of a host
	deafLink    kind = "deaf link"    // nothing comes to a host
	muteLink    kind = "mute link"    // nothing comes from a host
	stallDisk   kind = "stall disk"   // one operation of the store takes longer than hosts may be silent
	cutOff      kind = "cut off"      // of a host, for longer than it may be silent
	terminate   kind = "terminate"    // politely, of the leader
	retire      kind = "retire"       // politely, of all servers at once
	killProc    kind = "kill process" // of a task
	killHost    kind = "kill host"    // with its relay and its tasks
	moveProc    kind = "move process" // a second life begins elsewhere while the first goes on
	reportError kind = "report error" // by a task, which ends
	resetTask   kind = "reset task"   // by a task, which ends
	noRoom      kind = "no room"      // in the store, for a call
	rollBack    kind = "roll back"    // by a loss of power on a disk that has lied
	damage      kind = "damage"       // of the journal, by a roll back
	goesOn      kind = "goes on"      // the service, after a roll back
	loseHost    kind = "lose host"    // for good, with its relay and its tasks, in a quiet job
	moveClient  kind = "move client"  // from one relay to another, in a quiet job
)

func (f fault) String() string {
	return fmt.Sprintf("%s@%v/%d whom=%d lasts=%v", f.kind, f.at, f.count, f.whom, f.lasts)
}

func (p *plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s recoverable=%v dialect=%v tasks=%d members=%d hosts=%d sites=%d nodes=%v mixed=%v rolls=%v epochs=%d steps=%d buffer=%d lease=%v notice=%v",
		p.mode, p.recoverable, p.dialect, p.tasks, p.members, p.hosts, p.sites, p.nodes, p.mixed, p.rolls, p.epochs, p.steps, p.net.buffer, p.lease, p.notice)
	for _, f := range slices.Concat(p.faults, p.losses) {
		b.WriteString("; " + f.String())
	}
	if p.moving {
		fmt.Fprintf(&b, "; moves %v", p.moves)
	}
	if p.cliques != nil {
		fmt.Fprintf(&b, "; %+v", *p.cliques)
	}
	return b.String()
}

// between draws a time.
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)+1))
}

// pick draws one of a list.
func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// One in so many fleets is large: with ten relays, and dozens of tasks behind them.
const largeFleets = 10

// fleet says whether the plan is that of a large one.
func (p *plan) fleet() bool { return p.hosts == 10 }

// draw makes the plan of a seed.
func draw(seed uint64, o Options) *plan {
	r := dice(seed, forPlan, 0)
	p := &plan{
		mode:    pick(r, steady, steady, steady, steady, fatal, comeback, comeback, rounds, rounds),
		dialect: pick(r, wire.XLA, wire.XLA, wire.TF),
		tasks:   2 + r.IntN(3),
		hosts:   1 + r.IntN(2),
		sites:   2 + r.IntN(2),
		steps:   3 + r.IntN(6),
		pace:    between(r, 100*time.Millisecond, 800*time.Millisecond),
		lease:   between(r, 200*time.Millisecond, 2*time.Second),
		notice:  pick(r, 0, between(r, 0, 2*time.Second)),
		alert:   pick(r, 0, 0.7, 1),
	}
	if r.IntN(largeFleets) == 0 || o.Large {
		p.tasks, p.hosts, p.sites, p.steps = 20+r.IntN(29), 10, 3, 2
	}
	if p.mode == steady && r.IntN(2) == 0 {
		p.members = 1 + r.IntN(min(p.tasks-1, 3))
	}
	p.large = r.IntN(8) == 0
	p.snapshots = pick(r, 0, 1, 1)
	p.nodes = r.IntN(3) == 0
	p.recoverable = p.mode == comeback || p.mode == rounds || p.mode == steady && r.IntN(3) == 0
	p.epochs = 1
	if p.mode == steady && !p.recoverable && r.IntN(6) == 0 {
		p.epochs, p.steps = 2+r.IntN(2), 1+r.IntN(2)
	}
	if o.Dir != "" {
		p.sites, p.nodes, p.snapshots = 1, false, 1
	}
	p.drawWeather(r)
	for range p.steps {
		p.program = append(p.program, p.drawStep(r))
	}
	p.drawFaults(r)
	p.mixed = r.IntN(3) == 0
	if o.Dir != "" {
		p.rate = pick(r, 0.002, 0.005, 0.01)
	}
	if o.Etcd != "" {
		p.drawEtcd(r)
	} else {
		p.drawCalls(dice(seed, forCalls, 0))
	}
	if r := dice(seed, forLies, 0); o.Dir != "" && r.IntN(lyingDisks) == 0 {
		p.drawLies(r)
	}
	if r := dice(seed, forQuiet, 0); o.Dir == "" && o.Etcd == "" && r.IntN(quietFleets) == 0 {
		p.drawQuiet(r)
	}
	if r := dice(seed, forVersions, 0); p.mode != quiet && r.IntN(rollingFleets) == 0 {
		p.drawUpgrade(r)
	}
	return p
}

// drawWeather says how long bytes and writes of the journal take.
func (p *plan) drawWeather(r *rand.Rand) {
	p.net = weather{base: 50 * time.Microsecond, jitter: between(r, 0, 2*time.Millisecond), storms: pick(r, 0, 0.02, 0.1), gust: between(r, 0, 300*time.Millisecond)}
	if r.IntN(2) == 0 {
		p.net.buffer = 64 << r.IntN(8)
	}
	p.net.choppy = r.IntN(2) == 0
	if p.large {
		p.net.buffer = max(p.net.buffer, 8<<10)
	}
	p.disk = weather{base: 20 * time.Microsecond, jitter: between(r, 0, 5*time.Millisecond), storms: pick(r, 0, 0.05), gust: between(r, 0, 500*time.Millisecond)}
	if p.mode != comeback && r.IntN(3) == 0 { // there it would use up what barriers wait
		p.disk.gust = between(r, 0, 8*time.Second)
	}
}

// drawFaults says what goes wrong.
func (p *plan) drawFaults(r *rand.Rand) {
	for range 1 + r.IntN(4) {
		p.faults = append(p.faults, p.drawFault(r, serverFaults))
	}
	if p.nodes && r.IntN(2) == 0 {
		p.faults = append(p.faults, p.drawFault(r, nodeFaults))
	}
	if p.fleet() && p.mode != comeback {
		p.faults = append(p.faults, p.drawFault(r, []kind{stallDisk}))
	}
	if p.large {
		p.faults = append(p.faults, p.drawFault(r, []kind{crashAside}))
	}
	if p.mode != steady {
		for range 1 + r.IntN(2) {
			p.faults = append(p.faults, p.drawFault(r, clientFaults[p.mode]))
		}
	}
}

func (p *plan) drawStep(r *rand.Rand) step {
	s := step{keys: r.IntN(4), adds: r.IntN(3), meet: true}
	if p.fleet() {
		s.burst = r.IntN(8)
	}
	switch p.mode {
	case steady, fatal:
		s.subset, s.alive, s.pass = r.IntN(2) == 0, r.IntN(3) == 0, r.IntN(2) == 0
	case rounds:
		s.meet, s.alive = false, true
	}
	return s
}

// serverFaults and clientFaults are what may happen, as often as they stand here.
var (
	serverFaults = []kind{
		crash, crash, crashBefore, crashBefore, crashBefore, crashAfter, crashAfter, crashReply, crashReply,
		crashSave, crashAside, crashLoad, crashRead, lostAck, freeze, freeze, depose, depose, handOver, breakLink, breakLink, stallLink, deafLink, muteLink,
	}
	nodeFaults   = []kind{terminate, retire}
	clientFaults = map[mode][]kind{
		fatal:    {killProc, killProc, killHost, cutOff},
		comeback: {killProc, killProc, killHost, moveProc, moveProc, cutOff},
		rounds:   {killProc, killProc, killHost, moveProc, moveProc, cutOff},
	}
)

func (p *plan) drawFault(r *rand.Rand, kinds []kind) fault {
	f := fault{kind: pick(r, kinds...), at: between(r, 0, time.Duration(p.steps)*p.pace*5/4)}
	switch f.kind {
	case crashBefore, crashAfter, lostAck:
		f.count = r.IntN(20)
	case crashReply, crashRead:
		f.count = r.IntN(40)
	case crashSave, crashLoad:
		f.count = r.IntN(4)
	case breakLink, stallLink, deafLink, muteLink, depose:
		f.whom = r.IntN(p.hosts + p.members)
	case killHost, cutOff:
		f.whom, f.count = r.IntN(p.hosts), r.IntN(len(cuts))
	case crashAside:
		f.count = r.IntN(4)
	case killProc, moveProc, reportError, resetTask:
		f.whom = r.IntN(p.tasks)
	}
	longest := 2500 * time.Millisecond
	if f.kind == freeze && p.sites > 1 {
		longest = 3 * stream.SilentAfter // another leads by then
	}
	f.lasts = between(r, 10*time.Millisecond, longest)
	if f.kind == stallDisk || f.kind == cutOff {
		f.lasts = between(r, stream.SilentAfter+500*time.Millisecond, 3*stream.SilentAfter)
	}
	return f
}

// cuts are the ways in which a host is cut off.
var cuts = [][]gate{{deaf, mute}, {deaf}, {mute}}

// chance says at which operations of the store a fault may strike.
func (f fault) chance(op shareddisk.Op) bool {
	switch f.kind {
	case crashBefore:
		return op.Action == shareddisk.OpAppend && !op.Done
	case stallDisk:
		return op.Action == shareddisk.OpAppend && !op.Done
	case crashAfter, lostAck:
		return op.Action == shareddisk.OpAppend && op.Done
	case crashSave:
		return op.Action == shareddisk.OpSave
	case crashAside:
		return op.Action == shareddisk.OpPut || op.Action == shareddisk.OpGet
	case crashLoad:
		return op.Action == shareddisk.OpLoad
	case crashRead:
		return op.Action == shareddisk.OpConfirm
	}
	return false
}
