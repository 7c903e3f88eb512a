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
type Machine struct {
	cfg Config // set in New, then constant

	now      Time
	stopped  bool
	version  int64                      // of the watch; rises over all epochs
	number   int                        // of the epoch, from 1
	ep       *epoch                     // the present epoch
	before   map[serry.Incarnation]bool // incarnations of the epoch before
	earlier  serry.Incarnation          // service incarnation of the epoch before
	waiting  map[Req]*waiter            // every call that is held
	openings uint64                     // barriers opened so far, to order them
	logged   Time                       // when an event was last to be journaled

	out      []Effect
	dirty    bool                // the version rose and watchers have not been told
	pictures map[string]*Picture // of the present version, by job
	staled   []*waiter           // error polls of lives that the present step replaced

	touched bool  // the present event has changed state
	record  Event // what of the last step is to be journaled, or nil
}

// An epoch is a service incarnation with its state (C-EPOCH-1).
type epoch struct {
	service serry.Incarnation
	jobs    []Job
	tasks   []*task           // sorted by TaskID
	base    map[string]jobRow // where the tasks of a job begin
	known   map[serry.Incarnation]index

	left, present int // tasks that have left, and those with a life that has not departed

	registered bool    // the register barrier has passed
	failed     bool    // an error was propagated, or the register or shutdown barrier failed
	polling    bool    // somebody polled for errors (C-PROP-2)
	failure    error   // the first error of the job
	told       error   // the error that polls deliver
	newcomers  waiters // registrations held until all have departed (C-EPOCH-4)

	register, shutdown, devices *barrier
	barriers                    map[string]*barrier
	open                        roll[barrierTurn] // open ones of all tasks; those of some are with their members
	ended                       roll[barrierTurn] // those of clients, in the order they ended
	weight                      int               // of all barriers together
	forgot                      bool              // some that had ended were forgotten
	joined                      []byte            // devices of all tasks, once the device barrier has ended
	deadlines                   deadlines
	nextScan                    Time // for out-of-sync tasks, or never

	keys     store
	gets     map[string]*waiters // by normalised key
	changes  changes
	watchers waiters
	groups   map[string]*group
	order    roll[*group] // groups in the order they were made
	givenUp  bool         // a call in a group may have been given up since forgetAbandoned has looked

	requesters   map[uint64]*requester
	requestersOf requestersOf              // by the life they call for
	held         map[serry.Incarnation]int // counted waiters by caller
	heldInAll    int
}

type jobRow struct {
	first index
	tasks int
}

const never = Time(-1)

// New makes a machine with its first epoch open. It panics if cfg is not valid.
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
func (m *Machine) Step(now Time, ev Event) []Effect {
	clear(m.out)
	m.out = m.out[:0]
	fired := m.advance(now)
	m.touched = false
	m.apply(ev)
	m.noteRecord(ev, fired)
	m.settleNewcomers()
	m.notifyWatchers()
	m.endStaledPolls()
	return m.out
}

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

// Deadline says when the next Tick is due if nothing else comes.
func (m *Machine) Deadline() (Time, bool) {
	at := m.ep.nextScan
	if d, ok := m.ep.deadlines.next(); ok && (at == never || d < at) {
		at = d
	}
	return at, at != never
}

// advance fires every deadline up to now, oldest first, and says whether there was one. Time never
// goes back.
func (m *Machine) advance(now Time) (fired bool) {
	for {
		at, ok := m.Deadline()
		if !ok || at > now {
			break
		}
		m.now, fired = max(m.now, at), true
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
		call.serve(m, w)
	}
}

func (GetStatus) serve(m *Machine, w *waiter) { m.answer(w, Status{View: m.View()}, nil) }

// openEpoch begins an epoch with nothing in it. Calls of the one before end as calls of a service
// that is no more (C-EPOCH-5).
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
	m.number++
	m.ep = newEpoch(service, jobs, m.cfg)
	m.bump()
	m.emit(Opened{Epoch: m.number, Service: service, Jobs: jobs})
	m.note(Note{What: "epoch opened", Count: m.number})
	for _, w := range newcomers {
		m.remember(w)
		w.register.serve(m, w)
	}
}

// closeEpoch ends what is left of the present epoch; next is the service incarnation to come.
func (m *Machine) closeEpoch(next serry.Incarnation) {
	m.before = make(map[serry.Incarnation]bool, len(m.ep.known))
	for inc := range m.ep.known {
		m.before[inc] = true
	}
	m.earlier = m.ep.service
	gone := &serry.MismatchError{Requested: m.ep.service, Current: next}
	for _, req := range slices.Sorted(maps.Keys(m.waiting)) {
		if w := m.waiting[req]; w.kind != waitNewcomer {
			m.answer(w, nil, gone)
		}
	}
}

func newEpoch(service serry.Incarnation, jobs []Job, cfg Config) *epoch {
	ep := &epoch{
		service:    service,
		jobs:       jobs,
		base:       make(map[string]jobRow, len(jobs)),
		known:      make(map[serry.Incarnation]index),
		barriers:   make(map[string]*barrier),
		nextScan:   never,
		keys:       newStore(),
		gets:       make(map[string]*waiters),
		changes:    newChanges(),
		groups:     make(map[string]*group),
		requesters: make(map[uint64]*requester),

		requestersOf: make(requestersOf),
		held:         make(map[serry.Incarnation]int),
	}
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
	suffix := "::" + strconv.FormatUint(uint64(service), 10)
	ep.register = newBarrier(RegisterBarrierID, registerBarrier)
	ep.shutdown = newBarrier("Shutdown"+suffix, shutdownBarrier)
	ep.devices = newBarrier("WaitForAllTasks"+suffix, deviceBarrier)
	return ep
}

// stop answers everything that waits and takes no more work (C-STOP-1).
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
	m.dirty = false
	for _, w := range m.ep.watchers.take() {
		m.answer(w, &Picture{Version: -1}, nil)
	}
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

// resume cancels every call that waits: their connections ended with the former leader.
// Arrivals stay, but for those at the register barrier (C-LOG-3).
func (m *Machine) resume() {
	m.touch()
	for _, req := range slices.Sorted(maps.Keys(m.waiting)) {
		m.cancel(req)
	}
	if b := m.ep.register; b.open {
		for _, s := range slices.Clone(b.slots) {
			if s.arrived { // a call that nobody waited for
				m.withdraw(s.w)
			}
		}
	}
	if m.cfg.has(plant.ForgetArrivals) {
		clear(m.ep.barriers)
	}
	m.note(Note{What: "service resumed"})
}

func (m *Machine) emit(e Effect) { m.out = append(m.out, e) }

func (m *Machine) note(n Note) { m.emit(n) }
