package storm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/history"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/wire/stream"
)

// Options say how a schedule is played.
type Options struct {
	Planted plant.Faults // to test that they are found
	Dir     string       // where the one server has a real file; empty: servers share a journal in memory
	Etcd    string       // where a real etcd is that the servers share; in real time, not in a bubble
	Cliques bool         // the tasks run collective operations over links, see cliques.go
	Steps   bool         // the tasks train in steps over such links, see cliquesteps.go
	Large   bool         // every fleet is large, not one in ten
	Without []string     // kinds of faults that do not happen, to find out which one a failure needs
	Verbose bool         // the trace has what servers, relays and clients log, too
}

const (
	heartbeatTimeout = 10 * time.Second
	patience         = 3 * time.Minute // of a schedule; then whoever has not ended hangs
	job              = "worker"
	firstService     = serry.Incarnation(77)
)

// A world is one schedule under way.
type world struct {
	seed    uint64
	plan    *plan
	options Options
	fabric  *fabric
	disk    medium
	judge   *cliqueJudge // of a job with cliques, or nil
	sites   []*site
	hosts   []*host
	clock   history.Clock
	begin   time.Time
	work    sync.WaitGroup // everything that runs for the world
	living  sync.WaitGroup // programs that have not ended, and lives that are to come
	ended   chan struct{}  // closed when no more faults may strike
	broken  chan struct{}  // in real time: closed when something is wrong, so that the rest is not waited for; else nil

	mu struct {
		sync.Mutex
		over    bool
		armed   []fault // that wait for a chance
		restart *rand.Rand
		disk    *rand.Rand
		kills   *rand.Rand
		procs   []*proc       // all that ever were
		lives   map[int]*proc // the last of each task

		services map[int]serry.Incarnation // by epoch: what its tasks were told
		report   Report
		lost     bool // somebody was killed

		reporters map[int]bool // tasks that reported an error

		damaged  bool // a server has found its journal damaged
		reckoned bool // the schedule is over, because of a rollback

		versions versions

		returning int  // lives that are to come
		closing   bool // all programs are done
	}
}

// casualty notes that the world killed a process, and hasCasualty says whether it did.
func (w *world) casualty() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.lost = true
}

func (w *world) hasCasualty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.lost
}

// Run plays the schedule of a seed. It must be called in a testing/synctest bubble, unless the journal lies in etcd.
func Run(seed uint64, o Options) *Report {
	switch {
	case o.Steps:
		return play(seed, drawSteps(seed), o)
	case o.Cliques:
		return play(seed, drawCliques(seed), o)
	}
	return play(seed, draw(seed, o), o)
}

func play(seed uint64, p *plan, o Options) *Report {
	w := &world{seed: seed, plan: p, options: o, begin: time.Now(), ended: make(chan struct{})}
	if o.Etcd != "" {
		w.broken = make(chan struct{})
	}
	w.mu.report = Report{Seed: seed, Plan: w.plan.String(), Struck: make(map[string]int)}
	w.mu.restart, w.mu.disk = dice(seed, forRestarts, 0), dice(seed, forDisk, 0)
	w.mu.kills = dice(seed, forKills, 0)
	w.mu.lives = make(map[int]*proc)
	w.mu.reporters = make(map[int]bool)
	w.mu.services = map[int]serry.Incarnation{0: firstService}
	w.mu.versions.next = make([]bool, w.plan.sites)
	w.fabric = &fabric{seed: seed, weather: w.plan.net}
	w.disk = newMedium(w)
	for i := range w.plan.sites {
		w.sites = append(w.sites, newSite(w, "site"+strconv.Itoa(i)+":1"))
	}
	for i := range w.plan.hosts {
		w.hosts = append(w.hosts, newHost(w, i))
	}
	for _, s := range w.sites {
		s.start()
	}
	for _, h := range w.hosts {
		h.start()
	}
	if w.plan.mode == cliques {
		w.judge = newCliqueJudge(w)
	}
	for i := range w.plan.tasks {
		w.launch(i, w.hostOf(i), 0, 0)
	}
	switch w.plan.mode {
	default:
		for _, f := range w.plan.faults {
			if !slices.Contains(o.Without, string(f.kind)) {
				w.after(f.at, func() { w.inflict(f) })
			}
		}
	case cliques:
		w.living.Add(1)
		w.work.Go(w.disturbCliques)
	case idle:
		w.work.Go(w.disturb)
	case quiet:
		w.living.Add(1)
		w.work.Go(w.bereave)
	}
	w.await()
	w.end()
	w.audit()
	w.disk.remove()
	for _, p := range w.mu.procs {
		if p.mu.lived.From != 0 {
			w.mu.report.Lives = append(w.mu.report.Lives, p.mu.lived)
		}
	}
	return &w.mu.report
}

