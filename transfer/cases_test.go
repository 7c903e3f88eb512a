package transfer_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer"
)

// A third process restarts and a fourth one joins: transfers between two others go on, and their keys still match.
func TestOthersComeAndGo(t *testing.T) {
	clause.Cite(t, "TR-MAT-4", "TRT-195")
	inBubble(t, func(t *testing.T, w *world) {
		all := w.startAll(3)
		a, b := all[0], all[1]
		w.network.setPace(time.Millisecond)
		sent, got := a.send(b, 1, fill(20<<20, 1)), b.receive(a, 1, 20<<20)
		late := a.send(b, 2, []byte("late"))
		w.kill(all[2])
		w.set(all[2].life, serry.Failed)
		w.start(life(2, 99))
		w.start(life(3, 98))
		if !bytes.Equal(content(t, got.Buffer), fill(20<<20, 1)) || sent.Event.Wait(t.Context()) != nil {
			t.Error("the transfer that was under way is wrong")
		}
		if got := b.receive(a, 2, 4); string(content(t, got.Buffer)) != "late" || late.Event.Wait(t.Context()) != nil {
			t.Error("the transfer that waited is wrong")
		}
	})
}

// Many peers die at once: all transfers with them end soon, and those with survivors go on.
func TestManyPeersDieAtOnce(t *testing.T) {
	clause.Cite(t, "TR-ERR-5", "TRT-219")
	inBubble(t, func(t *testing.T, w *world) {
		const dead = 100
		all := w.startAll(dead + 2)
		a, survivor := all[0], all[1]
		var waiting []transfer.Item
		for _, p := range all[2:] {
			waiting = append(waiting, a.receive(p, 1, 100), a.send(p, 1, []byte("abc")))
		}
		synctest.Wait()
		w.network.setPace(time.Millisecond)
		sent, got := a.send(survivor, 1, fill(10<<20, 1)), survivor.receive(a, 1, 10<<20)
		for _, p := range all[2:] {
			w.kill(p)
		}
		began := time.Now()
		for i, item := range waiting {
			if <-item.Event.Done(); !errors.Is(item.Event.Err(), transfer.ErrUnavailable) {
				t.Fatalf("transfer %d with a process that was killed = %v", i, item.Event.Err())
			}
		}
		if d := time.Since(began); d > 3*time.Second {
			t.Errorf("the last transfer ended after %v; detection takes 3s", d)
		}
		if !bytes.Equal(content(t, got.Buffer), fill(10<<20, 1)) || sent.Event.Wait(t.Context()) != nil {
			t.Error("the transfer with the survivor is wrong")
		}
	})
}

// A peer that does not answer does not delay links with others.
func TestSilentPeerDelaysNoOther(t *testing.T) {
	clause.Cite(t, "TR-ORD-6", "TR-ORD-7", "TRT-220")
	inBubble(t, func(t *testing.T, w *world) {
		all := w.startAll(3)
		a, b, silent := all[0], all[1], all[2]
		w.network.cut(hostOf(a.life), hostOf(silent.life), true)
		stuck := a.send(silent, 1, []byte("abc"))
		began := time.Now()
		sent, got := a.send(b, 1, []byte("abc")), b.receive(a, 1, 3)
		if string(content(t, got.Buffer)) != "abc" || sent.Event.Wait(t.Context()) != nil {
			t.Error("the transfer is wrong")
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("it took %v beside a peer that does not answer", d)
		}
		if stuck.Event.State() != transfer.Unrecorded {
			t.Errorf("the transfer with the silent peer is %v", stuck.Event.State())
		}
	})
}

// Transfers reuse the link that the first one made. Two processes that begin at the same time make one.
func TestTransfersReuseTheirLink(t *testing.T) {
	clause.Cite(t, "TR-COM-1", "TRT-230", "TRT-231")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		first := []transfer.Item{a.send(b, 0, []byte("a")), b.send(a, 0, []byte("b")), a.receive(b, 0, 1), b.receive(a, 0, 1)}
		for _, item := range first {
			if err := item.Event.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		w.network.mu.Lock()
		before := w.network.next + len(w.network.conns)
		w.network.mu.Unlock()
		for key := uint64(1); key <= 1000; key++ {
			sent, got := a.send(b, key, []byte("abc")), b.receive(a, key, 3)
			if sent.Event.Wait(t.Context()) != nil || got.Event.Wait(t.Context()) != nil {
				t.Fatalf("transfer %d failed", key)
			}
		}
		w.network.mu.Lock()
		defer w.network.mu.Unlock()
		if after := w.network.next + len(w.network.conns); after != before {
			t.Errorf("1,000 transfers made %d more connections", after-before)
		}
		if links := len(a.net.Links()) + len(b.net.Links()); links != 2 {
			t.Errorf("the two processes have %d ends of links; want 2", links)
		}
	})
}

