package collective

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lockrank"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/internal/processor"
	"github.com/serry-dev/serry/internal/rendezvous"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/wire"
)

const (
	defaultTimeout = 30 * time.Minute
	defaultIdle    = 256
	defaultAge     = 10 * time.Minute
	maxOver        = 1024  // cliques that are over and still known
	maxPast        = 32768 // lives that are over and still known
)

// A Member is what a Group needs of the job; *client.Member satisfies it.
type Member interface {
	// Watch tells how all tasks are. It may not be supported: then the living tasks are found by Agree.
	Watch(ctx context.Context) iter.Seq2[serry.Snapshot, error]

	// Agree waits until all living tasks of a set have called it, and tells all of them the same.
	Agree(ctx context.Context, word []byte, tasks ...serry.TaskID) (serry.Agreement, error)
}

// Options say how a Group works. The zero value is right for a job with one device a task.
type Options struct {
	// Owners has the task that drives each device. Nil means that device n is driven by task n of the job.
	Owners map[serry.DeviceID]serry.TaskID

	// Backends are tried in their order: the first that serves a clique is taken (CL-DES-6). Nil means Host alone.
	Backends []Backend

	// Timeout bounds every operation and every forming of a clique whose context has no deadline (CL-TMO-8). Zero
	// means 30 minutes; less means no bound.
	Timeout time.Duration

	// Idle is how many cliques are kept that no caller of Clique holds; 0 means 256. A clique that a caller in another process
	// holds is kept in any case.
	Idle int

	// IdleTime is how long a clique is kept that no process holds, as the process of rank 0 measures it. Zero means 10
	// minutes; less means for as long as there is room.
	IdleTime time.Duration

	// Warn is after how long a wait is told of, by an Event and a line in the log, and again each time that it is twice as
	// long (CL-TMO-12). Zero means 10 seconds; less means never.
	Warn time.Duration

	// Stall is after how long a rank counts as stalled that is alive and makes no progress while others wait for it, and
	// OnStall says what is done then (CL-TMO-11). Zero means never; a minute is right for most.
	Stall   time.Duration
	OnStall StallPolicy

	// Events is told of waits that take long, or nil. An event that finds it full is dropped.
	Events chan<- Event

	// Records is how many operations the flight recorder of each rank keeps (CL-FLR-1). Zero means 4096; less means none.
	Records int

	// Flights is told what the members of a clique did before it failed, or nil (CL-FLR-2). A record that finds it full is
	// dropped; a line in the log has the outline of it either way.
	Flights chan<- *Flight

	// Host names the host of this process, the same for all processes of the host: the ranks of a host combine their data before they
	// send it to other hosts. Empty means that the addresses of the link layer tell.
	Host string

	// LinksOnly has ranks of one host use links instead of shared memory. A clique does so if one of its processes has LinksOnly.
	LinksOnly bool

	// Keys is where the votes of steps are with a stock service (CL-ATM-6), or nil.
	Keys Keys

	// Guards end the process if a section that [Group.Guard] watches over does not end. Nil means that the group has its own; groups of one
	// process share them, so that only one guard ends it.
	Guards *Guards

	Planted plant.Faults // none, but in tests of tests
	Log     *slog.Logger // or nil
}

