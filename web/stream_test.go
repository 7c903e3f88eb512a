package web

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"
	"pgregory.net/rapid"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/wire"
)

// A served page is a server that is reached over connections in memory.
type served struct {
	*Server
	listener *bufconn.Listener
	client   *http.Client
}

// serveIn runs a test of a served page in virtual time. Connections hold few bytes, so that a viewer that does not read is noticed.
func serveIn(t *testing.T, f *fakeSource, test func(t *testing.T, s *served)) {
	t.Helper()
	serveBy(t, nil, f, test)
}

// serveBy is serveIn by some versions of HTTP; nil: 1.1.
func serveBy(t *testing.T, versions *http.Protocols, f *fakeSource, test func(t *testing.T, s *served)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f.mu.began = time.Now()
		serveOne(t, newTestServer(t, f), versions, test)
	})
}

// serveOne serves a page while a test of it runs.
func serveOne(t *testing.T, page *Server, versions *http.Protocols, test func(t *testing.T, s *served)) {
	t.Helper()
	l := bufconn.Listen(4 << 10)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.DialContext(ctx) }, Protocols: versions}
	s := &served{Server: page, listener: l, client: &http.Client{Transport: transport}}
	s.http.Protocols = versions
	over := make(chan error, 1)
	go func() { over <- s.Serve(l) }()
	test(t, s)
	s.Close()
	transport.CloseIdleConnections()
	if err := <-over; err != nil {
		t.Errorf("Serve() = %v; want nil after Close", err)
	}
}

// A frame is a message as a viewer gets it.
type frame struct{ id, name, data string }

// A watcher reads a stream.
type watcher struct {
	body io.Closer
	mu   struct {
		sync.Mutex
		frames []frame
	}
	done chan struct{}
}

// watch opens a stream after a message, or from the beginning.
func (s *served) watch(t *testing.T, query, last string) *watcher {
	t.Helper()
	r, err := http.NewRequest("GET", "http://localhost/api/v1/stream"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+testToken)
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	reply, err := s.client.Do(r)
	if err != nil || reply.StatusCode != http.StatusOK || reply.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("GET /stream = %v, %v; want a stream", reply, err)
	}
	w := &watcher{body: reply.Body, done: make(chan struct{})}
	go w.read(reply.Body)
	return w
}

func (w *watcher) read(body io.Reader) {
	defer close(w.done)
	var f frame
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case lines.Text() == "" && f.name != "":
			w.mu.Lock()
			w.mu.frames = append(w.mu.frames, f)
			w.mu.Unlock()
			f = frame{}
		case word == "id":
			f.id = rest
		case word == "event":
			f.name = rest
		case word == "data":
			f.data = rest
		}
	}
}

func (w *watcher) close() {
	w.body.Close()
	<-w.done
}

// named are the data of the messages of one name that have come.
func (w *watcher) named(name string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, f := range w.mu.frames {
		if f.name == name {
			all = append(all, f.data)
		}
	}
	return all
}

// last is the id of the newest message.
func (w *watcher) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := len(w.mu.frames) - 1; i >= 0; i-- {
		if id := w.mu.frames[i].id; id != "" {
			return id
		}
	}
	return ""
}

// texts are what events say.
func (w *watcher) texts() []string {
	var all []string
	for _, data := range w.named("event") {
		var h happening
		_ = json.Unmarshal([]byte(data), &h) // then it is empty
		all = append(all, h.Text)
	}
	return all
}

// happen adds a note to a job.
func (f *fakeSource) happen(n int) {
	f.change(func(e *diagnose.Evidence) {
		number := uint64(len(e.Status.Notes) + 1)
		if last := len(e.Status.Notes) - 1; last >= 0 {
			number = e.Status.Notes[last].Number + 1
		}
		e.Status.UpSeconds++
		e.Status.Notes = append(slices.Clone(e.Status.Notes), wire.NoteStatus{Number: number, AtSeconds: e.Status.UpSeconds, What: fmt.Sprintf("event %d", n)})
	})
}

