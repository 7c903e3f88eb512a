package stream_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/wire/stream"
)

// TestServiceBeginsAnew shows that terms are compared within one store: a service whose store was made
// anew counts them from 1 again, and its relays and clients live on.
func TestServiceBeginsAnew(t *testing.T) {
	t.Run("C-TERM-1", func(t *testing.T) { synctest.Test(t, testBeginsAnew) })
}

func testBeginsAnew(t *testing.T) {
	n := newNetwork(t)
	newDesk(n, "a", 5)
	h, e := host(t, n, stream.Relay, "a")
	call(t, h, 1, wait, "x")
	n.crash("a")
	n.beginAnew()
	d := newDesk(n, "a", 1)
	time.Sleep(time.Second)
	synctest.Wait()
	if !slices.Equal(e.ups, []uint64{5, 1}) || h.Term() != 1 {
		t.Fatalf("up with terms %v, now %d; want 5, then 1 of another store", e.ups, h.Term())
	}
	d.answer(1, 1, "new")
	synctest.Wait()
	if got := e.heard(); !slices.Equal(got, []string{"new"}) {
		t.Errorf("replies %q; want that of the new service", got)
	}
}

// TestStoreLeftBehind shows that the service that a host has left for another store says nothing more,
// whatever its term.
func TestStoreLeftBehind(t *testing.T) {
	t.Run("C-TERM-1", func(t *testing.T) { synctest.Test(t, testLeftBehind) })
}

func testLeftBehind(t *testing.T) {
	n := newNetwork(t)
	old := newDesk(n, "old", 9)
	h, e := host(t, n, stream.Relay, "old", "new")
	call(t, h, 1, wait, "x")
	first := n.last()
	deafen(first)
	n.beginAnew()
	next := newDesk(n, "new", 1)
	n.mu.Lock()
	delete(n.mu.at, "old")
	n.mu.Unlock()
	time.Sleep(2 * time.Second)
	synctest.Wait()
	undeafen(first)
	old.answer(1, 1, "old")
	synctest.Wait()
	next.answer(1, 1, "new")
	synctest.Wait()
	if got := e.heard(); !slices.Equal(got, []string{"new"}) || h.Term() != 1 {
		t.Errorf("replies %q with term %d; want that of the store that the host follows", got, h.Term())
	}
}

// TestVersions lets builds of several versions talk to each other.
func TestVersions(t *testing.T) {
	this := stream.Speaks()
	later := stream.Version{Major: this.Major, Minor: this.Minor + 1}
	next := stream.Version{Major: this.Major + 1}
	for _, c := range []struct {
		name         string
		server, host stream.Version
		ok           bool
	}{
		{"a later host", this, later, true},
		{"a later server", later, this, true},
		{"both later", later, later, true},
		{"a host of the next major version", this, next, false},
		{"a server of the next major version", next, this, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t)
				newDeskOf(n, "a", 1, c.server)
				h, e := hostOf(t, n, c.host, stream.Client, "a")
				call(t, h, 1, echo, "x")
				time.Sleep(5 * time.Second) // beats go on
				synctest.Wait()
				e.mu.Lock()
				defer e.mu.Unlock()
				switch {
				case c.ok && (len(e.replies) != 1 || len(e.downs) != 0):
					t.Errorf("%d replies, lost by %v; want the one, on one connection", len(e.replies), e.downs)
				case c.ok:
				case len(e.ups) > 0 || len(e.downs) == 0:
					t.Fatalf("up with %v, down with %v; want it refused", e.ups, e.downs)
				default:
					checkRefusal(t, e.downs[0], c.server, c.host)
				}
			})
		})
	}
}

// checkRefusal wants an error that names both versions.
func checkRefusal(t *testing.T, err error, server, host stream.Version) {
	t.Helper()
	v, ok := errors.AsType[*stream.VersionError](err)
	if !ok || *v != (stream.VersionError{Server: server, Host: host}) || errors.Is(err, stream.ErrNotSpoken) {
		t.Fatalf("refused with %v; want a VersionError with %v and %v", err, server, host)
	}
	for _, want := range []string{server.String(), host.String()} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("refused with %q, which does not name %s", err, want)
		}
	}
}

// TestUpgradeBringsHostsBack shows that a host which was refused goes on to ask, and is served once a
// server of its version leads.
func TestUpgradeBringsHostsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		this := stream.Speaks()
		n := newNetwork(t)
		newDesk(n, "a", 1)
		h, e := hostOf(t, n, stream.Version{Major: this.Major + 1}, stream.Relay, "a")
		call(t, h, 1, echo, "x")
		time.Sleep(time.Minute)
		n.crash("a")
		newDeskOf(n, "a", 2, stream.Version{Major: this.Major + 1, Minor: 3})
		time.Sleep(time.Second)
		synctest.Wait()
		if got := e.heard(); !slices.Equal(got, []string{"x"}) {
			t.Errorf("replies %q; want that of the upgraded server", got)
		}
	})
}
