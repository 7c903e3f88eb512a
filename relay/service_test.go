package relay

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire"
)

// beatTimeout is the heartbeat timeout of the service in these tests.
const beatTimeout = 10 * time.Second

// playServed runs f with a relay in front of a real service for two tasks, each of which has registered on
// a connection of its own and polls for errors.
func playServed(t *testing.T, d wire.Dialect, f func(b *bench, tasks []*peer, polls []<-chan end)) {
	t.Helper()
	playCluster(t, d, coord.Config{}, f)
}

// playCluster is playServed with settings of the cluster.
func playCluster(t *testing.T, d wire.Dialect, cfg coord.Config, f func(b *bench, tasks []*peer, polls []<-chan end)) {
	t.Helper()
	cfg.Jobs, cfg.HeartbeatTimeout = []coord.Job{{Name: "worker", Tasks: 2}}, beatTimeout
	cfg.RegisterBarrier, cfg.RegisterTimeout = true, time.Hour
	synctest.Test(t, func(t *testing.T) {
		srv, err := server.New(server.Config{Cluster: cfg, HeartbeatSlack: -1, Term: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer srv.Shutdown(context.Background())
		b := &bench{T: t}
		b.begin(srv)
		tasks, polls := b.both(d)
		f(b, tasks, polls)
		b.finish()
	})
}

// begin starts a relay before a service.
func (b *bench) begin(srv *server.Server) {
	b.Helper()
	r, err := New(Config{Upstream: []string{"a:1"}, Dial: func(context.Context, string) (net.Conn, error) {
		here, there := net.Pipe()
		go srv.ServeStream(there)
		return here, nil
	}})
	if err != nil {
		b.Fatal(err)
	}
	b.relay, b.local, b.again = r, newListener(), func() { b.begin(srv) }
	go r.Serve(b.local)
	synctest.Wait()
}

// finish ends the relay.
func (b *bench) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	b.relay.Shutdown(ctx)
}

// both lets two tasks register together, and poll.
func (b *bench) both(d wire.Dialect) (tasks []*peer, polls []<-chan end) {
	b.Helper()
	var joins []<-chan end
	for i := range 2 {
		p := b.connect(d, i, serry.Incarnation(100+i))
		tasks = append(tasks, p)
		joins = append(joins, p.start(b.Context(), coord.RegisterTask{Call: p.who()}))
	}
	for i, p := range tasks {
		r, err := d.Result(coord.RegisterTask{}, b.ended("RegisterTask", joins[i]).body)
		if err != nil {
			b.Fatal(err)
		}
		p.service = r.(coord.Registered).Service
		polls = append(polls, p.start(b.Context(), coord.PollForError{Call: p.who()}))
	}
	return tasks, polls
}

// TestConnectionClosed: a client that vanishes is lost after the grace of the service, with the evidence
// that the relay saw; one that has left is not.
func TestConnectionClosed(t *testing.T) {
	clause.Cite(t, "T-RLY-8", "A-SIDE-12", "C-LOST-4")
	each(t, func(t *testing.T, d wire.Dialect) {
		for _, left := range []bool{false, true} {
			playServed(t, d, func(b *bench, tasks []*peer, polls []<-chan end) {
				if left {
					b.want("ShutdownTask", tasks[1].call(coord.ShutdownTask{Call: tasks[1].who()}), "OK")
					b.want("PollForError of who left", b.ended("PollForError", polls[1]), "Canceled")
				}
				tasks[1].conn.Close()
				time.Sleep(server.DefaultLostGrace - time.Millisecond)
				b.pending("PollForError before the grace is over", polls[0])
				time.Sleep(2 * time.Millisecond)
				if left {
					b.pending("PollForError", polls[0])
					return
				}
				e := b.ended("PollForError", polls[0])
				b.want("PollForError", e, "Unavailable")
				if !strings.Contains(e.st.Message, "connection closed") {
					b.Errorf("PollForError = %q; want the connection named", e.st.Message)
				}
			})
		}
	})
}

// TestSilentClient: how long a client has been silent is counted from its own last heartbeat, although
// the relay beats on.
func TestSilentClient(t *testing.T) {
	clause.Cite(t, "T-RLY-6", "A-SIDE-3", "A-SIDE-18")
	each(t, func(t *testing.T, d wire.Dialect) {
		playServed(t, d, func(b *bench, tasks []*peer, polls []<-chan end) {
			last := time.Now()
			for range 4 {
				for _, p := range tasks {
					b.want("Heartbeat", p.call(coord.Heartbeat{Call: p.who()}), "OK")
				}
				last = time.Now()
				time.Sleep(beatTimeout / 2)
			}
			ctx, stop := context.WithCancel(b.Context()) // task 1 is paused, task 0 is not
			beating := make(chan struct{})
			go func() {
				defer close(beating)
				for ctx.Err() == nil {
					tasks[0].conn.Call(ctx, beat(tasks[0]), beatBody(tasks[0]))
					select {
					case <-ctx.Done():
					case <-time.After(beatTimeout / 4):
					}
				}
			}()
			e := <-polls[0]
			stop()
			<-beating
			silent := time.Since(last)
			if e.st.OK() || !strings.Contains(e.st.Message, "heartbeat timeout") && !strings.Contains(e.st.Message, "stopped sending heartbeats") {
				b.Errorf("PollForError = %+v; want a heartbeat timeout", e.st)
			}
			if silent < beatTimeout || silent > beatTimeout+2*time.Second {
				b.Errorf("task 1 was found silent after %v; want about %v", silent, beatTimeout)
			}
			e = tasks[1].call(coord.Heartbeat{Call: tasks[1].who()})
			b.want("Heartbeat of the lost task", e, "Aborted")
		})
	})
}

func beat(p *peer) string {
	path, _, _ := p.dialect.Request(coord.Heartbeat{Call: p.who()})
	return path
}

func beatBody(p *peer) []byte {
	_, body, _ := p.dialect.Request(coord.Heartbeat{Call: p.who()})
	return body
}

// TestExitedByName: a process that whoever started it saw ending is lost at once, by the name of its task.
func TestExitedByName(t *testing.T) {
	clause.Cite(t, "T-RLY-7", "A-SIDE-16")
	each(t, func(t *testing.T, d wire.Dialect) {
		playServed(t, d, func(b *bench, tasks []*peer, polls []<-chan end) {
			b.relay.Exited(serry.TaskID{Job: "worker", Index: 1}, "signal 9")
			e := b.ended("PollForError", polls[0]) // in no time
			b.want("PollForError", e, "Unavailable")
			if !strings.Contains(e.st.Message, "process exited: signal 9") {
				b.Errorf("PollForError = %q; want signal 9 named", e.st.Message)
			}
			err := d.Error(e.st.Code, e.st.Message, e.st.Details)
			if !errors.Is(err, serry.ErrTaskDead) {
				b.Errorf("PollForError = %v; want a dead task", err)
			}
		})
	})
}

// TestReplaced: in a job whose tasks may come back a second process registers as task 1. The first is told
// at once by its error poll, and hears the same when it polls again; task 0 hears nothing.
func TestReplaced(t *testing.T) {
	clause.Cite(t, "C-INC-3", "C-POLL-9", "A-SIDE-3")
	each(t, func(t *testing.T, d wire.Dialect) {
		playCluster(t, d, coord.Config{Recoverable: true}, func(b *bench, tasks []*peer, polls []<-chan end) {
			old, next := tasks[1], b.connect(d, 1, 300)
			b.want("RegisterTask of the second process", next.call(coord.RegisterTask{Call: next.who()}), "OK")
			for range 2 {
				e := b.ended("PollForError", polls[1])
				b.want("PollForError of the first", e, "Aborted")
				if err := d.Error(e.st.Code, e.st.Message, e.st.Details); !errors.Is(err, serry.ErrStale) {
					b.Errorf("PollForError of the first = %v; want %v", err, serry.ErrStale)
				}
				polls[1] = old.start(b.Context(), coord.PollForError{Call: old.who()})
			}
			b.pending("PollForError of the other task", polls[0])
			b.pending("PollForError of the second process", next.start(b.Context(), coord.PollForError{Call: next.who()}))
		})
	})
}

// TestRelayRestarted: a client that lives through the end of its relay, as ours do, goes on behind another
// one, as the same life.
func TestRelayRestarted(t *testing.T) {
	clause.Cite(t, "A-SIDE-11")
	playServed(t, wire.Serry, func(b *bench, tasks []*peer, polls []<-chan end) {
		b.finish()
		for i := range polls {
			b.want("PollForError at a relay that ends", b.ended("PollForError", polls[i]), "Unavailable")
		}
		time.Sleep(2 * time.Second)
		b.again()
		for i, p := range tasks {
			p.conn = b.connect(wire.Serry, i, p.own).conn
			b.want("Heartbeat at the next relay", p.call(coord.Heartbeat{Call: p.who()}), "OK")
			polls[i] = p.start(b.Context(), coord.PollForError{Call: p.who()})
		}
		for range 6 {
			time.Sleep(beatTimeout / 4)
			for _, p := range tasks {
				b.want("Heartbeat", p.call(coord.Heartbeat{Call: p.who()}), "OK")
			}
		}
		b.pending("PollForError", polls[0])
		b.pending("PollForError", polls[1])
		if s := b.relay.Status(); s.Lives != 2 {
			b.Errorf("Status() = %+v; want both lives known, so that their heartbeats are answered here", s)
		}
	})
}
