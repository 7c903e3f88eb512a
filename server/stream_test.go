package server_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/lab/shareddisk"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
	"github.com/serry-dev/serry/wire/tfpb"
	"github.com/serry-dev/serry/wire/xlapb"
)

// pair starts a server of two tasks, each behind a relay of its own, with an error poll each.
func pair(t *testing.T) (s *server.Server, hosts [2]*host, polls [2]rpc.CallID) {
	t.Helper()
	s = start(t, cluster(2))
	for i := range hosts {
		hosts[i] = dialHost(t, s, stream.Relay)
		hosts[i].register(i)
	}
	synctest.Wait()
	for i, h := range hosts {
		if st, ok := h.known(incarnation(i)); !ok || st.State != serry.Connected || st.Service != s.View().Service {
			t.Fatalf("host %d knows %+v of its task; want it connected", i, st)
		}
		polls[i] = h.poll(i)
	}
	return s, hosts, polls
}

func TestSilentHost(t *testing.T) {
	lab.Clause(t, "C-LOST-5", "NEW-36")
	synctest.Test(t, func(t *testing.T) {
		s, hosts, polls := pair(t)
		if got := metric(t, s, "serry_hosts"); got != 2 {
			t.Errorf("serry_hosts = %v; want 2", got)
		}
		hosts[1].cut(true)
		began := time.Now()
		for hosts[0].waits(polls[0]) && time.Since(began) < time.Minute {
			time.Sleep(50 * time.Millisecond)
		}
		if took := time.Since(began); took < stream.SilentAfter || took > 5*time.Second {
			t.Errorf("the loss of a host was known after %v; want 4 s to 5 s", took)
		}
		if text := wantText(t, hosts[0].reply(polls[0]), codes.Unavailable); !strings.Contains(text, "task 1: host silent") {
			t.Errorf("PollForError() = %q; want that the host of task 1 is silent", text)
		}
	})
}

// What a stream lives through.
func TestNoVerdictOnStreams(t *testing.T) {
	lab.Clause(t, "C-LOST-4", "C-LOST-5", "NEW-35", "NEW-36")
	for name, trouble := range map[string]func(h *host){
		"broken connection": func(h *host) { h.cut(false) },
		"away for 2 s": func(h *host) {
			h.cut(true)
			time.Sleep(2 * time.Second)
			h.back()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, hosts, polls := pair(t)
				trouble(hosts[1])
				beating(2*timeout, map[*host][]int{hosts[0]: {0}, hosts[1]: {1}})
				for i, h := range hosts {
					if !h.waits(polls[i]) {
						t.Errorf("poll %d ended: %v", i, h.reply(polls[i]).Status)
					}
				}
				if got := s.View().Tasks[1].State; got != serry.Connected {
					t.Errorf("task 1 is %v; want it connected", got)
				}
			})
		})
	}
}

func TestHeartbeatsByBeats(t *testing.T) {
	lab.Clause(t, "A-SIDE-3", "C-HB-8", "T-RLY-6")
	synctest.Test(t, func(t *testing.T) {
		_, hosts, polls := pair(t)
		beating(3*timeout, map[*host][]int{hosts[0]: {0}, hosts[1]: {1}})
		if !hosts[0].waits(polls[0]) {
			t.Fatalf("a task is lost although its relay heard it: %v", hosts[0].reply(polls[0]).Status)
		}
		began := time.Now() // task 1 is paused, its relay beats on
		for hosts[0].waits(polls[0]) && time.Since(began) < time.Hour {
			beating(timeout/4, map[*host][]int{hosts[0]: {0}})
		}
		if took := time.Since(began); took < timeout/2 || took > timeout+timeout/2 {
			t.Errorf("silence was found after %v; want about %v", took, timeout)
		}
		if text := wantText(t, hosts[0].reply(polls[0]), codes.Unavailable); !strings.Contains(text, "heartbeat") {
			t.Errorf("PollForError() = %q; want missing heartbeats", text)
		}
		st, _ := hosts[1].known(incarnation(1))
		if err := wire.UnmarshalError(st.Error); st.State != serry.Failed || err == nil || !strings.Contains(err.Error(), "worker/1") {
			t.Errorf("the host of task 1 knows %v, %v; want it failed, with the reason", st.State, err)
		}
	})
}