// A Group makes the cliques of one member of a job. Make it with New.
type Group struct {
	// Set in New, then constant.
	member  Member
	net     *link.Net
	life    serry.Life
	opt     Options
	log     *slog.Logger
	ctx     context.Context // of everything in the background
	stop    context.CancelCauseFunc
	scratch scratchpad
	meter   processor.Meter // of the recorders
	queries queries         // for the records of other processes

	tally tally
	work  sync.WaitGroup // goroutines
	locks locks          // of cliques, for runs
	runs  rendezvous.Table[uint64, asking, *grant]
	steps rendezvous.Table[stepName, vote, outcome]

	exchanges rendezvous.Table[exchangeName, gift, *Values] // of values between ranks of this process

	mu struct {
		lockrank.Mutex[groupLock]
		closed   bool
		tasks    map[serry.TaskID]serry.TaskInfo // as the service told last, or nil before
		blind    bool                            // the service does not tell
		past     map[serry.Life]error            // lives that are over, and why
		changed  chan struct{}                   // closed when tasks change
		cached   map[string]*clique              // by the bytes of the key: those that can be used
		sweeping *time.Timer                     // closes those that are idle for too long; nil while none is idle
		forming  map[string]*forming
		prepared map[uint64]*forming // by lineage: cliques that no caller has taken yet
		streams  map[uint64]*clique  // cliques that can be used
		over     map[uint64]*ended   // streams that are over
		overs    []uint64            // the same in order
		meetings map[uint64]*meeting // that this process takes part in
		early    map[uint64]map[serry.Life]join
		summons  map[uint64]*summoning // lineages whose members form their next clique with this process
		used     map[uint64]uint32     // by lineage: the greatest generation that this process has used
		seeking  map[uint64]int        // by lineage: callers that wait for a clique of it
		strange  map[uint64][]sighting // by stream: data of cliques that are not known yet
		errands  []unknownErrand       // one-sided operations of such cliques, the oldest first
		attempts map[uint64]uint32     // meetings that this process took part in, by name
		verdicts map[uint64]*Error     // why the last of them failed
		absent   map[stepName]bool     // steps that this process says no to

		abandoned *Error // a guard has expired: this process counts as lost; or nil
	}
}

// An ended clique is remembered so that members which do not know are told, and for a while so that a stronger cause
// takes the place of the first one.
type ended struct {
	clique *clique
	at     time.Time
	told   map[serry.Life]bool
}

// New makes the group of a member over its link layer. A link layer has one group.
func New(m Member, net *link.Net, o Options) (*Group, error) {
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Warn == 0 {
		o.Warn = defaultWarn
	}
	if o.Host == "" {
		o.Host = net.Host()
	}
	if o.Records == 0 {
		o.Records = defaultRecords
	}
	if o.Idle <= 0 {
		o.Idle = defaultIdle
	}
	if o.IdleTime == 0 {
		o.IdleTime = defaultAge
	}
	if o.Backends == nil {
		o.Backends = []Backend{Host{}}
	}
	if o.Guards == nil {
		o.Guards = &Guards{Log: o.Log}
	}
	for i, b := range o.Backends {
		if b == nil || slices.ContainsFunc(o.Backends[:i], func(other Backend) bool { return other.Name() == b.Name() }) {
			return nil, invalid("backends %v: an empty entry, or a name twice", o.Backends)
		}
	}
	g := &Group{member: m, net: net, life: net.Life(), opt: o, log: o.Log, meter: processor.NewMeter()}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	g.ctx, g.stop = context.WithCancelCause(context.Background())
	g.mu.past = make(map[serry.Life]error)
	g.mu.changed = make(chan struct{})
	g.mu.cached = make(map[string]*clique)
	g.mu.forming = make(map[string]*forming)
	g.mu.prepared = make(map[uint64]*forming)
	g.mu.streams = make(map[uint64]*clique)
	g.mu.over = make(map[uint64]*ended)
	g.mu.meetings = make(map[uint64]*meeting)
	g.mu.early = make(map[uint64]map[serry.Life]join)
	g.mu.attempts = make(map[uint64]uint32)
	g.mu.verdicts = make(map[uint64]*Error)
	g.mu.absent = make(map[stepName]bool)
	g.mu.summons = make(map[uint64]*summoning)
	g.mu.used = make(map[uint64]uint32)
	g.mu.seeking = make(map[uint64]int)
	g.mu.strange = make(map[uint64][]sighting)
	if err := net.Handle(link.Collective, (*handler)(g)); err != nil {
		return nil, err
	}
	if a, ok := m.(answerer); ok {
		a.Answer(wire.CollectivesEvidence, g.testify)
	}
	g.work.Go(g.watch)
	return g, nil
}

// CliqueOptions say how to form a clique. The zero value is right for most.
type CliqueOptions struct {
	// Traffic tells cliques of the same devices apart that work independently of each other.
	Traffic uint64
}

// Clique forms the clique of a list of devices, or finds the one that was formed before. A device's place in the
// list is its rank. The processes of all devices must call it with the same list; it waits for them until ctx, or
// the timeout of the options, ends, and names those that are missing (CL-RDV-10). The caller closes what it gets.
//
// A process that was restarted calls it like all others did before. They go on without it, and take it into their clique
// when they next call [Comm.Reform] (CL-DES-7).
//
// The result is the communicator of the first device in the list that this process drives; [Comm.Local] has the
// others.
func (g *Group) Clique(ctx context.Context, devices []serry.DeviceID, o CliqueOptions) (*Comm, error) {
	ctx, cancel := g.bounded(ctx)
	defer cancel()
	c, err := g.formed(ctx, devices, o)
	if err != nil {
		return nil, err
	}
	return c.first, nil
}

