package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/topo"
)

// Launchers of several hosts meet in a coordination service of their own, which the first one runs at
// Config.Coordinator. Each is a task of a job there (see [Config.launchers]), so a host that is lost is found
// as a lost task is. What they say to each other are keys, each read once, in the order of their numbers:
//
//	hello/NODE                     that a launcher is there, and which life of it
//	to/NODE/INCARNATION/NUMBER     an order for it
//	from/NODE/INCARNATION/NUMBER   a message of it

const (
	helloPrefix     = "hello/"
	launcherBeat    = 10 * time.Second // how long a launcher may be silent
	launcherOutage  = 30 * time.Second // how long the first launcher may be out of reach
	farewellTimeout = 5 * time.Second  // for the others to read how the job ended
)

// A hello is what a launcher says of itself when it comes.
type hello struct {
	Incarnation serry.Incarnation
	Host        string
	Tasks       int
	Nodes       int
	Identity    topo.TaskRecord // what the host is
	Wall        time.Time       // on its wall, when it said so
}

// An order is what the first launcher tells another one.
type order struct {
	Start   *seat          `json:",omitempty"`
	Address string         `json:",omitempty"` // of the service, with Start
	Secret  []byte         `json:",omitempty"` // of the attempt, with Start
	Signal  syscall.Signal `json:",omitempty"`
	End     bool           `json:",omitempty"` // the signal is meant to end tasks; SIGKILL ends them at once
	NoLimit bool           `json:",omitempty"` // with End: the grace does not count
	Fail    *failed        `json:",omitempty"` // this task has failed, and is to end
	Over    *Report        `json:",omitempty"` // the job has ended so
	Err     string         `json:",omitempty"` // Err of the report
	Tell    []string       `json:",omitempty"` // what these digests of what ranks do mean
}

// A failed life is one that is to end, although the job may go on.
type failed struct {
	lifetime
	Why string
}

// A message is what another launcher tells the first one.
type message struct {
	Raised   *raised        `json:",omitempty"`
	Classed  *classed       `json:",omitempty"`
	Strayed  *strayed       `json:",omitempty"`
	Died     *died          `json:",omitempty"`
	Left     *left          `json:",omitempty"`
	Retiring syscall.Signal `json:",omitempty"`  // it was told to end by this signal, and will
	Folded   string         `json:"F,omitempty"` // what its ranks do: see folder
	Detail   string         `json:",omitempty"`  // what a digest of Folded means
	Wall     time.Time      `json:",omitzero"`   // on the wall of its host, when it was sent; not with Folded, which is to be short
}

// An arrived event says that a host is there, a retiring event that it is about to leave, and a lost
// event that it is gone. Each is about one life of a launcher, which has a hand of its own.
type (
	arrived struct {
		node     int
		host     string
		identity topo.TaskRecord
		hand     *distant
	}
	retiring struct {
		node   int
		hand   hand
		signal syscall.Signal
	}
	lost struct {
		node int
		hand hand
		why  string
	}
)

// A meeting is where the first launcher hears of the others, and tells them what to do.
//
// Launchers are known from two sources, which do not wait for each other: their hellos, which are keys,
// and the view of the service on who is connected. A hello may be read when its sender is long dead, and
// the view may skip a life that was short. So a launcher is let in only where a view that was asked for
// after its hello has it connected, and it is lost in every later view that does not. All that the job
// hears of launchers comes by one queue, in the order in which the meeting found it out: a launcher
// arrives before it is lost.
type meeting struct {
	service *hosted
	member  *attendant
	inbox   chan<- any
	feed    *feed
	events  *queue[any] // for the inbox
	stop    context.CancelFunc
	done    sync.WaitGroup

	mu struct {
		sync.Mutex
		here map[int]*distant // by node
		unfolder
	}
}

// meetingBacklog bounds the events that wait for the job, which never makes them wait for long.
const meetingBacklog = 1 << 16

