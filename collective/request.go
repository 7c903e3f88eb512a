package collective

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lockrank"
	"github.com/serry-dev/serry/internal/rendezvous"
)

// Forming a clique and running an operation wait for other processes. Two processes that do two such things in
// opposite orders wait for each other for ever. So a program that uses several cliques says before it begins which ones it
// needs ([Requests]), and gets all of them at once ([Requests.Acquire]), in an order that is the same in all processes. While
// it has them no other run of this process uses them. What two runs have in common they must begin in the same order in all
// processes, as they do with operations; the operations carry the number of the run, so processes that do not are
// told (ErrMismatch).

// A Request is a clique that a program needs.
type Request struct {
	Devices []serry.DeviceID   // in the order of ranks
	Groups  [][]serry.DeviceID // all groups that run the operation at the same time, this one among them; nil is this one alone
	Traffic uint64             // as in CliqueOptions
}

// Requests are the cliques that a program needs on one device. Get it from [Group.Requests].
type Requests struct {
	group  *Group
	device serry.DeviceID

	mu struct {
		lockrank.Mutex[requestsLock]
		list  []Request // in the order of first requests
		found []*clique // of the last run, by number; nil before
		lease Lease     // is used again when a run is alone in this process
		grant grant     // of that lease
		busy  bool      // they are in use
	}
}

// Requests begins a list of cliques for one device of this process.
func (g *Group) Requests(d serry.DeviceID) *Requests { return &Requests{group: g, device: d} }

// Add asks for a clique. It returns the number of the request: each clique that was not asked for before has the next one, from 0
// on. All devices of a program must ask in the same order (CL-ORD-2). A clique of several devices that was asked for with
// other groups is refused.
func (r *Requests) Add(q Request) (number int, err error) {
	if !slices.Contains(q.Devices, r.device) {
		return 0, fmt.Errorf("device %d asks for a clique of devices %v: %w", r.device, q.Devices, ErrFault)
	}
	if err := (&Key{Ranks: make([]Place, len(q.Devices))}).checkSize(); err != nil {
		return 0, err
	}
	q = q.canonical()
	r.mu.Lock()
	defer r.mu.Unlock()
	number = slices.IndexFunc(r.mu.list, q.same)
	switch {
	case number < 0:
		r.mu.list, r.mu.found = append(r.mu.list, q), nil
		return len(r.mu.list) - 1, nil
	case len(q.Devices) > 1 && !slices.EqualFunc(q.Groups, r.mu.list[number].Groups, slices.Equal[[]serry.DeviceID]):
		return 0, invalid("clique of devices %v was requested with different device groups: %v and %v", q.Devices, r.mu.list[number].Groups, q.Groups)
	}
	return number, nil
}

// canonical is the request with its groups in order: devices ascending, groups by their first device (CL-ORD-5).
func (q Request) canonical() Request {
	q.Devices = slices.Clone(q.Devices)
	groups := q.Groups
	if groups == nil {
		groups = [][]serry.DeviceID{q.Devices}
	}
	q.Groups = mapped(groups, func(g []serry.DeviceID) []serry.DeviceID { return slices.Sorted(slices.Values(g)) })
	slices.SortFunc(q.Groups, slices.Compare[[]serry.DeviceID])
	return q
}

// same says whether two requests are for the same clique.
func (q Request) same(other Request) bool {
	return q.Traffic == other.Traffic && slices.Equal(q.Devices, other.Devices)
}

// Order lists the requests as they are acquired: those with more devices first, and of equal ones the one that was asked for
// first (CL-ORD-3).
func (r *Requests) Order() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := slices.Clone(r.mu.list)
	slices.SortStableFunc(list, largerFirst)
	return list
}

func largerFirst(a, b Request) int { return len(b.Devices) - len(a.Devices) }

// An Execution is one run of a program.
type Execution struct {
	// ID is the same in all processes, and another one for each run; not 0.
	ID uint64

	// Participants is how many goroutines of this process acquire the cliques of the run, each with Requests of its own,
	// also those that need none (CL-ORD-9). 0 is 1.
	Participants int
}

