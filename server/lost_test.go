package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/lab/shareddisk"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire/tfpb"
)

// state is what the server thinks of worker/i.
func state(l *lab.Lab, i int) serry.TaskState { return l.View().Tasks[i].State }

func TestClosedConnectionIsEvidence(t *testing.T) {
	lab.Clause(t, "C-LOST-4", "NEW-34")
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, cluster(2))
		tasks := fleet(t, l, 2, 100)
		polls := []<-chan error{tasks[0].poll(t.Context()), tasks[1].poll(t.Context())}
		start := time.Now()
		tasks[1].Cut()
		err := lab.Failure(t, <-polls[0])
		if err.Code != codes.Unavailable || !strings.Contains(err.Message, "task 1: connection closed") {
			t.Errorf("PollForError() = %v; want UNAVAILABLE naming task 1 and its connection", err)
		}
		if took := time.Since(start); took < server.DefaultLostGrace || took > time.Second {
			t.Errorf("the survivor heard of it after %v; want the grace of %v, at most 1s", took, server.DefaultLostGrace)
		}
		<-polls[1]
	})
}

// A case of NEW-35: what task 1 does before its connection is gone, and why that is no evidence.
func TestNoEvidence(t *testing.T) {
	lab.Clause(t, "C-LOST-4", "NEW-35")
	cases := map[string]func(t *testing.T, l *lab.Lab, k *task){
		"poll reset on a living connection": func(t *testing.T, l *lab.Lab, k *task) {
			ctx, cancel := context.WithCancel(t.Context())
			poll := k.poll(ctx)
			pending(t, "PollForError", poll)
			cancel()
			<-poll
		},
		"never polled": func(t *testing.T, l *lab.Lab, k *task) { k.Cut() },
		"poll told cancelled": func(t *testing.T, l *lab.Lab, k *task) {
			first := k.poll(t.Context())
			pending(t, "PollForError", first)
			// The second one ends the first with CANCELLED and is answered itself when the
			// task leaves; this one comes back to the same life.
			second := k.poll(t.Context())
			wantCode(t, "PollForError", <-first, codes.Canceled)
			if _, err := l.O(t).ResetTask(t.Context(), &tfpb.ResetTaskRequest{SourceTask: tf(k.id)}); err != nil {
				t.Fatalf("ResetTask() = %v", err)
			}
			wantCode(t, "PollForError", <-second, codes.Canceled)
			if err := k.register(t.Context()); err != nil {
				t.Fatalf("RegisterTask() = %v", err)
			}
			k.Cut()
		},
		"a second connection of the incarnation": func(t *testing.T, l *lab.Lab, k *task) {
			poll := k.poll(t.Context())
			other := &task{N: l.N(t), id: k.id, own: k.own, service: k.service}
			if err := other.beat(t.Context()); err != nil {
				t.Fatalf("Heartbeat() = %v", err)
			}
			k.Cut()
			<-poll
		},
		"connected again within the grace": func(t *testing.T, l *lab.Lab, k *task) {
			poll := k.poll(t.Context())
			k.Cut()
			<-poll
			time.Sleep(server.DefaultLostGrace / 2)
			other := &task{N: l.N(t), id: k.id, own: k.own, service: k.service}
			if err := other.beat(t.Context()); err != nil {
				t.Fatalf("Heartbeat() = %v", err)
			}
		},
	}
	for name, act := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := lab.Serve(t, cluster(2))
				tasks := fleet(t, l, 2, 100)
				survivor := tasks[0].poll(t.Context())
				act(t, l, tasks[1])
				time.Sleep(timeout / 2)
				pending(t, "PollForError of task 0", survivor)
				if got := state(l, 1); got != serry.Connected {
					t.Errorf("task 1 is %v; want connected", got)
				}
			})
		})
	}
}

func TestClosedAfterShutdown(t *testing.T) {
	lab.Clause(t, "C-LOST-4", "NEW-35")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(2)
		cfg.Cluster.ShutdownTimeout = 0 // each by itself
		l := lab.Serve(t, cfg)
		tasks := fleet(t, l, 2, 100)
		survivor, poll := tasks[0].poll(t.Context()), tasks[1].poll(t.Context())
		if err := tasks[1].shutdown(t.Context()); err != nil {
			t.Fatalf("ShutdownTask() = %v", err)
		}
		wantCode(t, "PollForError of the one that left", <-poll, codes.Canceled)
		tasks[1].Cut()
		time.Sleep(timeout / 2)
		pending(t, "PollForError of task 0", survivor)
		if got := state(l, 1); got != serry.Disconnected {
			t.Errorf("task 1 is %v; want disconnected", got)
		}
	})
}

