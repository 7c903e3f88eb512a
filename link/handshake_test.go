package link_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/secure"
)

// Every reason to refuse a connection reaches the side that dialled, and other links go on.
func TestRefusals(t *testing.T) {
	clause.Cite(t, "CLT-DES-3", "CLT-DES-9", "CL-TRN-25", "CL-TRN-30", "TRT-270")
	other := []byte("another secret of the same length")
	for name, row := range map[string]struct {
		peer    serry.Life // that is dialled
		prepare func(w *world)
		change  func(*link.Options)
		service serry.Incarnation
		code    link.Refusal
		want    error
	}{
		"wrong secret": {life(1, 11), nil, func(o *link.Options) { o.Secret = other }, 7, link.WrongSecret, link.ErrRefused},
		"no secret":    {life(1, 11), nil, func(o *link.Options) { o.Secret, o.Plain = nil, true }, 7, link.WrongSecret, link.ErrRefused},
		"other job":    {life(1, 11), nil, nil, 8, link.OtherJob, link.ErrRefused},
		"stale peer": {life(1, 12), func(w *world) { // the address that a newer life has published is that of the older one
			w.change(func() {
				w.keys["serry/link/worker/1/000000000000000c"] = w.keys["serry/link/worker/1/000000000000000b"]
			})
		}, nil, 7, link.Stale, serry.ErrStale},
		"stale self": {life(1, 11), func(w *world) {
			w.set(serry.TaskInfo{Task: life(2, 0).Task, Incarnation: 20, State: serry.Connected})
			synctest.Wait()
			w.set(serry.TaskInfo{Task: life(2, 0).Task, Incarnation: 21, State: serry.Connected})
		}, nil, 7, link.Replaced, serry.ErrStale},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				var log strings.Builder
				var mu sync.Mutex
				sink := logger(lockedWriter{&mu, &log})
				good, n := w.join(life(0, 10)), w.join(life(1, 11), func(o *link.Options) { o.Log = sink })
				a, b := w.linked(good, n)
				if row.prepare != nil {
					row.prepare(w)
					synctest.Wait()
				}
				bad := life(2, 20)
				if name != "stale self" {
					w.set(serry.TaskInfo{Task: bad.Task, Incarnation: bad.Incarnation, State: serry.Connected})
				}
				o := link.Options{Network: dialler{w.network, hostOf(bad)}, Listen: []string{hostOf(bad) + ":0"}, Secret: secret, Log: sink}
				if row.change != nil {
					row.change(&o)
				}
				m, err := link.Open(t.Context(), member{w.job, bad, row.service, true}, w.job, o)
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close(context.Background())
				_, err = m.Link(t.Context(), row.peer)
				refused, ok := errors.AsType[*link.RefusedError](err)
				if !ok || refused.Code != row.code || !errors.Is(err, row.want) {
					t.Errorf("Link() = %v; want refusal %v", err, row.code)
				}
				if row.code == link.Replaced && errors.Is(err, link.ErrPeerFailed) {
					t.Errorf("Link() = %v; the peer is well", err)
				}
				if a.Err() != nil || b.Err() != nil || len(n.Links()) != 1 {
					t.Errorf("the other link: %v, %v, %d links", a.Err(), b.Err(), len(n.Links()))
				}
				mu.Lock()
				defer mu.Unlock()
				for where, text := range map[string]string{"log": log.String(), "error": fmt.Sprint(err), "status": fmt.Sprintf("%+v", n.Links()), "keys": fmt.Sprint(w.keyNames(), w.key("serry/link/worker/1/000000000000000b"))} {
					if strings.Contains(text, string(secret)) || strings.Contains(text, string(other)) {
						t.Errorf("the secret is in the %s", where)
					}
				}
			})
		})
	}
}

