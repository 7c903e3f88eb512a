package link_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
)

// A peer whose host is cut off is suspected after one second and given up after three, once each, however
// many messages wait for it.
func TestSilence(t *testing.T) {
	clause.Cite(t, "CL-TRN-7", "CL-TRN-9")
	for name, cut := range map[string][][2]int{"both ways": {{0, 1}, {1, 0}}, "one way": {{1, 0}}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				m, n := w.join(life(0, 10)), w.join(life(1, 11))
				o := w.observe(m)
				a, b := w.linked(m, n)
				time.Sleep(10 * time.Second) // pings keep an idle link up
				if a.Err() != nil || b.Err() != nil || a.Stats().RoundTrip != 0 || a.Stats().Silent > 300*time.Millisecond {
					t.Fatalf("an idle link: %v, %v, %+v", a.Err(), b.Err(), a.Stats())
				}
				tickets := expectations(t, a)
				hosts := []string{hostOf(m.Life()), hostOf(n.Life())}
				start := time.Now()
				for _, way := range cut {
					w.network.cut(hosts[way[0]], hosts[way[1]])
				}
				time.Sleep(1500 * time.Millisecond)
				synctest.Wait()
				if _, kinds := o.seen(); !slices.Contains(kinds, link.PeerSuspect) || slices.Contains(kinds, link.LinkDown) || !a.Stats().Suspected {
					t.Errorf("after 1.5s: events %v, %+v; want suspicion alone", kinds, a.Stats())
				}
				fails(t, a, tickets, link.ErrTransport)
				if d := time.Since(start); d < 2700*time.Millisecond || d > 3500*time.Millisecond {
					t.Errorf("given up after %v; want about 3s", d)
				}
				synctest.Wait()
				_, kinds := o.seen()
				if got := count(kinds, link.PeerSuspect); got != 2 { // two handlers
					t.Errorf("%d suspicions; want one for each family", got)
				}
				weak := 0
				for _, report := range w.reports() {
					if strings.HasPrefix(report, "worker/0 suspects worker/1/11 hard=false: silent for") {
						weak++
					} else if strings.Contains(report, "hard=true") {
						t.Errorf("hard evidence: %s", report)
					}
				}
				if weak != 1 {
					t.Errorf("%d reports of silence in %q; want 1", weak, w.reports())
				}
				for _, way := range cut {
					w.network.heal(hosts[way[0]], hosts[way[1]])
				}
				a, b = w.linked(m, n)
				exchange(t, a, b, 9)
			})
		})
	}
}

func count(kinds []link.Kind, k link.Kind) (n int) {
	for _, other := range kinds {
		if other == k {
			n++
		}
	}
	return n
}

// A peer that is heard again in time was only suspected, and nothing has failed.
func TestShortSilence(t *testing.T) {
	clause.Cite(t, "CL-TRN-7", "CL-TRN-9")
	inBubble(t, func(t *testing.T, w *world) {
		m, n := w.join(life(0, 10)), w.join(life(1, 11))
		o := w.observe(m)
		a, b := w.linked(m, n)
		w.network.cut(hostOf(n.Life()), hostOf(m.Life()))
		time.Sleep(2 * time.Second)
		w.network.heal(hostOf(n.Life()), hostOf(m.Life()))
		time.Sleep(time.Second)
		synctest.Wait()
		if _, kinds := o.seen(); count(kinds, link.PeerSuspect) != 2 || count(kinds, link.PeerAlive) != 2 || count(kinds, link.LinkDown) != 0 {
			t.Errorf("events are %v; want suspicion, and its end", kinds)
		}
		exchange(t, a, b, 1)
	})
}

// All times can be set, and none is too short.
func TestTiming(t *testing.T) {
	clause.Cite(t, "CL-TRN-7")
	inBubble(t, func(t *testing.T, w *world) {
		w.pair(func(o *link.Options) { o.Timing = link.Timing{Ping: 1} })
	})
	inBubble(t, func(t *testing.T, w *world) {
		fast := func(o *link.Options) {
			o.Timing = link.Timing{Ping: 10 * time.Millisecond, Suspect: 40 * time.Millisecond, Dead: 100 * time.Millisecond}
		}
		m, n := w.join(life(0, 10), fast), w.join(life(1, 11), fast)
		a, _ := w.linked(m, n)
		start := time.Now()
		w.network.cut(hostOf(n.Life()), hostOf(m.Life()))
		<-a.Done()
		if d := time.Since(start); d < 90*time.Millisecond || d > 200*time.Millisecond {
			t.Errorf("given up after %v; want about 100ms", d)
		}
	})
}

