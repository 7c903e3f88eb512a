package coord

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/plant"
)

// A Machine is the coordination service of one job. See the package comment.
//
// Its state has three layers. What outlives a restart is written to snapshots (snapshot.go): the
// epoch with its tasks, barriers, keys and request ids. What does not are the calls that wait:
// their connections end with the process, and their callers ask again. The rest is derived, such
// as counts, lists and shared answers.
type Machine struct {
	cfg Config // set in New, then constant

	now           Time
	stopped       bool
	version       int64                      // of the watch; rises over all epochs
	number        int                        // of the epoch, from 1
	ep            *epoch                     // the present epoch
	formerLives   map[serry.Incarnation]bool // incarnations of the epoch before
	formerService serry.Incarnation          // service incarnation of the epoch before
	waiting       map[Req]*waiter            // every call that is held
	turns         uint64                     // how often barriers were opened or ended, to order them
	logged        Time                       // when an event was last to be journaled

	// Of the present step.
	out           []Effect
	dirty         bool                // the version rose and watchers have not been told
	pictures      map[string]*Picture // of the present version, by job
	replacedPolls []*waiter           // error polls of lives that the present step replaced

	touched bool  // the present event has changed state
	record  Event // what of the last step is to be journaled, or nil
}

// An epoch is a service incarnation with its state (C-EPOCH-1). Everything that one run of a job
// can leave behind is in here, so that the next run begins with nothing by beginning with a new
// epoch.
type epoch struct {
	service serry.Incarnation
	jobs    []Job
	tasks   []*task                     // sorted by TaskID
	base    map[string]jobRow           // where the tasks of a job begin
	known   map[serry.Incarnation]index // all lives that have registered, and which task they are of

	left, present int // tasks that have left, and those with a life that has not departed

	registered bool    // the register barrier has passed
	failed     bool    // an error was propagated, or the register or shutdown barrier failed
	polling    bool    // a task has polled for errors (C-PROP-2)
	failure    error   // the first error of the job
	pollError  error   // the error that polls deliver
	newcomers  waiters // registrations held until all have departed (C-EPOCH-4)

	// Barriers: the three of the service itself, and those of clients by id.
	register, shutdown, devices *barrier
	barriers                    map[string]*barrier
	open                        lazyList[barrierTurn] // open ones of all tasks; those of some are with their members
	ended                       lazyList[barrierTurn] // those of clients, in the order they ended
	weight                      int                   // of all barriers together
	forgot                      bool                  // some that had ended were forgotten
	joined                      []byte                // devices of all tasks, once the device barrier has ended
	deadlines                   deadlines
	nextScan                    Time // for out-of-sync tasks, or never

	// Keys, and the calls that wait for them.
	keys    store
	gets    map[string]*waiters // by normalised key
	changes changes

	// Watches of tasks, and alive sets.
	watchers waiters
	groups   map[string]*group
	order    lazyList[*group] // groups in the order they were made
	givenUp  bool             // a call in a group may have been given up since forgetAbandoned has looked

	// Request ids, and limits on waiting calls.
	requesters   map[uint64]*requester
	requestersOf requestersOf              // by the life they call for
	held         map[serry.Incarnation]int // counted waiters by caller
	heldInAll    int
}

// A jobRow says which tasks of an epoch are those of a job: tasks are sorted by job, so they
// stand in a row.
type jobRow struct {
	first index
	tasks int
}

// never is the time of something that is not planned.
const never = Time(-1)

// New makes a machine with its first epoch open. It panics if cfg is not valid: [Config.Validate]
// says beforehand what is wrong.
func New(cfg Config) *Machine {
	if err := cfg.Validate(); err != nil {
		panic(fmt.Sprintf("coord: %v", err))
	}
	cfg.Limits = cfg.Limits.withDefaults()
	m := &Machine{cfg: cfg, waiting: make(map[Req]*waiter)}
	m.openEpoch(cfg.Service, cfg.Jobs)
	return m
}

// Step moves the machine to now, applies ev, and returns what must happen next, in order. The
// slice is valid until the next Step.
//
// The order within a step is part of what clients see. First the deadlines up to now fire, as if
// each had its own Tick: a barrier that timed out a moment ago must not pass with an arrival that
// comes now. Then the event acts. What follows from it comes last: a registration that was held
// may open the next epoch, watchers hear of changed tasks, and then error polls of replaced lives
// end (C-ORD-3).
//
// Whether the event must be journaled is decided before those consequences: replay brings them
// about by itself, from the same state.
func (m *Machine) Step(now Time, ev Event) []Effect {
	clear(m.out) // so that effects of the last step do not keep large values in memory
	m.out = m.out[:0]
	fired := m.advance(now)
	m.touched = false
	m.apply(ev)
	m.noteRecord(ev, fired)
	m.settleNewcomers()
	m.notifyWatchers()
	m.endReplacedPolls()
	return m.out
}