// A lockedWriter lets several goroutines write to one builder.
type lockedWriter struct {
	mu *sync.Mutex
	b  *strings.Builder
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

// Without a secret, links are made on loopback alone.
func TestNoSecret(t *testing.T) {
	clause.Cite(t, "CL-TRN-30")
	for name, row := range map[string]struct {
		o    link.Options
		want error
	}{
		"loopback":        {link.Options{}, nil},
		"other address":   {link.Options{Advertise: []string{"192.0.2.1:9"}}, link.ErrNoSecret},
		"bound elsewhere": {link.Options{Listen: []string{"0.0.0.0:0"}, Advertise: []string{"127.0.0.1:9"}}, link.ErrNoSecret},
		"plain":           {link.Options{Advertise: []string{"192.0.2.1:9"}, Plain: true}, nil},
		"secret":          {link.Options{Advertise: []string{"192.0.2.1:9"}, Secret: secret}, nil},
		"short secret":    {link.Options{Secret: secret[:31]}, secure.ErrSecret},
		"wildcard":        {link.Options{Advertise: []string{"0.0.0.0:9"}, Secret: secret}, link.ErrNoAddress},
		"no port":         {link.Options{Advertise: []string{"192.0.2.1"}, Secret: secret}, link.ErrNoAddress},
		"two in one":      {link.Options{Advertise: []string{"192.0.2.1:9,192.0.2.2:9"}, Secret: secret}, link.ErrNoAddress},
		"no interface":    {link.Options{Listen: []string{"nosuchinterface0"}}, link.ErrNoAddress},
		"no such network": {link.Options{Listen: []string{"203.0.113.0/24"}}, link.ErrNoAddress},
		"lanes":           {link.Options{Lanes: 9}, serry.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob()
			n, err := link.Open(t.Context(), member{j, life(0, 1), 7, false}, j, row.o)
			if !errors.Is(err, row.want) {
				t.Errorf("Open() = %v; want %v", err, row.want)
			}
			if err == nil {
				n.Close(context.Background())
			}
			if keys := j.keyNames(); len(keys) != 0 {
				t.Errorf("keys left: %q", keys)
			}
		})
	}
}

// Interfaces are chosen by name, address or network, IPv4 and IPv6; what is published is never a wildcard.
func TestInterfaces(t *testing.T) {
	clause.Cite(t, "CL-TRN-12", "CLT-DES-12")
	loopback := ""
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		if i.Flags&net.FlagLoopback != 0 {
			loopback = i.Name
		}
	}
	for name, row := range map[string]struct {
		listen []string
		secret []byte
		prefix string // of some address
	}{
		"nothing":     {nil, nil, "tcp:127.0.0.1:"},
		"address":     {[]string{"127.0.0.1"}, nil, "tcp:127.0.0.1:"},
		"with a port": {[]string{"127.0.0.1:0"}, nil, "tcp:127.0.0.1:"},
		"network":     {[]string{"127.0.0.0/8"}, nil, "tcp:127.0.0.1:"},
		"name":        {[]string{loopback}, nil, "tcp:127.0.0.1:"},
		"IPv6":        {[]string{"::1"}, nil, "tcp:[::1]:"},
		"all":         {nil, secret, "tcp:"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{job: newJob(), t: t}
			choose := func(o *link.Options) { o.Listen, o.Secret = row.listen, row.secret }
			w.set(serry.TaskInfo{Task: life(0, 0).Task, Incarnation: 10, State: serry.Connected})
			m, err := w.open(life(0, 10), choose)
			if err != nil && name == "IPv6" {
				t.Skipf("no IPv6 here: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close(context.Background())
			published := w.key("serry/link/worker/0/000000000000000a")
			if !strings.Contains(published, row.prefix) || strings.Contains(published, "0.0.0.0") || strings.Contains(published, "[::]") {
				t.Errorf("published %q; want %q in it, and no wildcard", published, row.prefix)
			}
			a, b := w.linked(m, w.join(life(1, 11), choose))
			if a.Err() != nil || b.Err() != nil {
				t.Errorf("links: %v, %v", a.Err(), b.Err())
			}
		})
	}
}

// Of several addresses the one that answers is used, however slow the others are.
func TestSeveralAddresses(t *testing.T) {
	clause.Cite(t, "CL-TRN-12")
	inBubble(t, func(t *testing.T, w *world) {
		n := w.join(life(1, 11))
		m := w.join(life(0, 10))
		good := strings.TrimPrefix(w.key("serry/link/worker/1/000000000000000b"), "tcp:")
		w.change(func() {
			w.keys["serry/link/worker/1/000000000000000b"] = "tcp:10.1.1.1:1,unix:@later,tcp:" + good + ",tcp:10.2.2.2:2"
		})
		w.network.cut(hostOf(m.Life()), "10.2.2.2") // packets vanish on the way to this one
		start := time.Now()
		if _, err := m.Link(t.Context(), n.Life()); err != nil || time.Since(start) > 0 {
			t.Errorf("Link() = %v after %v; want at once", err, time.Since(start))
		}
	})
}

