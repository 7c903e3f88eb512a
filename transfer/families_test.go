package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/transfer"
)

// Agree implements collective.Member: these tests lose no member for good.
func (m member) Agree(context.Context, []byte, ...serry.TaskID) (serry.Agreement, error) {
	return serry.Agreement{}, errors.New("not supported")
}

// A counter counts lines of a log that have a word.
type counter struct {
	slog.Handler
	mu    sync.Mutex
	lines []string
	times []time.Time // of the lines
}

func (c *counter) Enabled(context.Context, slog.Level) bool { return true }

func (c *counter) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines, c.times = append(c.lines, text), append(c.times, time.Now())
	return nil
}

// since is when lines came that have a word, after a time.
func (c *counter) since(words string, from time.Time) (list []time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, l := range c.lines {
		if strings.Contains(l, words) {
			list = append(list, c.times[i].Sub(from))
		}
	}
	return list
}

// cliqueOf forms a clique of all processes, and returns the members' views of it.
func cliqueOf(t *testing.T, w *world, all []*process) []*collective.Comm {
	t.Helper()
	return cliquesOf(t, w, all, 1)[0]
}

// cliquesOf forms cliques of all processes, and returns the members' views of each.
func cliquesOf(t *testing.T, w *world, all []*process, n int) [][]*collective.Comm {
	t.Helper()
	comms := make([][]*collective.Comm, n)
	for k := range comms {
		comms[k] = make([]*collective.Comm, len(all))
	}
	var work sync.WaitGroup
	for i, p := range all {
		g, err := collective.New(member{w.job, p.life}, p.net, collective.Options{LinksOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { g.Close(context.Background()) })
		work.Go(func() {
			for k := range comms {
				c, err := g.Clique(t.Context(), []serry.DeviceID{0, 1}, collective.CliqueOptions{Traffic: uint64(k)})
				if err != nil {
					t.Errorf("Clique() = %v", err)
				}
				comms[k][i] = c
			}
		})
	}
	work.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return comms
}

// sum runs all-reduces until one fails or there were enough, and returns how many ended well.
func sum(ctx context.Context, c *collective.Comm, most int) (n int, err error) {
	data := make([]float32, 10_000)
	for ; n < most; n++ {
		if err := collective.AllReduceSlice(ctx, c, data, data, collective.Sum); err != nil {
			return n, err
		}
	}
	return n, nil
}

// A loop of all-reduces and a large transfer between two processes use one link. A transfer that fails disturbs neither, and a clique
// whose members run different operations ends alone.
func TestBothFamiliesOnOneLink(t *testing.T) {
	clause.Cite(t, "CLT-DES-10", "TR-COM-1", "TR-ERR-3")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		cliques := cliquesOf(t, w, []*process{a, b}, 2)
		w.network.setPace(100 * time.Microsecond)
		want := fill(100<<20, 1)
		sent, got := a.send(b, 1, want), b.receive(a, 1, len(want))
		var work sync.WaitGroup
		for _, c := range cliques[0] {
			work.Go(func() {
				if n, err := sum(t.Context(), c, 50); err != nil {
					t.Errorf("all-reduce %d = %v", n, err)
				}
			})
		}
		for i, c := range cliques[1] {
			work.Go(func() {
				data := make([]float32, 1000*(1+i))
				if err := collective.AllReduceSlice(t.Context(), c, data, data, collective.Sum); !errors.Is(err, collective.ErrMismatch) {
					t.Errorf("all-reduce of %d elements beside one of others = %v; want ErrMismatch", len(data), err)
				}
				if sent.Event.State() == transfer.Complete {
					t.Error("the transfer has ended before the all-reduce failed")
				}
			})
		}
		bad, other := a.send(b, 2, []byte("abc")), b.receive(a, 2, 4)
		<-bad.Event.Done()
		<-other.Event.Done()
		work.Wait()
		if !bytes.Equal(content(t, got.Buffer), want) || sent.Event.Wait(t.Context()) != nil {
			t.Error("the transfer is wrong")
		}
		synctest.Wait()
		for _, p := range []*process{a, b} {
			if n := len(p.net.Links()); n != 1 {
				t.Errorf("%v has %d links; want one for both families", p.life, n)
			}
		}
		w.network.mu.Lock()
		defer w.network.mu.Unlock()
		if got, want := len(w.network.conns), 2*a.net.Links()[0].Lanes; got != want {
			t.Errorf("%d ends of connections; the link has %d", got, want)
		}
	})
}

// A cut that is longer than detection is noticed once for the link, which several cliques and transfers use. The all-reduces fail; the
// transfers go on when there is contact again.
func TestOneDetectorForBothFamilies(t *testing.T) {
	clause.Cite(t, "CLT-DES-11", "TR-ERR-5")
	inBubble(t, func(t *testing.T, w *world) {
		log := new(counter)
		w.link.Log = slog.New(log)
		a, b := w.pair()
		cliques := cliquesOf(t, w, []*process{a, b}, 3)
		w.network.setPace(time.Millisecond)
		want := fill(40<<20, 1)
		var sent, got []transfer.Item
		for key := range uint64(4) {
			from, to := a, b
			if key%2 == 1 {
				from, to = b, a
			}
			sent, got = append(sent, from.send(to, key, want)), append(got, to.receive(from, key, len(want)))
		}
		var work sync.WaitGroup
		for _, comms := range cliques {
			for _, c := range comms {
				work.Go(func() {
					if _, err := sum(t.Context(), c, 1<<30); !errors.Is(err, collective.ErrTransport) {
						t.Errorf("all-reduce = %v; want that the link is gone", err)
					}
				})
			}
		}
		time.Sleep(50 * time.Millisecond)
		w.network.cut(hostOf(a.life), hostOf(b.life), true)
		silent := time.Now()
		time.Sleep(10 * time.Second)
		w.network.cut(hostOf(a.life), hostOf(b.life), false)
		work.Wait()
		for i := range got {
			if !bytes.Equal(content(t, got[i].Buffer), want) || sent[i].Event.Wait(t.Context()) != nil {
				t.Errorf("transfer %d is wrong", i)
			}
		}
		for event, after := range map[string]time.Duration{"event=suspect": time.Second, "event=down": 3 * time.Second} {
			times := log.since(event, silent)
			if len(times) != 2 {
				t.Errorf("%s came %d times; want once at each side", event, len(times))
			}
			for _, d := range times { // silence is counted from the last ping, and a new connection is tried before the link is given up
				if d < after-300*time.Millisecond || d > after+300*time.Millisecond {
					t.Errorf("%s came after %v; want %v", event, d, after)
				}
			}
		}
	})
}
