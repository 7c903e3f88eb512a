package transfer_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/transfer"
)

// links counts the links of processes that are up.
func links(all ...*process) (n int) {
	synctest.Wait()
	for _, p := range all {
		n += len(p.net.Links())
	}
	return n
}

// A link that no transfer needs is closed after ten minutes, and made again for the next one.
func TestIdleLinkIsClosed(t *testing.T) {
	clause.Cite(t, "TR-COM-4", "TRT-232")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		meet(t, a, b)
		time.Sleep(9 * time.Minute)
		if n := links(a, b); n != 2 {
			t.Fatalf("after 9 minutes %d ends of the link are up; want 2", n)
		}
		sent, got := a.send(b, 1, []byte("again")), b.receive(a, 1, 5)
		if string(content(t, got.Buffer)) != "again" || sent.Event.Wait(t.Context()) != nil {
			t.Error("the second transfer is wrong")
		}
		time.Sleep(9 * time.Minute)
		if n := links(a, b); n != 2 {
			t.Errorf("9 minutes after the last transfer %d ends of the link are up; want 2", n)
		}
		time.Sleep(2 * time.Minute)
		if n := links(a, b); n != 0 {
			t.Errorf("11 minutes after the last transfer %d ends of the link are up; want none", n)
		}
		sent, got = a.send(b, 2, fill(10<<20, 1)), b.receive(a, 2, 10<<20)
		if err := sent.Event.Wait(t.Context()); err != nil || got.Event.Wait(t.Context()) != nil || links(a, b) != 2 {
			t.Errorf("the transfer after that = %v, with %d ends of links", err, links(a, b))
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for task, info := range w.tasks {
			if info.Err != nil {
				t.Errorf("%v is said to have failed: %v", task, info.Err)
			}
		}
	})
}

// A transfer that waits keeps the link, whichever side waits; so does a clique.
func TestNeededLinkStays(t *testing.T) {
	clause.Cite(t, "TR-COM-4", "TRT-232")
	for name, begin := range map[string]func(ctx context.Context, t *testing.T, w *world, a, b *process){
		"send": func(ctx context.Context, t *testing.T, w *world, a, b *process) {
			a.begin(ctx, a.sendOp(b, 1, []byte("x")))
		},
		"receive": func(ctx context.Context, t *testing.T, w *world, a, b *process) { a.begin(ctx, a.receiveOp(b, 1, 1)) },
		"pull": func(ctx context.Context, t *testing.T, w *world, a, b *process) {
			if _, err := a.Pull(ctx, transfer.Handle{From: b.life, ID: 5}, []transfer.Want{{Device: 0, Spec: bytesSpec(1)}}); err != nil {
				t.Error(err)
			}
		},
		"clique": func(ctx context.Context, t *testing.T, w *world, a, b *process) { cliqueOf(t, w, []*process{a, b}) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				a, b := w.pair()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
				defer cancel()
				begin(ctx, t, w, a, b)
				meet(t, a, b)
				synctest.Wait() // both may have dialled: the set that is not taken is over
				before := w.network.dialled(hostOf(a.life)) + w.network.dialled(hostOf(b.life))
				time.Sleep(time.Hour)
				if n := links(a, b); n != 2 {
					t.Errorf("after an hour %d ends of the link are up; want 2", n)
				}
				if after := w.network.dialled(hostOf(a.life)) + w.network.dialled(hostOf(b.life)); after != before {
					t.Errorf("the link was dialled again")
				}
			})
		})
	}
}

// A process that may have few links closes the one that it used last, and transfers with any number of peers end well.
func TestFewLinksForManyPeers(t *testing.T) {
	clause.Cite(t, "TR-COM-4", "TRT-232")
	inBubble(t, func(t *testing.T, w *world) {
		var all []*process
		for i := range 6 {
			w.link.MaxLinks = 0
			if i == 0 {
				w.link.MaxLinks = 2
			}
			all = append(all, w.start(life(i, uint64(10+i))))
		}
		synctest.Wait()
		for round := range uint64(2) {
			for i, p := range all[1:] {
				from, to := all[0], p
				if i%2 == 1 {
					from, to = to, from // the peer dials
				}
				text := fmt.Sprintf("%d.%d", round, i)
				sent, got := from.send(to, round, []byte(text)), to.receive(from, round, len(text))
				if string(content(t, got.Buffer)) != text || sent.Event.Wait(t.Context()) != nil {
					t.Errorf("transfer %s is wrong", text)
				}
				if n := links(all[0]); n > 2 {
					t.Errorf("%d links; at most 2", n)
				}
			}
		}
	})
}