func TestWithdrawnPollIsEvidence(t *testing.T) {
	lab.Clause(t, "C-LOST-4")
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, cluster(2))
		tasks := fleet(t, l, 2, 100)
		survivor := tasks[0].poll(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		poll := tasks[1].poll(ctx)
		pending(t, "PollForError", poll)
		cancel()
		<-poll
		synctest.Wait()
		tasks[1].Cut()
		wantCode(t, "PollForError of task 0", <-survivor, codes.Unavailable)
	})
}

func TestTwoTasksOnOneConnection(t *testing.T) {
	lab.Clause(t, "C-LOST-4", "C-INC-6", "NEW-30", "NEW-35")
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, cluster(3))
		both := l.N(t)
		tasks := []*task{{N: l.N(t), id: 0, own: 100}, {N: both, id: 1, own: 101}, {N: both, id: 2, own: 102}}
		registerAll(t, tasks)
		ctx, cancel := context.WithCancel(t.Context())
		polls := []<-chan error{tasks[0].poll(t.Context()), tasks[1].poll(ctx), tasks[2].poll(t.Context())}

		// The client of task 1 goes; the connection stays, for task 2. That is no evidence.
		cancel()
		wantCode(t, "PollForError of task 1", <-polls[1], codes.Canceled)
		time.Sleep(timeout / 2)
		pending(t, "PollForError of task 0", polls[0])

		both.Cut()
		err := lab.Failure(t, <-polls[0])
		for _, want := range []string{"task 1: connection closed", "task 2: connection closed"} {
			if !strings.Contains(err.Message, want) {
				t.Errorf("PollForError() = %q; want it to contain %q", err.Message, want)
			}
		}
		<-polls[2]
	})
}

func TestExitedProcess(t *testing.T) {
	lab.Clause(t, "C-LOST-3")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(3)
		cfg.Cluster.ShutdownTimeout = 0
		l := lab.Serve(t, cfg)
		tasks := fleet(t, l, 3, 100)
		survivor := tasks[0].poll(t.Context())
		l.Exited(serry.TaskID{Job: "worker", Index: 1}, "")
		tasks[1].Cut()
		pending(t, "PollForError after a polite end", survivor)
		if got := state(l, 1); got != serry.Disconnected {
			t.Errorf("task 1 is %v after a polite end; want disconnected", got)
		}
		start := time.Now()
		tasks[2].Cut()
		synctest.Wait()
		l.Exited(serry.TaskID{Job: "worker", Index: 2}, "signal 9")
		err := lab.Failure(t, <-survivor)
		if took := time.Since(start); took != 0 || !strings.Contains(err.Message, "task 2: process exited: signal 9") {
			t.Errorf("after %v PollForError() = %v; want at once that task 2 exited by signal 9", took, err)
		}
		l.Exited(serry.TaskID{Job: "worker", Index: 7}, "signal 9") // nobody knows it
		l.Lost(serry.TaskID{Job: "worker", Index: 7}, "host silent")
		l.Lost(serry.TaskID{Job: "worker", Index: 0}, "host silent") // whatever carries it
		if got := state(l, 0); got != serry.Failed {
			t.Errorf("task 0 is %v after its host was lost; want failed", got)
		}
		if n := metric(t, l.Server, `serry_lost_tasks_total{evidence="process"}`); n != 1 {
			t.Errorf("%v tasks lost by the end of their process; want 1", n)
		}
	})
}

// A program may take another number than the one it was started with. The end of its process says
// nothing about who has that one.
func TestExitedProcessOfAnotherNumber(t *testing.T) {
	lab.Clause(t, "A-ATT-11")
	for _, cause := range []string{"", "signal 9"} {
		synctest.Test(t, func(t *testing.T) {
			l := lab.Serve(t, cluster(2))
			tasks := fleet(t, l, 2, 100)
			survivor := tasks[0].poll(t.Context())
			l.Exited(serry.TaskID{Job: "worker", Index: 1}, cause)
			pending(t, "PollForError while a connection carries the task", survivor)
			if got := state(l, 1); got != serry.Connected {
				t.Errorf("task 1 is %v after the end of another process; want connected", got)
			}
			time.Sleep(2 * time.Second)
			poll := tasks[1].poll(t.Context())
			synctest.Wait()
			tasks[1].Cut() // much later: this is not what was meant
			err := lab.Failure(t, <-survivor)
			if !strings.Contains(err.Message, "task 1: connection closed") {
				t.Errorf("PollForError() = %q; want that the connection closed", err.Message)
			}
			<-poll
		})
	}
}

