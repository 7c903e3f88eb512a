package relay

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire"
)

// TestWatchesAreShared: one watch upstream serves all clients.
func TestWatchesAreShared(t *testing.T) {
	clause.Cite(t, "T-RLY-9", "A-SIDE-17")
	each(t, func(t *testing.T, d wire.Dialect) {
		play(t, Config{}, func(b *bench) {
			name := map[wire.Dialect]string{wire.XLA: "WatchTasks", wire.TF: "WatchJobState"}[d]
			var peers []*peer
			for i := range 8 {
				peers = append(peers, b.join(d, i, serry.Incarnation(100+i)))
			}
			watch := func(p *peer, version int64) <-chan end {
				return p.start(b.Context(), coord.WatchTasks{Call: p.who(), Version: version, Job: "worker"})
			}
			version := func(e end) int64 {
				r, err := d.Result(coord.WatchTasks{}, e.body)
				if err != nil || !e.st.OK() {
					b.Fatalf("%s = %v, %v", name, e.st, err)
				}
				return r.(*coord.Picture).Version
			}
			for _, p := range peers { // -1: at once
				if v := version(b.ended(name, watch(p, -1))); v != 5 {
					b.Errorf("%s(-1) = version %d; want 5", name, v)
				}
			}
			var waiting []<-chan end
			for _, p := range peers {
				waiting = append(waiting, watch(p, 5))
			}
			b.pending(name, waiting[0])
			if v := version(b.ended(name, watch(peers[0], 9))); v != 5 { // from the future: from the past
				b.Errorf("%s(9) = version %d; want 5", name, v)
			}
			if n := len(b.up.taken(name)); n != 2 {
				b.Errorf("%d watches upstream; want the first and the one that waits", n)
			}
			b.up.mu.Lock()
			b.up.mu.version = 6
			b.up.mu.Unlock()
			b.up.release()
			for _, w := range waiting {
				if v := version(b.ended(name, w)); v != 6 {
					b.Errorf("%s(5) = version %d; want 6", name, v)
				}
			}
			if n := len(b.up.taken(name)); n != 3 {
				b.Errorf("%d watches upstream after one change; want 3", n)
			}
			if d != wire.XLA {
				return
			}
			older := *peers[0]
			older.service = 76
			e := b.ended(name, watch(&older, 6))
			b.want("WatchTasks of an older service", e, "Internal")
			if err := d.Error(e.st.Code, e.st.Message, e.st.Details); !errors.Is(err, serry.ErrMismatch) {
				b.Errorf("WatchTasks of an older service = %v; want a mismatch", err)
			}
			if n := len(b.up.taken(name)); n != 3 {
				b.Errorf("%d watches upstream; want nothing more", n)
			}
		})
	})
}

// TestNewEpoch: clients of an older epoch are told so, whatever they wait for or call.
func TestNewEpoch(t *testing.T) {
	clause.Cite(t, "T-RLY-10", "A-SIDE-9", "C-EPOCH-5")
	each(t, func(t *testing.T, d wire.Dialect) {
		for _, inOutage := range []bool{false, true} {
			t.Run(fmt.Sprintf("in an outage %v", inOutage), func(t *testing.T) {
				play(t, Config{}, func(b *bench) {
					p := b.join(d, 1, 11)
					b.up.holding("PollForError", "GetKeyValue")
					held := map[string]<-chan end{
						"PollForError": p.start(b.Context(), coord.PollForError{Call: p.who()}),
						"GetKeyValue":  p.start(b.Context(), coord.GetKeyValue{Call: p.who(), Key: "k"}),
						"watch":        p.start(b.Context(), coord.WatchTasks{Call: p.who(), Version: 5, Job: "worker"}),
					}
					if inOutage {
						b.up.down(true)
						b.up.lead(2)
					}
					b.up.open(78)
					b.up.down(false)
					time.Sleep(time.Second)
					synctest.Wait()
					for name, done := range held {
						wantOlder(b, d, name, b.ended(name, done))
					}
					before := len(b.up.mu.calls)
					for _, ev := range append(p.events(), coord.Heartbeat{Call: p.who()}) {
						wantOlder(b, d, fmt.Sprintf("%T", ev), p.call(ev))
					}
					if n := len(b.up.mu.calls); n != before {
						b.Errorf("calls of an older epoch went upstream: %v", b.up.mu.calls[before:])
					}
					b.up.release()
					if q := b.join(d, 2, 21); q.service != 78 {
						b.Errorf("a newcomer is in epoch %d; want 78", q.service)
					} else {
						b.want("Barrier of a newcomer", q.call(coord.Barrier{Call: q.who(), ID: "b"}), "OK")
					}
				})
			})
		}
	})
}

// wantOlder checks that a caller was told that it belongs to an older epoch.
func wantOlder(b *bench, d wire.Dialect, what string, e end) {
	b.Helper()
	want := map[wire.Dialect]string{wire.XLA: "Internal", wire.TF: "Aborted"}[d]
	b.want(what, e, want)
	err := d.Error(e.st.Code, e.st.Message, e.st.Details)
	if !hasPayload(e) || !errors.Is(err, serry.ErrMismatch) {
		b.Errorf("%s of an older epoch = %v; want a mismatch with its payload", what, err)
	}
}

// TestGivenUp: an outage that lasts too long ends what waits, in a way that ends the client.
func TestGivenUp(t *testing.T) {
	clause.Cite(t, "T-RLY-11", "A-SIDE-10")
	each(t, func(t *testing.T, d wire.Dialect) {
		play(t, Config{}, func(b *bench) {
			p := b.join(d, 1, 11)
			b.up.holding("PollForError", "Barrier", "RegisterTask")
			poll := p.start(b.Context(), coord.PollForError{Call: p.who()})
			barrier := p.start(b.Context(), coord.Barrier{Call: p.who(), ID: "b"})
			newcomer := b.connect(d, 2, 12)
			joining := newcomer.start(b.Context(), coord.RegisterTask{Call: newcomer.who()})
			b.up.down(true)
			time.Sleep(DefaultGiveUp - time.Second)
			b.pending("PollForError", poll)
			b.want("Heartbeat", p.call(coord.Heartbeat{Call: p.who()}), "OK")
			time.Sleep(time.Second)
			for name, e := range map[string]end{
				"PollForError": b.ended("PollForError", poll), "Barrier": b.ended("Barrier", barrier),
				"a later poll": p.call(coord.PollForError{Call: p.who()}),
				"Heartbeat":    p.call(coord.Heartbeat{Call: p.who()}),
			} {
				b.want(name, e, "Unavailable")
				if !hasPayload(e) {
					b.Errorf("%s = %+v; want a payload", name, e.st)
				}
			}
			b.pending("RegisterTask", joining)
			if s := b.relay.Status(); !s.Down || !s.GivenUp || s.Why == nil {
				b.Errorf("Status() = %+v; want it down and given up", s)
			}
			b.up.down(false)
			time.Sleep(time.Second)
			b.up.release()
			b.want("RegisterTask", b.ended("RegisterTask", joining), "OK")
			b.want("Heartbeat", p.call(coord.Heartbeat{Call: p.who()}), "OK")
			if s := b.relay.Status(); s.Down || s.GivenUp || s.Outages != 1 || s.Longest < DefaultGiveUp {
				b.Errorf("Status() = %+v; want it found after one outage", s)
			}
		})
	})
}