// An address of the peer may lead to another process: one that answers as itself, one that is no process of the job,
// and one that never answers. They answer first, and the peer is found all the same.
func TestAddressesOfOtherProcesses(t *testing.T) {
	clause.Cite(t, "CL-TRN-12")
	inBubble(t, func(t *testing.T, w *world) {
		n := w.join(life(1, 11))
		m := w.join(life(0, 10))
		w.join(life(2, 12))
		others := []string{w.key("serry/link/worker/2/000000000000000c"), w.key("serry/link/worker/0/000000000000000a")}
		for _, says := range []string{"", "SSH-2.0-OpenSSH_9.6\r\n"} {
			l, err := w.network.Listen(t.Context(), "10.7.7.7:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					io.WriteString(c, says)
				}
			}()
			others = append(others, "tcp:"+l.Addr().String())
		}
		key := "serry/link/worker/1/000000000000000b"
		w.change(func() { w.keys[key] = strings.Join(others, ",") + "," + w.keys[key] })
		const late = 10 * time.Millisecond
		w.network.cut(hostOf(m.Life()), hostOf(n.Life()))
		time.AfterFunc(late, func() { w.network.heal(hostOf(m.Life()), hostOf(n.Life())) })
		start := time.Now()
		l, err := m.Link(t.Context(), n.Life())
		if err != nil || time.Since(start) > late {
			t.Fatalf("Link() = %v after %v; want it as soon as the peer can be reached", err, time.Since(start))
		}
		b, err := n.Link(t.Context(), m.Life())
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, l, b, 1)
		if reports := w.reports(); len(reports) > 0 {
			t.Errorf("reports: %q; want none", reports)
		}
	})
}

// A peer that closes its link layer, and goes on without it, has not failed. It is found again when it opens another.
func TestClosedPeer(t *testing.T) {
	clause.Cite(t, "CL-TRN-6", "CL-TRN-29")
	inBubble(t, func(t *testing.T, w *world) {
		m, n := w.join(life(0, 10)), w.join(life(1, 11))
		w.linked(m, n)
		if err := n.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := m.Link(ctx, n.Life()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Link() = %v; want to wait for new addresses", err)
		}
		a, b := w.linked(m, w.join(life(1, 11)))
		exchange(t, a, b, 1)
		if reports := w.reports(); len(reports) > 0 {
			t.Errorf("reports: %q; want none", reports)
		}
	})
}

// Addresses are published once for each life, and gone when it is.
func TestAddresses(t *testing.T) {
	clause.Cite(t, "CL-TRN-29", "CLT-DES-12")
	inBubble(t, func(t *testing.T, w *world) {
		first := w.join(life(0, 10))
		w.join(life(1, 11))
		synctest.Wait()
		w.join(life(1, 12)) // takes the place of the first: two lives, two keys
		synctest.Wait()
		want := []string{"serry/link/worker/0/000000000000000a", "serry/link/worker/1/000000000000000b", "serry/link/worker/1/000000000000000c"}
		if !slices.Equal(w.created, want) {
			t.Errorf("keys created: %q; want %q", w.created, want)
		}
		// The lowest connected task has deleted the addresses of the life that was replaced.
		if got := w.keyNames(); !slices.Equal(got, []string{want[0], want[2]}) {
			t.Errorf("keys: %q; want those of the present lives", got)
		}
		if _, err := w.open(life(0, 10)); !errors.Is(err, serry.ErrExists) {
			t.Errorf("a second Open of one life = %v; want ErrExists", err)
		}
		if got := w.key(want[0]); got == "" {
			t.Error("the second Open deleted the addresses of the first")
		}
		if err := first.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v", err)
		}
		if got := w.keyNames(); !slices.Equal(got, want[2:]) {
			t.Errorf("keys after Close: %q; want %q", got, want[2:])
		}
	})
}

// A caller that waits for the addresses of a peer stops waiting when the service declares that life lost.
func TestLostBeforePublished(t *testing.T) {
	clause.Cite(t, "CL-ID-7", "CL-TRN-29", "CLT-ID-3")
	inBubble(t, func(t *testing.T, w *world) {
		m := w.join(life(0, 10))
		w.set(serry.TaskInfo{Task: life(1, 0).Task, Incarnation: 11, State: serry.Connected})
		errs := make(chan error)
		for range 3 {
			go func() { _, err := m.Link(t.Context(), life(1, 11)); errs <- err }()
		}
		synctest.Wait()
		w.lose(life(1, 11), "process exited: signal 9")
		for range 3 {
			if err := <-errs; !errors.Is(err, link.ErrPeerFailed) {
				t.Errorf("Link() = %v; want ErrPeerFailed", err)
			}
		}
		if len(w.network.dialled()) != 0 {
			t.Errorf("dialled %q", w.network.dialled())
		}
	})
}

