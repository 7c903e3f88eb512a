package server

import (
	"maps"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/goodput"
	"github.com/serry-dev/serry/wire"
)

// An accountant tells the account of the job what the owner sees: when tasks arrive at barriers, which steps they report, and
// what becomes of the job. It belongs to the owner. Like usual, it begins anew with each server that leads: an account is for
// people and is not journaled.
//
// An accountant decides nothing, and no reply but that to a question about the job depends on it. Calls reach it before they
// reach the machine (called), because the last arrival ends its barrier within the step. Notes and changes of tasks reach it
// after the step (noted, changed). So it also counts the call of a task that the machine then refuses; a barrier that opens
// only here keeps its place in open until a barrier of the same id, or the epoch, ends.
//
// Other goroutines get copies from the owner (books). Only log is read without the owner's turn.
type accountant struct {
	account *goodput.Account
	clock   clock
	epoch   *epoch
	open    map[string]*gathering // barriers that are open, by id
	kept    int                   // arrivals of them that there is room for
	present []bool                // tasks that are connected, by number
	here    int                   // how many that are
	begun   bool                  // tasks do not wait for each other to register any more
	lags    map[string]*histogram // by label of the class: how long after the median task the last one came, in seconds
	log     *barrierLog           // which inquiries read

	verdicts verdicts
}

// A gathering is when tasks came to a barrier that is open. Times are on the clock, at which the calls were queued: the
// machine's time stands still while the journal does, and would make late tasks look early.
type gathering struct {
	at   []time.Duration // by number of the task; negative: it has not come
	came int
}

const (
	// maxGatherings and maxArrivals bound the barriers that are watched at a time. Others are not compared.
	maxGatherings = 64
	maxArrivals   = 1 << 20

	maxLagClasses = 64 // that metrics tell apart
)

func newAccountant(a *goodput.Account, c clock) *accountant {
	if a == nil {
		a = goodput.NewAccount(time.Now())
	}
	return &accountant{account: a, clock: c, open: make(map[string]*gathering), lags: make(map[string]*histogram), log: new(barrierLog)}
}

// wall is when something happened. It is right for times on the clock since this server leads. While no server led, service
// time stood still.
func (b *accountant) wall(t coord.Time) time.Time { return b.clock.start.Add(time.Duration(t)) }

// opened takes over a new epoch.
func (b *accountant) opened(e *epoch, now coord.Time) {
	b.epoch, b.here, b.kept, b.begun, b.present = e, 0, 0, false, make([]bool, len(e.tasks))
	clear(b.open)
	b.log.opened(e)
	b.verdicts.opened()
	b.account.Opened(b.wall(now), len(e.tasks))
}

// host is where a task is, as far as its connection tells. For a task behind a relay that is the address of the relay, which as
// a rule is on the same host.
func (b *accountant) host(number int) string {
	if number >= len(b.epoch.tasks) {
		return ""
	}
	at := b.epoch.tasks[number].from.Load()
	if at == nil {
		return ""
	}
	host, _, err := net.SplitHostPort((*at).String())
	if err != nil {
		return ""
	}
	return host
}

// called looks at a call before the machine does: the arrival that ends a barrier counts, too. Registrations count only until
// the register barrier has ended: a task that registers later, after a restart, waits for no other. Steps and reports of hangs
// are ordinary keys, which the machine stores as well; a client of any dialect can write them.
func (b *accountant) called(ev coord.Event, at coord.Time) {
	switch ev := ev.(type) {
	case coord.Barrier:
		if t := b.epoch.task(ev.Task); t != nil {
			b.arrived(ev.ID, t.number, time.Duration(at))
		}
	case coord.RegisterTask:
		if t := b.epoch.task(ev.Task); t != nil && !b.begun {
			b.arrived(coord.RegisterBarrierID, t.number, time.Duration(at))
		}
	case coord.ShutdownTask:
		if t := b.epoch.task(ev.Task); t != nil {
			b.arrived(coord.ShutdownBarrierID(b.epoch.service), t.number, time.Duration(at))
		}
	case coord.InsertKeyValue:
		if ev.Key == wire.HangKey {
			b.verdicts.waits(ev.Value)
		}
		if name, ok := strings.CutPrefix(ev.Key, goodput.StepKeys); ok {
			b.stepped(name, ev.Value, at)
		}
	}
}

// arrived takes the first arrival of a task at a barrier. A second call is a repeated one, for example after a broken
// connection, and would make the task look later than it was. After a fail-over the repeated call is the first one that is
// seen, because the time of the earlier one is not in the journal. Where the bounds leave no room for the barrier, it ends like
// one whose arrivals were not seen.
func (b *accountant) arrived(id string, number int, at time.Duration) {
	g := b.open[id]
	if g == nil {
		if len(b.open) >= maxGatherings || b.kept+len(b.epoch.tasks) > maxArrivals {
			return
		}
		g = &gathering{at: make([]time.Duration, len(b.epoch.tasks))}
		for i := range g.at {
			g.at[i] = -1
		}
		b.open[id] = g
		b.kept += len(g.at)
	}
	if g.at[number] < 0 {
		g.at[number] = at
		g.came++
	}
}