// A viewer gets everything at first, and then what changes, within a second. While nothing happens it gets little.
func TestStream(t *testing.T) {
	lab.Clause(t, "D-WEB-8", "D-WEB-10", "D-WEB-12", "TD-WEB-4")
	f := stalled()
	serveIn(t, f, func(t *testing.T, s *served) {
		w := s.watch(t, "", "")
		time.Sleep(time.Second)
		for _, name := range []string{"hello", "job", "grid", "hosts", "waits", "ping"} { // the verdict has an age
			if n := len(w.named(name)); n != 1 {
				t.Errorf("%d messages %s after a second; want 1", n, name)
			}
		}
		if got := w.texts(); len(got) != 2 {
			t.Errorf("events %q; want the two notes", got)
		}
		if got := w.named("waits")[0]; !strings.Contains(got, `"places":["barrier \"save-100\""]`) {
			t.Errorf("waits %s; want them with what people call them", got)
		}
		f.change(func(e *diagnose.Evidence) {
			e.Status.Tasks = slices.Clone(e.Status.Tasks)
			e.Status.Tasks[3].State = wire.StateFailed
		})
		time.Sleep(time.Second)
		if got := w.named("grid"); len(got) != 2 || !strings.Contains(got[1], `"w3F1"`) {
			t.Errorf("grid %q; want a second one, in which rank 3 has failed", got)
		}
		before := len(w.named("grid")) + len(w.named("hosts")) + len(w.named("waits")) + len(w.named("event"))
		f.change(func(e *diagnose.Evidence) { e.Status.UpSeconds++; e.Status.Barriers[0].ForSeconds++ })
		time.Sleep(10 * time.Second)
		if after := len(w.named("grid")) + len(w.named("hosts")) + len(w.named("waits")) + len(w.named("event")); after != before {
			t.Errorf("%d messages while nothing happens; want none", after-before)
		}
		if n := f.looks(); n > 26 {
			t.Errorf("asked %d times in 12 s; want twice a second at most", n)
		}
		w.close()
		n := f.looks()
		time.Sleep(time.Hour)
		if more := f.looks() - n; more > 2 {
			t.Errorf("asked %d times after the last viewer left; want none", more)
		}
	})
}

// A viewer that was cut off goes on where it was: no event is left out and none comes twice.
func TestStreamResumes(t *testing.T) {
	lab.Clause(t, "D-WEB-10", "TD-WEB-4")
	f := stalled()
	serveIn(t, f, func(t *testing.T, s *served) {
		other := s.watch(t, "", "") // keeps the hub asking
		w := s.watch(t, "?topics=events", "")
		time.Sleep(time.Second)
		var texts []string
		for i := range 50 {
			f.happen(i)
			time.Sleep(300 * time.Millisecond)
			if i%7 != 3 {
				continue
			}
			w.close()
			id := w.last()
			texts = append(texts, w.texts()...)
			f.happen(1000 + i)
			time.Sleep(time.Second)
			w = s.watch(t, "?topics=events", id)
			if n := len(w.named("reset")); n != 0 {
				t.Fatalf("the viewer is reset; want it to go on after %s", id)
			}
		}
		time.Sleep(time.Second)
		texts = append(texts, w.texts()...)
		want := []string{"rank 0 connected", "rank 3 suspected: rank is silent"}
		for i := range 50 {
			want = append(want, fmt.Sprintf("event %d", i))
			if i%7 == 3 {
				want = append(want, fmt.Sprintf("event %d", 1000+i))
			}
		}
		if !slices.Equal(texts, want) {
			t.Errorf("events %q; want %q", texts, want)
		}
		w.close()
		other.close()
	})
}

// A viewer of which nothing is known any more is told to forget what it has, and gets everything.
func TestStreamReset(t *testing.T) {
	lab.Clause(t, "D-WEB-10", "TD-WEB-4")
	f := stalled()
	serveIn(t, f, func(t *testing.T, s *served) {
		w := s.watch(t, "", "")
		time.Sleep(time.Second)
		old := w.last()
		for i := range maxEvents + 10 {
			f.happen(i)
			if i%200 == 199 {
				time.Sleep(time.Second)
				f.change(func(e *diagnose.Evidence) { e.Status.Notes = e.Status.Notes[len(e.Status.Notes)-1:] })
			}
		}
		time.Sleep(time.Second)
		w.close()
		for _, last := range []string{old, "other-5", "nonsense", strings.TrimSuffix(old, "1") + "99999999"} {
			again := s.watch(t, "", last)
			time.Sleep(time.Second)
			if len(again.named("reset")) != 1 || len(again.named("grid")) != 1 || len(again.named("event")) != maxEvents {
				t.Errorf("after %q: %d resets, %d grids, %d events; want 1, 1 and %d", last, len(again.named("reset")), len(again.named("grid")), len(again.named("event")), maxEvents)
			}
			again.close()
		}
	})
}