func TestVirtualConnectionsAreEvidence(t *testing.T) {
	lab.Clause(t, "C-LOST-4", "A-SIDE-12", "T-RLY-8")
	synctest.Test(t, func(t *testing.T) {
		_, hosts, polls := pair(t)
		hosts[1].Shut(2, stream.Closed)
		hosts[1].Host.Flush()
		time.Sleep(server.DefaultLostGrace / 2)
		if !hosts[0].waits(polls[0]) {
			t.Fatal("there was no grace")
		}
		time.Sleep(time.Second)
		if text := wantText(t, hosts[0].reply(polls[0]), codes.Unavailable); !strings.Contains(text, "task 1: connection closed") {
			t.Errorf("PollForError() = %q", text)
		}
	})
}

// A connection closes while no server leads. The next leader has never heard of it, and learns of it by the
// report of the relay; whoever speaks for a former life changes nothing.
func TestClosedConnectionIsReported(t *testing.T) {
	lab.Clause(t, "A-SIDE-12", "C-LOST-4", "T-RLY-8")
	synctest.Test(t, func(t *testing.T) {
		disk := shareddisk.New(shareddisk.Config{})
		l, seat := serveOn(t, disk, cluster(2))
		h := dialHost(t, l.Server, stream.Relay)
		h.register(0)
		h.register(1)
		poll := h.poll(0)
		h.poll(1)
		h.cut(true)
		h.Shut(2, stream.Closed)
		h.Closed(stream.Closure{Life: serry.Life{Task: serry.TaskID{Index: 1}, Incarnation: incarnation(1)}})
		h.Closed(stream.Closure{Life: serry.Life{Task: serry.TaskID{Index: 0}, Incarnation: 999}})
		l, _ = succeed(t, l, seat, disk, cluster(2), time.Second)
		h.follow(l.Server)
		h.back()
		time.Sleep(time.Second)
		synctest.Wait()
		if text := wantText(t, h.reply(poll), codes.Unavailable); !strings.Contains(text, "task 1: connection closed") {
			t.Errorf("PollForError() = %q; want the connection of task 1", text)
		}
		if st, _ := h.known(incarnation(1)); st.State != serry.Failed {
			t.Errorf("the relay was told that task 1 is %v; want failed, so that it does not report it again", st.State)
		}
		if st, ok := h.known(999); !ok || st.State != serry.Disconnected {
			t.Errorf("the relay was told %v of a life that is not known; want disconnected", st)
		}
	})
}

func TestExitsOfHosts(t *testing.T) {
	lab.Clause(t, "A-SIDE-16", "C-LOST-3", "T-RLY-7")
	synctest.Test(t, func(t *testing.T) {
		s, hosts, polls := pair(t)
		hosts[1].Exited(serry.Life{Task: serry.TaskID{Index: 1}, Incarnation: 999}, "signal 9") // of another life
		hosts[1].Host.Flush()
		synctest.Wait()
		if got := s.View().Tasks[1].State; got != serry.Connected {
			t.Fatalf("task 1 is %v after the exit of a process that was not its", got)
		}
		hosts[1].Exited(serry.Life{Task: serry.TaskID{Index: 1}, Incarnation: incarnation(1)}, "signal 9")
		hosts[1].Host.Flush()
		synctest.Wait() // no time passes
		if text := wantText(t, hosts[0].reply(polls[0]), codes.Unavailable); !strings.Contains(text, "process exited: signal 9") {
			t.Errorf("PollForError() = %q; want the exit", text)
		}
	})
}