func TestSilence(t *testing.T) {
	lab.Clause(t, "C-HB-6", "C-HB-7", "C-HB-9", "NEW-59")
	for _, c := range []struct {
		name           string
		slack, every   time.Duration
		lives          bool
		earliest, last time.Duration
	}{
		{"no slack, silent", -1, 0, false, timeout, timeout + time.Second},
		{"no slack, beats at half the timeout", -1, timeout / 2, true, 0, 0},
		{"default slack, silent", 0, 0, false, timeout + 2*time.Second, timeout + 3*time.Second},
		{"default slack, beats at the full timeout", 0, timeout + 10*time.Millisecond, true, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := cluster(2)
				cfg.HeartbeatSlack = c.slack
				l := lab.Serve(t, cfg)
				tasks := fleet(t, l, 2, 100)
				start := time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				tasks[0].beating(ctx)
				survivor := tasks[0].poll(ctx)
				for c.every > 0 && time.Since(start) < 10*timeout {
					time.Sleep(c.every)
					if err := tasks[1].beat(ctx); err != nil {
						t.Fatalf("Heartbeat() after %v = %v; want OK", time.Since(start), err)
					}
				}
				if c.lives {
					pending(t, "PollForError of task 0", survivor)
					return
				}
				err := lab.Failure(t, <-survivor)
				if took := time.Since(start); took <= c.earliest || took > c.last {
					t.Errorf("silence was found after %v; want more than %v, at most %v", took, c.earliest, c.last)
				}
				if err.Code != codes.Unavailable || !strings.Contains(err.Message, "stopped sending heartbeats") {
					t.Errorf("PollForError() = %v; want UNAVAILABLE, stopped sending heartbeats", err)
				}
			})
		})
	}
}

func TestNoOtherCallCountsAsHeartbeat(t *testing.T) {
	lab.Clause(t, "C-HB-7")
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, cluster(1))
		k := fleet(t, l, 1, 100)[0]
		for i := range 40 {
			if state(l, 0) == serry.Failed {
				return
			}
			k.barrier(t.Context(), fmt.Sprint("b", i), 0)
			time.Sleep(timeout / 20)
		}
		t.Errorf("task 0 is %v after two timeouts of barriers without a heartbeat; want failed", state(l, 0))
	})
}

// A process hangs: its connection stays open and its heartbeats stop. Its successor tries to register all
// the while. The registrations are refused, and do not count for the life that hangs.
func TestRefusedSuccessorDoesNotKeepTheDeadAlive(t *testing.T) {
	lab.Clause(t, "C-HB-7", "C-HB-6", "C-INC-3")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(1)
		cfg.Cluster.RegisterBarrier = false
		l := lab.Serve(t, cfg)
		fleet(t, l, 1, 100) // it does not beat
		successor := &task{N: l.N(t), own: 200}
		began := time.Now()
		for err := successor.register(t.Context()); err != nil; err = successor.register(t.Context()) {
			if time.Since(began) > 2*timeout {
				t.Fatalf("RegisterTask() of the successor after %v = %v; want OK after the heartbeat timeout of %v", time.Since(began), err, timeout)
			}
			time.Sleep(time.Second)
		}
		if took := time.Since(began); took < timeout {
			t.Errorf("RegisterTask() of the successor = OK after %v; want not before the heartbeat timeout of %v", took, timeout)
		}
	})
}

// A successor judges a stock client as the leader before it did: by what the client is, and not by what
// is assumed of a life that has not come back yet.
func TestClosedConnectionAfterFailOver(t *testing.T) {
	lab.Clause(t, "C-LOST-4", "C-LOST-6", "NEW-35")
	for _, polls := range []bool{true, false} {
		t.Run(fmt.Sprint("polls ", polls), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := shareddisk.New(shareddisk.Config{})
				l, seat := serveOn(t, disk, cluster(2))
				tasks := fleet(t, l, 2, 100)
				l, _ = succeed(t, l, seat, disk, cluster(2), time.Second)
				for _, k := range tasks {
					k.N = l.N(t)
					if err := k.beat(t.Context()); err != nil {
						t.Fatalf("Heartbeat() after the fail-over = %v", err)
					}
				}
				survivor := tasks[0].poll(t.Context())
				if polls {
					tasks[1].poll(t.Context())
				}
				tasks[1].Cut()
				if !polls {
					time.Sleep(timeout / 2) // more than any grace
					if got := state(l, 1); got != serry.Connected {
						t.Errorf("a stock client that does not poll, and has no connection, is %v; want %v", got, serry.Connected)
					}
					return
				}
				began := time.Now()
				if err := lab.Failure(t, <-survivor); !strings.Contains(err.Message, "task 1: connection closed") {
					t.Errorf("PollForError() = %v; want it to name task 1 and its connection", err)
				}
				if took := time.Since(began); took != server.DefaultLostGrace {
					t.Errorf("the survivor heard of it after %v; want the grace of %v", took, server.DefaultLostGrace)
				}
			})
		})
	}
}
