package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/topo"
)

// Launchers of several hosts meet in a coordination service of their own, which the first one runs at
// Config.Coordinator. Each is a task of job "launcher" there, so a host that is lost is found as a lost
// task is. What they say to each other are keys, each read once, in the order of their numbers:
//
//	hello/NODE                     that a launcher is there, and which life of it
//	to/NODE/INCARNATION/NUMBER     an order for it
//	from/NODE/INCARNATION/NUMBER   a message of it

const (
	launcherJob     = "launcher"
	launcherBeat    = 10 * time.Second // how long a launcher may be silent
	launcherOutage  = 30 * time.Second // how long the first launcher may be out of reach
	farewellTimeout = 5 * time.Second  // for the others to read how the job ended
)

func launcher(node int) serry.TaskID { return serry.TaskID{Job: launcherJob, Index: node} }

// A hello is what a launcher says of itself when it comes.
type hello struct {
	Incarnation serry.Incarnation
	Host        string
	Tasks       int
	Nodes       int
	Identity    topo.TaskRecord // what the host is
}

// An order is what the first launcher tells another one.
type order struct {
	Start   *seat          `json:",omitempty"`
	Address string         `json:",omitempty"` // of the service, with Start
	Signal  syscall.Signal `json:",omitempty"`
	End     bool           `json:",omitempty"` // the signal is meant to end tasks; SIGKILL ends them at once
	Over    *Report        `json:",omitempty"` // the job has ended so
	Err     string         `json:",omitempty"` // Err of the report
}

// A message is what another launcher tells the first one.
type message struct {
	Died     *died          `json:",omitempty"`
	Left     *left          `json:",omitempty"`
	Retiring syscall.Signal `json:",omitempty"` // it was told to end by this signal, and will
}

// An arrived event says that a host is there, a retiring event that it is about to leave, and a lost
// event that it is gone.
type (
	arrived struct {
		node     int
		host     string
		identity topo.TaskRecord
		hand     *distant
	}
	retiring struct {
		node   int
		signal syscall.Signal
	}
	lost struct {
		node int
		why  string
	}
)

// A meeting is where the first launcher hears of the others, and tells them what to do.
type meeting struct {
	service *hosted
	member  *client.Member
	inbox   chan<- any
	stop    context.CancelFunc
	done    sync.WaitGroup

	mu struct {
		sync.Mutex
		here map[int]*distant // by node
	}
}

// openMeeting opens the meeting of a job on several hosts; that of one on a single host is nil.
func openMeeting(cfg Config, inbox chan<- any) (*meeting, error) {
	if !cfg.several() {
		return nil, nil
	}
	_, port, err := net.SplitHostPort(cfg.Coordinator)
	if err != nil {
		return nil, err
	}
	s, err := serve(server.Config{
		Cluster: coord.Config{HeartbeatTimeout: launcherBeat, Recoverable: true}, Log: cfg.Service.Log,
	}, net.JoinHostPort("", port), launcherJob, cfg.nodes()+cfg.Spares)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &meeting{service: s, inbox: inbox, stop: stop}
	m.mu.here = make(map[int]*distant)
	m.member, err = client.Join(ctx, client.Config{
		Address: net.JoinHostPort("127.0.0.1", port), Task: launcher(0), HeartbeatTimeout: launcherBeat,
	})
	if err != nil {
		stop()
		return nil, errors.Join(err, s.close())
	}
	m.done.Go(func() { m.welcome(ctx, cfg) })
	m.done.Go(func() { m.watch(ctx) })
	return m, nil
}

// tell puts an event into the inbox of the job, unless the meeting is over.
func (m *meeting) tell(ctx context.Context, ev any) {
	select {
	case m.inbox <- ev:
	case <-ctx.Done():
	}
}

// welcome takes in every launcher that comes.
func (m *meeting) welcome(ctx context.Context, cfg Config) {
	for ev, err := range m.member.KV().Watch(ctx, "hello") {
		if err != nil {
			return // the meeting is over
		}
		node, h, err := readHello(ev)
		if err != nil || ev.Deleted {
			continue // not one of ours
		}
		if h.Tasks != cfg.Tasks || h.Nodes != cfg.nodes() {
			cfg.Display.Note(Note{Warning: true, Text: fmt.Sprintf("node %d (%s) is not let in: it was started for %d tasks on each of %d nodes, not %d on %d",
				node, h.Host, h.Tasks, h.Nodes, cfg.Tasks, cfg.nodes())})
			continue
		}
		d := &distant{node: node, incarnation: h.Incarnation, keys: m.member.KV(), orders: make(chan order, 64), gone: make(chan struct{})}
		m.mu.Lock()
		if before := m.mu.here[node]; before != nil {
			before.leave()
		}
		m.mu.here[node] = d
		m.mu.Unlock()
		m.done.Go(func() { d.send(ctx) })
		m.done.Go(func() { d.receive(ctx, func(ev any) { m.tell(ctx, ev) }) })
		m.tell(ctx, arrived{node: node, host: h.Host, identity: h.Identity, hand: d})
	}
}

