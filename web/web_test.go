package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/wire"
)

const testToken = "0123456789abcdef-token"

// A fakeSource is a job that a test makes up.
type fakeSource struct {
	mu struct {
		sync.Mutex
		evidence diagnose.Evidence
		err      error
		looks    int
		reads    int
		read     []string      // tasks whose stacks were asked for last; nil: all
		silent   time.Duration // of ranks whose stacks are asked for
		began    time.Time     // ages are those of that time
	}
}

func (f *fakeSource) Look(context.Context) (diagnose.Evidence, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.looks++
	e := f.mu.evidence
	passed := time.Since(f.mu.began).Seconds()
	e.Status.UpSeconds += passed
	e.Status.Barriers = slices.Clone(e.Status.Barriers)
	for i := range e.Status.Barriers {
		e.Status.Barriers[i].ForSeconds += passed
	}
	e.Status.Clock = time.Now().UTC()
	return e, f.mu.err
}

// hold makes ranks answer with their stacks after a time.
func (f *fakeSource) hold(silent time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.silent = silent
}

func (f *fakeSource) Stacks(ctx context.Context, tasks []string) (Stacks, error) {
	f.mu.Lock()
	f.mu.reads++
	f.mu.read = tasks
	silent := f.mu.silent
	f.mu.Unlock()
	if err := pause.For(ctx, silent); err != nil {
		return Stacks{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.err != nil {
		return Stacks{}, f.mu.err
	}
	if tasks != nil {
		return Stacks{Version: Version, Groups: []diagnose.StackGroup{}, Elsewhere: tasks}, nil
	}
	return Stacks{Version: Version, Groups: []diagnose.StackGroup{{Tasks: []string{"worker/3"}, Frames: []diagnose.Frame{{Function: "load", File: "train.py", Line: 10}}, Doing: []string{"asleep"}}}, Elsewhere: []string{}}, nil
}

// change changes the job.
func (f *fakeSource) change(how func(*diagnose.Evidence)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	how(&f.mu.evidence)
}

func (f *fakeSource) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.err = err
}

func (f *fakeSource) looks() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.looks
}

// stalled is a job of four ranks in which rank 3 keeps the others waiting.
func stalled() *fakeSource {
	f := &fakeSource{}
	s := wire.Status{
		Version: wire.StatusVersion, Epoch: 2, Service: 77, UpSeconds: 100, Size: 4, Jobs: []wire.JobStatus{{Name: "worker", Tasks: 4}},
		Counts: map[string]int{wire.StateConnected: 4}, Keys: 3, StoreBytes: 100, Waiting: 3,
		Barriers: []wire.BarrierStatus{{ID: "save-100", Counter: 1, Arrived: 3, Members: 4, Missing: []string{"worker/3"}, ForSeconds: 41}},
		Notes:    []wire.NoteStatus{{Number: 1, AtSeconds: 1, What: "task connected", Task: "worker/0"}, {Number: 2, AtSeconds: 90, What: "task suspected", Task: "worker/3", Cause: "task is silent", Error: "task is silent"}},
		Steps:    []int64{12, 12, 12, 11},
	}
	for i := range 4 {
		s.Tasks = append(s.Tasks, wire.TaskStatus{Task: fmt.Sprintf("worker/%d", i), State: wire.StateConnected, From: fmt.Sprintf("10.0.0.%d:5", 4+i/2), LastCall: "Barrier", LastOf: "save-100", CallSeconds: 41, CallWaits: i < 3})
	}
	f.mu.evidence = diagnose.Evidence{Status: s}
	return f
}

func newTestServer(t *testing.T, f Source) *Server {
	t.Helper()
	s, err := New(Config{Source: f, Token: testToken, Hosts: []string{"page.example.org"}})
	if err != nil {
		t.Fatalf("New() = %v; want a server", err)
	}
	return s
}

