package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/preempt"
	"github.com/serry-dev/serry/wire"
)

const testWriteToken = "0123456789abcdef-write"

// hostileText would run in a page, steer a terminal, or turn a line around.
const hostileText = "<img src=x onerror=alert(1)>\x1b[2J\u202e"

// A fakeJob is what a test makes up of a job beside its status.
type fakeJob struct {
	mu struct {
		sync.Mutex
		keys    map[string]string
		lines   []string // of rank 3
		err     error
		asked   map[string]int // how often
		acts    []Act
		refuses error
		text    string // in barriers and documents
	}
}

func newFakeJob() *fakeJob {
	f := &fakeJob{}
	f.mu.keys = map[string]string{
		"a": "1", "ckpt/dir": "/data", "ckpt/old/1": "x", "ckpt/old/2": "xy", "ckptx": "z", "my/API_TOKEN": "hunter2", "bytes": "\x00\xff",
		"long": strings.Repeat("é", valueShown),
	}
	f.mu.lines = []string{"one", "\x1b[31mtwo\x1b[0m", hostileText}
	f.mu.asked = make(map[string]int)
	f.mu.text = "save-1"
	return f
}

func (f *fakeJob) ask(what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.asked[what]++
	return f.mu.err
}

func (f *fakeJob) asked(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.asked[what]
}

func (f *fakeJob) Sizes(_ context.Context, dir string) ([]coord.KeySize, error) {
	if err := f.ask("sizes"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []coord.KeySize
	for key, value := range f.mu.keys {
		if dir == "" || strings.HasPrefix(key, dir+"/") {
			all = append(all, coord.KeySize{Key: key, Size: int64(len(value))})
		}
	}
	slices.SortFunc(all, func(a, b coord.KeySize) int { return strings.Compare(a.Key, b.Key) })
	return all, nil
}

func (f *fakeJob) Value(_ context.Context, key string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if value, ok := f.mu.keys[key]; ok {
		return []byte(value), f.mu.err
	}
	return nil, &serry.KeyError{Key: key, Err: serry.ErrNotFound}
}

func (f *fakeJob) Logs(_ context.Context, task serry.TaskID, q wire.LogQuery) (*wire.LogTail, error) {
	if err := f.ask("logs"); err != nil || task.Index != 3 {
		return nil, err
	}
	tail := &wire.LogTail{Version: 1, First: 1, Last: uint64(len(f.mu.lines))}
	for i, text := range f.mu.lines {
		if n := uint64(i + 1); n > q.After && (q.Before == 0 || n < q.Before) {
			tail.Lines = append(tail.Lines, wire.LogLine{Number: n, Stream: "stderr", Text: text, Attempt: 1, Life: 1})
		}
	}
	return tail, nil
}

func (f *fakeJob) Barriers(_ context.Context, number uint64) (wire.BarrierLog, error) {
	if err := f.ask("barriers"); err != nil {
		return wire.BarrierLog{}, err
	}
	log := wire.BarrierLog{Version: 1, Jobs: []wire.JobStatus{{Name: "worker", Tasks: 4}}, Barriers: []wire.BarrierRecord{}}
	for n := uint64(5); n > 0; n-- {
		b := wire.BarrierRecord{Number: n, ID: fmt.Sprint(f.mu.text, n%2), Arrived: 4, Members: 4, Last: "worker/3", Missing: []string{}, Error: f.mu.text}
		switch number {
		case n:
			b.Arrivals = []float64{0, 0.1, 0.2, 0.3}
			log.Barriers = append(log.Barriers, b)
		case 0:
			log.Barriers = append(log.Barriers, b)
		}
	}
	return log, nil
}

func (f *fakeJob) Collectives(context.Context) (any, error) {
	return map[string]string{"verdict": f.mu.text}, f.ask("collectives")
}

func (f *fakeJob) Transfers(context.Context) (any, error) {
	return map[string]string{"verdict": f.mu.text}, f.ask("transfers")
}

func (f *fakeJob) Names() []string { return []string{ActPut, ActDelete, ActKill} }

func (f *fakeJob) Do(_ context.Context, act Act) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.acts = append(f.mu.acts, act)
	return "so be it", f.mu.refuses
}

