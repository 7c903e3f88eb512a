package transfer_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
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
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer"
	"github.com/serry-dev/serry/transfer/devicetest"
)

var (
	schedules = flag.Uint64("schedules", 100, "how many schedules of engines to play")
	firstSeed = flag.Uint64("first", 1, "the seed of the first")
)

// TestEnginesInTheStorm plays seeded schedules in virtual time: two or three processes that transfer buffers of all sizes and
// kinds of memory, while processes are killed, closed, cut off one way and both, and replaced by new lives, connections are
// reset, bytes come late and in another order on each connection, links are idle or give their place to others, and the service
// does not answer. What they transfer is in stormkinds_test.go and stormoffers_test.go, what must hold in stormjudge_test.go. The machines alone are played by transfer/internal/match, many more times.
func TestEnginesInTheStorm(t *testing.T) {
	clause.Cite(t, "TR-ASY-1", "TR-ASY-5", "TR-CAN-4", "TR-CAN-6", "TR-CAN-7", "TR-ERR-2", "TR-ERR-5", "TR-PAB-7", "TRT-192", "TRT-201", "TR-H-18",
		"TR-SND-3", "TR-PAB-6", "TR-LAY-5", "TR-ORD-8", "TR-PUL-10", "TR-PUL-12", "TR-COM-4")
	begun := time.Now()
	n := min(*schedules, search.Pick(*schedules, 10))
	if testing.Short() {
		n = min(n, 10)
	}
	var all tally
	if seed, err := searchStorm(t, 0, *firstSeed, n, &all); err != nil {
		t.Fatalf("schedule %d: %v\nto repeat it: go test ./transfer -run TestEnginesInTheStorm -first %d -schedules 1 -count 20", seed, err, seed)
	}
	t.Logf("%d schedules from %d on, %v each: %d transfers ended well, %d otherwise, %d unconfirmed; %d pulls well, %d otherwise", n, *firstSeed,
		(time.Since(begun) / time.Duration(n)).Round(time.Microsecond), all.well.Load(), all.badly.Load(), all.unconfirmed.Load(),
		all.pulled.Load(), all.unpulled.Load())
	if n >= 100 && (all.well.Load() == 0 || all.badly.Load() == 0 || all.unconfirmed.Load() == 0 || all.pulled.Load() == 0 || all.unpulled.Load() == 0) {
		t.Error("the schedules are too kind, or too hard")
	}
}

// A storm that finds nothing may be one that cannot.
func TestStormFindsPlantedFaults(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("it plays hundreds of schedules, and memory that is used after its end is a race")
	}
	const enough = 300
	for _, fault := range []plant.Faults{plant.SenderDecides, plant.NoRefusal, plant.NoReask, plant.LooseMemory} {
		t.Run(fault.String(), func(t *testing.T) {
			seed, err := searchStorm(t, fault, *firstSeed, enough, new(tally))
			if err == nil {
				t.Fatalf("not found in %d schedules", enough)
			}
			t.Logf("found after %d schedules: %.300v", seed-*firstSeed+1, err)
		})
	}
}

// A tally is how transfers and pulls of many schedules ended.
type tally struct{ well, badly, unconfirmed, pulled, unpulled atomic.Int64 }