// get asks a handler with the token.
func get(s http.Handler, path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "http://localhost"+path, nil)
	r.Header.Set("Authorization", "Bearer "+testToken)
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func decode[T any](t *testing.T, w *httptest.ResponseRecorder) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil || w.Code != http.StatusOK {
		t.Fatalf("answer %d %s: %v; want a document", w.Code, w.Body, err)
	}
	return v
}

// in runs a test of a server in virtual time.
func in(t *testing.T, f *fakeSource, test func(t *testing.T, s *Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f.mu.began = time.Now()
		s := newTestServer(t, f)
		defer s.Close()
		test(t, s)
	})
}

// The documents are those of the commands.
func TestDocuments(t *testing.T) {
	lab.Clause(t, "D-WEB-8", "D-WEB-12", "D-WEB-13", "TD-WEB-5")
	f := stalled()
	in(t, f, func(t *testing.T, s *Server) {
		e, _ := f.Look(t.Context()) // at the same time, in a bubble
		want := e.Status
		want.Tasks, want.Steps = nil, nil
		if d := cmp.Diff(want, decode[wire.Status](t, get(s, "/api/v1/job"))); d != "" {
			t.Errorf("/job differs from the status (-want +got):\n%s", d)
		}
		// A report has fields of its own that it does not write.
		if got, want := get(s, "/api/v1/why").Body.String(), string(encode(diagnose.Judge(e)))+"\n"; got != want {
			t.Errorf("/why = %s; want %s", got, want)
		}
		if d := cmp.Diff(e.Status.Barriers, decode[Waits](t, get(s, "/api/v1/waits")).Barriers); d != "" {
			t.Errorf("/waits differs (-want +got):\n%s", d)
		}
		ranks := decode[RankList](t, get(s, "/api/v1/ranks"))
		if d := cmp.Diff(e.Status.Tasks, ranks.Tasks); d != "" || ranks.Total != 4 || ranks.Next != "" {
			t.Errorf("/ranks has %d, next %q, and differs (-want +got):\n%s", ranks.Total, ranks.Next, d)
		}
		if got := decode[Grid](t, get(s, "/api/v1/grid")).States; got != "w3m1" {
			t.Errorf("/grid has states %q; want w3m1", got)
		}
		if got := decode[Hosts](t, get(s, "/api/v1/grid")).Hosts; !cmp.Equal(got, []HostRun{{"10.0.0.4", 2}, {"10.0.0.5", 2}}) {
			t.Errorf("/grid has hosts %v; want two with two ranks each", got)
		}
		first := decode[RankList](t, get(s, "/api/v1/ranks?sort=trouble&limit=1"))
		if len(first.Rows) != 1 || first.Rows[0].Rank != "3" || first.Rows[0].Mark != "m" || *first.Rows[0].Lag != 1 || first.Next != "1" {
			t.Errorf("/ranks?sort=trouble&limit=1 = %+v; want rank 3, missing, one step behind, and a next page", first)
		}
		if got := decode[RankList](t, get(s, "/api/v1/ranks?state=m&host=10.0.0.5")); got.Total != 1 {
			t.Errorf("/ranks?state=m&host=10.0.0.5 has %d; want 1", got.Total)
		}
		if got := decode[RankList](t, get(s, "/api/v1/ranks?after=3&limit=1000")); len(got.Tasks) != 1 || got.Tasks[0].Task != "worker/3" {
			t.Errorf("/ranks?after=3 = %+v; want the last rank", got.Tasks)
		}
		for _, id := range []string{"3", "worker/3"} {
			one := decode[struct {
				Task    string
				Missing []string
			}](t, get(s, "/api/v1/ranks/"+id))
			if one.Task != "worker/3" || len(one.Missing) != 1 {
				t.Errorf("/ranks/%s = %+v; want worker/3, missing at one barrier", id, one)
			}
		}
	})
}