// withPanels runs a test of a server with all panels in virtual time.
func withPanels(t *testing.T, f *fakeSource, job *fakeJob, hide []string, acts Acts, test func(t *testing.T, s *Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f.mu.began = time.Now()
		s, err := New(Config{Source: f, Token: testToken, WriteToken: testWriteToken, Hide: hide, Panels: Panels{Keys: job, Processes: job, Acts: acts}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		test(t, s)
	})
}

// Keys are those of serry kv ls, in pages, and in directories where that is wanted.
func TestKeys(t *testing.T) {
	lab.Clause(t, "D-WEB-2", "D-WEB-12", "D-WEB-13", "TD-WEB-5")
	job := newFakeJob()
	withPanels(t, stalled(), job, nil, nil, func(t *testing.T, s *Server) {
		want, _ := job.Sizes(t.Context(), "")
		all := decode[KeyList](t, get(s, "/api/v1/keys"))
		if d := cmp.Diff(want, all.Keys); d != "" || all.Total != len(want) || all.Next != "" {
			t.Errorf("/keys has %d, next %q, and differs from serry kv ls (-want +got):\n%s", all.Total, all.Next, d)
		}
		below := decode[KeyList](t, get(s, "/api/v1/keys?prefix=ckpt/&tree=yes"))
		if len(below.Keys) != 1 || below.Keys[0].Key != "ckpt/dir" || len(below.Dirs) != 1 || below.Dirs[0] != (KeyDir{"ckpt/old/", 2, 3}) || below.Total != 3 || below.Bytes != 8 {
			t.Errorf("/keys below ckpt/ = %+v; want dir, and old with two keys", below)
		}
		if got := decode[KeyList](t, get(s, "/api/v1/keys?prefix=ckp")); got.Total != 4 {
			t.Errorf("/keys?prefix=ckp = %+v; want ckptx and what is below ckpt", got)
		}
		var names []string
		for after := "x"; after != ""; {
			path := "/api/v1/keys?tree=yes&limit=2"
			if len(names) > 0 {
				path += "&after=" + after
			}
			page := decode[KeyList](t, get(s, path))
			for _, d := range page.Dirs {
				names = append(names, d.Dir)
			}
			for _, k := range page.Keys {
				names = append(names, k.Key)
			}
			after = page.Next
		}
		slices.Sort(names)
		if want := []string{"a", "bytes", "ckpt/", "ckptx", "long", "my/"}; !slices.Equal(names, want) {
			t.Errorf("all pages of the tree = %q; want %q, each once", names, want)
		}
		before := job.asked("sizes")
		for range 5 {
			get(s, "/api/v1/keys")
		}
		if n := job.asked("sizes") - before; n > 1 {
			t.Errorf("five viewers list the keys %d times; want once a second", n)
		}
	})
}

// A value is text or bytes, up to a limit, and not shown where it may be a secret.
func TestValues(t *testing.T) {
	lab.Clause(t, "D-WEB-2", "D-WEB-18", "C-KV-1")
	value := func(t *testing.T, s *Server, key string) KeyValue {
		t.Helper()
		return decode[KeyValue](t, get(s, "/api/v1/keys/value?key="+key))
	}
	withPanels(t, stalled(), newFakeJob(), []string{"ckpt/o*"}, nil, func(t *testing.T, s *Server) {
		if v := value(t, s, "ckpt/dir"); v.Value != "/data" || v.Size != 5 || v.Base64 != "" || v.Cut {
			t.Errorf("ckpt/dir = %+v; want text", v)
		}
		if v := value(t, s, "bytes"); v.Value != "" || v.Base64 != "AP8=" {
			t.Errorf("bytes = %+v; want base64", v)
		}
		if v := value(t, s, "long"); len(v.Value) != valueShown || !v.Cut || v.Size != 2*valueShown {
			t.Errorf("long = %d bytes of %d, cut %v; want the first %d", len(v.Value), v.Size, v.Cut, valueShown)
		}
		for _, key := range []string{"my/API_TOKEN", "ckpt/old/1"} {
			if v := value(t, s, key); v.Hidden == "" || v.Value != "" || v.Base64 != "" || v.Size == 0 {
				t.Errorf("%s = %+v; want it hidden, with its size", key, v)
			}
		}
	})
	withPanels(t, stalled(), newFakeJob(), []string{"values", "logs"}, nil, func(t *testing.T, s *Server) {
		if v := value(t, s, "a"); v.Hidden == "" || v.Value != "" {
			t.Errorf("a, with values hidden = %+v", v)
		}
		if got := (hiding{logs: true}).value("/" + diagnose.HangKey); got == "" {
			t.Errorf("%s, which has the last lines of attempts, is shown with logs hidden", diagnose.HangKey)
		}
		if w := get(s, "/api/v1/logs/3"); w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), "one") {
			t.Errorf("GET /logs/3, with logs hidden = %d %s; want 403", w.Code, w.Body)
		}
		var rights struct{ Hidden []string }
		if rights = decode[struct{ Hidden []string }](t, get(s, "/api/v1/rights")); !slices.Equal(rights.Hidden, []string{"values", "logs"}) {
			t.Errorf("/rights hides %q", rights.Hidden)
		}
	})
	for _, bad := range []string{"", "[", "a["} {
		if _, err := newHiding([]string{bad}); err == nil {
			t.Errorf("newHiding(%q) = nil; want an error", bad)
		}
	}
	h, err := newHiding([]string{"run/*/env", "one", "/lead/*/"})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{
		"run/3/env": true, "run/3/env/PATH": true, "run/env": false, "one": true, "one/two": true, "two/one": false, "someone": false, "": false,
		"/one": true, "//one/two/": true, "run//3/env": true, "/run/3/env": true, "lead/x/y": true, "/other/x": false, "/": false, "//": false,
		"wandb-password": true, "Tokens/1": true, "app/client_secret/x": true, "credentials": true, "steps/3": false,
	} {
		if got := h.value(key) != ""; got != want {
			t.Errorf("value of %q is hidden: %v; want %v", key, got, want)
		}
	}
}