// searchStorm plays schedules, as many at a time as there are processors, and returns one that fails.
func searchStorm(t *testing.T, fault plant.Faults, from, n uint64, all *tally) (seed uint64, err error) {
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
					if e := playStorm(t, s, fault, all); e != nil {
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

func playStorm(t *testing.T, seed uint64, fault plant.Faults, all *tally) (err error) {
	watchdog := time.AfterFunc(time.Minute, func() { fmt.Fprintf(os.Stderr, "schedule %d hangs\n", seed) })
	defer watchdog.Stop()
	synctest.Test(t, func(t *testing.T) {
		s := newStorm(t, seed, fault)
		s.play()
		s.count(all)
		err = s.verdict()
	})
	return err
}

// A storm is one schedule.
type storm struct {
	*world
	draw  *rand.Rand // of the schedule, used by play alone
	tasks int
	fakes bool // processes have devices
	began time.Time
	ctx   context.Context // of all that the programs do
	end   context.CancelFunc
	work  sync.WaitGroup // of the programs

	mu struct {
		sync.Mutex
		now     []*stormLife // by task, or nil while it has no process
		all     []*stormLife
		nextInc uint64
		halves  []*half
		lines   map[line][]*half // that keep their order, as they were posted
		offers  []*published
		pulls   []*pulled
		bad     []string
		events  []string
	}
}

// A stormLife is one process.
type stormLife struct {
	*process
	fake  *devicetest.Fake // or nil
	maker *making          // of data on it, or nil
	arena *memory.Arena
	over  atomic.Bool // it was killed, or closed

	submit sync.Mutex // held by the submitter to the maker's queue
}

func newStorm(t *testing.T, seed uint64, fault plant.Faults) *storm {
	d := rand.New(rand.NewPCG(seed, 22))
	w := &world{job: newJob(), t: t, network: newNetwork(), link: link.Options{Chunk: 64 << 10}}
	w.engine.Planted = fault
	s := &storm{world: w, draw: d, tasks: 2 + d.IntN(2), fakes: d.IntN(4) == 0, began: time.Now()}
	if d.IntN(2) == 0 {
		w.link.Segments = new(link.Local)
	}
	if d.IntN(2) == 0 {
		w.link.Timing = link.Timing{Ping: 50 * time.Millisecond, Suspect: 200 * time.Millisecond, Dead: 600 * time.Millisecond}
	}
	if d.IntN(4) == 0 {
		w.link.Idle = time.Duration(1+d.IntN(4)) * time.Second
	}
	if d.IntN(4) == 0 {
		s.tasks, w.link.MaxLinks = 4, 2
	}
	lags := rand.New(rand.NewPCG(seed, 23)) // guarded by the lock of the network
	if most := []int64{0, 2, 20}[d.IntN(3)]; most > 0 {
		w.network.lag = func() time.Duration { return time.Duration(lags.Int64N(most * int64(time.Millisecond))) }
	}
	s.ctx, s.end = context.WithCancel(context.Background())
	s.mu.now = make([]*stormLife, s.tasks)
	s.mu.lines = make(map[line][]*half)
	return s
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

func (s *storm) present(task int) *stormLife {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.now[task]
}

// start starts a new life of a task, unless it has one.
func (s *storm) start(task int) {
	s.mu.Lock()
	s.mu.nextInc++
	l := &stormLife{process: &process{world: s.world, life: life(task, s.mu.nextInc), device: serry.DeviceID(task)}}
	s.mu.Unlock()
	s.happens("%v starts", l.life)
	s.set(l.life, serry.Connected)
	var err error
	if l.arena, err = memory.NewArena(8<<20, memory.ArenaOptions{}); err != nil {
		s.wrong("arena: %v", err)
		return
	}
	o := s.link
	o.Network, o.Listen, o.Secret = dialler{s.network, hostOf(l.life)}, []string{hostOf(l.life) + ":0"}, secret
	m := member{s.job, l.life}
	engine := s.engine
	if s.fakes {
		l.fake = &devicetest.Fake{Latency: 50 * time.Microsecond, Rate: 1e9, Inside: 1e6} // it takes time to make data
		engine.Devices = map[serry.DeviceID]transfer.Device{l.device: l.fake}
		engine.Alloc = func(n int64) (transfer.Memory, error) {
			return transfer.Memory{Region: memory.Of(make([]byte, n))}, nil
		}
	}
	if l.net, err = link.Open(s.ctx, m, s.job, o); err == nil {
		l.Engine, err = transfer.New(s.ctx, m, l.net, engine)
	}
	if err != nil {
		s.wrong("%v: %v", l.life, err)
		return
	}
	if l.fake != nil {
		l.maker = l.process.maker(l.fake)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.now[task] = l
	s.mu.all = append(s.mu.all, l)
}

// stop ends a process: as the kernel does that kills it, or in order.
func (s *storm) stop(l *stormLife, kill bool) {
	if l == nil || !l.over.CompareAndSwap(false, true) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if kill {
		s.happens("%v is killed", l.life)
		s.world.kill(l.process)
		cancel()
	} else {
		s.happens("%v is closed", l.life)
	}
	s.mu.Lock()
	s.mu.now[l.life.Task.Index] = nil
	s.mu.Unlock()
	begun := time.Now()
	l.Close(ctx)
	l.net.Close(ctx)
	if d := time.Since(begun); d > 16*time.Second {
		s.wrong("%v took %v to end", l.life, d)
	}
	if open, abandoned, _ := l.Pool().Promises(); abandoned > 0 {
		s.wrong("%v has %d promises open, and dropped %d", l.life, open, abandoned)
	}
}

// play runs the schedule to its end.
func (s *storm) play() {
	for task := range s.tasks {
		s.start(task)
	}
	var faults sync.WaitGroup
	for range 1 + s.draw.IntN(5) {
		at := time.Duration(s.draw.IntN(8000)) * time.Millisecond
		strike := s.fault()
		faults.Go(func() {
			<-time.After(at)
			strike()
		})
	}
	for key := range 10 + s.draw.IntN(25) {
		s.plan(uint64(key))
	}
	for id := range s.draw.IntN(4) {
		s.planOffer(uint64(id))
	}
	faults.Wait()
	s.settle()
	s.end()
	for _, l := range s.lives() {
		s.stop(l, false)
	}
	s.work.Wait()
	s.judgeRest()
}

// lives are the processes that there are.
func (s *storm) lives() (list []*stormLife) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.mu.now {
		if l != nil {
			list = append(list, l)
		}
	}
	return list
}

// fault draws something that goes wrong.
func (s *storm) fault() func() {
	task, other := s.draw.IntN(s.tasks), s.draw.IntN(s.tasks)
	lasts := time.Duration(s.draw.IntN(6000)) * time.Millisecond
	tells := time.Duration(s.draw.IntN(3000)) * time.Millisecond
	switch s.draw.IntN(8) {
	case 0:
		return func() { s.replaced(task, true, tells, lasts) }
	case 1:
		return func() { s.replaced(task, true, 0, 0) }
	case 2:
		return func() { s.replaced(task, false, 0, lasts) }
	case 3:
		return func() { s.cutOff(task, other, lasts, false) }
	case 4:
		return func() { s.cutOff(task, other, lasts, true) }
	case 5:
		return func() { s.outageFor(lasts) }
	}
	return func() {
		if l := s.present(task); l != nil {
			s.happens("the connections of %v are reset", l.life)
			s.network.reset(hostOf(l.life))
		}
	}
}

// replaced ends a process. The service hears of it some time later, and a new life comes after that.
func (s *storm) replaced(task int, kill bool, tells, again time.Duration) {
	l := s.present(task)
	if l == nil {
		return // it is about to be replaced
	}
	s.stop(l, kill)
	<-time.After(tells)
	s.set(l.life, serry.Failed)
	<-time.After(again)
	s.start(task)
}

// cutOff lets no byte from one task to another for a while, and none back if both ways are cut.
func (s *storm) cutOff(task, other int, lasts time.Duration, both bool) {
	a, b := s.present(task), s.present(other)
	if a == nil || b == nil || a == b {
		return
	}
	s.happens("%v is cut off from %v for %v, both ways: %v", a.life, b.life, lasts, both)
	s.network.cutOneWay(hostOf(a.life), hostOf(b.life), true)
	if both {
		s.network.cutOneWay(hostOf(b.life), hostOf(a.life), true)
	}
	<-time.After(lasts)
	s.network.cut(hostOf(a.life), hostOf(b.life), false)
	s.happens("%v reaches %v again", a.life, b.life)
}

// outageFor lets the service answer and tell nothing for a while.
func (s *storm) outageFor(lasts time.Duration) {
	s.job.mu.Lock()
	already := s.job.outage != nil
	s.job.mu.Unlock()
	if already {
		return
	}
	s.happens("the service does not answer for %v", lasts)
	recovers := s.job.fails()
	<-time.After(lasts)
	recovers()
}

func (s *storm) verdict() error {
	if s.mu.bad == nil {
		return nil
	}
	return errors.New(strings.Join(s.mu.bad, "\n") + fmt.Sprintf("\n%d tasks, devices %v, shared memory %v, timing %+v, idle %v, %d links\n%s",
		s.tasks, s.fakes, s.link.Segments != nil, s.link.Timing, s.link.Idle, s.link.MaxLinks, strings.Join(s.mu.events, "\n")))
}