// A query that means nothing is refused with a sentence, and so is what there is not.
func TestBadQueries(t *testing.T) {
	lab.Clause(t, "D-WEB-13", "D-WEB-14")
	in(t, stalled(), func(t *testing.T, s *Server) {
		for path, code := range map[string]int{
			"/api/v1/ranks?state=well":                       400,
			"/api/v1/ranks?sort=age":                         400,
			"/api/v1/ranks?limit=1001":                       400,
			"/api/v1/ranks?limit=-1":                         400,
			"/api/v1/ranks?limit=1&limit=2":                  400,
			"/api/v1/ranks?limit=x":                          400,
			"/api/v1/ranks?colour=red":                       400,
			"/api/v1/ranks?host=%ff":                         400,
			"/api/v1/ranks?%zz":                              400,
			"/api/v1/job?x=1":                                400,
			"/api/v1/events?kind=weather":                    400,
			"/api/v1/events?before=now":                      400,
			"/api/v1/goodput?x=1":                            400,
			"/api/v1/stream?topics=job,weather":              400,
			"/api/v1/job?x=" + strings.Repeat("y", maxQuery): 400,
			"/api/v1/ranks/4":                                404,
			"/api/v1/ranks/ps/0":                             404,
			"/api/v1/keys":                                   404,
			"/api/v1/stacks":                                 404,
			"/nothing.js":                                    404,
			"/api":                                           404,
		} {
			w := get(s, path)
			var said struct{ Error string }
			if err := json.Unmarshal(w.Body.Bytes(), &said); w.Code != code || err != nil || said.Error == "" || strings.Contains(said.Error, "\n") {
				t.Errorf("GET %.60s = %d %s; want %d and a sentence", path, w.Code, w.Body, code)
			}
		}
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
			w := get(s, "/api/v1/ranks/3", func(r *http.Request) { r.Method = method })
			if w.Code != http.StatusNotFound && w.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s /api/v1/ranks/3 = %d; want 404 or 405: the page changes nothing", method, w.Code)
			}
		}
	})
}

// An outage of the service is said, and over when it is over.
func TestSourceAway(t *testing.T) {
	lab.Clause(t, "D-WEB-4")
	f := stalled()
	in(t, f, func(t *testing.T, s *Server) {
		f.fail(errors.New("connection refused"))
		if w := get(s, "/api/v1/job"); w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "connection refused") {
			t.Errorf("/job = %d %s; want 502 and the reason", w.Code, w.Body)
		}
		time.Sleep(10 * time.Second)
		f.fail(nil)
		decode[wire.Status](t, get(s, "/api/v1/job"))
		var texts []string
		for _, e := range s.hub.pastEvents() {
			texts = append(texts, e.Text)
		}
		if len(texts) != 4 || !strings.Contains(texts[0], "does not answer: connection refused") || !strings.Contains(texts[3], "answers again, after 10s") {
			t.Errorf("events %q; want the outage, the two notes and its end, by time", texts)
		}
	})
}

// Many requests cost the service one question each half second.
func TestQuestionsAreShared(t *testing.T) {
	lab.Clause(t, "D-WEB-10")
	f := stalled()
	in(t, f, func(t *testing.T, s *Server) {
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { get(s, "/api/v1/job") })
		}
		all.Wait()
		if n := f.looks(); n != 1 {
			t.Errorf("100 requests asked the service %d times; want 1", n)
		}
		time.Sleep(time.Hour)
		if n := f.looks(); n != 1 {
			t.Errorf("asked %d times while no one looks; want 1", n)
		}
	})
}