// The lines of a rank come without what steers a terminal, and a rank without a launcher is said to have none.
func TestLogs(t *testing.T) {
	lab.Clause(t, "D-WEB-2", "D-WEB-12", "D-WEB-17")
	job := newFakeJob()
	withPanels(t, stalled(), job, nil, nil, func(t *testing.T, s *Server) {
		w := get(s, "/api/v1/logs/3")
		page := decode[LogPage](t, w)
		if len(page.Lines) != 3 || page.Lines[1].Text != "two" || page.Task != "worker/3" || page.Rank != "3" || page.Last != 3 {
			t.Errorf("/logs/3 = %+v; want three lines without colours", page)
		}
		if strings.ContainsAny(w.Body.String(), "<\x1b\u202e") {
			t.Errorf("/logs/3 has raw hostile text: %s", w.Body)
		}
		if page := decode[LogPage](t, get(s, "/api/v1/logs/worker/3?after=2&tail=10")); len(page.Lines) != 1 || page.Lines[0].Number != 3 {
			t.Errorf("/logs/worker/3?after=2 = %+v; want line 3", page.Lines)
		}
		if w := get(s, "/api/v1/logs/1"); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "no launcher has lines of rank 1") {
			t.Errorf("/logs/1 = %d %s; want that no launcher has lines of it", w.Code, w.Body)
		}
		before := job.asked("logs")
		for range 5 {
			get(s, "/api/v1/logs/3")
		}
		if n := job.asked("logs") - before; n > 1 {
			t.Errorf("five viewers ask for the same lines %d times; want once a second", n)
		}
		job.mu.err = errors.New("away\x1b")
		time.Sleep(2 * time.Second)
		if got := (hiding{logs: true}).value("/" + diagnose.HangKey); got == "" {
			t.Errorf("%s, which has the last lines of attempts, is shown with logs hidden", diagnose.HangKey)
		}
		if w := get(s, "/api/v1/logs/3"); w.Code != http.StatusBadGateway {
			t.Errorf("/logs/3 without a service = %d %s; want 502", w.Code, w.Body)
		}
	})
}