// What whoever started a process says of its end is believed as soon as its stream is broken.
func TestExitOfAClient(t *testing.T) {
	lab.Clause(t, "C-LOST-3", "A-ATT-11")
	for name, order := range map[string]func(s *server.Server, h *host){
		"exit first": func(s *server.Server, h *host) {
			s.Exited(serry.TaskID{Job: "worker"}, "signal 9")
			synctest.Wait()
			h.cut(true)
		},
		"broken first": func(s *server.Server, h *host) {
			h.cut(true)
			synctest.Wait()
			s.Exited(serry.TaskID{Job: "worker"}, "signal 9")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, cluster(1))
				h := dialHost(t, s, stream.Client)
				h.register(0)
				order(s, h)
				synctest.Wait()
				task := s.View().Tasks[0]
				if task.State != serry.Failed || !strings.Contains(task.Err.Error(), "process exited: signal 9") {
					t.Errorf("the task is %v: %v; want its exit, at once", task.State, task.Err)
				}
			})
		})
	}
}

func TestClientThatDoesNotResume(t *testing.T) {
	lab.Clause(t, "C-LOST-3")
	synctest.Test(t, func(t *testing.T) {
		s := start(t, cluster(1))
		h := dialHost(t, s, stream.Client)
		h.register(0)
		h.cut(true)
		time.Sleep(stream.SilentAfter - time.Second)
		if got := s.View().Tasks[0].State; got != serry.Connected {
			t.Fatalf("the task is %v before its time to resume was over", got)
		}
		time.Sleep(2 * time.Second)
		task := s.View().Tasks[0]
		if task.State != serry.Failed || !strings.Contains(task.Err.Error(), "stream not resumed") {
			t.Errorf("the task is %v: %v; want that its stream was not resumed", task.State, task.Err)
		}
	})
}

func TestStamps(t *testing.T) {
	lab.Clause(t, "C-INC-6", "T-RLY-12")
	synctest.Test(t, func(t *testing.T) {
		s := start(t, cluster(2))
		h := dialHost(t, s, stream.Relay)
		h.Open(1)
		for i := range 2 {
			h.send(stream.Call{Conn: 1, Number: uint64(i + 1), Method: tfpb.CoordinationService_RegisterTask_FullMethodName},
				&tfpb.RegisterTaskRequest{SourceTask: tf(int32(i)), Incarnation: uint64(incarnation(i))})
		}
		stamp := func(i int, own serry.Incarnation) stream.Stamp {
			return stream.Stamp{Life: serry.Life{Task: serry.TaskID{Job: "jax_worker", Index: i}, Incarnation: own}, Service: s.View().Service}
		}
		barrier := func(i int, own serry.Incarnation) rpc.CallID {
			return h.send(stream.Call{Conn: 1, Number: uint64(10 + i), Stamp: stamp(i, own), Method: tfpb.CoordinationService_Barrier_FullMethodName},
				&tfpb.BarrierRequest{SourceTask: tf(int32(i)), BarrierId: "b", BarrierTimeoutInMs: 1000})
		}
		former := barrier(1, 7)
		wantText(t, h.reply(former), codes.Aborted)
		h.Open(2) // knows nobody: the stamp alone tells
		first := h.send(stream.Call{Conn: 2, Number: 1, Stamp: stamp(0, incarnation(0)), Method: tfpb.CoordinationService_Barrier_FullMethodName},
			&tfpb.BarrierRequest{SourceTask: tf(0), BarrierId: "c", BarrierTimeoutInMs: 1000})
		second := h.send(stream.Call{Conn: 2, Number: 2, Stamp: stamp(1, incarnation(1)), Method: tfpb.CoordinationService_Barrier_FullMethodName},
			&tfpb.BarrierRequest{SourceTask: tf(1), BarrierId: "c", BarrierTimeoutInMs: 1000})
		for _, call := range []rpc.CallID{first, second} {
			wantText(t, h.reply(call), codes.OK)
		}
	})
}

