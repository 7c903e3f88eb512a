package link_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/internal/lab/search"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/wire/mtls"
)

var (
	schedules = flag.Uint64("schedules", 100, "how many schedules of links to play")
	firstSeed = flag.Uint64("first", 1, "the seed of the first")
)

// TestLinksInTheStorm plays seeded schedules in virtual time: two to four tasks that send each other
// messages of all sizes, while processes are killed, stopped, cut off one way and both, have their
// connections reset, and are replaced by new lives at the same address, and while the service fails over
// and tells nothing. What must hold is in stormjudge_test.go.
func TestLinksInTheStorm(t *testing.T) {
	clause.Cite(t, "CL-TRN-5", "CL-TRN-6", "CL-TRN-7", "CL-TRN-23")
	begun := time.Now()
	n := min(*schedules, search.Pick(*schedules, 10))
	if testing.Short() {
		n = min(n, 10)
	}
	if seed, err := searchStorm(t, 0, *firstSeed, n); err != nil {
		t.Fatalf("schedule %d: %v\nto repeat it: go test ./link -run TestLinksInTheStorm -first %d -schedules 1 -count 20", seed, err, seed)
	}
	t.Logf("%d schedules from %d on, %v each", n, *firstSeed, (time.Since(begun) / time.Duration(n)).Round(time.Microsecond))
}

// A storm that finds nothing may be one that cannot.
func TestStormFindsPlantedFaults(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("it plays hundreds of schedules, and a planted second writer is a race")
	}
	const enough = 500
	for _, fault := range []plant.Faults{plant.StaleLink, plant.SecondWriter, plant.CreditLeak} {
		t.Run(fault.String(), func(t *testing.T) {
			seed, err := searchStorm(t, fault, *firstSeed, enough)
			if err == nil {
				t.Fatalf("not found in %d schedules", enough)
			}
			t.Logf("found after %d schedules: %.300v", seed-*firstSeed+1, err)
		})
	}
}

// searchStorm plays schedules, as many at a time as there are processors, and returns one that fails.
func searchStorm(t *testing.T, fault plant.Faults, from, n uint64) (seed uint64, err error) {
	t.Helper()
	var next, stop atomic.Uint64
	next.Store(from)
	stop.Store(from + n)
	var mu sync.Mutex
	t.Run("play", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for s := next.Add(1) - 1; s < stop.Load(); s = next.Add(1) - 1 {
					if e := playStorm(t, s, fault); e != nil {
						stop.Store(0)
						mu.Lock()
						if err == nil || s < seed {
							seed, err = s, e
						}
						mu.Unlock()
					}
				}
			})
		}
	})
	return seed, err
}

func playStorm(t *testing.T, seed uint64, fault plant.Faults) (err error) {
	watchdog := time.AfterFunc(time.Minute, func() { fmt.Fprintf(os.Stderr, "schedule %d hangs\n", seed) })
	defer watchdog.Stop()
	synctest.Test(t, func(t *testing.T) {
		s := newStorm(seed, fault)
		if seed%secured == 0 {
			s.identity = newAuthority(t).identity("task", "spiffe://lab/job/task")
		}
		s.play()
		err = s.verdict()
	})
	return err
}

// secured: every so many schedules one has certificates.
const secured = 8

// A storm is one schedule.
type storm struct {
	*job
	network  *network
	planted  plant.Faults
	draw     *rand.Rand // of the schedule, used by play alone
	tasks    int
	timing   link.Timing
	bursts   bool           // senders run ahead of their receivers
	identity *mtls.Identity // or nil: links are plain
	began    time.Time
	ended    chan struct{} // closed when no new message is begun

	mu struct {
		sync.Mutex
		ports   map[string]*stormPort // by address
		now     []*stormLife          // by task, or nil while it has no process
		all     []*stormLife
		outage  chan struct{} // closed while the service answers
		bad     []string
		events  []string
		nextInc int
		sent    int // messages that came whole
	}
}

func newStorm(seed uint64, fault plant.Faults) *storm {
	d := rand.New(rand.NewPCG(seed, 3))
	s := &storm{job: newJob(), network: newNetwork(), planted: fault, draw: d, tasks: 2 + d.IntN(3), bursts: d.IntN(4) == 0, began: time.Now(), ended: make(chan struct{})}
	if d.IntN(3) == 0 {
		s.timing = link.Timing{Ping: 50 * time.Millisecond, Suspect: 200 * time.Millisecond, Dead: 600 * time.Millisecond}
	}
	s.mu.ports = make(map[string]*stormPort)
	s.mu.now = make([]*stormLife, s.tasks)
	s.mu.outage = make(chan struct{})
	close(s.mu.outage)
	return s
}