// However many callers of both sides dial at once, there is one set of connections.
func TestBothDial(t *testing.T) {
	clause.Cite(t, "CL-TRN-24", "CL-TRN-23", "CLT-DES-9")
	onEach(t, func(t *testing.T, w *world) {
		if strings.HasSuffix(t.Name(), "/self") {
			t.Skip("there is no other side")
		}
		for round := range uint64(20) {
			m, n := w.join(life(0, 100+2*round)), w.join(life(1, 101+2*round))
			links := make(chan *link.Link)
			for i := range 6 {
				go func() {
					from, to := m, n
					if i%2 == 1 {
						from, to = n, m
					}
					l, err := from.Link(t.Context(), to.Life())
					if err != nil {
						t.Errorf("Link() = %v", err)
					}
					links <- l
				}()
			}
			seen := make(map[*link.Link]bool)
			for range 6 {
				seen[<-links] = true
			}
			if len(seen) != 2 || len(m.Links()) != 1 || len(n.Links()) != 1 {
				t.Fatalf("round %d: %d links, %d and %d of them up; want one with two ends", round, len(seen), len(m.Links()), len(n.Links()))
			}
			for l := range seen {
				if l == nil || l.Err() != nil {
					t.Fatalf("round %d: %v", round, l.Err())
				}
			}
			a, b := w.linked(m, n)
			exchange(t, a, b, round)
			m.Close(t.Context())
			n.Close(t.Context())
		}
	})
}

// exchange moves a message each way.
func exchange(t *testing.T, a, b *link.Link, seq uint64) {
	t.Helper()
	for _, ends := range [][2]*link.Link{{a, b}, {b, a}} {
		for _, size := range []int{10, 50_000} {
			h := data(link.Collective, seq*4+uint64(size))
			got, want := make([]byte, size), fill(size, seq)
			ticket, err := ends[1].Expect(h, got)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ends[0].Post(h, want); err != nil {
				t.Fatal(err)
			}
			if err := ticket.Wait(t.Context()); err != nil || !slices.Equal(got, want) {
				t.Fatalf("message of %d bytes: %v", size, err)
			}
		}
	}
}

// A caller that gives up leaves nothing behind, and the next one gets the link.
func TestGiveUp(t *testing.T) {
	clause.Cite(t, "CL-TRN-24")
	inBubble(t, func(t *testing.T, w *world) {
		m := w.join(life(0, 10))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := m.Link(ctx, life(1, 11)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Link() = %v; want the deadline", err)
		}
		synctest.Wait()
		n := w.join(life(1, 11))
		a, b := w.linked(m, n)
		exchange(t, a, b, 1)
	})
}

// A connection that says nothing, or says something else, is closed after five seconds, and does not disturb
// others; a thousand of them do not either.
func TestBadConnections(t *testing.T) {
	clause.Cite(t, "CL-TRN-25", "CLT-DES-9", "TRT-270")
	inBubble(t, func(t *testing.T, w *world) {
		m, n := w.join(life(0, 10)), w.join(life(1, 11))
		address := strings.TrimPrefix(w.key("serry/link/worker/1/000000000000000b"), "tcp:")
		dial := func() net.Conn {
			c, err := dialler{w.network, "10.6.6.6"}.Dial(t.Context(), address)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		start := time.Now()
		silent := dial()
		garbage := dial()
		garbage.Write([]byte(strings.Repeat("GET / HTTP/1.1\r\n", 8)))
		if _, err := io.ReadAll(garbage); err != nil || time.Since(start) > 0 {
			t.Errorf("garbage was read for %v, %v; want an end at once", time.Since(start), err)
		}
		if _, err := io.ReadAll(silent); err != nil || time.Since(start) != 5*time.Second {
			t.Errorf("silence was borne for %v, %v; want 5s", time.Since(start), err)
		}
		half := make(chan net.Conn)
		for range 1500 { // more than are let in at a time
			go func() { half <- dial() }()
		}
		synctest.Wait()
		a, b := w.linked(m, n)
		exchange(t, a, b, 1)
		for range 1500 {
			(<-half).Close()
		}
	})
}

// Strangers who connect, say nothing, and come again as soon as they are closed do not keep peers out.
func TestSilentStrangers(t *testing.T) {
	clause.Cite(t, "CL-TRN-25", "CLT-DES-9")
	inBubble(t, func(t *testing.T, w *world) {
		m, n := w.join(life(0, 10)), w.join(life(1, 11))
		address := strings.TrimPrefix(w.key("serry/link/worker/1/000000000000000b"), "tcp:")
		ctx, cancel := context.WithCancel(t.Context())
		for range 1200 { // more than are answered at a time
			go func() {
				for {
					c, err := dialler{w.network, "10.6.6.6"}.Dial(ctx, address)
					if err != nil {
						return
					}
					io.ReadAll(c)
				}
			}()
		}
		time.Sleep(3 * time.Second)
		start := time.Now()
		if _, err := m.Link(t.Context(), n.Life()); err != nil || time.Since(start) > time.Second {
			t.Errorf("Link() = %v after %v; want it within a second", err, time.Since(start))
		}
		cancel()
		n.Close(context.Background())
	})
}

// Strangers cannot fill the log.
func TestLinesOfStrangers(t *testing.T) {
	clause.Cite(t, "SEC-103")
	inBubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var log strings.Builder
		w.join(life(1, 11), func(o *link.Options) { o.Log = slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil)) })
		address := strings.TrimPrefix(w.key("serry/link/worker/1/000000000000000b"), "tcp:")
		for range 200 {
			c, err := dialler{w.network, "10.6.6.6"}.Dial(t.Context(), address)
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(c, strings.Repeat("GET / HTTP/1.1\r\n", 8))
			c.Close()
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if lines := strings.Count(log.String(), "\n"); lines == 0 || lines > 10 {
			t.Errorf("%d lines in a second; want 1 to 10", lines)
		}
	})
}