func TestNumberedCalls(t *testing.T) {
	lab.Clause(t, "C-REQ-1", "C-REQ-2", "C-REQ-3", "NEW-24", "NEW-26")
	synctest.Test(t, func(t *testing.T) {
		h := dialHost(t, start(t, cluster(1)), stream.Relay)
		h.Open(1)
		add := func(number, watermark uint64) rpc.CallID {
			return h.send(stream.Call{Conn: 1, Number: number, Watermark: watermark, Method: xlapb.CoordinationService_IncrementKeyValue_FullMethodName},
				&xlapb.IncrementKeyValueRequest{Key: "n", Increment: 1})
		}
		value := func(call rpc.CallID) string {
			var m xlapb.IncrementKeyValueResponse
			if err := proto.Unmarshal(h.reply(call).Body, &m); err != nil {
				t.Fatal(err)
			}
			return string(m.GetKv().GetValue())
		}
		if got := value(add(1, 0)) + value(add(2, 0)) + value(add(1, 0)) + value(add(2, 0)); got != "1212" {
			t.Errorf("increments 1, 2, 1, 2 gave %q; want each once, and its result again", got)
		}
		h.Delivered(1, 2) // without any call to bring it along
		time.Sleep(2 * stream.BeatEvery)
		late := add(2, 0)
		if !h.waits(late) {
			t.Errorf("a call at or below the watermark was answered: %v", h.reply(late).Status)
		}
		if got := value(add(3, 2)); got != "3" {
			t.Errorf("the next increment gave %s; want 3", got)
		}
	})
}

// TestFalseDeath: a host is cut off until its task is called lost, or even departed. The increment that
// was committed meanwhile is sent again when the host comes back, and is the same one.
func TestFalseDeath(t *testing.T) {
	lab.Clause(t, "C-REQ-2", "C-REQ-3", "C-LOST-5")
	for _, outage := range []time.Duration{6 * time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			var stuck atomic.Pointer[chan struct{}]
			disk := shareddisk.New(shareddisk.Config{Fault: func(op shareddisk.Op) error {
				if held := stuck.Load(); held != nil && op.Action == shareddisk.OpAppend && !op.Done {
					<-*held
				}
				return nil
			}})
			cfg := cluster(2)
			cfg.Cluster.Recoverable = true
			cfg, _ = lead(t, disk, cfg)
			s := start(t, cfg)
			h, other := dialHost(t, s, stream.Relay), dialHost(t, s, stream.Relay)
			h.register(0)
			other.register(1)
			held := make(chan struct{})
			stuck.Store(&held)
			who := &xlapb.Incarnations{TaskIncarnation: uint64(incarnation(0))}
			id := h.send(stream.Call{Conn: 1, Number: 2, Watermark: 1, Method: xlapb.CoordinationService_IncrementKeyValue_FullMethodName},
				&xlapb.IncrementKeyValueRequest{Incarnations: who, Key: "n", Increment: 1})
			h.cut(true)
			stuck.Store(nil)
			close(held) // it is committed, and its reply finds no connection
			time.Sleep(outage)
			if got := s.View().Tasks[0]; got.State != serry.Failed {
				t.Fatalf("after %v of silence the task is %v; want it lost", outage, got.State)
			}
			h.back()
			time.Sleep(2 * time.Second)
			var got xlapb.IncrementKeyValueResponse
			if err := proto.Unmarshal(h.reply(id).Body, &got); err != nil || string(got.GetKv().GetValue()) != "1" {
				t.Errorf("after %v: IncrementKeyValue() = %v, %v; want 1", outage, &got, err)
			}
		})
	}
}

// TestHostOfAQuietTaskDies: a task has registered, and not beaten yet, when the leader changes. If its host
// dies then, the next leader finds that as soon as with any other task.
func TestHostOfAQuietTaskDies(t *testing.T) {
	lab.Clause(t, "C-LOST-5", "C-LOG-3")
	synctest.Test(t, func(t *testing.T) {
		disk := shareddisk.New(shareddisk.Config{})
		cfg, seat := lead(t, disk, cluster(2))
		s := start(t, cfg)
		h, other := dialHost(t, s, stream.Relay), dialHost(t, s, stream.Relay)
		h.register(0)
		other.register(1)
		synctest.Wait()
		next := h.succeed(s, seat, disk, cluster(2))
		h.cut(true)
		time.Sleep(stream.SilentAfter + time.Second)
		if got := next.View().Tasks[0]; got.State != serry.Failed {
			t.Errorf("%v after the end of its host the task is %v; want %v", stream.SilentAfter+time.Second, got.State, serry.Failed)
		}
	})
}