// apply does what the event says. Events of the owner have their case here; all others are calls.
func (m *Machine) apply(ev Event) {
	switch ev := ev.(type) {
	case Tick:
	case Cancel:
		m.cancel(ev.Req)
	case Lost:
		m.lose(ev)
	case Exited:
		m.exit(ev.Tasks)
	case Departed:
		m.depart(ev)
	case Acknowledge:
		m.acknowledge(ev)
	case OpenEpoch:
		m.openEpoch(ev.Service, ev.Jobs)
	case Stop:
		m.stop()
	case Resume:
		m.resume()
	default:
		m.serve(ev)
	}
}

// Deadline says when the next Tick is due if nothing else comes. An owner that sends the Tick
// late does no harm but the delay: the deadline fires at its own time, see advance.
func (m *Machine) Deadline() (Time, bool) {
	at := m.ep.nextScan
	if d, ok := m.ep.deadlines.next(); ok && (at == never || d < at) {
		at = d
	}
	return at, at != never
}

// advance fires every deadline up to now, oldest first, and says whether there was one. Each
// fires at its own time and not at now: what follows from it may set the next deadline, and must
// not depend on how late the owner was. Time never goes back.
func (m *Machine) advance(now Time) (fired bool) {
	for {
		at, ok := m.Deadline()
		if !ok || at > now {
			break
		}
		m.now, fired = max(m.now, at), true
		// At the same time, barriers come before the scan for tasks that are out of step.
		if b := m.ep.deadlines.due(at); b != nil {
			m.expire(b)
		} else {
			m.scanUnsynced()
		}
	}
	m.now = max(m.now, now)
	return fired
}

// serve handles a call of a client: first what all calls have in common, then the call itself.
//
// A call that names another epoch of the service is refused before anything else: it must not
// touch this one (C-EPOCH-5). A registration may name an old epoch, because its caller is about
// to join the present one.
func (m *Machine) serve(ev Event) {
	call, ok := ev.(clientCall)
	if !ok {
		panic(fmt.Sprintf("coord: unknown event %T", ev))
	}
	c := call.common()
	if err := m.checkLength(ev); err != nil {
		m.reply(c.Req, nil, err)
		return
	}
	if call.kind() != KindRegisterTask && c.Service != 0 && c.Service != m.ep.service {
		m.reply(c.Req, nil, &serry.MismatchError{Requested: c.Service, Current: m.ep.service})
		return
	}
	if w, fresh := m.enter(ev, c); fresh {
		m.run(call, w)
	}
}

// run lets a call act, and answers it unless it waits.
func (m *Machine) run(call clientCall, w *waiter) {
	if result, err := call.serve(m, w); result != nil || err != nil {
		m.answer(w, result, err)
	}
}

func (GetStatus) serve(m *Machine, _ *waiter) (Result, error) { return Status{View: m.View()}, nil }

// openEpoch begins an epoch with nothing in it. Calls of the one before end as calls of a service
// that is no more (C-EPOCH-5). Registrations that waited for it are its first ones, in the order
// they came.
func (m *Machine) openEpoch(service serry.Incarnation, jobs []Job) {
	var newcomers []*waiter
	if old := m.ep; old != nil {
		if jobs == nil {
			jobs = old.jobs
		}
		newcomers = old.newcomers.take()
		m.closeEpoch(service)
	}
	m.stopped = false // a service that was stopped can stand for another run
	m.number++        // in status, notes and journals, where people tell runs apart by it
	m.ep = newEpoch(service, jobs, m.cfg)
	m.bump()
	m.emit(Opened{Epoch: m.number, Service: service, Jobs: jobs})
	m.note(Note{What: "epoch opened", Count: m.number})
	for _, w := range newcomers {
		m.remember(w)
		m.run(w.register, w)
	}
}

// closeEpoch ends what is left of the present epoch; next is the service incarnation to come.
// Calls are answered in the order of their Req, because the order in a map differs from machine
// to machine. The lives of the epoch are remembered for one more: a heartbeat that comes late
// must hear that it belongs to another run, and not fail the task of the present one (C-EPOCH-5).
func (m *Machine) closeEpoch(next serry.Incarnation) {
	m.formerLives = make(map[serry.Incarnation]bool, len(m.ep.known))
	for inc := range m.ep.known {
		m.formerLives[inc] = true
	}
	m.formerService = m.ep.service
	gone := &serry.MismatchError{Requested: m.ep.service, Current: next}
	for _, req := range slices.Sorted(maps.Keys(m.waiting)) {
		if w := m.waiting[req]; w.kind != waitNewcomer {
			m.answer(w, nil, gone)
		}
	}
}