// version is what the nth of several parts says on streams.
func (w *world) version(n int) stream.Version {
	v := stream.Speaks()
	if w.plan.mixed {
		v.Minor += uint32(n % 2)
	}
	return v
}

func (w *world) serverConfig() server.Config {
	return server.Config{
		Cluster: coord.Config{
			Jobs:             []coord.Job{{Name: job, Tasks: w.plan.tasks}},
			Service:          firstService,
			RegisterBarrier:  true,
			RegisterTimeout:  time.Hour,
			HeartbeatTimeout: heartbeatTimeout,
			ShutdownTimeout:  5 * time.Minute,
			Recoverable:      w.plan.recoverable,
			Planted:          w.options.Planted,
		},
		Planted:       w.options.Planted,
		SnapshotBytes: w.plan.snapshots,
		Log:           w.log("server"),
	}
}

// after runs f later, unless the schedule is over by then.
func (w *world) after(d time.Duration, f func()) {
	w.work.Go(func() {
		select {
		case <-time.After(d):
		case <-w.ended:
			return
		}
		if !w.over() {
			f()
		}
	})
}

// over says whether the schedule has ended.
func (w *world) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.over
}

// log is where a part of the world logs. What it says of broken frames is judged: the network of a world
// neither loses nor changes nor mixes the bytes of a connection. So is what it says of a damaged journal.
func (w *world) log(who string) *slog.Logger { return w.logOf(nil, who) }

// logOf is the log of a process of a site, or of another part. What it says of versions is judged, too.
func (w *world) logOf(p *process, who string) *slog.Logger {
	text := slog.NewTextHandler(traceWriter{w, who}, &slog.HandlerOptions{Level: slog.LevelDebug})
	return slog.New(&censor{text, w, who, p})
}

// A censor looks at every record of a log, and passes it on if the trace is to have it.
type censor struct {
	slog.Handler
	world *world
	who   string
	of    *process // whose log it is; or nil
}

// Handle implements slog.Handler.
func (c *censor) Handle(ctx context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		switch {
		case ok && stream.Broken(err):
			c.world.wrong("%s: %s: %v", c.who, r.Message, err)
		case ok && errors.Is(err, store.ErrDamaged):
			c.world.damaged("%s: %s: %v", c.who, r.Message, err)
		case ok && c.of != nil:
			c.of.refuses(err)
		}
		return true
	})
	if !c.world.options.Verbose {
		return nil
	}
	return c.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (c *censor) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &censor{c.Handler.WithAttrs(attrs), c.world, c.who, c.of}
}

// A traceWriter makes lines of a log notes.
type traceWriter struct {
	world *world
	who   string
}

func (t traceWriter) Write(b []byte) (int, error) {
	_, text, _ := strings.Cut(string(b), " ") // without the time, which every note has
	t.world.note("  %s: %s", t.who, strings.TrimSpace(text))
	return len(b), nil
}

