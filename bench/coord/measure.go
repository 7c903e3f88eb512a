package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry/bench/internal/load"
	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/bench/internal/sheet"
	"github.com/serry-dev/serry/wire/xlapb"
)

// A bench is a comparison under way.
type bench struct {
	plan     plan
	peers    []peer
	identity *identity
	python   string // with jaxlib
	sheet    *record
	progress io.Writer
}

// run measures all peers in turn, layout by layout, so that whatever changes on the machine
// meanwhile changes for all of them. Every round another one goes first. A peer that breaks under
// the load lacks the figures of that turn; one that does not even start ends the run.
func (b *bench) run(ctx context.Context) error {
	broken := 0
	for round := range b.plan.rounds {
		first := round % len(b.peers)
		order := slices.Concat(b.peers[first:], b.peers[:first])
		for _, t := range b.turns() {
			for _, p := range order {
				if t.oursOnly && !p.ours {
					continue
				}
				fmt.Fprintf(b.progress, "bench: round %d of %d: %s, %v\n", round+1, b.plan.rounds, p.name, t.layout)
				srv, err := p.start(ctx, t.layout)
				if err != nil {
					return err
				}
				if err := b.one(ctx, p, srv, t); err != nil {
					fmt.Fprintf(b.progress, "bench: error: %s, %v: %v, log:\n%s", p.name, t.layout, err, srv.Log.String())
					broken++
				}
				if err := ctx.Err(); err != nil {
					return err
				}
			}
		}
	}
	if broken > 0 {
		return fmt.Errorf("%d turns failed, see above", broken)
	}
	return nil
}

// A turn is a layout and what is measured of it.
type turn struct {
	layout
	measure  func(context.Context, *subject) error
	oursOnly bool
}

// turns are those of a round.
func (b *bench) turns() []turn {
	var all []turn
	p := b.plan
	for _, n := range p.clusters() {
		all = append(all, turn{layout{tasks: n, conns: n}, b.separate, false})
	}
	if p.has(groupShared) {
		all = append(all, turn{layout{tasks: p.focus, conns: 1}, b.shared, false})
	}
	if p.has(groupTLS) {
		all = append(all, turn{layout{tasks: p.focus, conns: p.focus, identity: b.identity}, b.secure, false})
	}
	if p.has(groupReal) {
		for _, n := range p.real {
			all = append(all, turn{layout{tasks: n, conns: n, real: true}, b.realOwn, false})
		}
		all = append(all, turn{layout{tasks: p.focus, conns: 1, real: true}, b.realShared, false})
	}
	if p.has(groupScale) {
		all = append(all,
			turn{layout{tasks: p.crowd, conns: p.hosts}, b.manyPerConn, true},
			turn{layout{tasks: p.crowd, conns: p.crowd}, b.crowded, true})
	}
	if p.has(groupStreams) {
		all = append(all, turn{layout{tasks: p.crowd, conns: p.streams, streams: true}, b.streamed, false})
	}
	if p.has(groupAbuse) {
		all = append(all, turn{layout{tasks: 1, conns: 1}, b.abused, true})
	}
	return all
}

// A subject is a peer that serves a connected cluster.
type subject struct {
	*server
	*load.Cluster // nil for real clients
	layout        layout
	took          time.Duration // to connect and register
	add           func(m metric, v float64)
}

// one connects a cluster to a server, measures it, and stops it.
func (b *bench) one(ctx context.Context, p peer, srv *server, t turn) error {
	s := &subject{server: srv, layout: t.layout, add: func(m metric, v float64) { b.sheet.add(p.name, m, t.tasks, v) }}
	if t.real {
		defer srv.Kill()
		return t.measure(ctx, s)
	}
	s.Cluster = load.New(t.tasks, t.conns)
	s.Streams = t.streams && p.ours // the stock service gets the same calls over HTTP/2
	defer s.Cluster.Close()
	defer srv.Kill() // before the connections go, which a server takes for a disaster
	took, err := s.Connect(ctx, srv.addr, t.identity.config())
	if err != nil {
		return err
	}
	s.took = took
	return t.measure(ctx, s)
}