// openMeeting opens the meeting of a job on several hosts; that of one on a single host is nil.
func openMeeting(cfg Config, w world, f *feed, inbox chan<- any) (*meeting, error) {
	if !cfg.several() {
		return nil, nil
	}
	l, err := w.listen(cfg.Coordinator)
	if err != nil {
		return nil, err
	}
	at := reachable(l.Addr(), cfg.Coordinator)
	f.note(Note{Text: trustText(l.Addr())})
	s, err := serve(server.Config{
		Cluster: coord.Config{HeartbeatTimeout: launcherBeat, Recoverable: true}, Log: meetingLog(f, cfg.Service.Log),
	}, l, cfg.launchers(), cfg.nodes()+cfg.Spares)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &meeting{service: s, inbox: inbox, feed: f, events: newQueue[any](meetingBacklog), stop: stop}
	m.mu.here = make(map[int]*distant)
	m.mu.unfolder = unfolder{make(map[string][]byte), make(map[string][]heldTask), make(map[string]tellOrder)}
	if m.member, err = joinMeeting(ctx, w.connect, at, client.Config{Task: cfg.launcher(0), HeartbeatTimeout: launcherBeat}); err != nil {
		stop()
		return nil, errors.Join(err, s.close())
	}
	m.done.Go(func() { m.welcome(ctx, cfg) })
	m.done.Go(func() { m.watch(ctx) })
	m.done.Go(func() { m.tell(ctx) })
	return m, nil
}

// reachable is the address by which the first launcher reaches its own meeting: where it listens, or, if that
// is everywhere, the loopback address.
func reachable(at net.Addr, coordinator string) string {
	_, port, _ := net.SplitHostPort(coordinator) // it is well formed
	if tcp, ok := at.(*net.TCPAddr); ok && !tcp.IP.IsUnspecified() {
		return net.JoinHostPort(tcp.IP.String(), port)
	}
	return net.JoinHostPort("127.0.0.1", port)
}

// trustText says whom the meeting trusts: it is plain text, and has no way to tell launchers from others.
func trustText(at net.Addr) string {
	const plain = "launchers meet on %v in plain text: %s is trusted as a host of this job"
	tcp, ok := at.(*net.TCPAddr)
	switch {
	case ok && tcp.IP.IsUnspecified():
		return fmt.Sprintf(plain, fmt.Sprintf("port %d of every address of this host", tcp.Port), "whatever reaches it")
	case ok && tcp.IP.IsLoopback():
		return fmt.Sprintf(plain, at, "every process of this host")
	}
	return fmt.Sprintf(plain, at, "whatever reaches this address")
}

// An attendant is a launcher at the meeting, with its connection.
type attendant struct {
	*client.Member
	line client.Transport
}

// joinMeeting joins the meeting at an address.
func joinMeeting(ctx context.Context, connect connector, address string, cfg client.Config) (*attendant, error) {
	line, err := client.Dial(address, client.DialOptions{Connect: connect})
	if err != nil {
		return nil, err
	}
	cfg.Transport = line
	m, err := client.Join(ctx, cfg)
	if err != nil {
		line.Close()
		return nil, err
	}
	return &attendant{m, line}, nil
}

// Close ends the launcher at the meeting, without a goodbye where it has not said one.
func (a *attendant) Close() error { return errors.Join(a.Member.Close(), a.line.Close()) }

// tell puts events into the inbox of the job, until the meeting is over.
func (m *meeting) tell(ctx context.Context) {
	for {
		ev, ok := m.events.next(ctx.Done())
		if !ok {
			return
		}
		select {
		case m.inbox <- ev:
		case <-ctx.Done():
			return
		}
	}
}

// welcome takes in every launcher that comes.
func (m *meeting) welcome(ctx context.Context, cfg Config) {
	notes := newNonsenseNotes(m.feed)
	for ev, err := range m.member.KV().Watch(ctx, "hello") {
		if err != nil {
			return // the meeting is over
		}
		if ev.Deleted {
			continue
		}
		node, h, err := readHello(ev, cfg)
		if err != nil {
			notes.drop("the hello of a launcher", err)
			continue
		}
		if !m.greet(ctx, cfg, node, h, notes) {
			return
		}
	}
}

