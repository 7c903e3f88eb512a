package client_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/server"
)

// each runs f for n tasks at once.
func each(n int, f func(i int)) {
	var done sync.WaitGroup
	for i := range n {
		done.Go(func() { f(i) })
	}
	done.Wait()
}

// patient is a job whose tasks may take a minute to come.
func patient(tasks int) server.Config {
	cfg := cluster(tasks)
	cfg.Cluster.RegisterTimeout = time.Minute
	return cfg
}

// TestRestartOfAll: all processes of a job end in order and are started again. The service does not wait
// for streams whose hosts have said goodbye, and the new processes register soon.
func TestRestartOfAll(t *testing.T) {
	lab.Clause(t, "C-EPOCH-3", "C-LOST-3")
	for _, way := range []struct {
		name string
		end  func(t *testing.T, m *client.Member)
	}{
		{"closed", func(t *testing.T, m *client.Member) {}},
		{"left", func(t *testing.T, m *client.Member) {
			if err := m.Leave(t.Context()); err != nil {
				t.Errorf("Leave() = %v", err)
			}
		}},
		// The first new processes find old ones that have not left yet, and are refused.
		{"one after the other", func(t *testing.T, m *client.Member) {
			time.Sleep(rand.N(500 * time.Millisecond))
		}},
	} {
		for _, tasks := range []int{4, 64, 256} {
			t.Run(fmt.Sprintf("%s/tasks=%d", way.name, tasks), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { restartAll(t, tasks, way.end) })
			})
		}
	}
}

func restartAll(t *testing.T, tasks int, end func(*testing.T, *client.Member)) {
	l := lab.Serve(t, patient(tasks))
	members, lines := make([]*client.Member, tasks), make([]*lab.Line, tasks)
	start := func(i int) {
		lines[i] = l.Line(t, client.DialOptions{})
		var err error
		members[i], err = client.Join(t.Context(), client.Config{Transport: lines[i], Task: worker(i), HeartbeatTimeout: heartbeat})
		if err != nil {
			t.Errorf("Join() of task %d = %v", i, err)
		}
	}
	each(tasks, start)
	for range 3 {
		began := time.Now()
		each(tasks, func(i int) {
			end(t, members[i])
			members[i].Close()
			lines[i].Close()
			start(i)
		})
		if t.Failed() {
			return
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("all were registered again after %v; want at most 2s", took)
		}
	}
	for i := range members {
		members[i].Close()
	}
}

// A mortal is the connection of a process that can be killed: then it breaks without a goodbye, and no
// other is made.
type mortal struct {
	client.Transport
	mu    sync.Mutex
	dead  bool
	conns []net.Conn
}

func newMortal(t *testing.T, l *lab.Lab) *mortal {
	t.Helper()
	k := new(mortal)
	transport, err := client.Dial("lab", client.DialOptions{Connect: func(context.Context, string) (net.Conn, error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.dead {
			return nil, net.ErrClosed
		}
		near, far := net.Pipe()
		k.conns = append(k.conns, near)
		go l.ServeStream(far)
		return near, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	k.Transport = transport
	t.Cleanup(func() { transport.Close() })
	return k
}

func (k *mortal) kill() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dead = true
	for _, c := range k.conns {
		c.Close()
	}
}

// TestGoodbye: a member that closes its connection in order is gone at once. A connection that broke may be resumed.
func TestGoodbye(t *testing.T) {
	lab.Clause(t, "C-LOST-3")
	for name, way := range map[string]struct {
		end   func(*mortal)
		grace time.Duration
		text  string
	}{
		"closed": {func(k *mortal) { k.Close() }, 0, "connection closed"},
		"broken": {(*mortal).kill, 4 * time.Second, "stream not resumed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := patient(2)
				cfg.Cluster.HeartbeatTimeout = time.Hour // silence is not what is found out here
				l := lab.Serve(t, cfg)
				members, lines := make([]*client.Member, 2), make([]*mortal, 2)
				each(2, func(i int) {
					lines[i] = newMortal(t, l)
					members[i], _ = client.Join(t.Context(), client.Config{Transport: lines[i], Task: worker(i), HeartbeatTimeout: time.Hour})
				})
				began := time.Now()
				way.end(lines[0])
				<-members[1].Context().Done()
				wantText(t, members[1].Err(), "worker/0: task is dead: "+way.text)
				if took := time.Since(began); took != way.grace {
					t.Errorf("the other was told after %v; want %v", took, way.grace)
				}
				each(2, func(i int) { members[i].Close() })
			})
		})
	}
}

// TestRestartOfAllKilled: all processes are killed and started again. Their streams are not resumed, but
// the service need not wait for that: the new processes show that the former ones are gone.
func TestRestartOfAllKilled(t *testing.T) {
	lab.Clause(t, "C-EPOCH-3", "C-LOST-3")
	for _, tasks := range []int{1, 4, 256} {
		synctest.Test(t, func(t *testing.T) {
			l := lab.Serve(t, patient(tasks))
			members, lines := make([]*client.Member, tasks), make([]*mortal, tasks)
			start := func(i int) {
				lines[i] = newMortal(t, l)
				var err error
				members[i], err = client.Join(t.Context(), client.Config{Transport: lines[i], Task: worker(i), HeartbeatTimeout: heartbeat})
				if err != nil {
					t.Errorf("Join() of task %d = %v", i, err)
				}
			}
			each(tasks, start)
			for range 3 {
				began := time.Now()
				each(tasks, func(i int) {
					lines[i].kill()
					defer members[i].Close()
					start(i)
				})
				if took := time.Since(began); t.Failed() || took > 2*time.Second {
					t.Fatalf("all %d were registered again after %v; want at most 2s", tasks, took)
				}
			}
			for _, m := range members {
				m.Close()
			}
		})
	}
}

// BenchmarkRestartOfAll restarts all tasks of a job over real connections.
func BenchmarkRestartOfAll(b *testing.B) {
	for _, tasks := range []int{16, 256} {
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) {
			_, address := serveTCP(b, patient(tasks))
			members := make([]*client.Member, tasks)
			start := func(i int) {
				var err error
				if members[i], err = client.Join(b.Context(), client.Config{Address: address, Task: worker(i)}); err != nil {
					b.Errorf("Join() of task %d = %v", i, err)
				}
			}
			each(tasks, start)
			for b.Loop() {
				each(tasks, func(i int) {
					members[i].Close()
					start(i)
				})
				if b.Failed() {
					return
				}
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/restart")
			each(tasks, func(i int) { members[i].Close() })
		})
	}
}