// separate measures a cluster whose tasks have a connection each.
func (b *bench) separate(ctx context.Context, s *subject) error {
	sized := slices.Contains(b.plan.sizes, s.Tasks)
	if err := s.settle(ctx); err != nil {
		return err
	}
	if sized && b.plan.has(groupConnect) {
		if err := errors.Join(s.connected(connectTime, resident), s.idle(ctx)); err != nil {
			return err
		}
	}
	if sized && b.plan.has(groupBarrier) {
		if err := s.barriers(ctx, b.plan.waves(s.Tasks), barrierTime, arrivalCPU); err != nil {
			return err
		}
		s.add(callsRefused, float64(s.Refused.Load()))
	}
	if s.Tasks == b.plan.focus && b.plan.has(groupKeys) {
		if err := s.keyRows(ctx, b.plan.keysFor); err != nil {
			return err
		}
	}
	if slices.Contains(b.plan.alive, s.Tasks) && b.plan.has(groupAlive) {
		if err := s.liveSet(ctx); err != nil {
			return err
		}
	}
	if s.Tasks == b.plan.focus && b.plan.has(groupWatch) {
		return s.watch(ctx) // the last: it breaks the cluster
	}
	return nil
}

// shared measures a cluster whose tasks share one connection.
func (b *bench) shared(ctx context.Context, s *subject) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	return s.barriers(ctx, b.plan.waves(s.Tasks), sharedBarrierTime, sharedArrivalCPU)
}

// secure measures a cluster whose connections are encrypted.
func (b *bench) secure(ctx context.Context, s *subject) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	if err := s.connected(secureConnect, secureResident); err != nil {
		return err
	}
	if err := s.barriers(ctx, b.plan.waves(s.Tasks), secureBarrier, secureArrivalCPU); err != nil {
		return err
	}
	return s.keys(ctx, b.plan.keysFor, keyRow{callers, s.Conn, secureKeysRate, secureKeysCPU})
}

// manyPerConn measures the crowd behind a few connections, as relays would carry it.
func (b *bench) manyPerConn(ctx context.Context, s *subject) error {
	return b.largest(ctx, s, hostsRegister, hostsMemory, hostsBarrier, metrics)
}

// crowded measures the crowd with a connection each.
func (b *bench) crowded(ctx context.Context, s *subject) error {
	return b.largest(ctx, s, crowdRegister, crowdMemory, crowdBarrier, crowdCPU)
}