// Barriers that have ended come newest first, in pages, by class, and one with its arrivals.
func TestBarriers(t *testing.T) {
	lab.Clause(t, "D-WEB-2", "D-WEB-12", "D-WEB-17")
	job := newFakeJob()
	withPanels(t, stalled(), job, nil, nil, func(t *testing.T, s *Server) {
		list := decode[BarrierList](t, get(s, "/api/v1/barriers?limit=2"))
		if len(list.Barriers) != 2 || list.Barriers[0].Number != 5 || list.Next != "4" || list.Barriers[0].Late != "3" || list.Barriers[0].Class != "save-#" || list.Barriers[0].Place != `barrier "save-11"` {
			t.Errorf("/barriers?limit=2 = %+v", list)
		}
		if list := decode[BarrierList](t, get(s, "/api/v1/barriers?after="+list.Next)); len(list.Barriers) != 3 || list.Next != "" {
			t.Errorf("/barriers?after=4 = %+v; want the last three", list)
		}
		if list := decode[BarrierList](t, get(s, "/api/v1/barriers?class=load")); len(list.Barriers) != 0 {
			t.Errorf("/barriers?class=load = %+v; want none", list)
		}
		one := decode[EndedBarrier](t, get(s, "/api/v1/barriers/3"))
		if one.Number != 3 || len(one.Arrivals) != 4 {
			t.Errorf("/barriers/3 = %+v; want it with its arrivals", one)
		}
		job.mu.text = hostileText
		time.Sleep(recordsPause)
		for _, path := range []string{"/api/v1/barriers", "/api/v1/barriers/3", "/api/v1/collectives", "/api/v1/transfers"} {
			if w := get(s, path); w.Code != http.StatusOK || strings.ContainsAny(w.Body.String(), "<\x1b\u202e") || !strings.Contains(w.Body.String(), "onerror") {
				t.Errorf("GET %s = %d with raw hostile text, or without it: %s", path, w.Code, w.Body)
			}
		}
	})
}

// What the job has been through: preemptions as serry why knows them, attempts as the launcher tells of them.
func TestRecords(t *testing.T) {
	lab.Clause(t, "D-WEB-2", "D-WEB-12", "D-WEB-18")
	f := stalled()
	began := time.Now()
	f.change(func(e *diagnose.Evidence) {
		e.Saves = preempt.Records{
			Notices:  []preempt.Announcement{{Task: "worker/2", Source: "signal terminated", Time: began, Round: 1}},
			Receipts: []preempt.Receipt{{Task: "worker/0", Step: 12, Round: 1}},
		}
	})
	attempts := func(t *testing.T, s *Server) []diagnose.Attempt {
		t.Helper()
		return decode[struct{ Attempts []diagnose.Attempt }](t, get(s, "/api/v1/attempts")).Attempts
	}
	withPanels(t, f, newFakeJob(), []string{"logs"}, nil, func(t *testing.T, s *Server) {
		p := decode[struct {
			Rounds   []diagnose.Save
			Notices  []preempt.Announcement
			Receipts []preempt.Receipt
		}](t, get(s, "/api/v1/preempt"))
		if len(p.Rounds) != 1 || p.Rounds[0].By != "worker/2" || p.Rounds[0].Saved != 1 || len(p.Rounds[0].Missing) != 3 || len(p.Notices) != 1 || len(p.Receipts) != 1 {
			t.Errorf("/preempt = %+v; want a round in which rank 2 was told to go and rank 0 has saved", p)
		}
		if all := attempts(t, s); len(all) != 1 || all[0].Number != 2 || time.Since(all[0].Began).Round(time.Second) != 100*time.Second {
			t.Errorf("/attempts without a launcher = %+v; want the one that runs, for 100 s", all)
		}
		f.change(func(e *diagnose.Evidence) {
			e.Hang = &diagnose.HangReport{Version: 1, Attempts: []diagnose.Attempt{{Number: 1, Failed: true, Rank: 3, How: "signal 9", Last: []string{"secret"}}, {Number: 2}}}
		})
		time.Sleep(time.Second)
		if all := attempts(t, s); len(all) != 2 || all[0].Rank != 3 || all[0].Last != nil {
			t.Errorf("/attempts = %+v; want two, without lines: logs are hidden", all)
		}
	})
}