// greet lets a launcher in that has said hello, if it is there and was started for this job. It says whether
// the meeting goes on.
func (m *meeting) greet(ctx context.Context, cfg Config, node int, h hello, notes *nonsenseNotes) bool {
	left, farewell := context.WithCancel(context.Background())
	d := &distant{node: node, incarnation: h.Incarnation, keys: m.member.KV(), orders: newQueue[order](ordersAhead), left: left, farewell: farewell, gone: make(chan struct{}), host: h.Host, came: h.Wall, ran: make(map[int]ranTask)}
	if h.Tasks != cfg.Tasks || h.Nodes != cfg.nodes() {
		m.turnAway(ctx, d, h, cfg, notes)
		return true
	}
	now, err := m.member.Tasks(ctx)
	if err != nil {
		return false
	}
	i, ok := find(now, node)
	if here := ok && i.Incarnation == h.Incarnation && i.State == serry.Connected; !here && cfg.planted != unseenHello {
		return true // it has gone since
	}
	m.admit(ctx, cfg, d, h, now.Version)
	return true
}

// find is what a snapshot says of a launcher.
func find(s serry.Snapshot, node int) (serry.TaskInfo, bool) {
	i := slices.IndexFunc(s.Tasks, func(t serry.TaskInfo) bool { return t.Task.Index == node })
	if i < 0 {
		return serry.TaskInfo{}, false
	}
	return s.Tasks[i], true
}

// turnAway tells a launcher that was started for another job that it is not let in.
func (m *meeting) turnAway(ctx context.Context, d *distant, h hello, cfg Config, notes *nonsenseNotes) {
	why := fmt.Sprintf("it was started for %d ranks on each of %d nodes, not %d on %d", h.Tasks, h.Nodes, cfg.Tasks, cfg.nodes())
	notes.warn(fmt.Sprintf("node %d (%s) is not let in: %s", d.node, h.Host, why))
	// If it cannot be told, it is gone.
	_ = put(ctx, d.keys, d.key("to", 0), order{Over: &Report{}, Err: fmt.Sprintf("the launcher of node 0 does not let node %d in: %s", d.node, why)})
}

// admit lets a launcher in that was connected at a version of the view. A life that is here already has said
// hello before: whatever wrote its hello again, it is not started anew.
func (m *meeting) admit(ctx context.Context, cfg Config, d *distant, h hello, version int64) {
	d.since = version
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.mu.here[d.node]
	if before != nil && before.incarnation == d.incarnation {
		return
	}
	m.mu.here[d.node] = d
	if before != nil {
		before.leave()
		m.forget(before)
	}
	m.events.put(arrived{node: d.node, host: h.Host, identity: h.Identity, hand: d})
	m.done.Go(func() { d.send(ctx, m) })
	m.done.Go(func() { d.receive(ctx, m, cfg) })
}

// drop takes a launcher out that is lost.
func (m *meeting) drop(d *distant, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.here[d.node] != d {
		return // another life of it is here
	}
	delete(m.mu.here, d.node)
	m.forget(d)
	d.leave()
	m.events.put(lost{node: d.node, hand: d, why: why})
}

// pass hands a message of a launcher on to the job, unless the launcher is lost. It says whether it is
// still here.
func (m *meeting) pass(d *distant, ev any) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.here[d.node] == d && m.events.put(ev)
}

// readHello reads and checks what a launcher says of itself.
func readHello(ev client.KeyEvent, cfg Config) (node int, h hello, err error) {
	if node, err = helloNode(ev.Key, cfg); err != nil {
		return 0, h, err
	}
	if err := read(ev.Key, ev.Value, &h); err != nil {
		return 0, h, err
	}
	return node, h, h.check()
}

// watch finds launchers that are lost, or have left.
func (m *meeting) watch(ctx context.Context) {
	for s, err := range m.member.Watch(ctx) {
		if err != nil {
			return // the meeting is over
		}
		for _, d := range m.present() {
			t, ok := find(s, d.node)
			if s.Version < d.since || ok && t.Incarnation == d.incarnation && t.State == serry.Connected {
				continue
			}
			if ok && t.Incarnation == d.incarnation && t.Err == nil {
				d.farewell()
				continue
			}
			why := "another launcher took its place"
			if t.Incarnation == d.incarnation {
				why = whyLost(t.Err)
			}
			m.drop(d, why)
		}
	}
}

// present lists the launchers that are here, by number.
func (m *meeting) present() []*distant {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*distant
	for _, node := range sortedKeys(m.mu.here) {
		all = append(all, m.mu.here[node])
	}
	return all
}