// formed finds or forms the clique of devices.
func (g *Group) formed(ctx context.Context, devices []serry.DeviceID, o CliqueOptions) (*clique, error) {
	l := &lineage{devices: slices.Clone(devices), traffic: o.Traffic}
	if c, err := g.takePrepared(ctx, l); c != nil || err != nil {
		return c, err
	}
	return g.formLineage(ctx, l)
}

// formLineage forms the first clique of a lineage, or the next one if its members wait for this process.
func (g *Group) formLineage(ctx context.Context, l *lineage) (*clique, error) {
	defer g.seek(l)()
	c, err := g.attend(ctx, l)
	for errors.Is(err, errLapsed) {
		c, err = g.attend(ctx, l)
	}
	return c, err
}

// attend forms the first clique of a lineage, or takes part in the next one if its members wait for this process.
func (g *Group) attend(ctx context.Context, l *lineage) (*clique, error) {
	places, err := g.places(ctx, l)
	s := g.summoned(l)
	if err == nil && s == nil {
		if places == nil {
			return nil, errLapsed // the summons that ended the wait has lapsed since
		}
		c, failed := g.obtain(ctx, &Key{Ranks: places, Traffic: l.traffic}, l)
		if c != nil {
			return c, nil // a summons that comes now follows the failure of c, and its holder re-forms it like the others
		}
		s, err = g.summoned(l), failed
	}
	if s == nil || err != nil && ctx.Err() != nil {
		return nil, err
	}
	return g.answer(ctx, l, s) // the others have formed the clique before, and form the next one
}

// bounded is the context with the timeout of the options, if it has no deadline.
func (g *Group) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok || g.opt.Timeout < 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, g.opt.Timeout)
}

// owners are the tasks of devices.
func (g *Group) owners(devices []serry.DeviceID) ([]serry.TaskID, error) {
	tasks := make([]serry.TaskID, len(devices))
	for i, d := range devices {
		task, ok := g.opt.Owners[d]
		if g.opt.Owners == nil {
			task, ok = serry.TaskID{Job: g.life.Task.Job, Index: int(d)}, d >= 0
		}
		if !ok {
			return nil, invalid("no task drives device %d", d)
		}
		tasks[i] = task
	}
	if !slices.Contains(tasks, g.life.Task) {
		return nil, invalid("%v drives none of the devices of the clique", g.life.Task)
	}
	return tasks, nil
}

// places are the devices with the present lives of their tasks. It waits until all tasks are connected, or the members
// of the lineage wait for this process: then there are none.
func (g *Group) places(ctx context.Context, l *lineage) ([]Place, error) {
	devices := l.devices
	if err := (&Key{Ranks: make([]Place, len(devices))}).checkSize(); err != nil {
		return nil, err
	}
	tasks, err := g.owners(devices)
	if err != nil {
		return nil, err
	}
	if g.opt.Backends[0].Alone() {
		return g.alone(devices, tasks)
	}
	for {
		lives, changed, blind := g.present(tasks)
		if err := g.outOfTime(); err != nil {
			return nil, err
		}
		if blind {
			return g.agreed(ctx, devices, tasks)
		}
		places, missing := make([]Place, len(devices)), []int(nil)
		for i, task := range tasks {
			places[i] = Place{devices[i], serry.Life{Task: task, Incarnation: lives[task]}}
			if lives[task] == 0 {
				missing = append(missing, i)
			}
		}
		if g.summoned(l) != nil {
			return nil, nil
		}
		if missing == nil {
			return g.checked(places)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			first := tasks[missing[0]]
			return nil, g.gaveUp(ctx, slices.Index(tasks, g.life.Task), missing, first.String()+" is not connected")
		case <-g.ctx.Done():
			return nil, ErrClosed
		}
	}
}

// alone are the places of a clique whose other processes are not asked, and may not exist.
func (g *Group) alone(devices []serry.DeviceID, tasks []serry.TaskID) ([]Place, error) {
	places := make([]Place, len(devices))
	for i, task := range tasks {
		places[i] = Place{devices[i], serry.Life{Task: task}}
		if task == g.life.Task {
			places[i].Life = g.life
		}
	}
	return places, (&Key{Ranks: places}).check()
}