// A query that means nothing is refused with a sentence, in the panels, too; what a page does not have is not there.
func TestBadPanelQueries(t *testing.T) {
	lab.Clause(t, "D-WEB-13", "TD-WEB-5")
	says := func(t *testing.T, s *Server, path string, code int) {
		t.Helper()
		w := get(s, path)
		var said struct{ Error string }
		if err := json.Unmarshal(w.Body.Bytes(), &said); w.Code != code || err != nil || said.Error == "" || strings.ContainsAny(said.Error, "\n\x1b") {
			t.Errorf("GET %.60s = %d %s; want %d and a sentence", path, w.Code, w.Body, code)
		}
	}
	withPanels(t, stalled(), newFakeJob(), nil, nil, func(t *testing.T, s *Server) {
		for path, code := range map[string]int{
			"/api/v1/keys?limit=1001": 400, "/api/v1/keys?tree=no": 400, "/api/v1/keys?prefix=a&prefix=b": 400, "/api/v1/keys?dir=a": 400,
			"/api/v1/keys/value": 400, "/api/v1/keys/value?key=": 400, "/api/v1/keys/value?key=none%1b": 404, "/api/v1/keys/value?name=a": 400,
			"/api/v1/logs/3?tail=501": 400, "/api/v1/logs/3?before=-1": 400, "/api/v1/logs/3?follow=1": 400, "/api/v1/logs/9": 404, "/api/v1/logs/": 404,
			"/api/v1/barriers?limit=x": 400, "/api/v1/barriers/0": 404, "/api/v1/barriers/99": 404, "/api/v1/barriers/x": 404, "/api/v1/barriers/3?x=1": 400,
			"/api/v1/collectives?ring=a": 400, "/api/v1/preempt?x=1": 400, "/api/v1/attempts?x=1": 400, "/api/v1/rights?x=1": 400,
		} {
			says(t, s, path, code)
		}
	})
	in(t, stalled(), func(t *testing.T, s *Server) {
		for _, path := range []string{"/api/v1/keys", "/api/v1/keys/value?key=a", "/api/v1/logs/3", "/api/v1/barriers", "/api/v1/collectives", "/api/v1/transfers"} {
			says(t, s, path, 404)
		}
		if r := decode[struct{ Panels, Acts []string }](t, get(s, "/api/v1/rights")); len(r.Panels) != 0 || len(r.Acts) != 0 {
			t.Errorf("/rights of a page without panels = %+v", r)
		}
	})
}

// A program may ask for the collectives of one clique. Numbers stay as they are, also long ones.
func TestCollectivesOfAClique(t *testing.T) {
	lab.Clause(t, "D-WEB-12")
	doc := json.RawMessage(`{"verdict":"v","cliques":[{"clique":"data","at":9007199254740993},{"clique":"model","at":2}]}`)
	for name, want := range map[string]string{
		"":      string(doc),
		"data":  `{"cliques":[{"at":9007199254740993,"clique":"data"}],"verdict":"v"}`,
		"other": `{"cliques":[],"verdict":"v"}`,
	} {
		if got := string(encode(ofClique(doc, name))); got != want {
			t.Errorf("ofClique(%q) = %s; want %s", name, got, want)
		}
	}
}