// Acquire gets all cliques of the list for a run, and forms those that do not exist. It waits until all participants of
// the run in this process have called it, until the other processes of new cliques have come, and until no other run of this
// process holds any of them. All participants get them, or all get the same error; then none is held. The caller
// releases what it gets.
func (r *Requests) Acquire(ctx context.Context, run Execution) (*Lease, error) {
	if run.ID == 0 {
		return nil, invalid("run 0")
	}
	if !r.use() {
		return nil, invalid("requests of device %d are in use by another run", r.device)
	}
	if run.Participants <= 1 {
		if l := r.again(run); l != nil {
			return l, nil
		}
	}
	ctx, cancel := r.group.bounded(ctx)
	defer cancel()
	place := rendezvous.Place[asking]{Name: fmt.Sprintf("device %d", r.device), Size: run.Participants, Value: asking{ctx, r}}
	g, err := r.group.runs.Join(ctx, run.ID, place, func(all []asking) (*grant, error) { return r.group.acquire(run, all) })
	if err != nil {
		r.unuse()
		return nil, acquisitionError(err)
	}
	return r.leaseOf(g), nil
}

// TryAcquire is Acquire for a run with one participant, without waiting: it gets the cliques if all were acquired by these
// requests before, can still be used, and are free.
func (r *Requests) TryAcquire(run Execution) (*Lease, bool) {
	if run.ID == 0 || run.Participants > 1 || !r.use() {
		return nil, false
	}
	l := r.again(run)
	if l == nil {
		r.unuse()
	}
	return l, l != nil
}

// use notes that the requests are in use, unless they are.
func (r *Requests) use() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.busy {
		return false
	}
	r.mu.busy = true
	return true
}

func (r *Requests) unuse() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.busy = false
}

// again acquires the cliques of the last run, if they are ready and free. It allocates nothing (CL-ACQ-13).
func (r *Requests) again(run Execution) *Lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.found == nil || len(r.mu.found) != len(r.mu.list) {
		return nil
	}
	for _, c := range r.mu.found {
		if c.failed.Load() != nil {
			return nil
		}
	}
	r.mu.grant = grant{run: run.ID, cliques: r.mu.found, users: 1}
	if !r.group.locks.try(&r.mu.grant) {
		return nil
	}
	for i, c := range r.mu.found {
		if !c.hold() { // it may be closed at any moment
			r.mu.grant.users = 1
			r.group.locks.release(&r.mu.grant)
			for _, held := range r.mu.found[:i] {
				r.group.release(held)
			}
			return nil
		}
	}
	r.group.tally.hits.Add(uint64(len(r.mu.found)))
	r.mu.lease = Lease{r, &r.mu.grant}
	return &r.mu.lease
}

// leaseOf is what a participant gets of the grant of its run.
func (r *Requests) leaseOf(g *grant) *Lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.found = make([]*clique, len(r.mu.list))
	for i, q := range r.mu.list {
		r.mu.found[i] = g.cliques[slices.IndexFunc(g.asked, q.same)]
	}
	return &Lease{r, g}
}

// acquisitionError is the error of an acquisition, as an error of this package.
func acquisitionError(err error) error {
	if errors.Is(err, rendezvous.ErrCrowded) {
		return fmt.Errorf("%w: %w", ErrFault, err)
	}
	return err
}

// An asking is a participant of a run.
type asking struct {
	ctx      context.Context // ends the acquisition for all participants
	requests *Requests
}

// acquire gets the cliques of all participants of a run. Cliques are formed before any is locked, so a run that waits for other
// processes holds up no other run.
func (g *Group) acquire(run Execution, all []asking) (*grant, error) {
	ctx, cancel := joined(all)
	defer cancel()
	list := union(all)
	for {
		grant := &grant{run: run.ID, users: len(all), asked: list}
		if err := g.find(ctx, grant, list); err != nil {
			return nil, err
		}
		err := g.locks.acquire(ctx, grant)
		if err == nil && !slices.ContainsFunc(grant.cliques, func(c *clique) bool { return c.failed.Load() != nil }) {
			return grant, nil
		}
		if err == nil { // a clique has failed while the run waited for it
			grant.users = 1
			g.locks.release(grant)
		}
		g.giveBack(grant)
		if held, ok := errors.AsType[*heldError](err); ok {
			return nil, g.gaveUp(ctx, held.clique.first.rank, nil, held.Error())
		}
	}
}