// TestFalseDeparture: a host is cut off while the leader changes. The successor waits for it in vain. It does
// not call its task dead for that, nor departed when the other task starts again. The alive round that was
// over before the cut is answered when the host comes back, and the round of the new life is not entered.
func TestFalseDeparture(t *testing.T) {
	lab.Clause(t, "C-REQ-2", "C-REQ-3", "C-LOST-6", "C-EPOCH-3", "NEW-25")
	synctest.Test(t, func(t *testing.T) {
		disk := shareddisk.New(shareddisk.Config{})
		recoverable := cluster(2)
		recoverable.Cluster.Recoverable = true
		cfg, seat := lead(t, disk, recoverable)
		s := start(t, cfg)
		away, other := dialHost(t, s, stream.Relay), dialHost(t, s, stream.Relay)
		away.register(0)
		other.register(1)
		alive := func(h *host, number uint64, task int32, life serry.Incarnation) rpc.CallID {
			return h.send(stream.Call{
				Conn: stream.ConnID(task + 1), Number: number, Method: xlapb.CoordinationService_GetAliveTasks_FullMethodName,
			}, &xlapb.GetAliveTasksRequest{
				Incarnations: &xlapb.Incarnations{TaskIncarnation: uint64(life)}, RequestingTaskId: task, TaskIds: []int32{0, 1},
			})
		}
		call := alive(away, 2, 0, incarnation(0))
		away.cut(true)
		alive(other, 2, 1, incarnation(1)) // ends the round, of which the host that is away hears nothing
		next := other.succeed(s, seat, disk, recoverable)
		away.follow(next)
		time.Sleep(5 * time.Second)
		other.send(stream.Call{Conn: 2, Number: 3, Method: xlapb.CoordinationService_RegisterTask_FullMethodName},
			&xlapb.RegisterTaskRequest{SourceTaskId: 1, Incarnation: 200})
		second := alive(other, 4, 1, 200)
		if got := next.View().Tasks[0]; got.State != serry.Connected || got.Departed {
			t.Errorf("the task that is away is %v, departed %v; want it connected, and not departed", got.State, got.Departed)
		}
		away.back()
		time.Sleep(2 * time.Second)
		var got xlapb.GetAliveTasksResponse
		if err := proto.Unmarshal(away.reply(call).Body, &got); err != nil || !slices.Equal(got.GetIncarnations(), []uint64{100, 101}) {
			t.Errorf("GetAliveTasks() = %v, %v; want the answer of the round with life 101", &got, err)
		}
		if !other.waits(second) {
			t.Errorf("the round of life 200 is over; want it to wait for task 0")
		}
	})
}

