package transfer_test

import (
	"bytes"
	"runtime/trace"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/transfer"
)

// A trace of the program has the call, the start of its group, and when bytes moved and transfers ended.
func TestTrace(t *testing.T) {
	clause.Cite(t, "TR-OBS-5")
	if trace.IsEnabled() {
		t.Skip("the test is traced itself")
	}
	w := &world{job: newJob(), t: t}
	a, b := w.pair()
	var out bytes.Buffer
	if err := trace.Start(&out); err != nil {
		t.Fatal(err)
	}
	sent, got := a.send(b, 7, fill(100_000, 1)), b.receive(a, 7, 100_000)
	ok := bytes.Equal(content(t, got.Buffer), fill(100_000, 1)) && sent.Event.Wait(t.Context()) == nil
	trace.Stop()
	if !ok {
		t.Fatal("the transfer is wrong")
	}
	for _, want := range []string{"serry transfer", "transfers start", "transfer moves", "transfer ends", "send 7 (device 0 to 1), 100000 bytes, with worker/1"} {
		if !bytes.Contains(out.Bytes(), []byte(want)) {
			t.Errorf("the trace does not have %q", want)
		}
	}
}

// A record says how long a transfer waited and moved, and how often it was resumed.
func TestTimesOfATransfer(t *testing.T) {
	clause.Cite(t, "TR-OBS-1")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		meet(t, a, b)
		w.network.setPace(time.Millisecond)
		const size = 40 << 20
		sent := a.send(b, 1, fill(size, 1))
		time.Sleep(7 * time.Second)
		got := b.receive(a, 1, size)
		a.untilSent(size / 2)
		w.network.reset(hostOf(a.life))
		if !bytes.Equal(content(t, got.Buffer), fill(size, 1)) || sent.Event.Wait(t.Context()) != nil {
			t.Fatal("the transfer is wrong")
		}
		synctest.Wait()
		find := func(p *process) transfer.Record {
			all := p.Records()
			return all[len(all)-1]
		}
		for name, r := range map[string]transfer.Record{"send": find(a), "receive": find(b)} {
			if r.Queued+r.Waited+r.Moved != r.Elapsed || r.Queued != 0 || r.Moved == 0 || r.Resumed != 1 {
				t.Errorf("%s: %v queued, %v waiting, %v moving, %v in all, resumed %d times", name, r.Queued, r.Waited, r.Moved, r.Elapsed, r.Resumed)
			}
			if least := map[string]time.Duration{"send": 7 * time.Second}[name]; r.Waited < least || r.Waited > least+time.Second {
				t.Errorf("%s waited for %v; want %v", name, r.Waited, least)
			}
		}
	})
}