// note adds a line to what a failure prints.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.report.Trace = append(w.mu.report.Trace, fmt.Sprintf("%8.3f ", time.Since(w.begin).Seconds())+fmt.Sprintf(format, args...))
}

// wrong notes something that must not be.
func (w *world) wrong(format string, args ...any) {
	w.mu.Lock()
	much := len(w.mu.report.Wrong) >= 5
	w.mu.Unlock()
	if much {
		return // the first ones tell
	}
	w.note("WRONG: "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil && len(w.mu.report.Wrong) == 0 {
		close(w.broken)
	}
	w.mu.report.Wrong = append(w.mu.report.Wrong, fmt.Sprintf(format, args...))
}

// await returns when all programs have ended, or when that takes too long.
func (w *world) await() {
	done := make(chan struct{})
	w.work.Go(func() {
		w.living.Wait()
		close(done)
	})
	select {
	case <-done:
		return
	case <-w.broken:
	case <-time.After(patience + w.plan.lasts):
		for _, p := range w.processes() {
			if what := p.doing(); what != "" {
				w.wrong("task %d life %d has not ended: %s", p.task, p.life, what)
			}
		}
	}
	w.mu.Lock()
	w.mu.over = true // no life comes after those that are killed now
	w.mu.Unlock()
	for _, p := range w.processes() {
		p.kill("the schedule is over")
	}
	<-done
}

func (w *world) processes() []*proc {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.mu.procs)
}

// end stops everything.
func (w *world) end() {
	w.mu.Lock()
	w.mu.over = true
	w.mu.armed = nil
	w.mu.Unlock()
	close(w.ended)
	for _, s := range w.sites {
		s.place.open(frozen, deaf, mute)
		s.kill(time.Hour, "the end")
	}
	for _, h := range w.hosts {
		h.place.open(frozen, deaf, mute)
		h.stop()
	}
	w.work.Wait()
}

// audit reads what the journal says in the end, by a server that knows nothing else.
func (w *world) audit() {
	w.disk.expire()
	w.disk.calm()
	srv, err := w.auditor()
	if err != nil {
		w.damaged("audit: the journal cannot be read: %v", err)
		return
	}
	defer srv.Close()
	a := &proc{world: w, task: -1, port: newPort(srv.Handler())}
	defer a.port.close()
	a.epoch = len(w.mu.services) - 1
	for _, key := range w.mu.report.keys(a.epoch) {
		a.get(key)
	}
}

// auditor is a server on the journal as it is.
func (w *world) auditor() (*server.Server, error) {
	seat, err := w.disk.open()
	if err != nil {
		return nil, err
	}
	reign, err := seat.Campaign(context.Background(), store.Candidate{Address: "audit:1"})
	if err != nil {
		seat.kill()
		return nil, err
	}
	w.mu.report.Reigns = w.disk.terms(reign.Term())
	cfg := w.serverConfig()
	cfg.Cluster.NextVersion = w.plan.rolls
	cfg.Journal = reign
	srv, err := server.New(cfg)
	if err != nil {
		seat.kill()
	}
	return srv, err
}

// hostOf is the host of a task, or nil where Go programs need none.
func (w *world) hostOf(task int) *host {
	if len(w.hosts) == 0 {
		return nil
	}
	return w.hosts[task%len(w.hosts)]
}

// caller is a place that calls the service: a host, or a Go program.
func (w *world) caller(i int) *place {
	if i < len(w.hosts) {
		return w.hosts[i].place
	}
	return w.last(w.plan.tasks - 1 - (i - len(w.hosts))).place
}

// servers are the addresses of all sites.
func (w *world) servers() (all []string) {
	for _, s := range w.sites {
		all = append(all, s.place.name)
	}
	return all
}

// dial connects a place with a site.
func (w *world) dial(ctx context.Context, from *place, address string) (net.Conn, error) {
	s := w.site(address)
	if s == nil {
		return nil, errRefused
	}
	return w.fabric.dial(ctx, from, s.place)
}
