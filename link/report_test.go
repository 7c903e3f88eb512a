package link_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
)

// ask creates the question for a life and waits for its report.
func (w *world) ask(l serry.Life) link.Report {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if err := w.Create(ctx, link.AskKey(l), nil); err != nil {
		w.t.Fatalf("Create(%s) = %v", link.AskKey(l), err)
	}
	text, err := w.Wait(ctx, link.ReportKey(l))
	if err != nil {
		w.t.Fatalf("%v does not report: %v", l.Task, err)
	}
	if err := w.Delete(ctx, link.ReportKey(l)); err != nil {
		w.t.Fatal(err)
	}
	r, err := link.ParseReport(text)
	if err != nil {
		w.t.Fatalf("ParseReport(%q) = %v", text, err)
	}
	return r
}

// A member that is asked tells how its links are; one that is not asked writes nothing.
func TestReport(t *testing.T) {
	clause.Cite(t, "CL-TRN-33")
	onEach(t, func(t *testing.T, w *world) {
		a, b := w.ends()
		exchange(t, a, b, 1)
		if keys := w.keyNames(); len(keys) > 2 {
			t.Errorf("keys before any question: %v; want addresses alone", keys)
		}
		self := life(0, 10)
		for range 2 { // it answers again
			r := w.ask(self)
			if r.Links != 1 || len(r.Worst) != 1 {
				t.Fatalf("report of %d links, shown %v; want 1", r.Links, r.Worst)
			}
			got := r.Worst[0]
			if got.Peer != b.Peer().Task.String() && got.Peer != a.Peer().Task.String() || got.BytesSent == 0 || got.FramesReceived == 0 || got.Lanes == 0 || got.Suspected {
				t.Errorf("figures %+v; want a link to %v with traffic", got, a.Peer().Task)
			}
		}
		for _, key := range w.keyNames() {
			if strings.HasSuffix(key, "/ask") || strings.HasSuffix(key, "/report") {
				t.Errorf("key %s is left", key)
			}
		}
	})
}

// However many ask, a member writes one report a second; and what it wrote goes with its addresses.
func TestReportsAreFew(t *testing.T) {
	clause.Cite(t, "CL-TRN-33", "CLT-DES-12")
	inBubble(t, func(t *testing.T, w *world) {
		n := w.join(life(0, 10))
		began := time.Now()
		for range 3 {
			w.ask(n.Life())
		}
		if took := time.Since(began); took < 2*time.Second {
			t.Errorf("three reports took %v; want at least 2s", took)
		}
		synctest.Wait()
		if err := w.Create(t.Context(), link.AskKey(n.Life()), nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if w.key(link.ReportKey(n.Life())) == "" {
			t.Errorf("no report that nobody reads; want one")
		}
		if err := n.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if keys := w.keyNames(); len(keys) > 0 {
			t.Errorf("keys after Close: %v", keys)
		}
	})
}

// A peer that is silent is suspected, and first in the report; a loss is counted by who found it.
func TestReportNamesTheSilent(t *testing.T) {
	clause.Cite(t, "CL-TRN-33", "CL-TRN-34")
	inBubble(t, func(t *testing.T, w *world) {
		n, near, far := w.join(life(0, 10)), w.join(life(1, 11)), w.join(life(2, 12))
		w.linked(n, near)
		w.linked(n, far)
		w.network.cut(hostOf(far.Life()), hostOf(n.Life()))
		time.Sleep(2 * time.Second)
		r := w.ask(n.Life())
		if len(r.Worst) != 2 || r.Worst[0].Peer != "worker/2" || !r.Worst[0].Suspected || r.Worst[0].SilentSeconds < 1 {
			t.Errorf("report %+v; want worker/2 first, suspected", r)
		}
		if totals := n.Totals(); totals.Up != 2 || totals.Suspected != 1 || totals.Silent < time.Second {
			t.Errorf("Totals() = %+v; want 2 up, 1 suspected", totals)
		}
		time.Sleep(10 * time.Second)
		if r := w.ask(n.Life()); r.Links != 1 || r.Losses["link"] == 0 {
			t.Errorf("report %+v; want one link, and a loss that the link found", r)
		}
		if totals := n.Totals(); totals.Losses[link.FromLink] == 0 {
			t.Errorf("Totals() = %+v; want a loss", totals)
		}
	})
}

// A report is bounded, however many links there are; it shows the worst and says how many there are.
func TestReportIsBounded(t *testing.T) {
	clause.Cite(t, "CL-TRN-33")
	var all []link.Stats
	for i := range 5000 {
		all = append(all, link.Stats{Peer: life(i, 1<<63), Remote: "[fd00::1234:5678:9abc:def0]:65535", Silent: time.Duration(i) * time.Second, BytesSent: 1 << 60, Suspected: i == 7})
	}
	text := link.NewReport(all, map[link.Source]uint64{link.FromLink: 3})
	r, err := link.ParseReport(text)
	if err != nil || len(text) > 8<<10 {
		t.Fatalf("ParseReport(%d bytes) = %v; want at most 8 KiB", len(text), err)
	}
	if r.Links != 5000 || len(r.Worst) < 20 || r.Worst[0].Peer != "worker/7" || r.Worst[1].Peer != "worker/4999" || r.Losses["link"] != 3 {
		t.Errorf("report of %d links, %d shown, first %v", r.Links, len(r.Worst), r.Worst[:2])
	}
}

// What is no report is refused, whatever it is.
func TestBadReports(t *testing.T) {
	clause.Cite(t, "CL-TRN-33")
	for _, text := range []string{"", "[]", "{", `{"links":"many"}`, `{"worst":` + strings.Repeat(" ", 9000) + `[]}`} {
		if _, err := link.ParseReport([]byte(text)); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("ParseReport(%.20q) = %v; want ErrInvalid", text, err)
		}
	}
}