// A sender that keeps its body back and a reader that does not read are cut off, though they need no token for that.
func TestSlowRequests(t *testing.T) {
	lab.Clause(t, "D-WEB-10")
	for name, request := range map[string]string{
		"a body that does not come":      "POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{",
		"a body where none is wanted":    "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n",
		"a body of a refused host":       "POST /plain HTTP/1.1\r\nHost: other.example.org\r\nContent-Length: 10\r\n\r\n",
		"an answer that is not read":     "GET /main.js HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"a body in pieces, without end":  "POST /plain HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
		"a body for which it has to ask": "POST /plain HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			serveIn(t, stalled(), func(t *testing.T, s *served) {
				conn, err := s.listener.Dial()
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				fmt.Fprint(conn, request)
				time.Sleep(answerPatience + time.Second)
				began := time.Now()
				_, _ = io.Copy(io.Discard, conn) // what the connection holds; its end may be a reset
				if took := time.Since(began); took > 0 {
					t.Errorf("the connection was there for %v more; want it closed", took)
				}
			})
		})
	}
}

// A job to which nothing happens is a stream to which nothing is written for longer than a viewer has for what it is sent. By
// HTTP/2, which browsers speak under TLS, the end of that time ends the stream.
func TestQuietStream(t *testing.T) {
	lab.Clause(t, "D-WEB-9", "D-WEB-10")
	two := new(http.Protocols)
	two.SetUnencryptedHTTP2(true)
	for name, versions := range map[string]*http.Protocols{"HTTP/1.1": nil, "HTTP/2": two} {
		t.Run(name, func(t *testing.T) {
			serveBy(t, versions, stalled(), func(t *testing.T, s *served) {
				w := s.watch(t, "?topics=events", "")
				time.Sleep(5 * writePatience)
				select {
				case <-w.done:
					t.Errorf("the stream has ended; want it to go on while nothing happens")
				default:
				}
				w.close()
			})
		})
	}
}

// A viewer that does not read is cut off, and costs the others nothing. It comes back with the last message that it has read, and misses
// nothing.
func TestSlowViewer(t *testing.T) {
	lab.Clause(t, "D-WEB-10", "TD-WEB-4")
	f := stalled()
	serveIn(t, f, func(t *testing.T, s *served) {
		slow, err := s.listener.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer slow.Close()
		fmt.Fprintf(slow, "GET /api/v1/stream?topics=events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", testToken)
		w := s.watch(t, "?topics=events", "")
		for i := range 300 { // more than a connection holds
			f.happen(i)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Second)
		all := w.texts()
		if len(all) != 302 {
			t.Errorf("a viewer beside a slow one got %d events; want 302", len(all))
		}
		w.close()
		time.Sleep(writePatience)
		s.hub.mu.Lock()
		viewers := s.hub.mu.viewers
		s.hub.mu.Unlock()
		if viewers != 0 {
			t.Errorf("%d viewers are left; want the slow one cut off", viewers)
		}
		reply, err := http.ReadResponse(bufio.NewReader(slow), nil)
		if err != nil {
			t.Fatal(err)
		}
		before := &watcher{body: reply.Body, done: make(chan struct{})}
		before.read(reply.Body) // what the connection holds
		again := s.watch(t, "?topics=events", before.last())
		time.Sleep(time.Second)
		if n := len(again.named("reset")); n != 0 || len(before.texts()) == 0 || len(before.texts()) == len(all) {
			t.Errorf("the slow viewer read %d events, and was reset %d times; want some, and no reset", len(before.texts()), n)
		}
		if got := append(before.texts(), again.texts()...); !slices.Equal(got, all) {
			t.Errorf("the slow viewer got %d events, %q; want the same as the other", len(got), got)
		}
		again.close()
	})
}

