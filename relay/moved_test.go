package relay

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/internal/lab/shareddisk"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/stream"
)

// A town is a service whose leader can change, with two relays before it.
type town struct {
	t      *testing.T
	disk   *shareddisk.Disk
	server *server.Server
	seat   *shareddisk.Handle
	relays [2]*bench

	mu    sync.Mutex
	conns [2][]net.Conn // of the relays
	away  [2]bool       // no network reaches the relay
}

// playTown runs f in a town.
func playTown(t *testing.T, f func(n *town)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &town{t: t, disk: shareddisk.New(shareddisk.Config{})}
		n.lead()
		for i := range n.relays {
			n.relays[i] = &bench{T: t, local: newListener()}
			r, err := New(Config{Upstream: []string{"a:1"}, Dial: func(context.Context, string) (net.Conn, error) { return n.dial(i) }})
			if err != nil {
				t.Fatal(err)
			}
			n.relays[i].relay = r
			go r.Serve(n.relays[i].local)
		}
		synctest.Wait()
		f(n)
		n.server.Close()
		for _, b := range n.relays {
			b.finish()
		}
	})
}

// lead starts the next leader.
func (n *town) lead() {
	n.t.Helper()
	seat := n.disk.Open()
	reign, err := seat.Campaign(n.t.Context(), store.Candidate{Address: "a:1"})
	if err != nil {
		n.t.Fatal(err)
	}
	srv, err := server.New(server.Config{
		Cluster: coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: 1}}, HeartbeatTimeout: time.Hour}, Journal: reign,
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seat, n.server = seat, srv
}

// succeed lets the leader die, and another lead.
func (n *town) succeed() {
	n.t.Helper()
	n.seat.Kill()
	n.disk.Expire()
	n.server.Close()
	n.lead()
	time.Sleep(2 * time.Second) // both relays find it
}

func (n *town) dial(i int) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.away[i] {
		return nil, errors.New("no route to host")
	}
	here, there := net.Pipe()
	n.conns[i] = append(n.conns[i], here)
	go n.server.ServeStream(there)
	return here, nil
}

// lose cuts a relay off for longer than it may be silent.
func (n *town) lose(i int) {
	n.mu.Lock()
	n.away[i] = true
	for _, c := range n.conns[i] {
		c.Close()
	}
	n.mu.Unlock()
	time.Sleep(stream.SilentAfter + time.Second)
}

// move ends the connection of a client, and makes it beat at a relay.
func (n *town) move(p *peer, to int) {
	n.t.Helper()
	p.conn.Close()
	synctest.Wait()
	p.conn = n.relays[to].connect(p.dialect, p.task.Index, p.own).conn
	n.relays[to].want("Heartbeat", p.call(coord.Heartbeat{Call: p.who()}), "OK")
	time.Sleep(2 * stream.BeatEvery)
}

// TestMovedClient: a client that does not poll may move from one relay to another. Also for a leader that has seen none
// of that, the client is at the relay that it came by last: the client is lost with that one and with no other.
func TestMovedClient(t *testing.T) {
	clause.Cite(t, "C-LOST-5", "A-SIDE-3", "NEW-36")
	cases := map[string]struct {
		late []int // the relays that the client moves to under the second leader
		at   int   // where it is in the end
	}{
		"before the leader changes": {nil, 1},
		"and back after it":         {[]int{0}, 0},
		"and to and fro":            {[]int{0, 1}, 1},
	}
	for name, c := range cases {
		for lost := range 2 {
			t.Run(name, func(t *testing.T) {
				playTown(t, func(n *town) {
					p := n.relays[0].join(wire.XLA, 0, 100)
					n.move(p, 1)
					n.succeed()
					for _, to := range c.late {
						n.move(p, to)
					}
					n.lose(lost)
					want := serry.Connected
					if lost == c.at {
						want = serry.Failed
					}
					if got := n.server.View().Tasks[0]; got.State != want {
						t.Errorf("relay %d is silent and the client at relay %d: the task is %v (%v); want %v", lost, c.at, got.State, got.Err, want)
					}
				})
			})
		}
	}
}