// Peers whose sends this process does not receive yet take no place from a peer that it waits for: a process that may have two links
// receives from five peers, one after the other, whatever their order.
func TestWaitingPeersTakeNoPlace(t *testing.T) {
	clause.Cite(t, "TR-COM-4", "TR-ORD-4", "TR-ORD-6", "TRT-232")
	inBubble(t, func(t *testing.T, w *world) {
		var all []*process
		for i := range 6 {
			w.link.MaxLinks = 0
			if i == 0 {
				w.link.MaxLinks = 2
			}
			all = append(all, w.start(life(i, uint64(10+i))))
		}
		a := all[0]
		var sent []transfer.Item
		for _, p := range all[1:] {
			sent = append(sent, p.send(a, 1, []byte("x")))
			time.Sleep(time.Second) // the first two have the links
		}
		for i := len(sent) - 1; i >= 0; i-- {
			begun := time.Now()
			got := a.receive(all[1+i], 1, 1)
			if string(content(t, got.Buffer)) != "x" || sent[i].Event.Wait(t.Context()) != nil {
				t.Errorf("transfer from peer %d is wrong", 1+i)
			}
			if d := time.Since(begun); d > 30*time.Second {
				t.Errorf("transfer from peer %d took %v", 1+i, d)
			}
			if n := links(a); n > 2 {
				t.Errorf("%d links; at most 2", n)
			}
		}
	})
}

// A transfer that has not ended is not dropped when its link gives its place to another one. Bytes that move keep their link: others
// wait until they have come. A receive that waits for its peer loses the link, and goes on when the peer sends.
func TestEvictionDropsNothing(t *testing.T) {
	clause.Cite(t, "TR-COM-4", "TRT-232")
	inBubble(t, func(t *testing.T, w *world) {
		var all []*process
		for i := range 6 {
			w.link.MaxLinks = 0
			if i == 0 {
				w.link.MaxLinks = 2
			}
			all = append(all, w.start(life(i, uint64(10+i))))
		}
		a := all[0]
		w.network.setPace(5 * time.Millisecond)
		var early, large []transfer.Item
		for _, p := range all[1:] {
			early = append(early, p.receive(a, 1, 1))
			time.Sleep(time.Second)
		}
		const size = 10 << 20
		for i, p := range all[1:] {
			sent, got := a.send(p, 2, fill(size, uint64(i))), p.receive(a, 2, size)
			large = append(large, got, sent)
		}
		for i, item := range large {
			if err := item.Event.Wait(t.Context()); err != nil {
				t.Errorf("transfer to peer %d: %v", 1+i/2, err)
			}
		}
		for _, r := range a.Records() {
			if r.Resumed > 0 || r.Err != nil {
				t.Errorf("the transfer to %v was resumed %d times, and ended with %v; want it on one link", r.Peer, r.Resumed, r.Err)
			}
		}
		for i, p := range all[1:] {
			sent := a.send(p, 1, []byte{byte(i)})
			if got := content(t, early[i].Buffer); got[0] != byte(i) || sent.Event.Wait(t.Context()) != nil {
				t.Errorf("the early receive of peer %d is wrong", 1+i)
			}
		}
	})
}

// Three processes that may have one link each send in a circle: each dials a peer that has no place for it. One of them makes room.
func TestFullProcessesInACircle(t *testing.T) {
	clause.Cite(t, "TR-COM-4", "TR-ORD-4", "TRT-232")
	inBubble(t, func(t *testing.T, w *world) {
		w.link.MaxLinks = 1
		all := w.startAll(3)
		var items []transfer.Item
		for i, p := range all {
			next := all[(i+1)%len(all)]
			items = append(items, p.send(next, 1, []byte("x")), next.receive(p, 1, 1))
		}
		begun := time.Now()
		for i, item := range items {
			if err := item.Event.Wait(t.Context()); err != nil {
				t.Errorf("half %d: %v", i, err)
			}
		}
		if d := time.Since(begun); d > time.Minute {
			t.Errorf("it took %v", d)
		}
	})
}

// Each of several processes waits for all others all the time, and there are fewer places for links than others. The links take turns:
// no pair is left out, although all wait, and a peer that has just lost its place asks for it again at once.
func TestFewPlacesGoInTurn(t *testing.T) {
	clause.Cite(t, "TR-COM-4", "TRT-232")
	for _, some := range []struct{ processes, places int }{{3, 1}, {4, 2}, {5, 2}, {6, 3}} {
		t.Run(fmt.Sprintf("processes=%d places=%d", some.processes, some.places), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.link.MaxLinks = some.places
				all := w.startAll(some.processes)
				onPairs := func(do func(from, to *process)) {
					for i, from := range all {
						for j, to := range all {
							if i != j {
								do(from, to)
							}
						}
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				onPairs(func(from, to *process) { from.begin(ctx, from.sendOp(to, 99, []byte("x"))) }) // which no one receives
				for round := range uint64(10) {
					time.Sleep(5 * time.Second)
					begun := time.Now()
					var got []transfer.Item
					onPairs(func(from, to *process) {
						from.send(to, round, []byte("y"))
						got = append(got, to.receive(from, round, 1))
					})
					for _, item := range got {
						if err := item.Event.Wait(t.Context()); err != nil {
							t.Fatalf("round %d: %v", round, err)
						}
					}
					if d := time.Since(begun); d > 2*time.Minute {
						t.Errorf("round %d took %v", round, d)
					}
				}
			})
		})
	}
}
