package transfer_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/transfer"
	"github.com/serry-dev/serry/transfer/metrics"
	"github.com/serry-dev/serry/transfer/offer"
)

// Two processes post transfers that do not fit together. The report of each says what it waits for, and the two together say
// which process has not posted what.
func TestWhy(t *testing.T) {
	clause.Cite(t, "TR-OBS-3", "TR-ORD-9", "TRT-187", "TRT-189")
	inBubble(t, func(t *testing.T, w *world) {
		var log bytes.Buffer
		w.engine.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		a, b := w.pair()
		a.send(b, 1, []byte("abc"))       // that b never receives
		b.send(a, 2, []byte("de"))        // that a never receives
		b.receive(a, 3, 10)               // that a never sends
		promise, late := a.Pool().Event() // of data that are not there
		op := a.sendOp(b, 4, nil)
		op.Buffer = a.buffer([]byte("x"), late)
		slow := a.begin(t.Context(), op)
		b.receive(a, 4, 1)
		b.pull(t.Context(), transfer.Handle{From: a.life, ID: 77}, 5, 0)
		time.Sleep(45 * time.Second)
		mine, theirs := a.Why(), b.Why()
		want := map[string]bool{
			"send 1 (device 0 to 1), 0 of 3 bytes: waits for worker/1: a receive, or its verdict, for 45s": true,
			"send 4 (device 0 to 1), 0 of 1 bytes: waits for this process: its data, for 45s":              true,
			"send 2 (device 1 to 0), 0 of 2 bytes: waits for worker/0: a receive, or its verdict, for 45s": true,
			"receive 3 (device 0 to 1), 0 of 10 bytes: waits for worker/0: a send, for 45s":                true,
			"receive 4 (device 0 to 1), 0 of 1 bytes: waits for worker/0: the sender's data, for":          true,
			"waits for worker/0: offer 77, for 45s":                                                        true,
		}
		for _, r := range append(mine.Waiting, theirs.Waiting...) {
			for text := range want {
				if strings.Contains(r.String(), text) {
					delete(want, text)
				}
			}
		}
		if len(want) > 0 {
			t.Errorf("reports lack %v; they have %v and %v", want, mine.Waiting, theirs.Waiting)
		}
		if u := theirs.Unclaimed; len(u) != 1 || u[0].Key.Seq != 1 || u[0].Peer != a.life {
			t.Errorf("b has %v of a unclaimed; want send 1", u)
		}
		texts := ""
		for _, f := range transfer.Join([]transfer.Report{mine, theirs}) {
			texts += f.Text + "\n"
		}
		for _, text := range []string{
			"transfer 1 (device 0 to 1) waits for worker/1: it has not posted the receive; it has posted",
			"transfer 2 (device 1 to 0) waits for worker/0: it has not posted the receive",
			"transfer 3 (device 0 to 1) waits for worker/0: it has not posted the send",
			"transfer 4 (device 0 to 1) waits for worker/0: its data",
		} {
			if !strings.Contains(texts, text) {
				t.Errorf("Join() says\n%s; want %q", texts, text)
			}
		}
		alone := transfer.Join([]transfer.Report{theirs})
		if len(alone) == 0 || !strings.Contains(alone[0].Text, "it has not told") {
			t.Errorf("Join() of one report = %+v", alone)
		}
		if n := strings.Count(log.String(), "transfer waits for its other half"); n != 4 {
			t.Errorf("%d warnings were logged; want 4:\n%s", n, log.String())
		}
		promise.Set(nil)
		if err := slow.Event.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestProgress(t *testing.T) {
	clause.Cite(t, "TR-GRP-5")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		w.network.setPace(50 * time.Millisecond)
		g, err := a.Transfer(t.Context(), []transfer.Op{a.sendOp(b, 1, fill(40<<20, 1)), a.sendOp(b, 2, fill(10, 1))})
		if err != nil {
			t.Fatal(err)
		}
		first, second := b.receive(a, 1, 40<<20), b.receive(a, 2, 11) // which is another size
		if err := g.Failed().Wait(t.Context()); !errors.Is(err, transfer.ErrInvalid) {
			t.Errorf("Failed() = %v; want the error of the second", err)
		}
		last := int64(0)
		for steps := 0; g.Done().State() != transfer.Failed; steps++ {
			done, all := g.Progress()
			if done < last || done > all || all != 40<<20+10 {
				t.Fatalf("Progress() = %d, %d after %d", done, all, last)
			}
			last = done
			time.Sleep(10 * time.Millisecond)
		}
		if done, _ := g.Progress(); done != 40<<20 {
			t.Errorf("%d bytes moved in the end", done)
		}
		if first.Event.Wait(t.Context()) != nil || second.Event.Wait(t.Context()) == nil {
			t.Error("the first receive failed, or the second did not")
		}
	})
}

func TestTotals(t *testing.T) {
	clause.Cite(t, "TR-BPR-6", "TR-OBS-6")
	inHostBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		sent := a.begin(t.Context(), a.shareOp(b, 1, arena(t, 1), []byte("shared")))
		got := b.receive(a, 1, 6)
		a.send(b, 2, []byte("waits"))
		failed, refused := a.send(b, 3, []byte("abc")), b.receive(a, 3, 4)
		x := a.offerBytes(1, transfer.OfferOptions{Times: offer.Unlimited}, fill(100, 1))
		part := transfer.View{Run: 2, Counts: []int64{5}, Strides: []int64{10}}
		pulled, err := b.Pull(t.Context(), x.Handle(), []transfer.Want{{View: part, Device: 1, Spec: bytesSpec(10)}})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range []*transfer.Event{sent.Event, got.Event, pulled.Done(), failed.Event, refused.Event} {
			<-e.Done()
		}
		synctest.Wait()
		totals := a.Totals()
		if totals.Sends != 1 || totals.Offers != 1 || totals.Peers != 1 || totals.StagedPeak != 10 || totals.Staged != 0 {
			t.Errorf("Totals() = %+v", totals)
		}
		for text, p := range map[string]*process{
			`serry_transfers{direction="send"} 1`:                               a,
			`serry_transfers_ended_total{code="ok",direction="send"} 2`:         a,
			`serry_transfers_ended_total{code="invalid",direction="receive"} 1`: b,
			`serry_transfer_bytes_total{path="shared memory"} 6`:                b,
			`serry_transfer_bytes_total{path="link"} 10`:                        b,
			`serry_transfer_offers 1`:                                           a,
			`serry_transfer_staging_peak_bytes 10`:                              a,
		} {
			registry := prometheus.NewPedanticRegistry()
			registry.MustRegister(metrics.Collector{Engine: p.Engine})
			answer := httptest.NewRecorder()
			promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
			if !strings.Contains(answer.Body.String(), text+"\n") {
				t.Errorf("the page lacks %q:\n%s", text, answer.Body)
			}
		}
		x.Withdraw()
	})
}

// A report that has no room for all halves has the oldest.
func TestReportsFit(t *testing.T) {
	clause.Cite(t, "TR-OBS-3")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		for key := range uint64(1000) {
			a.receive(b, key, 10)
			if key < 10 {
				time.Sleep(time.Second)
			}
		}
		text := transfer.Testify(a.Engine, 10_000)
		var r transfer.Report
		if err := json.Unmarshal(text, &r); err != nil || len(text) > 10_000 {
			t.Fatalf("%d bytes: %v", len(text), err)
		}
		if len(r.Waiting) < 10 || r.Waiting[0].Key.Seq != 0 || len(r.Waiting)+r.Omitted != 1000 {
			t.Errorf("the report has %d halves and omits %d; the first is %v", len(r.Waiting), r.Omitted, r.Waiting[0])
		}
		if text := transfer.Testify(a.Engine, 5); text != nil {
			t.Errorf("a report of at most 5 bytes is %s", text)
		}
	})
}