// A stormLife is one process.
type stormLife struct {
	*storm
	life    serry.Life
	host    string        // of this process alone, so that nothing of an older one at its address reaches it
	opened  chan struct{} // closed when net is set, or there is none
	net     *link.Net     // or nil
	ctx     context.Context
	cancel  context.CancelFunc
	work    sync.WaitGroup
	dead    atomic.Bool // its process is gone
	over    atomic.Bool // it was killed, replaced, or told to end
	handler *stormHandler
}

// happens notes an event for the report.
func (s *storm) happens(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.events = append(s.mu.events, fmt.Sprintf("%v %s", time.Since(s.began), fmt.Sprintf(format, args...)))
}

// wrong notes what must not be.
func (s *storm) wrong(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.bad) < 20 {
		s.mu.bad = append(s.mu.bad, fmt.Sprintf("%v %s", time.Since(s.began), fmt.Sprintf(format, args...)))
	}
}

// start starts a new life of a task, which the service connects.
func (s *storm) start(task int) {
	s.mu.Lock()
	s.mu.nextInc++
	l := &stormLife{storm: s, life: life(task, uint64(s.mu.nextInc))}
	l.host, l.handler = hostOf(l.life), &stormHandler{life: l}
	l.opened = make(chan struct{})
	l.ctx, l.cancel = context.WithCancel(context.Background())
	before := s.mu.now[task]
	s.mu.now[task] = l
	s.mu.all = append(s.mu.all, l)
	s.mu.Unlock()
	if before != nil && before.over.CompareAndSwap(false, true) {
		s.happens("%v is replaced", before.life)
	}
	s.happens("%v starts", l.life)
	s.set(serry.TaskInfo{Task: l.life.Task, Incarnation: l.life.Incarnation, State: serry.Connected})
	o := link.Options{
		Listen: []string{fmt.Sprintf("10.9.0.%d:4000", task+1)}, Secret: secret, Network: l, Timing: s.timing,
		Lanes: 1 + task%2, Chunk: 32 << 10, Transfer: link.Always, Planted: s.planted,
	}
	if s.identity != nil {
		o.TLS = s.identity
	}
	defer close(l.opened)
	n, err := link.Open(l.ctx, stormMember{l}, stormKeys{l}, o)
	if err != nil {
		if !l.dead.Swap(true) { // it was not killed meanwhile
			s.wrong("%v: Open: %v", l.life, err)
		}
		return
	}
	l.net = n
	if err := n.Handle(link.Collective, l.handler); err != nil {
		s.wrong("%v: Handle: %v", l.life, err)
	}
	for _, up := range n.Links() { // before there was a handler
		l.handler.Event(link.Event{Kind: link.LinkUp, Peer: up.Peer})
	}
	l.run()
}

// kill ends a process. What is left of it in this bubble is isolated from all else, then ended.
func (l *stormLife) kill() {
	l.over.Store(true) // before any process can see it
	if !l.dead.CompareAndSwap(false, true) {
		return
	}
	l.storm.mu.Lock()
	for address, p := range l.storm.mu.ports {
		if p.owner == l {
			delete(l.storm.mu.ports, address)
		}
	}
	l.storm.mu.Unlock()
	l.network.kill(l.host)
	l.cancel()
	<-l.opened
	if l.net != nil {
		l.net.Close(l.ctx) // it is gone, and says nothing to the service
	}
	l.work.Wait()
}

// play runs the schedule to its end.
func (s *storm) play() {
	var faults sync.WaitGroup
	for task := range s.tasks {
		s.start(task)
	}
	for range 1 + s.draw.IntN(6) {
		at := time.Duration(s.draw.IntN(8000)) * time.Millisecond
		strike := s.fault()
		faults.Go(func() {
			<-time.After(at)
			strike()
		})
	}
	faults.Wait()
	s.settle()
	close(s.ended)
	s.finish()
}