func whyLost(err error) string {
	switch e, ok := errors.AsType[*serry.TaskError](err); {
	case err == nil:
		return "its launcher has left"
	case ok && e.Evidence != "":
		return e.Evidence
	case ok && errors.Is(e, serry.ErrTaskDead):
		return fmt.Sprintf("no word of its launcher for %v", launcherBeat)
	}
	return err.Error()
}

// close tells all others how the job ended, and ends the meeting when they have left, or hurry is
// closed.
func (m *meeting) close(r Report, hurry <-chan struct{}) error {
	if m == nil {
		return nil
	}
	over := order{Over: &r}
	if r.Err != nil {
		over.Err = r.Err.Error()
	}
	for _, d := range m.present() {
		d.order(over)
	}
	ctx, cancel := context.WithTimeout(context.Background(), farewellTimeout)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-hurry:
			cancel()
		case <-ctx.Done():
		}
	})
	for s, err := range m.member.Watch(ctx) {
		if err != nil || !m.anyHere(s) {
			break
		}
	}
	cancel()
	waiting.Wait()
	m.stop()
	m.disband()
	m.done.Wait()
	return errors.Join(m.member.Close(), m.service.close())
}

// disband takes out all launchers that have not left.
func (m *meeting) disband() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for node, d := range m.mu.here {
		delete(m.mu.here, node)
		d.leave()
	}
}

// anyHere says whether another launcher is still connected.
func (m *meeting) anyHere(s serry.Snapshot) bool {
	return slices.ContainsFunc(s.Tasks, func(t serry.TaskInfo) bool { return t.Task.Index > 0 && t.State == serry.Connected })
}

// A distant hand passes orders on to the launcher of another host, and its messages back.
type distant struct {
	node        int
	incarnation serry.Incarnation
	since       int64 // version of the view in which it was connected
	keys        *client.KV
	orders      *queue[order]
	left        context.Context    // ends when the launcher has left: its last messages are still to be read
	farewell    context.CancelFunc // ends it
	gone        chan struct{}      // closed by leave
	host        string
	came        time.Time       // what its clock showed when it said hello
	skew        skewMeter       // owned by receive
	ran         map[int]ranTask // guarded by the lock of the meeting
}

// ordersAhead is how many orders wait to be stored. A launcher for which there are more does not take
// them, and is given up.
const ordersAhead = 1 << 16

func (d *distant) start(s seat, at contact) {
	d.order(order{Start: &s, Address: at.address, Secret: at.secret})
}
func (d *distant) end(sig syscall.Signal, unlimited bool) {
	d.order(order{Signal: sig, End: true, NoLimit: unlimited})
}
func (d *distant) pass(sig syscall.Signal)     { d.order(order{Signal: sig}) }
func (d *distant) fail(l lifetime, why string) { d.order(order{Fail: &failed{l, why}}) }
func (d *distant) kill()                       { d.order(order{Signal: syscall.SIGKILL, End: true}) }

// order sends an order. It never waits.
func (d *distant) order(o order) {
	if !d.orders.put(o) {
		d.orders.close() // send gives the launcher up when it has stored the others
	}
}

// leave ends the hand. The meeting calls it once.
func (d *distant) leave() {
	d.farewell()
	close(d.gone)
}

// send stores orders until the launcher is gone.
func (d *distant) send(ctx context.Context, m *meeting) {
	for number := 0; ; number++ {
		o, ok := d.orders.next(d.gone)
		if !ok {
			m.drop(d, "its launcher does not take orders") // unless it has left
			return
		}
		if enqueue(ctx, d.keys, d.key("to", number), o) != nil {
			return // the meeting is over
		}
	}
}

