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
}

func (c *counter) Enabled(context.Context, slog.Level) bool { return true }

func (c *counter) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, text)
	return nil
}

func (c *counter) count(words string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.lines {
		if strings.Contains(l, words) {
			n++
		}
	}
	return n
}

// cliqueOf forms a clique of all processes, and returns the members' views of it.
func cliqueOf(t *testing.T, w *world, all []*process) []*collective.Comm {
	t.Helper()
	comms := make([]*collective.Comm, len(all))
	var work sync.WaitGroup
	for i, p := range all {
		g, err := collective.New(member{w.job, p.life}, p.net, collective.Options{LinksOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { g.Close(context.Background()) })
		work.Go(func() {
			c, err := g.Clique(t.Context(), []serry.DeviceID{0, 1}, collective.CliqueOptions{})
			if err != nil {
				t.Errorf("Clique() = %v", err)
			}
			comms[i] = c
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

// A loop of all-reduces and a large transfer between two processes use one link, and one failed transfer disturbs neither.
func TestBothFamiliesOnOneLink(t *testing.T) {
	clause.Cite(t, "CLT-DES-10", "TR-COM-1", "TR-ERR-3")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		comms := cliqueOf(t, w, []*process{a, b})
		want := fill(100<<20, 1)
		sent, got := a.send(b, 1, want), b.receive(a, 1, len(want))
		var work sync.WaitGroup
		for _, c := range comms {
			work.Go(func() {
				if n, err := sum(t.Context(), c, 50); err != nil {
					t.Errorf("all-reduce %d = %v", n, err)
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
	})
}

// A cut that is longer than detection is noticed once for the link. The all-reduce fails; the transfer goes on when there is
// contact again.
func TestOneDetectorForBothFamilies(t *testing.T) {
	clause.Cite(t, "CLT-DES-11", "TR-ERR-5")
	inBubble(t, func(t *testing.T, w *world) {
		log := new(counter)
		w.link.Log = slog.New(log)
		a, b := w.pair()
		comms := cliqueOf(t, w, []*process{a, b})
		w.network.setPace(time.Millisecond)
		want := fill(100<<20, 1)
		sent, got := a.send(b, 1, want), b.receive(a, 1, len(want))
		var work sync.WaitGroup
		for _, c := range comms {
			work.Go(func() {
				if _, err := sum(t.Context(), c, 1<<30); !errors.Is(err, collective.ErrTransport) {
					t.Errorf("all-reduce = %v; want that the link is gone", err)
				}
			})
		}
		time.Sleep(50 * time.Millisecond)
		w.network.cut(hostOf(a.life), hostOf(b.life), true)
		time.Sleep(10 * time.Second)
		w.network.cut(hostOf(a.life), hostOf(b.life), false)
		work.Wait()
		if !bytes.Equal(content(t, got.Buffer), want) || sent.Event.Wait(t.Context()) != nil {
			t.Error("the transfer is wrong")
		}
		if n := log.count("event=suspect"); n != 2 {
			t.Errorf("%d suspicions; want one at each side", n)
		}
		if n := log.count("event=down"); n != 2 {
			t.Errorf("the link went down %d times; want once at each side", n)
		}
	})
}