// backend is the first that serves a clique.
func (g *Group) backend(key *Key) (Backend, error) {
	for _, b := range g.opt.Backends {
		if b.Serves(key) {
			return b, nil
		}
	}
	return nil, fmt.Errorf("no backend serves the clique %v: %w", key, ErrUnsupported)
}

// gaveUp is the error of a caller whose context has ended.
func (g *Group) gaveUp(ctx context.Context, me int, missing []int, detail string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &Error{Origin: me, Ranks: missing, Detail: detail, Err: ErrTimeout}
	}
	return &Error{Origin: me, Detail: context.Cause(ctx).Error(), Err: ErrCancelled}
}

// present has the incarnations of the tasks that are connected, as the service told last.
func (g *Group) present(tasks []serry.TaskID) (lives map[serry.TaskID]serry.Incarnation, changed chan struct{}, blind bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	lives = make(map[serry.TaskID]serry.Incarnation)
	for _, task := range tasks {
		if t := g.mu.tasks[task]; t.State == serry.Connected {
			lives[task] = t.Incarnation
		}
	}
	return lives, g.mu.changed, g.mu.blind
}

// agreed finds the lives of tasks by an agreement, where the service does not tell them otherwise.
func (g *Group) agreed(ctx context.Context, devices []serry.DeviceID, tasks []serry.TaskID) ([]Place, error) {
	set := slices.Clone(tasks)
	slices.SortFunc(set, serry.TaskID.Compare)
	a, err := g.member.Agree(ctx, nil, slices.Compact(set)...)
	if err != nil {
		return nil, err
	}
	places := make([]Place, len(devices))
	for i, task := range tasks {
		incarnation, ok := a.Alive[task]
		if !ok {
			return nil, &Error{Origin: slices.Index(tasks, g.life.Task), Ranks: []int{i}, Life: serry.Life{Task: task},
				Detail: "it did not agree", Err: ErrPeerFailed}
		}
		places[i] = Place{devices[i], serry.Life{Task: task, Incarnation: incarnation}}
	}
	return g.checked(places)
}

// checked returns the places if a clique can be formed of them, with this process in it: a newer life may have replaced it.
func (g *Group) checked(places []Place) ([]Place, error) {
	for _, p := range places {
		if p.Life.Task == g.life.Task && p.Life != g.life {
			return nil, fmt.Errorf("%v: %w", g.life.Task, serry.ErrStale)
		}
	}
	return places, (&Key{Ranks: places}).check()
}

// background runs something that no caller waits for. Zero is no bound but the end of the group.
func (g *Group) background(bound time.Duration, f func(ctx context.Context)) {
	g.spawn(func() {
		ctx, cancel := context.WithCancel(g.ctx)
		if bound > 0 {
			ctx, cancel = context.WithTimeout(g.ctx, bound)
		}
		defer cancel()
		f(ctx)
	})
}

// spawn runs f in a goroutine that Close waits for. It does not, and says so, when the group is closed.
func (g *Group) spawn(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.mu.closed {
		g.work.Go(f)
	}
	return !g.mu.closed
}

// Close waits until no operation of the group runs, and until the other members have ended the operations that this
// process took part in, or until ctx ends. Then it ends all cliques and everything in the background. The link layer
// stays open.
func (g *Group) Close(ctx context.Context) error {
	ctx, cancel := g.bounded(ctx)
	defer cancel()
	cliques := g.all()
	errs := make([]error, len(cliques))
	var leaving sync.WaitGroup
	for i, c := range cliques {
		leaving.Go(func() { errs[i] = c.leave(ctx) })
	}
	leaving.Wait()
	g.mu.Lock()
	g.mu.closed = true
	if g.mu.sweeping != nil {
		g.mu.sweeping.Stop()
	}
	g.mu.Unlock()
	for _, c := range g.all() { // formed meanwhile
		c.revoke(&Error{Origin: c.first.rank, Detail: g.life.Task.String() + " has closed its group", Err: ErrClosed})
	}
	g.stop(ErrClosed)
	g.work.Wait()
	return errors.Join(errs...)
}

// random is a number that no other process draws.
func random() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:]) | 1
}