// stepped takes a step that a task reports. What is no step is the program's own affair.
func (b *accountant) stepped(name string, value []byte, at coord.Time) {
	s, err := goodput.ReadStep(value)
	if err != nil {
		return
	}
	if t := b.epoch.task(b.taskOf(name)); t != nil {
		b.account.Step(b.wall(at), t.number, s, b.host)
	}
}

// taskOf is the task of a key: 3, or worker/3. A number in another form, such as 03, names no task: a task would have as many
// keys as there are ways to write its number.
func (b *accountant) taskOf(name string) serry.TaskID {
	job, index, ok := strings.Cut(name, "/")
	if !ok {
		job, index = "", name
	}
	n, err := strconv.Atoi(index)
	if err != nil || strconv.Itoa(n) != index {
		n = -1
	}
	return b.epoch.nameOf(serry.TaskID{Job: job, Index: n})
}

// changed takes a change of a task. When the last one leaves, the attempt has ended. If the last one fails, the account is told
// of the failure and not of an end.
func (b *accountant) changed(number int, state serry.TaskState, now coord.Time) {
	was := b.present[number]
	b.present[number] = state == serry.Connected
	switch {
	case b.present[number] && !was:
		b.here++
	case was && !b.present[number]:
		b.here--
		if state == serry.Failed {
			b.account.Failed(b.wall(now))
		} else if b.here == 0 {
			b.account.Ended(b.wall(now))
			b.verdicts.stage = 0
		}
	}
}

// noted takes what the machine noted.
func (b *accountant) noted(n coord.Note, now coord.Time) {
	b.verdicts.noted(n)
	if n.Barrier != "" {
		b.ended(n, now)
	}
}

// ended adds a barrier that has ended to the log. If it has passed, and every arrival was seen, it also adds the lateness of each task
// to the account of stragglers.
func (b *accountant) ended(n coord.Note, now coord.Time) {
	b.begun = b.begun || n.Barrier == coord.RegisterBarrierID
	g := b.open[n.Barrier]
	if g == nil {
		b.log.add(n, nil, now, b.wall)
		return
	}
	delete(b.open, n.Barrier)
	b.kept -= len(g.at)
	b.log.add(n, g.at, now, b.wall)
	// Tasks can be compared only where every arrival was seen. Some are missing for a barrier that was open when this server
	// began to lead and whose callers did not repeat their calls.
	if n.Err != nil || g.came != n.Of || n.Of < 2 || b.isEdge(n.Barrier) {
		return
	}
	// Classes become labels on the metrics page. Clients choose the ids, so the number of classes that are told apart is
	// bounded.
	class := wire.Class(n.Barrier)
	b.account.Passed(class, g.at, b.host)
	label := valid(class) // two classes may have one: a page with a label twice is refused as a whole
	h := b.lags[label]
	if h == nil {
		if len(b.lags) >= maxLagClasses {
			return
		}
		fresh := newHistogram(waitBounds())
		h = &fresh
		b.lags[label] = h
	}
	h.observe(goodput.Lag(g.at).Seconds())
}

// isEdge says whether a barrier is that of the start or of the end of an attempt: no pace of the job shows there.
func (b *accountant) isEdge(id string) bool {
	return id == coord.RegisterBarrierID || id == coord.ShutdownBarrierID(b.epoch.service)
}

// A books is what the account says at a moment. goodput is for people: it counts the present step. settled is for
// counters of metrics, which must never fall: it leaves out the time whose cause is not known yet.
type books struct {
	account    *goodput.Account // a copy
	goodput    goodput.Goodput
	settled    goodput.Goodput // without the step that is under way
	stragglers []goodput.Straggler
	steps      []int64 // by number of the task, or nil
	lags       map[string]lagFigures
	stage      int                // of ranks that keep the others waiting
	verdicts   map[verdict]uint64 // a copy
}

// lagFigures are the figures of a histogram.
type lagFigures struct {
	count uint64
	sum   float64
	below map[float64]uint64
}

// books copies what the account says, for goroutines other than the owner. Everything in it is a copy: the owner goes on
// changing the account while a page is written from the books.
func (b *accountant) books(now coord.Time) books {
	k := books{account: b.account.Continued(), goodput: b.account.Goodput(b.wall(now)), settled: b.account.Settled(b.wall(now)), stragglers: b.account.Stragglers(), steps: b.account.Steps(), lags: make(map[string]lagFigures), stage: b.verdicts.stage, verdicts: maps.Clone(b.verdicts.count)}
	for class, h := range b.lags {
		n, sum, below := h.read()
		k.lags[class] = lagFigures{n, sum, below}
	}
	return k
}