// When the service declares a silent peer lost first, that is the cause.
func TestVerdictDuringSilence(t *testing.T) {
	clause.Cite(t, "CL-TRN-7", "CL-TRN-6")
	inBubble(t, func(t *testing.T, w *world) {
		m, n := w.join(life(0, 10)), w.join(life(1, 11))
		a, _ := w.linked(m, n)
		tickets := expectations(t, a)
		w.network.cut(hostOf(n.Life()), hostOf(m.Life()))
		w.network.cut(hostOf(m.Life()), hostOf(n.Life()))
		time.Sleep(2 * time.Second)
		w.lose(n.Life(), "host silent")
		if loss := fails(t, a, tickets, link.ErrPeerFailed); loss.Source != link.FromService {
			t.Errorf("lost by %v; want by the service", loss.Source)
		}
	})
}

// A process that stood still excuses the silence of its peers, but not silence to come: a peer that was heard since, and
// is cut off then, is given up as early as ever.
func TestStoodStill(t *testing.T) {
	clause.Cite(t, "CL-TRN-7")
	inBubble(t, func(t *testing.T, w *world) {
		m, n := w.join(life(0, 10)), w.join(life(1, 11))
		a, _ := w.linked(m, n)
		time.Sleep(time.Second)
		m.StandStill(time.Minute)
		start := time.Now()
		w.network.cut(hostOf(n.Life()), hostOf(m.Life()))
		<-a.Done()
		if d := time.Since(start); d > 4*time.Second {
			t.Errorf("given up after %v; want about 3s", d)
		}
	})
}

// A peer that answers pings, and takes nothing of a message that it gave credit for, is reported once. The message goes
// on when the peer does.
func TestStall(t *testing.T) {
	clause.Cite(t, "CL-TRN-9", "CL-TRN-6")
	inBubble(t, func(t *testing.T, w *world) {
		m, n := w.join(life(0, 10)), w.join(life(1, 11))
		o := new(observer)
		if err := m.Handle(link.Collective, o); err != nil {
			t.Fatal(err)
		}
		a, b := w.linked(m, n)
		stalls := func() (count int) {
			_, kinds := o.seen()
			for _, k := range kinds {
				if k == link.PeerStalled {
					count++
				}
			}
			return count
		}
		h, want := data(link.Collective, 1), fill(4<<20, 1)
		posted, err := a.Post(h, want)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // without credit the peer owes nothing
		credit := h
		credit.Type = link.CollectiveCredit
		b.Inject(0, credit, 0, 8, binary.LittleEndian.AppendUint64(nil, uint64(len(want)))) // and no goroutine that reads
		time.Sleep(9 * time.Second)
		if stalls() != 0 || len(w.reports()) != 0 {
			t.Errorf("after 9s: %d stalls, reports %q; want none", stalls(), w.reports())
		}
		time.Sleep(time.Minute)
		reports := w.reports()
		if stalls() != 1 || len(reports) != 1 || !strings.Contains(reports[0], "hard=false: stalled") || a.Err() != nil {
			t.Errorf("after a minute: %d stalls, reports %q, link %v; want one each, and a link", stalls(), reports, a.Err())
		}
		got := make([]byte, len(want))
		expected, err := b.Expect(h, got)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(expected.Wait(t.Context()), posted.Wait(t.Context())); err != nil || !bytes.Equal(got, want) {
			t.Errorf("the message: %v", err)
		}
		time.Sleep(time.Minute)
		if stalls() != 1 {
			t.Errorf("%d stalls; want 1", stalls())
		}
	})
}

// Two members that cannot reach each other, by a cut of one direction or both, report each other. The link between them
// is to blame, and both keep their links to a third.
func TestCutBetweenTwo(t *testing.T) {
	clause.Cite(t, "CL-TRN-8")
	for _, both := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world) {
			m, n, third := w.join(life(0, 10)), w.join(life(1, 11)), w.join(life(2, 12))
			a, b := w.linked(m, n)
			c, d := w.linked(m, third)
			e, f := w.linked(n, third)
			onA, onB := expectations(t, a), expectations(t, b)
			w.network.cut(hostOf(m.Life()), hostOf(n.Life()))
			if both {
				w.network.cut(hostOf(n.Life()), hostOf(m.Life()))
			}
			fails(t, a, onA, link.ErrTransport)
			fails(t, b, onB, link.ErrTransport)
			synctest.Wait()
			all := strings.Join(w.reports(), "\n")
			for _, pair := range []string{"worker/0 suspects worker/1/11", "worker/1 suspects worker/0/10"} {
				if !strings.Contains(all, pair) {
					t.Errorf("both ways %v: no report %q in\n%s", both, pair, all)
				}
			}
			if strings.Contains(all, "hard=true") || strings.Contains(all, "worker/2") {
				t.Errorf("both ways %v: reports\n%s\nwant weak ones, of the two", both, all)
			}
			exchange(t, c, d, 1)
			exchange(t, e, f, 1)
		})
	}
}