// receive hands messages on until the launcher is gone.
func (d *distant) receive(ctx context.Context, m *meeting, cfg Config) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.done.Go(func() {
		select {
		case <-d.gone:
			cancel()
		case <-ctx.Done():
		}
	})
	notes := newNonsenseNotes(m.feed)
	d.hearClock(m, d.came, cfg)
	for number := 0; ; {
		var msg message
		err := d.take(ctx, d.key("from", number), &msg)
		if err == nil {
			err = msg.check(cfg)
		}
		switch {
		case errors.Is(err, errNonsense):
			notes.drop(fmt.Sprintf("a message of node %d", d.node), err)
			continue
		case errors.Is(err, errLeft):
			m.drop(d, whyLost(nil))
			return
		case err != nil:
			if ctx.Err() == nil {
				m.drop(d, err.Error())
			}
			return
		}
		number++
		d.hearClock(m, msg.Wall, cfg)
		if err := m.folded(d, msg, cfg); err != nil {
			notes.drop(fmt.Sprintf("a message of node %d", d.node), err)
		}
		if ev := msg.event(d); ev != nil && !m.pass(d, ev) {
			m.drop(d, "more of its messages wait than can be")
			return
		}
	}
}

// errLeft says that a launcher has left, and all its messages are read.
var errLeft = errors.New("has left")

// take waits for a message of the launcher. Of one that has left it takes what it stored before, such as how its last rank has ended.
func (d *distant) take(ctx context.Context, key string, v any) error {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(d.left, stop)()
	b, err := d.keys.Wait(waiting, key)
	if err != nil && d.left.Err() != nil && ctx.Err() == nil {
		if b, err = d.keys.Get(ctx, key); errors.Is(err, serry.ErrNotFound) {
			return errLeft
		}
	}
	return remove(ctx, d.keys, key, b, err, v)
}

// hearClock compares the clock of the launcher with that of this host.
func (d *distant) hearClock(m *meeting, wall time.Time, cfg Config) {
	if ahead, news := d.skew.hear(wall, cfg.wall()); news {
		m.pass(d, skewed{hand: d, node: d.node, host: d.host, ahead: ahead})
	}
}

// event is what a message means for the job; nil for one of a later version.
func (m message) event(from *distant) any {
	switch {
	case m.Raised != nil:
		m.Raised.from = from
		return *m.Raised
	case m.Classed != nil:
		m.Classed.from = from
		return *m.Classed
	case m.Strayed != nil:
		m.Strayed.from = from
		return *m.Strayed
	case m.Died != nil:
		m.Died.from = from
		return *m.Died
	case m.Left != nil:
		m.Left.from = from
		return *m.Left
	case m.Retiring != 0:
		return retiring{node: from.node, hand: from, signal: m.Retiring}
	}
	return nil
}

func (d *distant) key(direction string, number int) string {
	return queueKey(direction, d.node, d.incarnation, number)
}

func queueKey(direction string, node int, life serry.Incarnation, number int) string {
	return fmt.Sprintf("%s/%d/%x/%d", direction, node, uint64(life), number)
}

// put stores a value as JSON, whatever was there.
func put(ctx context.Context, keys *client.KV, key string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return keys.Put(ctx, key, b)
}

// enqueuePause is how long the writer of a queue waits for the reader to drop a value of another process.
const enqueuePause = 10 * time.Millisecond

// enqueue stores a value as JSON at its place in a queue. A value that another process has written there is not
// replaced: the reader may have read it and be about to remove it, and would remove the new one unread.
func enqueue(ctx context.Context, keys *client.KV, key string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	for {
		if err := keys.Create(ctx, key, b); !errors.Is(err, serry.ErrExists) {
			return err
		}
		if err := pause.For(ctx, enqueuePause); err != nil {
			return err
		}
	}
}

// take waits for a value, removes it, and reads it. One that cannot be read is errNonsense.
func take(ctx context.Context, keys *client.KV, key string, v any) error {
	b, err := keys.Wait(ctx, key)
	return remove(ctx, keys, key, b, err, v)
}

// remove removes a value that was got, if there was no error, and reads it.
func remove(ctx context.Context, keys *client.KV, key string, b []byte, err error, v any) error {
	if err != nil {
		return err
	}
	if err := keys.Delete(ctx, key); err != nil {
		return err
	}
	return read(key, b, v)
}

// read reads a value that another process has stored.
func read(key string, b []byte, v any) error {
	if len(b) > mostValueBytes {
		return nonsense("key %s has %d bytes", key, len(b))
	}
	if err := json.Unmarshal(b, v); err != nil {
		return nonsense("key %s: %v", key, err)
	}
	return nil
}
