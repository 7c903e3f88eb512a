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

// Many peers die at once: all transfers with them end soon, and those with survivors go on as fast as without them.
func TestManyPeersDieAtOnce(t *testing.T) {
	clause.Cite(t, "TR-ERR-5", "TRT-219")
	inBubble(t, func(t *testing.T, w *world) {
		const dead, size, pace = 100, 16 << 20, 10 * time.Millisecond
		all := w.startAll(dead + 2)
		a, survivor := all[0], all[1]
		meet(t, a, survivor)
		w.network.setPace(pace)
		move := func(key uint64) time.Duration {
			begun := time.Now()
			sent, got := a.send(survivor, key, fill(size, key)), survivor.receive(a, key, size)
			if !bytes.Equal(content(t, got.Buffer), fill(size, key)) || sent.Event.Wait(t.Context()) != nil {
				t.Error("a transfer with the survivor is wrong")
			}
			return time.Since(begun)
		}
		alone := move(10)
		w.network.setPace(0)
		var waiting []transfer.Item
		for _, p := range all[2:] {
			waiting = append(waiting, a.receive(p, 1, 100), a.send(p, 1, []byte("abc")))
		}
		synctest.Wait()
		w.network.setPace(pace)
		for _, p := range all[2:] {
			w.kill(p)
		}
		began := time.Now()
		for key := uint64(11); time.Since(began) < 3*time.Second; key++ { // as long as it takes to hear of all
			if took := move(key); took > alone*11/10+pace { // a write may be on its way
				t.Errorf("a transfer with the survivor took %v; it takes %v alone", took, alone)
			}
		}
		for i, item := range waiting {
			if !errors.Is(item.Event.Err(), transfer.ErrUnavailable) {
				t.Fatalf("transfer %d with a process that was killed = %v after %v; detection takes 3s", i, item.Event.Err(), time.Since(began))
			}
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

// Many processes of one host copy from each other's memory, each from each: 64 in virtual time, and 12 that pass each other the files of
// their arenas by sockets of the host.
func TestManyProcessesShareMemory(t *testing.T) {
	clause.Cite(t, "TR-G-10", "TRT-254")
	t.Run("memory", func(t *testing.T) {
		inHostBubble(t, func(t *testing.T, w *world) { shareEachWithEach(t, w.startAll(64)) })
	})
	t.Run("sockets", func(t *testing.T) {
		w := &world{job: newJob(), t: t}
		shareEachWithEach(t, w.startAll(12))
	})
}

func shareEachWithEach(t *testing.T, all []*process) {
	t.Helper()
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
}

// A peer that reads slowly, or not at all, holds neither goroutines nor memory of the sender: 2,000 sends wait for receives, and 30
// have met theirs, of which few bytes come.
func TestSlowReader(t *testing.T) {
	clause.Cite(t, "TR-BPR-2", "TRT-239")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		meet(t, a, b)
		before, memoryBefore := runtime.NumGoroutine(), heap()
		data, begun := fill(1<<20, 1), w.network.sent(hostOf(a.life))
		const size, slow = 8 << 20, 30 // more than the window of the link
		large := a.buffer(fill(size, 2), a.Pool().Ready())
		var sent, got []transfer.Item
		for key := uint64(1); key <= 2000+slow; key++ {
			op := a.sendOp(b, key, nil)
			if op.Buffer = large; key <= 2000 {
				op.Buffer = a.buffer(data, a.Pool().Ready())
			}
			item := a.begin(t.Context(), op)
			if key > 2000 {
				sent = append(sent, item)
			}
		}
		synctest.Wait()
		if n := w.network.sent(hostOf(a.life)) - begun; n > 4<<20 {
			t.Errorf("%d bytes were sent to a peer that receives nothing", n)
		}
		w.network.hold(hostOf(a.life), hostOf(b.life), true) // it reads what is small, and little of what is large
		for key := uint64(2001); key <= 2000+slow; key++ {
			got = append(got, b.receive(a, key, size))
		}
		time.Sleep(5 * time.Second)
		if n := w.network.sent(hostOf(a.life)) - begun; n < 1<<20 || n > 64<<20 {
			t.Errorf("%d bytes were sent to a peer that does not read them; want some, and at most the window of the link", n)
		}
		if after := runtime.NumGoroutine(); after > before+50 {
			t.Errorf("%d goroutines with 2,030 sends that wait; %d before", after, before)
		}
		if n := heap() - memoryBefore - size*(slow+1); n > 64<<20 {
			t.Errorf("%d MiB of memory besides the buffers", n>>20)
		}
		w.network.hold(hostOf(a.life), hostOf(b.life), false)
		for i, item := range append(sent, got...) {
			if err := item.Event.Wait(t.Context()); err != nil {
				t.Errorf("half %d, once the peer reads: %v", i, err)
			}
		}
	})
}

// heap is how much memory is in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