// Values of the same size with different layouts do not match.
func TestLayoutsHaveToAgree(t *testing.T) {
	clause.Cite(t, "TR-LAY-4", "TR-LAY-6", "TR-MAT-6", "TRT-243")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		spec := func(layout string) transfer.Spec {
			return transfer.Spec{Type: memory.F32, Dims: []int64{4, 4}, Layout: layout, Size: 64}
		}
		for i, layouts := range [][2]string{{"0,1", "1,0"}, {"1,0:T(2,2)", "1,0"}, {"0,1", "0,1"}} {
			buffer, err := a.Pool().Buffer(spec(layouts[0]), transfer.Memory{Region: memory.Of(make([]byte, 64)), Device: 0})
			if err != nil || buffer.Define(a.Pool().Ready()) != nil {
				t.Fatal(err)
			}
			key := transfer.Key{Seq: uint64(i)}
			sent := a.begin(t.Context(), transfer.Op{Key: key, Src: 0, Dst: 1, Buffer: buffer})
			got := b.begin(t.Context(), transfer.Op{Key: key, Src: 0, Dst: 1, Spec: spec(layouts[1])})
			<-sent.Event.Done()
			for _, err := range []error{sent.Event.Err(), got.Event.Err()} {
				if same := layouts[0] == layouts[1]; (err == nil) != same || !same && !errors.Is(err, transfer.ErrInvalid) {
					t.Errorf("layouts %q: %v", layouts, err)
				}
			}
		}
	})
}

// Many processes of one host copy from each other's memory, each from each.
func TestManyProcessesShareMemory(t *testing.T) {
	clause.Cite(t, "TR-G-10", "TRT-254")
	inHostBubble(t, func(t *testing.T, w *world) {
		const processes = 64
		all := w.startAll(processes)
		var events []*transfer.Event
		var got []transfer.Item
		for i, p := range all {
			m := arena(t, 1)
			for j, q := range all {
				if i != j {
					events = append(events, p.begin(t.Context(), p.shareOp(q, 1, m, []byte(fmt.Sprintf("%3d%3d", i, j)))).Event)
				}
			}
		}
		for j, q := range all {
			for i, p := range all {
				if i != j {
					got = append(got, q.receive(p, 1, 6))
				}
			}
		}
		for _, e := range events {
			if err := e.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		for j, q := range all {
			for i := range all {
				if i == j {
					continue
				}
				if want := fmt.Sprintf("%3d%3d", i, j); string(content(t, got[n].Buffer)) != want {
					t.Fatalf("process %d has %q of process %d", j, content(t, got[n].Buffer), i)
				}
				n++
			}
			for _, path := range q.paths() {
				if path != transfer.ByMemory {
					t.Fatalf("process %d has a transfer by %s", j, path)
				}
			}
		}
	})
}

// A peer that does not read holds neither goroutines nor memory of the sender, beyond its windows.
func TestSlowReader(t *testing.T) {
	clause.Cite(t, "TR-BPR-2", "TRT-239")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		first := a.send(b, 0, []byte("x"))
		b.receive(a, 0, 1)
		if err := first.Event.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := runtime.NumGoroutine()
		data := fill(1<<20, 1)
		for key := uint64(1); key <= 2000; key++ {
			op := a.sendOp(b, key, nil)
			op.Buffer = a.buffer(data, a.Pool().Ready())
			a.begin(t.Context(), op)
		}
		synctest.Wait()
		if after := runtime.NumGoroutine(); after > before+50 {
			t.Errorf("%d goroutines with 2,000 sends that wait; %d before", after, before)
		}
		if n := w.network.sent(hostOf(a.life)); n > 4<<20 {
			t.Errorf("%d bytes were sent to a peer that receives nothing", n)
		}
	})
}