func readHello(ev client.KeyEvent) (node int, h hello, err error) {
	if node, err = strconv.Atoi(path.Base(ev.Key)); err == nil && !ev.Deleted {
		err = json.Unmarshal(ev.Value, &h)
	}
	return node, h, err
}

// watch finds launchers that are lost, or have left.
func (m *meeting) watch(ctx context.Context) {
	for s, err := range m.member.Watch(ctx) {
		if err != nil {
			return // the meeting is over
		}
		for _, t := range s.Tasks {
			if t.State == serry.Connected {
				continue
			}
			m.mu.Lock()
			d := m.mu.here[t.Task.Index]
			gone := d != nil && d.incarnation == t.Incarnation
			if gone {
				delete(m.mu.here, t.Task.Index)
				d.leave()
			}
			m.mu.Unlock()
			if gone {
				m.tell(ctx, lost{node: t.Task.Index, why: whyLost(t.Err)})
			}
		}
	}
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

// close tells all others how the job ended, and ends the meeting when they have left.
func (m *meeting) close(r Report) error {
	if m == nil {
		return nil
	}
	over := order{Over: &r}
	if r.Err != nil {
		over.Err = r.Err.Error()
	}
	m.mu.Lock()
	for _, d := range m.mu.here {
		d.order(over)
	}
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), farewellTimeout)
	for s, err := range m.member.Watch(ctx) {
		if err != nil || !m.anyHere(s) {
			break
		}
	}
	cancel()
	m.stop()
	m.done.Wait()
	return errors.Join(m.member.Close(), m.service.close())
}

// anyHere says whether another launcher is still connected.
func (m *meeting) anyHere(s serry.Snapshot) bool {
	return slices.ContainsFunc(s.Tasks, func(t serry.TaskInfo) bool { return t.Task.Index > 0 && t.State == serry.Connected })
}

// A distant hand passes orders on to the launcher of another host, and its messages back.
type distant struct {
	node        int
	incarnation serry.Incarnation
	keys        *client.KV
	orders      chan order
	gone        chan struct{} // closed by leave
}

func (d *distant) start(s seat, address string) { d.order(order{Start: &s, Address: address}) }
func (d *distant) end(sig syscall.Signal)       { d.order(order{Signal: sig, End: true}) }
func (d *distant) pass(sig syscall.Signal)      { d.order(order{Signal: sig}) }
func (d *distant) kill()                        { d.order(order{Signal: syscall.SIGKILL, End: true}) }

// order sends an order. Storing one takes no time, so the queue is short.
func (d *distant) order(o order) {
	select {
	case d.orders <- o:
	case <-d.gone:
	}
}

// leave ends the hand. The meeting calls it once.
func (d *distant) leave() { close(d.gone) }

func (d *distant) send(ctx context.Context) {
	for number := 0; ; number++ {
		select {
		case o := <-d.orders:
			if put(ctx, d.keys, d.key("to", number), o) != nil {
				return // the meeting is over
			}
		case <-d.gone:
			return
		case <-ctx.Done():
			return
		}
	}
}

// receive hands messages on until the launcher is gone.
func (d *distant) receive(ctx context.Context, tell func(any)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-d.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	for number := 0; ; number++ {
		var m message
		if err := take(ctx, d.keys, d.key("from", number), &m); err != nil {
			return
		}
		switch {
		case m.Died != nil:
			tell(*m.Died)
		case m.Left != nil:
			tell(*m.Left)
		case m.Retiring != 0:
			tell(retiring{node: d.node, signal: m.Retiring})
		}
	}
}

func (d *distant) key(direction string, number int) string {
	return queueKey(direction, d.node, d.incarnation, number)
}

func queueKey(direction string, node int, life serry.Incarnation, number int) string {
	return fmt.Sprintf("%s/%d/%x/%d", direction, node, uint64(life), number)
}

// put stores a value as JSON.
func put(ctx context.Context, keys *client.KV, key string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return keys.Put(ctx, key, b)
}

// take waits for a value, reads it, and removes it.
func take(ctx context.Context, keys *client.KV, key string, v any) error {
	b, err := keys.Wait(ctx, key)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("key %s: %w", key, err)
	}
	return keys.Delete(ctx, key)
}