// streamed measures the crowd behind relays, with the calls put into their streams.
func (b *bench) streamed(ctx context.Context, s *subject) error {
	if err := b.largest(ctx, s, streamsRegister, streamsMemory, streamsBarrier, streamsCPU); err != nil {
		return err
	}
	first := func(int) load.Line { return s.Conns[0] }
	for _, r := range []keyRow{
		{callers, s.Conn, streamsKeysRate, streamsKeysCPU},
		{callers, first, streamKeysRate, streamKeysCPU},
	} {
		if err := s.keys(ctx, b.plan.keysFor, r); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) largest(ctx context.Context, s *subject, register, held, barrier, cpu metric) error {
	s.add(register, ms(s.took))
	if err := s.settle(ctx); err != nil {
		return err
	}
	if err := s.barriers(ctx, b.plan.waves(s.Tasks), barrier, cpu); err != nil {
		return err
	}
	_, peak, err := proc.Memory(s.PID)
	s.add(held, mib(peak))
	return err
}

// settle leaves every task as a real one is: waiting for errors, heartbeat sent.
func (s *subject) settle(ctx context.Context) error {
	s.Hold(load.PollForError, s.Polls())
	if _, _, err := s.All(ctx, load.Heartbeat, s.Heartbeats()); err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	return nil
}

// connected records what it took to connect, and what that holds.
func (s *subject) connected(took, held metric) error {
	bytes, _, err := proc.Memory(s.PID)
	s.add(took, ms(s.took))
	s.add(held, mib(bytes))
	return err
}

// spent is the processor time the server uses while f runs.
func (s *subject) spent(f func() error) (time.Duration, error) {
	before, err := proc.CPUTime(s.PID)
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := proc.CPUTime(s.PID)
	return after - before, err
}

// barriers lets all tasks meet a number of times; the round's time is the median. The first is not
// counted: buffers and caches are cold.
func (s *subject) barriers(ctx context.Context, waves int, latency, cpu metric) error {
	meet := func(id string) (time.Duration, error) {
		took, _, err := s.All(ctx, load.Barrier, s.Arrivals(id))
		if err != nil {
			return 0, fmt.Errorf("barrier: %w", err)
		}
		return took, nil
	}
	if _, err := meet("cold"); err != nil {
		return err
	}
	times := make([]float64, waves)
	spent, err := s.spent(func() error {
		for i := range times {
			took, err := meet(fmt.Sprintf("wave-%d", i))
			if err != nil {
				return err
			}
			times[i] = ms(took)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.add(latency, sheet.Median(times))
	s.add(cpu, us(spent)/float64(waves*s.Tasks))
	return nil
}

// liveSets is how often a round asks for the live set.
const liveSets = 8

// liveSet lets all tasks ask a number of times which of them are alive. As with barriers, the first is
// not counted.
func (s *subject) liveSet(ctx context.Context) error {
	requests := s.AliveCalls()
	ask := func() (time.Duration, error) {
		took, last, err := s.All(ctx, load.GetAliveTasks, requests)
		if err != nil {
			return 0, fmt.Errorf("live set: %w", err)
		}
		var reply xlapb.GetAliveTasksResponse
		if err := proto.Unmarshal(last, &reply); err != nil || len(reply.AliveTaskIds) != s.Tasks {
			return 0, fmt.Errorf("live set has %d tasks, error %v: want %d", len(reply.AliveTaskIds), err, s.Tasks)
		}
		return took, nil
	}
	if _, err := ask(); err != nil {
		return err
	}
	times := make([]float64, liveSets)
	spent, err := s.spent(func() error {
		for i := range times {
			took, err := ask()
			if err != nil {
				return err
			}
			times[i] = ms(took)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.add(aliveTime, sheet.Median(times))
	s.add(aliveCPU, us(spent)/float64(liveSets*s.Tasks))
	return nil
}

// watch lets a task fail while all watch, and waits until all have been told.
func (s *subject) watch(ctx context.Context) error {
	_, last, err := s.All(ctx, load.WatchTasks, s.Watches(-1)[:1])
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	var picture xlapb.WatchTasksResponse
	if err := proto.Unmarshal(last, &picture); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	told := s.Hold(load.WatchTasks, s.Watches(picture.VersionNumber))
	// Beats follow the watches on every connection: once they are answered, the watches are there.
	if _, _, err := s.All(ctx, load.Heartbeat, s.Heartbeats()); err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	broken := s.Tasks - 1
	var start, end time.Time
	spent, err := s.spent(func() error {
		accepted := load.NewGather(1)
		start = time.Now()
		s.Conn(broken).Start(broken, load.ReportError, s.Cluster.Failure(broken), accepted.Done)
		s.Conn(broken).Flush()
		if _, _, err := accepted.Wait(ctx); err != nil {
			return fmt.Errorf("report of an error: %w", err)
		}
		end, last, err = told.Wait(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	if err := proto.Unmarshal(last, &picture); err != nil || !shows(&picture, broken) {
		return fmt.Errorf("watch: last answer of %d bytes, error %v: want task %d in error", len(last), err, broken)
	}
	s.add(watchTime, ms(end.Sub(start)))
	s.add(watchCPU, us(spent)/float64(s.Tasks))
	return nil
}

// shows says whether a picture has a task in error.
func shows(picture *xlapb.WatchTasksResponse, task int) bool {
	return slices.ContainsFunc(picture.TaskState, func(t *xlapb.TaskInfo) bool {
		return t.TaskId == int32(task) && t.State == xlapb.TaskState_ERROR
	})
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }
func us(d time.Duration) float64 { return d.Seconds() * 1e6 }
func mib(bytes int64) float64    { return float64(bytes) / (1 << 20) }