// joined is a context that ends with the first of those of the participants.
func joined(all []asking) (context.Context, context.CancelFunc) {
	var until time.Time
	for _, a := range all {
		if at, ok := a.ctx.Deadline(); ok && (until.IsZero() || at.Before(until)) {
			until = at
		}
	}
	ctx, giveUp := context.WithCancelCause(context.WithoutCancel(all[0].ctx))
	cancel := func() { giveUp(nil) }
	if !until.IsZero() {
		ctx, cancel = context.WithDeadline(ctx, until)
	}
	stops := make([]func() bool, len(all))
	for i, a := range all {
		stops[i] = context.AfterFunc(a.ctx, func() {
			if !errors.Is(a.ctx.Err(), context.DeadlineExceeded) {
				giveUp(fmt.Errorf("device %d gave up: %w", a.requests.device, context.Cause(a.ctx)))
			}
		})
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		giveUp(nil)
		cancel()
	}
}

// union is what all participants ask for, without repeats, in the order in which it is acquired. Participants of one program ask
// in the same order, each for its own cliques; where their numbers are equal, that of the lower devices comes first.
func union(all []asking) (list []Request) {
	type numbered struct {
		Request
		number int
	}
	var asked []numbered
	for _, a := range all {
		a.requests.mu.Lock()
		for i, q := range a.requests.mu.list {
			if !slices.ContainsFunc(asked, func(n numbered) bool { return n.same(q) }) {
				asked = append(asked, numbered{q, i})
			}
		}
		a.requests.mu.Unlock()
	}
	slices.SortFunc(asked, func(a, b numbered) int {
		return cmp.Or(largerFirst(a.Request, b.Request), cmp.Compare(a.number, b.number), slices.Compare(a.Devices, b.Devices), cmp.Compare(a.Traffic, b.Traffic))
	})
	return mapped(asked, func(n numbered) Request { return n.Request })
}

// find finds or forms the cliques of a list, in its order.
func (g *Group) find(ctx context.Context, to *grant, list []Request) error {
	for _, q := range list {
		c, err := g.formed(ctx, q.Devices, CliqueOptions{Traffic: q.Traffic})
		if err != nil {
			g.giveBack(to)
			return err
		}
		to.cliques = append(to.cliques, c)
	}
	return nil
}

// giveBack gives cliques back to the group, the last first.
func (g *Group) giveBack(to *grant) {
	for _, c := range slices.Backward(to.cliques) {
		g.release(c)
	}
}

// A heldError says which run holds a clique that another one waits for.
type heldError struct {
	clique *clique
	run    uint64 // or 0: another one waits for it
}

func (e *heldError) Error() string {
	if e.run == 0 {
		return fmt.Sprintf("another run waits for the clique %v", e.clique.key)
	}
	return fmt.Sprintf("run %d holds the clique %v", e.run, e.clique.key)
}

// A Lease is the right of a run to use the cliques that it asked for.
type Lease struct {
	requests *Requests
	grant    *grant
}

// Comm is the communicator of the device in the clique of a request, as Add numbered it.
func (l *Lease) Comm(number int) *Comm {
	l.requests.mu.Lock()
	defer l.requests.mu.Unlock()
	c := l.requests.mu.found[number]
	rank, _ := c.key.Rank(l.requests.device)
	return c.comms[rank]
}

// Release ends the use of the cliques by this participant; it is called once. When all participants of the run in this process have called it, the
// next run gets them. It does not wait for operations: the caller has.
func (l *Lease) Release() {
	g := l.grant
	if l.requests.group.locks.release(g) {
		l.requests.group.giveBack(g)
	}
	l.requests.unuse()
}