// The keys of links are read as they are written.
func TestKeysOfLinks(t *testing.T) {
	clause.Cite(t, "CL-TRN-29", "CL-TRN-33")
	l := serry.Life{Task: serry.TaskID{Job: "a/b", Index: 3}, Incarnation: 0xfedcba9876543210}
	const address = "serry/link/a/b/3/fedcba9876543210"
	for key, want := range map[string]string{
		address: "{a/b/3 18364758544493064720} false true", address + "/report": "{a/b/3 18364758544493064720} true true",
		address + "/ask": "{/0 0} false false", "serry/link": "{/0 0} false false", "serry/link/x/10": "{/0 0} false false", "other/worker/0/1": "{/0 0} false false",
	} {
		life, report, ok := link.ParseKey(key)
		if got := fmt.Sprint(life, report, ok); got != want {
			t.Errorf("ParseKey(%s) = %s; want %s", key, got, want)
		}
	}
	if link.AskKey(l) != address+"/ask" || link.ReportKey(l) != address+"/report" {
		t.Errorf("keys are %s and %s", link.AskKey(l), link.ReportKey(l))
	}
}

// Whatever a key holds, reading it ends in a report or an error.
func FuzzParseReport(f *testing.F) {
	f.Add("serry/link/worker/0/00000000000000ff/report", []byte(`{"links":1,"worst":[{"peer":"worker/1","incarnation":"7"}],"losses":{"link":2}}`))
	f.Add("serry/link//", []byte(`{"worst":[{}]}`))
	f.Fuzz(func(t *testing.T, key string, text []byte) {
		if l, report, ok := link.ParseKey(key); ok && report && !strings.HasSuffix(link.ReportKey(l), "/report") {
			t.Errorf("ParseKey(%q) = %v", key, l)
		}
		if r, err := link.ParseReport(text); err == nil && len(text) > 8<<10 {
			t.Errorf("ParseReport took %d bytes: %+v", len(text), r)
		}
	})
}

// What moved on a link that the peer has replaced is counted as before.
func TestTotalsNeverFall(t *testing.T) {
	clause.Cite(t, "CL-TRN-34")
	inBubble(t, func(t *testing.T, w *world) {
		m, n := w.join(life(0, 10)), w.join(life(1, 11))
		a, b := w.linked(m, n)
		exchange(t, a, b, 1)
		before := n.Totals().BytesRecv
		if err := m.DialAnew(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		<-b.Done()
		if after := n.Totals().BytesRecv; after < before {
			t.Errorf("%d bytes were received, and %d later", before, after)
		}
	})
}