// Stacks are read when a request asks for that, at most every two seconds, and for one request at a time.
func TestStacks(t *testing.T) {
	lab.Clause(t, "D-WEB-12")
	f := stalled()
	in(t, f, func(t *testing.T, s *Server) {
		post := func(r *http.Request) { r.Method = "POST" }
		for range 3 {
			got := decode[TimedStacks](t, get(s, "/api/v1/stacks", post))
			if len(got.Groups) != 1 || got.Groups[0].Frames[0].Function != "load" {
				t.Fatalf("POST /stacks = %+v; want rank 3 in load", got)
			}
		}
		if f.mu.reads != 1 {
			t.Errorf("three requests read stacks %d times; want 1", f.mu.reads)
		}
		time.Sleep(stacksPause)
		get(s, "/api/v1/stacks", post)
		if f.mu.reads != 2 {
			t.Errorf("read stacks %d times after a pause; want 2", f.mu.reads)
		}
		time.Sleep(stacksPause)
		some := func(r *http.Request) { post(r); r.URL.RawQuery = "ranks=3,1" }
		if got := decode[TimedStacks](t, get(s, "/api/v1/stacks", some)); len(got.Elsewhere) != 2 || f.mu.reads != 3 || f.mu.read[0] != "worker/3" {
			t.Errorf("POST /stacks?ranks=3,1 = %+v, of %q; want those of two ranks", got, f.mu.read)
		}
		if w := get(s, "/api/v1/stacks", post); w.Code != http.StatusTooManyRequests {
			t.Errorf("POST /stacks right after that = %d; want 429, not those of two ranks", w.Code)
		}
		if w := get(s, "/api/v1/stacks", func(r *http.Request) { post(r); r.URL.RawQuery = "ranks=9" }); w.Code != http.StatusBadRequest {
			t.Errorf("POST /stacks?ranks=9 = %d; want 400", w.Code)
		}
		if got := decode[TimedStacks](t, get(s, "/api/v1/stacks")); len(got.Groups) != 1 {
			t.Errorf("GET /stacks = %+v; want what was read last", got)
		}
		f.hold(time.Hour)
		time.Sleep(stacksPause)
		first := make(chan int)
		go func() { first <- get(s, "/api/v1/stacks", post).Code }()
		synctest.Wait()
		if w := get(s, "/api/v1/stacks", post); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "2" || f.mu.reads != 4 {
			t.Errorf("POST /stacks while they are read = %d %s after %d readings; want 429 at once", w.Code, w.Body, f.mu.reads)
		}
		if code := <-first; code != http.StatusBadGateway {
			t.Errorf("POST /stacks of ranks that do not answer = %d; want 502", code)
		}
		f.hold(0)
		if w := get(s, "/api/v1/stacks", post); w.Code != http.StatusOK || f.mu.reads != 5 {
			t.Errorf("POST /stacks after that = %d; want 200", w.Code)
		}
	})
}

// curl gets text, and a browser without JavaScript a page. Neither runs, or is steered by, what a job says.
func TestText(t *testing.T) {
	lab.Clause(t, "D-WEB-17", "D-WEB-21")
	f := stalled()
	hostile := "<img src=x onerror=alert(1)>\x1b[2J\u202e"
	f.change(func(e *diagnose.Evidence) {
		e.Status.Barriers[0].ID = hostile
		e.Status.Tasks[3].From = hostile
	})
	in(t, f, func(t *testing.T, s *Server) {
		text := get(s, "/")
		for _, want := range []string{"attempt 2, up 1m40s, 4 ranks: 4 connected", "3/4", "missing rank 3", "ranks in trouble", "m  3", "rank 3 suspected: rank is silent"} {
			if !strings.Contains(text.Body.String(), want) {
				t.Errorf("text without %q:\n%s", want, text.Body)
			}
		}
		if strings.ContainsAny(text.Body.String(), "\x1b\u202e") || text.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("text of type %q steers a terminal: %q", text.Header().Get("Content-Type"), text.Body)
		}
		page := get(s, "/plain")
		if page.Code != 200 || strings.Contains(page.Body.String(), "<img") || !strings.Contains(page.Body.String(), "&lt;img") || strings.ContainsAny(page.Body.String(), "\x1b\u202e") {
			t.Errorf("plain page %d runs what a job says:\n%s", page.Code, page.Body)
		}
		document := get(s, "/api/v1/waits").Body.String()
		if strings.ContainsAny(document, "<\x1b\u202e") {
			t.Errorf("document with raw hostile text: %s", document)
		}
		browser := get(s, "/", func(r *http.Request) { r.Header.Set("Accept", "text/html,*/*;q=0.8"); r.Header.Del("Authorization") })
		if body := browser.Body.String(); browser.Code != 200 || !strings.Contains(body, "main.js") || !strings.Contains(body, "url=plain") {
			t.Errorf("browser gets %d %.200s; want the page, with a way to the plain one", browser.Code, body)
		}
	})
}