// fault draws something that goes wrong.
func (s *storm) fault() func() {
	task, other := s.draw.IntN(s.tasks), s.draw.IntN(s.tasks)
	lasts := time.Duration(s.draw.IntN(6000)) * time.Millisecond
	tells := time.Duration(s.draw.IntN(3000)) * time.Millisecond
	evidence := []string{"process exited: signal 9", "connection closed"}[s.draw.IntN(2)]
	switch s.draw.IntN(7) {
	case 0:
		return func() { s.killed(task, evidence, tells, lasts) }
	case 1:
		return func() { s.replaced(task) }
	case 2:
		return func() { s.stopped(task, lasts) }
	case 3:
		return func() { s.cutOff(task, other, lasts, false) }
	case 4:
		return func() { s.cutOff(task, other, lasts, true) }
	case 5:
		return func() { s.failOver(lasts) }
	}
	return func() { s.reset(task) }
}

func (s *storm) present(task int) *stormLife {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.now[task]
}

// killed kills a process. The service hears of it some time later, and a new life comes after that.
func (s *storm) killed(task int, evidence string, tells, again time.Duration) {
	l := s.present(task)
	if l == nil || l.dead.Load() {
		return
	}
	s.happens("%v is killed", l.life)
	l.kill()
	<-time.After(tells)
	if s.present(task) != l {
		return
	}
	s.happens("the service hears that %v is lost: %s", l.life, evidence)
	s.lose(l.life, evidence)
	<-time.After(again)
	if s.present(task) == l {
		s.start(task)
	}
}

// replaced kills a process and starts the next life of its task at once, at the same address.
func (s *storm) replaced(task int) {
	if l := s.present(task); l != nil {
		s.happens("%v is killed, to be replaced", l.life)
		l.kill()
		if s.present(task) == l {
			s.start(task)
		}
	}
}

// stopped lets no byte from or to a process for a while.
func (s *storm) stopped(task int, lasts time.Duration) {
	l := s.present(task)
	s.happens("%v stops for %v", l.life, lasts)
	s.cutFor(lasts, func(o *stormLife) bool { return o != l }, l, true)
}

// cutOff lets no byte from one task to another for a while, and none back if both ways are cut.
func (s *storm) cutOff(task, other int, lasts time.Duration, both bool) {
	l, p := s.present(task), s.present(other)
	if l == p {
		return
	}
	s.happens("%v is cut off from %v for %v, both ways: %v", l.life, p.life, lasts, both)
	s.cutFor(lasts, func(o *stormLife) bool { return o == p }, l, both)
}

func (s *storm) cutFor(lasts time.Duration, of func(*stormLife) bool, l *stormLife, both bool) {
	s.mu.Lock()
	all := slices.Clone(s.mu.all)
	s.mu.Unlock()
	for _, o := range all {
		if of(o) {
			s.network.cut(l.host, o.host)
			if both {
				s.network.cut(o.host, l.host)
			}
		}
	}
	<-time.After(lasts)
	for _, o := range all {
		if of(o) {
			s.network.heal(l.host, o.host)
			s.network.heal(o.host, l.host)
		}
	}
	s.happens("%v is reached again", l.life)
}

// reset breaks all connections of a process.
func (s *storm) reset(task int) {
	l := s.present(task)
	s.happens("the connections of %v are reset", l.life)
	s.network.reset(l.host)
}

// failOver lets the service answer and tell nothing for a while.
func (s *storm) failOver(lasts time.Duration) {
	gate := make(chan struct{})
	s.mu.Lock()
	select {
	case <-s.mu.outage:
	default:
		s.mu.Unlock()
		return // it fails over already
	}
	s.mu.outage = gate
	s.mu.Unlock()
	s.happens("the service fails over for %v", lasts)
	<-time.After(lasts)
	close(gate)
}

// answers waits while the service fails over.
func (l *stormLife) answers(ctx context.Context) error {
	l.storm.mu.Lock()
	gate := l.storm.mu.outage
	l.storm.mu.Unlock()
	select {
	case <-gate:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if l.dead.Load() {
		<-ctx.Done() // a process that is gone calls nothing
		return context.Cause(ctx)
	}
	return nil
}

func (s *storm) verdict() error {
	if s.mu.bad == nil {
		return nil
	}
	return fmt.Errorf("%s\n%d tasks, bursts %v, timing %+v\n%s", strings.Join(s.mu.bad, "\n"), s.tasks, s.bursts, s.timing, strings.Join(s.mu.events, "\n"))
}