// newEpoch makes an empty epoch. Tasks are sorted by job and number, so that the index of a task
// is known from its job, and whatever goes through the tasks does so in the same order in every
// machine.
func newEpoch(service serry.Incarnation, jobs []Job, cfg Config) *epoch {
	ep := &epoch{
		service:    service,
		jobs:       jobs,
		base:       make(map[string]jobRow, len(jobs)),
		known:      make(map[serry.Incarnation]index),
		barriers:   make(map[string]*barrier),
		deadlines:  newDeadlines(),
		nextScan:   never,
		keys:       newStore(),
		gets:       make(map[string]*waiters),
		changes:    newChanges(),
		groups:     make(map[string]*group),
		requesters: make(map[uint64]*requester),

		requestersOf: make(requestersOf),
		held:         make(map[serry.Incarnation]int),
	}
	// By name, and not in the order given: two servers may be told the jobs in different orders.
	sorted := slices.SortedFunc(slices.Values(jobs), func(a, b Job) int {
		return serry.TaskID{Job: a.Name}.Compare(serry.TaskID{Job: b.Name})
	})
	for _, j := range sorted {
		ep.base[j.Name] = jobRow{first: index(len(ep.tasks)), tasks: j.Tasks}
		for i := range j.Tasks {
			ep.tasks = append(ep.tasks, &task{
				id:          serry.TaskID{Job: j.Name, Index: i},
				at:          index(len(ep.tasks)),
				recoverable: cfg.Recoverable,
			})
		}
	}
	// The ids have the service incarnation in them, as those of the reference service do: clients
	// see them in errors.
	suffix := "::" + strconv.FormatUint(uint64(service), 10)
	ep.register = newBarrier(RegisterBarrierID, registerBarrier)
	ep.shutdown = newBarrier(ShutdownBarrierID(service), shutdownBarrier)
	ep.devices = newBarrier("WaitForAllTasks"+suffix, deviceBarrier)
	return ep
}

// stop answers everything that waits and takes no more work (C-STOP-1). What is stored stays
// readable.
//
// The order is that of the reference service: barriers, watches, polls, and gets last (C-KV-11).
// Whatever is left in waiting after the others must be a get or a watch of keys.
func (m *Machine) stop() {
	if m.stopped {
		return
	}
	m.stopped = true
	m.touch()
	m.note(Note{What: "service stopped"})
	open := m.allOpen()
	slices.SortStableFunc(open, func(a, b barrierTurn) int { return int(a.kind - b.kind) })
	for _, b := range open { // register and shutdown last: their failure ends all others (C-BAR-20)
		if !b.over() {
			m.finish(b.barrier, m.barrierError(b.barrier, serry.ErrStopping))
		}
	}
	// Watchers hear that there is nothing left to watch, and not the failures that the end of the
	// barriers has just caused (C-WATCH-6).
	m.dirty = false
	for _, w := range m.ep.watchers.take() {
		m.answer(w, &Picture{Version: -1}, nil)
	}
	// A client does not fail by this error: a stopped service is no failure of the job
	// (C-POLL-8).
	for _, t := range m.ep.tasks {
		m.endPoll(t, serry.ErrStopping)
	}
	for _, g := range slices.Clone(m.ep.order.live()) {
		m.endGroup(g, nil, serry.ErrStopping)
	}
	for _, w := range m.ep.newcomers.take() {
		m.answer(w, nil, serry.ErrStopped)
	}
	for _, req := range slices.Sorted(maps.Keys(m.waiting)) { // gets, which come last
		m.answer(m.waiting[req], nil, serry.ErrStopping)
	}
	clear(m.ep.gets)
	clear(m.ep.changes.watchers)
}

// resume cancels every call that waits: their connections ended with the former leader. Arrivals
// stay, but for those at the register barrier (C-LOG-3): the clients repeat their registrations,
// and one that has died meanwhile does not.
func (m *Machine) resume() {
	m.touch()
	// As if every client had given up at the same moment: see cancel for what stays.
	for _, req := range slices.Sorted(maps.Keys(m.waiting)) {
		m.cancel(req)
	}
	if b := m.ep.register; b.open {
		for _, s := range slices.Clone(b.slots) {
			if s.arrived { // by a call without a Req, which is not in waiting
				m.withdraw(s.w)
			}
		}
	}
	if m.cfg.has(plant.ForgetArrivals) {
		clear(m.ep.barriers)
	}
	m.note(Note{What: "service resumed"})
}

// emit adds an effect to those of the step.
func (m *Machine) emit(e Effect) { m.out = append(m.out, e) }

// note adds a note to the effects of the step.
func (m *Machine) note(n Note) { m.emit(n) }
