package relay

import (
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire"
)

// TestLimits: what is too much is refused, to its caller alone, and never what a client dies of.
func TestLimits(t *testing.T) {
	clause.Cite(t, "C-LIM-1")
	for name, limits := range map[string]Limits{
		"calls on one connection": {Calls: 2},
		"calls in all":            {CallsInAll: 2},
		"bytes":                   {Bytes: 80},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Config{Limits: limits}, func(b *bench) {
				p := b.join(wire.XLA, 1, 11)
				b.up.holding("GetKeyValue", "PollForError", "ShutdownTask", "RegisterTask")
				get := func() <-chan end { return p.start(b.Context(), coord.GetKeyValue{Call: p.who(), Key: "k"}) }
				one, two := get(), get()
				e := b.ended("GetKeyValue beyond the limit", get())
				b.want("GetKeyValue beyond the limit", e, "ResourceExhausted")
				if hasPayload(e) {
					b.Errorf("GetKeyValue beyond the limit = %+v; want no payload", e.st)
				}
				b.pending("GetKeyValue", one)
				b.pending("PollForError", p.start(b.Context(), coord.PollForError{Call: p.who()}))
				b.pending("ShutdownTask", p.start(b.Context(), coord.ShutdownTask{Call: p.who()}))
				b.pending("RegisterTask", p.start(b.Context(), coord.RegisterTask{Call: p.who()}))
				b.want("Heartbeat", p.call(coord.Heartbeat{Call: p.who()}), "OK")
				b.up.release()
				b.want("GetKeyValue", b.ended("GetKeyValue", one), "OK")
				b.want("GetKeyValue", b.ended("GetKeyValue", two), "OK")
				b.want("GetKeyValue when there is room", b.ended("GetKeyValue", get()), "OK")
			})
		})
	}
}

// TestManyConnections: clients beyond the limit can live, but not ask for more.
func TestManyConnections(t *testing.T) {
	clause.Cite(t, "C-LIM-1")
	play(t, Config{Limits: Limits{Connections: 1, Lives: 1, Watches: 1}}, func(b *bench) {
		p, q := b.join(wire.TF, 1, 11), b.join(wire.TF, 2, 12)
		b.want("TryGetKeyValue", p.call(coord.TryGetKeyValue{Call: p.who(), Key: "k"}), "OK")
		b.want("TryGetKeyValue beyond the limit", q.call(coord.TryGetKeyValue{Call: q.who(), Key: "k"}), "ResourceExhausted")
		// A life that there was no room for has its heartbeats answered by the service.
		b.want("Heartbeat", q.call(coord.Heartbeat{Call: q.who()}), "OK")
		if n := len(b.up.taken("Heartbeat")); n != 1 {
			b.Errorf("the service got %d heartbeats; want 1", n)
		}
		p.start(b.Context(), coord.WatchTasks{Call: p.who(), Version: 5, Job: "worker"})
		b.want("a second watch", p.call(coord.WatchTasks{Call: p.who(), Version: 5, Job: "ps"}), "ResourceExhausted")
	})
}

// TestUnreadable: a request that cannot be read is for the service to refuse.
func TestUnreadable(t *testing.T) {
	clause.Cite(t, "A-SIDE-1")
	each(t, func(t *testing.T, d wire.Dialect) {
		play(t, Config{}, func(b *bench) {
			p := b.join(d, 1, 11)
			path, _ := p.request(coord.Heartbeat{Call: p.who()})
			e := b.ended(path, p.raw(b.Context(), path, []byte("\xff")))
			b.want(path, e, "OK") // the script takes everything
			if c := b.up.taken("Heartbeat"); len(c) != 1 || string(c[0].Body) != "\xff" {
				b.Errorf("the service got %v; want the request as it came", c)
			}
		})
	})
}

// TestManyGone: lives whose connections have closed are not remembered for ever.
func TestManyGone(t *testing.T) {
	play(t, Config{}, func(b *bench) {
		for i := range maxGone + 10 {
			l := &life{incarnation: serry.Incarnation(1000 + i), order: uint64(i)}
			b.relay.mu.Lock()
			b.relay.mu.lives.of[l.incarnation] = l
			l.open = 1
			if b.relay.mu.lives.leave(l) {
				b.relay.reportClosed(l, 0)
			}
			b.relay.mu.Unlock()
		}
		b.relay.mu.Lock()
		defer b.relay.mu.Unlock()
		if n := len(b.relay.mu.lives.of); n != maxGone {
			b.Errorf("%d lives are remembered; want %d", n, maxGone)
		}
	})
}

// TestMetrics: the page tells of an outage.
func TestMetrics(t *testing.T) {
	play(t, Config{}, func(b *bench) {
		p := b.join(wire.XLA, 1, 11)
		b.up.holding("Barrier")
		p.start(b.Context(), coord.Barrier{Call: p.who(), ID: "b"})
		b.up.down(true)
		time.Sleep(7 * time.Second)
		rec := httptest.NewRecorder()
		promhttp.HandlerFor(b.relay.Metrics(), promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
		page, err := io.ReadAll(rec.Result().Body)
		if err != nil {
			b.Fatal(err)
		}
		for _, want := range []string{
			"serry_relay_clients 1\n", "serry_relay_lives 1\n", "serry_relay_calls_waiting 1\n",
			"serry_relay_down 1\n", "serry_relay_outage_seconds 7\n", "serry_relay_term 1\n",
		} {
			if !strings.Contains(string(page), want) {
				b.Errorf("the page has no line %q", want)
			}
		}
		if s := b.relay.Status(); s.Address != "a:1" || s.Service != 77 {
			b.Errorf("Status() = %+v; want the leader a:1 and service 77", s)
		}
	})
}

// TestConfig: what is wrong with a configuration is said.
func TestConfig(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no upstream":    {},
		"negative limit": {Upstream: []string{"a:1"}, Limits: Limits{Bytes: -1}},
	} {
		if r, err := New(cfg); err == nil {
			r.Shutdown(t.Context())
			t.Errorf("New(%s) = a relay; want an error", name)
		}
	}
}

// TestLog: an outage is two lines, however many attempts it takes; the second says how long it lasted.
func TestLog(t *testing.T) {
	var log strings.Builder
	play(t, Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, func(b *bench) {
		b.up.down(true)
		time.Sleep(4 * time.Second)
		b.up.down(false)
		time.Sleep(time.Second)
		synctest.Wait()
		got := log.String()
		for _, want := range []string{"service lost", "service found"} {
			if n := strings.Count(got, want); n != map[string]int{"service lost": 1, "service found": 2}[want] {
				b.Errorf("%q is in %d lines of\n%s", want, n, got)
			}
		}
		if !strings.Contains(got, "outage=4.") || !strings.Contains(got, "peer=") {
			b.Errorf("no line says how long the outage lasted, and who leads now:\n%s", got)
		}
	})
	if got := log.String(); strings.Count(got, "service lost") != 1 {
		t.Errorf("a relay that ends speaks of an outage:\n%s", got)
	}
}

// TestNeverReached: a service that is not there is told of once.
func TestNeverReached(t *testing.T) {
	var log strings.Builder
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(t)
		up.down(true)
		r, err := New(Config{Upstream: []string{"a:1", "b:1"}, Dial: up.dial, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		r.Shutdown(t.Context())
		up.close()
	})
	if got := log.String(); strings.Count(got, "service not reached") != 1 || !strings.Contains(got, "connection refused") {
		t.Errorf("the log says\n%s\nwant one line about a service that is not reached", got)
	}
}
