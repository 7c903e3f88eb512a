package relay

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/stream"
)

// TestBeatsInOutage: the relay answers heartbeats while the service is out of reach. A heartbeat of a life that
// the table does not know goes upstream when there is a leader.
func TestBeatsInOutage(t *testing.T) {
	clause.Cite(t, "T-RLY-5", "A-SIDE-3")
	each(t, func(t *testing.T, d wire.Dialect) {
		play(t, Config{}, func(b *bench) {
			p, failed := b.join(d, 1, 11), b.join(d, 2, 12)
			stored := &serry.TaskError{Task: failed.task, Evidence: "signal 9", Err: serry.ErrTaskDead}
			b.up.stand(failed, serry.Failed, stored)
			synctest.Wait()
			b.up.down(true)
			wrong := *p
			wrong.own = 99
			late := wrong.start(b.Context(), coord.Heartbeat{Call: wrong.who()})
			for range 10 {
				time.Sleep(3 * time.Second)
				e := b.ended("Heartbeat", p.start(b.Context(), coord.Heartbeat{Call: p.who()}))
				r, err := d.Result(coord.Heartbeat{}, e.body)
				if !e.st.OK() || err != nil || r != (coord.Registered{Service: 77}) {
					b.Fatalf("Heartbeat() in an outage = %v, %v, %v; want the service 77", r, e.st, err)
				}
				e = b.ended("Heartbeat of a failed task", failed.start(b.Context(), coord.Heartbeat{Call: failed.who()}))
				b.want("Heartbeat of a failed task", e, "Aborted")
				if !hasPayload(e) || !strings.Contains(e.st.Message, "signal 9") {
					b.Errorf("Heartbeat of a failed task = %+v; want a payload, and signal 9 named", e.st)
				}
			}
			b.pending("Heartbeat of another life", late)
			b.up.down(false)
			time.Sleep(time.Second)
			b.ended("Heartbeat of another life", late)
			if all := b.up.taken("Heartbeat"); len(all) != 1 {
				b.Errorf("the service got %d heartbeats; want 1", len(all))
			}
		})
	})
}

// TestHeard: a beat lists the clients that were heard since the last one, and no others.
func TestHeard(t *testing.T) {
	clause.Cite(t, "T-RLY-6", "A-SIDE-3", "A-SIDE-18")
	each(t, func(t *testing.T, d wire.Dialect) {
		play(t, Config{}, func(b *bench) {
			p, paused := b.join(d, 1, 11), b.join(d, 2, 12)
			p.call(coord.Heartbeat{Call: p.who()})
			paused.call(coord.Heartbeat{Call: paused.who()})
			time.Sleep(2*stream.BeatEvery + stream.BeatEvery/2) // between two beats
			for range 20 {                                      // of paused nothing is heard any more
				p.call(coord.Heartbeat{Call: p.who()})
				time.Sleep(stream.BeatEvery)
			}
			synctest.Wait()
			b.up.mu.Lock()
			defer b.up.mu.Unlock()
			count := make(map[serry.Incarnation]int)
			for _, l := range b.up.mu.heard {
				count[l.Incarnation]++
				if l.Task.Job != "worker" {
					b.Errorf("heard %v; want it under the name that the service has for it", l)
				}
			}
			if count[12] != 1 || count[11] != 21 {
				b.Errorf("heard %v; want 11 21 times, 12 once", count)
			}
		})
	})
}

// TestSecondConnection: a connection that falls silent is replaced, and nothing runs twice.
func TestSecondConnection(t *testing.T) {
	clause.Cite(t, "T-RLY-13", "A-SIDE-18")
	each(t, func(t *testing.T, d wire.Dialect) {
		play(t, Config{}, func(b *bench) {
			p := b.join(d, 1, 11)
			b.up.holding("Barrier")
			done := p.start(b.Context(), coord.Barrier{Call: p.who(), ID: "b"})
			b.up.mu.Lock()
			dials := b.up.mu.dials
			stalled := b.up.mu.conns[len(b.up.mu.conns)-1]
			b.up.mu.Unlock()
			defer stalled.stop()() // whatever is written there hangs, and nothing tells
			begun := time.Now()
			for time.Since(begun) < 10*time.Second {
				time.Sleep(100 * time.Millisecond)
				b.up.mu.Lock()
				now := b.up.mu.dials
				b.up.mu.Unlock()
				if now > dials {
					break
				}
			}
			if took := time.Since(begun); took > stream.ResumeAfter+2*stream.BeatEvery {
				b.Errorf("a second connection after %v; want it after about %v", took, stream.ResumeAfter)
			}
			time.Sleep(time.Second)
			// The server closes the first connection when it has the second, perhaps before we have.
			if s := b.relay.Status(); s.Down || s.Longest != 0 {
				b.Errorf("Status() = %+v; want it up, at no time without a connection", s)
			}
			b.up.release()
			b.want("Barrier", b.ended("Barrier", done), "OK")
			if n := len(b.up.taken("Barrier")); n != 1 {
				b.Errorf("the service took the call %d times; want once", n)
			}
		})
	})
}

// TestOldTerm: what a deposed leader says is not passed on.
func TestOldTerm(t *testing.T) {
	clause.Cite(t, "T-RLY-14", "A-SIDE-20", "C-TERM-1")
	each(t, func(t *testing.T, d wire.Dialect) {
		play(t, Config{}, func(b *bench) {
			b.up.lead(4)
			time.Sleep(time.Second)
			p := b.join(d, 1, 11)
			b.up.down(true)
			b.up.lead(3) // a leader that was frozen comes back
			b.up.down(false)
			done := p.start(b.Context(), coord.TryGetKeyValue{Call: p.who(), Key: "k"})
			time.Sleep(5 * time.Second)
			b.pending("TryGetKeyValue at a deposed leader", done)
			if n := len(b.up.taken("TryGetKeyValue")); n != 0 {
				b.Errorf("a deposed leader got %d calls; want none", n)
			}
			b.up.lead(5)
			time.Sleep(2 * time.Second)
			b.want("TryGetKeyValue", b.ended("TryGetKeyValue", done), "OK")
			if s := b.relay.Status(); s.Term != 5 {
				b.Errorf("Status() = term %d; want 5", s.Term)
			}
		})
	})
}

// TestServiceBeginsAnew: a service whose store was made anew counts its terms from 1 again. The relay,
// which lives on, takes new clients to it, and tells the old ones that their epoch is over.
func TestServiceBeginsAnew(t *testing.T) {
	clause.Cite(t, "A-SIDE-9", "A-SIDE-20", "C-TERM-1")
	each(t, func(t *testing.T, d wire.Dialect) {
		play(t, Config{}, func(b *bench) {
			b.up.lead(7)
			time.Sleep(time.Second)
			old := b.join(d, 1, 11)
			b.up.beginAnew(78)
			time.Sleep(2 * time.Second)
			if s := b.relay.Status(); s.Term != 1 {
				b.Fatalf("Status() = term %d, %v; want term 1 of the new service", s.Term, s)
			}
			fresh := b.join(d, 2, 12)
			b.want("TryGetKeyValue of a new client", fresh.call(coord.TryGetKeyValue{Call: fresh.who(), Key: "k"}), "OK")
			wantOlder(b, d, "TryGetKeyValue of an old client", old.call(coord.TryGetKeyValue{Call: old.who(), Key: "k"}))
		})
	})
}