// Whatever is asked, the answer is a sentence or a document.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{"", "limit=1", "limit=1&limit=2", "state=%21", "topics=job,grid", "%zz", "a=b;c=d", "host=%ff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := readQuery(raw, "state", "limit", "topics", "host")
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("readQuery(%q) = %q; want a line", raw, err)
			}
			return
		}
		if n, err := q.number("limit", maxRows, maxRows); err == nil && (n < 0 || n > maxRows) {
			t.Errorf("limit of %q = %d; want 0 to %d", raw, n, maxRows)
		}
		if topics, err := q.topics(); err == nil && len(topics) > len(topicNames) {
			t.Errorf("topics of %q = %q; want each once", raw, topics)
		}
	})
}

// Events are listed in pages, by numbers that ascend.
func TestEventPages(t *testing.T) {
	lab.Clause(t, "D-WEB-12", "D-WEB-13", "TD-WEB-5")
	f := stalled()
	test := func(t *testing.T, s *Server) {
		list := func(query string) (texts []string, l EventList) {
			l = decode[EventList](t, get(s, "/api/v1/events"+query))
			for _, e := range l.Events {
				texts = append(texts, e.Text)
			}
			return texts, l
		}
		all, newest := list("")
		if len(all) != 2 || newest.Next != "" || newest.Events[0].Number <= newest.Events[1].Number {
			t.Fatalf("/events = %+v; want the two notes, the newest first", newest)
		}
		first, page := list("?limit=1")
		if page.Next == "" || first[0] != all[0] {
			t.Errorf("/events?limit=1 = %+v; want the newest, and where to go on", page)
		}
		second, page := list("?limit=1&before=" + page.Next)
		if len(second) != 1 || second[0] != all[1] || page.Next != "" {
			t.Errorf("/events before that = %+v; want the other", page)
		}
		if after, _ := list(fmt.Sprintf("?after=%d", page.Events[0].Number)); len(after) != 1 || after[0] != all[0] {
			t.Errorf("/events after the first = %q; want %q", after, all[:1])
		}
	}
	t.Run("of a job that runs", func(t *testing.T) { in(t, f, test) })
	t.Run("of a journal", func(t *testing.T) {
		s := newTestServer(t, newFakePast())
		defer s.Close()
		test(t, s)
	})
}

// Parts of the status have addresses of their own, and say the same as the whole.
func TestParts(t *testing.T) {
	lab.Clause(t, "D-WEB-12")
	f := stalled()
	f.change(func(e *diagnose.Evidence) {
		e.Status.Leader, e.Status.Term = "a:1", 7
		e.Status.Goodput = &wire.GoodputStatus{WallSeconds: 10, ProductiveSeconds: 9, Step: 12}
		e.Status.Stragglers = []wire.StragglerStatus{{Task: "worker/3", Slower: 0.25}}
	})
	in(t, f, func(t *testing.T, s *Server) {
		whole := decode[wire.Status](t, get(s, "/api/v1/job"))
		var got wire.Status
		for _, part := range []string{"goodput", "stragglers", "coordinator"} {
			if err := json.Unmarshal(get(s, "/api/v1/"+part).Body.Bytes(), &got); err != nil {
				t.Errorf("/%s: %v", part, err)
			}
		}
		if got.Leader != "a:1" || got.Term != 7 || got.Keys != whole.Keys || got.Goodput.Step != 12 || len(got.Stragglers) != 1 || got.Waiting != whole.Waiting {
			t.Errorf("the parts say %+v; want what /job says: %+v", got, whole)
		}
	})
}