// A stranger that announces the longest hello and sends nothing of it costs little: what is kept for it grows with what
// comes.
func TestAnnouncedHello(t *testing.T) {
	clause.Cite(t, "CL-TRN-25")
	const strangers = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range strangers {
		ours, theirs := net.Pipe()
		go func() {
			theirs.Write(link.HelloHeader(link.ControlBytes))
			theirs.Close()
		}()
		if err := link.ReadHello(ours); err == nil {
			t.Error("a hello without its bytes was taken")
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / strangers; each > 16<<10 {
		t.Errorf("a stranger costs %d bytes; want at most 16 KiB", each)
	}
}

// The only caller that waits for a link gives up at every step of its making. The peer, which may have taken the link
// for made, sees no connection break, and suspects no process.
func TestAbandonedAtEveryStepOfTheHandshake(t *testing.T) {
	clause.Cite(t, "CL-TRN-24")
	for steps := range 40 { // the handshakes of all lanes have 32
		inBubble(t, func(t *testing.T, w *world) {
			m, n := w.join(life(0, 10)), w.join(life(1, 11))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var left atomic.Int64
			left.Store(int64(steps))
			w.network.step = func() {
				if left.Add(-1) == -1 {
					cancel()
				}
			}
			m.Link(ctx, n.Life()) // may come up first
			time.Sleep(10 * time.Second)
			if got := w.reports(); len(got) > 0 {
				t.Errorf("given up after %d steps: %v; want that nothing is suspected", steps, got)
			}
			if a, b := m.Totals(), n.Totals(); a.Forming != 0 || b.Forming != 0 || a.Up != b.Up {
				t.Errorf("given up after %d steps: %d and %d links are half made, %d and %d are up", steps, a.Forming, b.Forming, a.Up, b.Up)
			}
			a, b := w.linked(m, n)
			exchange(t, a, b, 1)
		})
	}
}

// One of two processes is killed at every step of the making of their link: when the other side is about to read so many
// pieces of what was sent. The other one hears that it failed, keeps nothing half made, and links with the next life.
func TestKilledAtEveryStepOfTheHandshake(t *testing.T) {
	clause.Cite(t, "CL-TRN-24", "CL-TRN-25", "CL-TRN-5")
	for _, victim := range []string{"dialler", "listener"} {
		for steps := range 40 { // the handshakes of all lanes have 32
			inBubble(t, func(t *testing.T, w *world) {
				m, n := w.join(life(0, 10)), w.join(life(1, 11))
				from, to := m, n // n is killed
				if victim == "dialler" {
					from, to = n, m
				}
				var left atomic.Int64
				left.Store(int64(steps))
				w.network.step = func() {
					if left.Add(-1) == -1 {
						go w.network.kill(hostOf(n.Life()))
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				l, err := from.Link(ctx, to.Life())
				if err == nil && from == m && left.Load() < 0 {
					<-l.Done()
					err = l.Err()
				}
				if from == m && err != nil && !errors.Is(err, link.ErrPeerFailed) {
					t.Errorf("%s killed after %d steps: %v; want ErrPeerFailed", victim, steps, err)
				}
				time.Sleep(10 * time.Second)
				if got := m.Totals(); got.Forming != 0 || left.Load() < 0 && got.Up != 0 {
					t.Errorf("%s killed after %d steps: %d links are half made, %d are up", victim, steps, got.Forming, got.Up)
				}
				w.lose(n.Life(), "process exited: signal 9")
				a, b := w.linked(m, w.join(life(1, 12)))
				exchange(t, a, b, 1)
			})
		}
	}
}