// Every viewer hears something often enough to know that its connection lives, also while the source does not answer, and on the page of a journal.
// It is told so by a message, which a browser hands on, and which has no number: nothing has happened.
func TestStreamBeats(t *testing.T) {
	lab.Clause(t, "D-WEB-4", "D-WEB-10")
	beats := func(t *testing.T, s *served) {
		w := s.watch(t, "?topics=events", "")
		time.Sleep(5*pingPause + time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		n := 0
		for _, f := range w.mu.frames {
			if f.name == topicPing && f.id == "" {
				n++
			}
		}
		if n != 5 {
			t.Errorf("%d pings without a number in %v; want 5", n, 5*pingPause)
		}
		w.body.Close()
	}
	f := stalled()
	f.fail(errors.New("connection refused"))
	serveIn(t, f, func(t *testing.T, s *served) {
		beats(t, s)
	})
	synctest.Test(t, func(t *testing.T) {
		serveOne(t, newTestServer(t, newFakePast()), nil, beats)
	})
}

// There are as many viewers as there is room for; the next one is told.
func TestViewersAreCounted(t *testing.T) {
	lab.Clause(t, "D-WEB-10")
	in(t, stalled(), func(t *testing.T, s *Server) {
		s.hub.mu.Lock()
		s.hub.mu.viewers = maxViewers
		s.hub.mu.Unlock()
		if w := get(s, "/api/v1/stream"); w.Code != http.StatusServiceUnavailable {
			t.Errorf("stream %d = %d; want 503", maxViewers+1, w.Code)
		}
		s.hub.mu.Lock()
		s.hub.mu.viewers = 0
		s.hub.mu.Unlock()
	})
}

// The page goes on when another server takes over or a new attempt begins, and tells each note once.
func TestHistory(t *testing.T) {
	lab.Clause(t, "D-WEB-4")
	f := stalled()
	f.change(func(e *diagnose.Evidence) { e.Status.Leader, e.Status.Term = "a:1", 1 })
	serveIn(t, f, func(t *testing.T, s *served) {
		w := s.watch(t, "", "")
		time.Sleep(time.Second)
		f.fail(errors.New("connection refused"))
		time.Sleep(3*time.Second + 100*time.Millisecond) // between two questions
		f.fail(nil)
		f.change(func(e *diagnose.Evidence) { // another server counts its notes anew, and knows only later ones
			e.Status.Leader, e.Status.Term = "b:1", 2
			e.Status.Takeover = &wire.Takeover{From: "a:1", At: time.Now().Add(-50 * time.Millisecond), TookSeconds: 3}
			e.Status.Notes = []wire.NoteStatus{{Number: 1, AtSeconds: 90, What: "task suspected", Task: "worker/3", Cause: "task is silent", Error: "task is silent"}, {Number: 2, AtSeconds: 101, What: "event 1"}}
		})
		time.Sleep(time.Second)
		f.change(func(e *diagnose.Evidence) { // a new attempt with a service of its own
			e.Status.Service, e.Status.Epoch, e.Status.Takeover = 78, 3, nil
			e.Status.UpSeconds = 5
			e.Status.Notes = []wire.NoteStatus{{Number: 1, AtSeconds: 1, What: "task connected", Task: "worker/0"}}
		})
		time.Sleep(time.Second)
		got := w.texts()
		if len(got) != 7 || !strings.HasPrefix(got[2], "the service does not answer") || got[3] != "event 1" ||
			!strings.Contains(got[4], "from a:1 to b:1") || !strings.HasPrefix(got[5], "the service answers again") || got[6] != "rank 0 connected" {
			t.Errorf("events %q; want two notes, the outage, one more note, the fail-over, the end of the outage, and the note of the new attempt", got)
		}
		if away := w.named("ping"); len(away) < 3 || !strings.Contains(away[1], "connection refused") || strings.Contains(away[2], "away") {
			t.Errorf("pings %q; want one that says that the service does not answer, and one that it does", away)
		}
		w.close()
	})
}

// Run lengths say of every rank how it is.
func TestRunLengths(t *testing.T) {
	lab.Clause(t, "D-WEB-8")
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOf(rapid.SampledFrom([]byte("F!-rms.x"))).Draw(t, "marks")
		ranks := make([]diagnose.Marked, len(want))
		for i, m := range want {
			ranks[i].Mark = diagnose.Mark(m)
		}
		var got []byte
		text := runLengths(ranks)
		for rest := text; rest != ""; {
			mark, n := rest[0], 0
			for rest = rest[1:]; rest != "" && rest[0] >= '0' && rest[0] <= '9'; rest = rest[1:] {
				n = 10*n + int(rest[0]-'0')
			}
			for range n {
				got = append(got, mark)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("runLengths(%q) = %q; which is %q", want, text, got)
		}
	})
	one := make([]diagnose.Marked, 10_000)
	for i := range one {
		one[i].Mark = diagnose.MarkAtWork
	}
	one[996].Mark = diagnose.MarkBlamed
	if got := runLengths(one); got != ".996!1.9003" {
		t.Errorf("runLengths of 10,000 ranks, one of which keeps the others waiting = %q; want .996!1.9003", got)
	}
}