func TestEpochsAreTold(t *testing.T) {
	lab.Clause(t, "C-EPOCH-5", "A-SIDE-9")
	synctest.Test(t, func(t *testing.T) {
		s, hosts, polls := pair(t)
		old := s.View().Service
		if err := s.OpenEpoch(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for i, h := range hosts {
			if len(h.epochs) != 1 || h.epochs[0] != s.View().Service || h.epochs[0] == old {
				t.Errorf("host %d heard of epochs %v; want %v", i, h.epochs, s.View().Service)
			}
			if h.waits(polls[i]) {
				t.Errorf("poll %d of the older epoch still waits", i)
			}
		}
	})
}

// alive asks for the live set of tasks 0 to 3 as task i, with a word.
func (h *host) alive(i int, number uint64, word []byte) rpc.CallID {
	h.t.Helper()
	var all []serry.TaskID
	for k := range 4 {
		all = append(all, serryTask(k))
	}
	path, body, err := wire.Serry.Request(coord.GetAliveTasks{
		Call:  coord.Call{Task: all[i], Incarnation: incarnation(i), ID: coord.RequestID{Requester: uint64(50 + i), Number: number}},
		Tasks: all, Word: word,
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return h.raw(stream.Call{Conn: stream.ConnID(i + 1), Method: path, Body: body})
}

// stockAlive is alive for a client of another dialect.
func (h *host) stockAlive(i int) rpc.CallID {
	h.t.Helper()
	return h.send(stream.Call{Conn: stream.ConnID(i + 1), Number: 2, Method: xlapb.CoordinationService_GetAliveTasks_FullMethodName},
		&xlapb.GetAliveTasksRequest{RequestingTaskId: int32(i), TaskIds: []int32{0, 1, 2, 3}})
}

// wantAlive checks that the calls, and the stock one, heard of the same four tasks, with words of
// these sizes.
func (h *host) wantAlive(calls []rpc.CallID, stock rpc.CallID, words [4]int) {
	h.t.Helper()
	var m xlapb.GetAliveTasksResponse
	if err := proto.Unmarshal(h.reply(stock).Body, &m); err != nil || !slices.Equal(m.GetAliveTaskIds(), []int32{0, 1, 2, 3}) {
		h.t.Errorf("GetAliveTasks() = %v, %v; want four tasks", &m, err)
	}
	for _, call := range calls {
		result, err := wire.Serry.Result(coord.GetAliveTasks{}, h.reply(call).Body)
		alive, ok := result.(*coord.Alive)
		if err != nil || !ok || len(alive.Tasks) != len(words) {
			h.t.Fatalf("GetAliveTasks() = %v, %v; want four tasks", result, err)
		}
		for i, want := range words {
			if len(alive.Words[i]) != want {
				h.t.Errorf("the word of task %d has %d bytes; want %d", i, len(alive.Words[i]), want)
			}
		}
	}
}

func TestAliveSetsOverStreams(t *testing.T) {
	lab.Clause(t, "C-ALIVE-8", "NEW-67")
	synctest.Test(t, func(t *testing.T) {
		h := dialHost(t, start(t, cluster(4)), stream.Client)
		for i := range 4 {
			h.register(i)
		}
		long := h.alive(0, 1, make([]byte, 1025))
		if _, err := wire.Serry.Result(coord.GetAliveTasks{}, h.reply(long).Body); err == nil {
			t.Error("a word of 1025 bytes was taken")
		}
		calls := []rpc.CallID{h.alive(1, 1, nil), h.alive(2, 1, make([]byte, 1024)), h.alive(0, 2, []byte("w"))}
		h.wantAlive(calls, h.stockAlive(3), [4]int{1, 0, 1024, 0})
	})
}

// The leader goes after so many of the calls have come; the host sends again what is unanswered.
func TestAliveSetsInAFailOver(t *testing.T) {
	lab.Clause(t, "C-ALIVE-8", "NEW-67", "C-REQ-3")
	for before := range 5 {
		t.Run(fmt.Sprint(before, " calls before"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := shareddisk.New(shareddisk.Config{})
				cfg, seat := lead(t, disk, cluster(4))
				s := start(t, cfg)
				h := dialHost(t, s, stream.Client)
				for i := range 4 {
					h.register(i)
				}
				asks := []func() rpc.CallID{
					func() rpc.CallID { return h.alive(1, 1, nil) },
					func() rpc.CallID { return h.alive(2, 1, make([]byte, 1024)) },
					func() rpc.CallID { return h.alive(0, 1, []byte("w")) },
					func() rpc.CallID { return h.stockAlive(3) },
				}
				var calls []rpc.CallID
				for i, ask := range asks {
					if i == before {
						h.succeed(s, seat, disk, cluster(4))
					}
					calls = append(calls, ask())
				}
				if before == len(asks) { // each answer is there again, without the other calls
					h.succeed(s, seat, disk, cluster(4))
					for i, ask := range asks {
						if calls[i] = ask(); h.waits(calls[i]) {
							t.Errorf("call %d waits when it is made again; want its answer", i)
						}
					}
				}
				h.wantAlive(calls[:3], calls[3], [4]int{1, 0, 1024, 0})
			})
		})
	}
}
