package link_test

import (
	"crypto/tls"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/wire/mtls"
)

// An authority issues the certificates of a job. It is made in the bubble of its test, whose time it goes by.
type authority struct {
	t   *testing.T
	dir string
	*mtls.Authority
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	dir := t.TempDir()
	ca, err := mtls.NewAuthority(dir, "lab", 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t, dir, ca}
}

// identity makes a certificate with a name, and accepts peers of spiffe://lab/job/.
func (a *authority) identity(name, uri string) *mtls.Identity {
	a.t.Helper()
	if err := a.Issue(a.dir, mtls.Subject{Name: name, URIs: []string{uri}, Life: 24 * time.Hour}); err != nil {
		a.t.Fatal(err)
	}
	id, err := mtls.Load(mtls.Files{
		Cert: filepath.Join(a.dir, name+".pem"), Key: filepath.Join(a.dir, name+"-key.pem"), CA: filepath.Join(a.dir, "ca.pem"),
		PeerPrefix: "spiffe://lab/job/",
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return id
}

// With certificates links need no secret, also between hosts, and nothing of what is sent can be read under way.
func TestCertificates(t *testing.T) {
	clause.Cite(t, "CL-TRN-25", "CL-TRN-30", "CL-TRN-29")
	inBubble(t, func(t *testing.T, w *world) {
		id := newAuthority(t).identity("task", "spiffe://lab/job/task")
		m, n := w.join(life(0, 10), certified(id)), w.join(life(1, 11), certified(id))
		if got := w.key(peerKey); !strings.HasPrefix(got, "tls:10.0.11.2:") {
			t.Errorf("published %q; want that it wants TLS", got)
		}
		a, b := w.linked(m, n)
		w.network.spy()
		const text = "a word that no stranger may read. "
		for seq, size := range []int{100, 100_000, 3_000_000} {
			sent := []byte(strings.Repeat(text, size/len(text)))
			got := make([]byte, len(sent))
			send(t, a, b, uint64(seq+1), sent, got)
			if string(got) != string(sent) {
				t.Errorf("%d bytes: other bytes came", size)
			}
		}
		if seen := w.network.seen(); strings.Contains(seen, "stranger") || len(seen) < 3_000_000 {
			t.Errorf("of %d bytes on the network some can be read", len(seen))
		}
	})
}

func certified(id *mtls.Identity) func(*link.Options) {
	return func(o *link.Options) { o.TLS, o.Secret = id, nil }
}

// send moves one message.
func send(t *testing.T, a, b *link.Link, seq uint64, sent, got []byte) {
	t.Helper()
	expected, err := b.Expect(data(link.Collective, seq), got)
	if err != nil {
		t.Fatal(err)
	}
	posted, err := a.Post(data(link.Collective, seq), sent)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(posted.Wait(t.Context()), expected.Wait(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// A process without the right certificate gets no link, and hears why at once. Others are not affected.
func TestBadCertificates(t *testing.T) {
	clause.Cite(t, "CL-TRN-25", "CLT-DES-9")
	for name, row := range map[string]struct {
		other func(good *authority) func(*link.Options)
		want  error
	}{
		"of another authority": {func(*authority) func(*link.Options) {
			return certified(newAuthority(t).identity("task", "spiffe://lab/job/task"))
		}, link.ErrRefused},
		"of another job": {func(good *authority) func(*link.Options) {
			return certified(good.identity("other", "spiffe://lab/other/task"))
		}, link.ErrRefused},
		"none": {func(*authority) func(*link.Options) {
			return func(o *link.Options) { o.TLS, o.Secret = nil, secret }
		}, link.ErrNoAddress},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				ca := newAuthority(t)
				good := certified(ca.identity("task", "spiffe://lab/job/task"))
				m, n, other := w.join(life(0, 10), good), w.join(life(1, 11), good), w.join(life(2, 12), row.other(ca))
				a, b := w.linked(m, n)
				for from, to := range map[*link.Net]*link.Net{other: n, m: other} {
					if _, err := from.Link(t.Context(), to.Life()); !errors.Is(err, row.want) {
						t.Errorf("Link from %v to %v = %v; want %v", from.Life().Task, to.Life().Task, err, row.want)
					}
				}
				exchange(t, a, b, 5)
			})
		})
	}
}

// The secret counts beside certificates: a task needs both.
func TestCertificateAndSecret(t *testing.T) {
	clause.Cite(t, "CL-TRN-25")
	inBubble(t, func(t *testing.T, w *world) {
		id := newAuthority(t).identity("task", "spiffe://lab/job/task")
		both := func(o *link.Options) { o.TLS = id }
		m, n := w.join(life(0, 10), both), w.join(life(1, 11), certified(id))
		_, err := m.Link(t.Context(), n.Life())
		if r, ok := errors.AsType[*link.RefusedError](err); !ok || r.Code != link.WrongSecret {
			t.Errorf("Link() = %v; want it refused for its secret", err)
		}
	})
}

// A stranger with a certificate has five seconds for both handshakes together.
func TestSilenceAfterTLS(t *testing.T) {
	clause.Cite(t, "CL-TRN-25", "CLT-DES-9")
	inBubble(t, func(t *testing.T, w *world) {
		id := newAuthority(t).identity("task", "spiffe://lab/job/task")
		w.join(life(1, 11), certified(id))
		start := time.Now()
		c, err := dialler{w.network, "10.6.6.6"}.Dial(t.Context(), strings.TrimPrefix(w.key(peerKey), "tls:"))
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(4 * time.Second)
		cfg := id.Client("10.0.11.2")
		cfg.NextProtos = []string{"serry-link"}
		secured := tls.Client(c, cfg)
		if err := secured.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := secured.Read(make([]byte, 1)); err == nil || time.Since(start) != 5*time.Second {
			t.Errorf("silence was borne for %v, %v; want 5s", time.Since(start), err)
		}
	})
}
