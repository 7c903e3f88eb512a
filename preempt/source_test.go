package preempt

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/preempt/internal/pact"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func raise(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

func TestSignals(t *testing.T) {
	lab.Clause(t, "T-PRE-1", "T-PRE-2", "T-PRE-3", "T-PRE-4")
	var times []time.Time
	for range 2 {
		s := Signals()
		before := time.Now()
		raise(t)
		<-s.came
		after := time.Now()
		first, err := s.Wait(t.Context())
		if err != nil || first.Deadline.Before(before) || first.Deadline.After(after) {
			t.Fatalf("Wait() = %+v, %v; want a time between %v and %v", first, err, before, after)
		}
		if again, err := s.Wait(t.Context()); err != nil || again != first {
			t.Errorf("second Wait() = %+v, %v; want %+v", again, err, first)
		}
		times = append(times, first.Deadline)
		s.Close()
	}
	if !times[1].After(times[0]) {
		t.Errorf("two notifiers gave %v and %v; want two times", times[0], times[1])
	}
}

func TestClosedNotifier(t *testing.T) {
	lab.Clause(t, "T-PRE-5")
	s := Signals()
	done := make(chan error)
	go func() {
		_, err := s.Wait(context.Background())
		done <- err
	}()
	s.Close()
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("Wait() of a closed notifier = %v; want %v", err, ErrClosed)
	}
}

func TestFileSource(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stop")
	n := File(path, time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait() without the file = %v; want the end of its context", err)
	}
	if err := os.WriteFile(path, []byte("2031-05-06T07:08:09.123456789+02:00\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := time.Date(2031, 5, 6, 5, 8, 9, 123456789, time.UTC)
	if got, err := n.Wait(t.Context()); err != nil || !got.Deadline.Equal(want) {
		t.Errorf("Wait() = %v, %v; want %v", got, err, want)
	}
}

func TestCommandSource(t *testing.T) {
	if got, err := Command("echo", "2031-05-06T07:08:09Z").Wait(t.Context()); err != nil || got.Deadline.Year() != 2031 {
		t.Errorf("Wait() = %v, %v; want the date that was printed", got, err)
	}
	if _, err := Command("false").Wait(t.Context()); err == nil {
		t.Error("Wait() of a command that fails = nil; want an error")
	}
}

func TestHTTPSource(t *testing.T) {
	answers := []struct {
		code int
		body string
	}{{404, "not found"}, {200, ""}, {200, "FALSE"}, {200, "none"}, {500, "x"}, {200, `{"action": "stop", "time": "2031-05-06T07:08:09Z"}`}}
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := answers[min(int(asked.Add(1))-1, len(answers)-1)]
		if r.Header.Get("Metadata-Flavor") != "test" {
			a.code = http.StatusForbidden
		}
		w.WriteHeader(a.code)
		w.Write([]byte(a.body))
	}))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	got, err := HTTP(server.URL, http.Header{"Metadata-Flavor": {"test"}}, time.Millisecond).Wait(t.Context())
	if err != nil || got.Deadline.Year() != 2031 || int(asked.Load()) != len(answers) {
		t.Errorf("Wait() = %v, %v after %d requests; want the date in the last of %d", got, err, asked.Load(), len(answers))
	}
}

// An endpoint that never answers is left after a minute, so that it can be asked again.
func TestHTTPSourceThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		client := &http.Client{Transport: hanging{}}
		if n, found, err := ask(t.Context(), client, "http://metadata/preempted", nil); found || err != nil {
			t.Errorf("ask() = %v, %v, %v; want nothing", n, found, err)
		}
		if waited := time.Since(began); waited != maxAnswerTime {
			t.Errorf("ask() waited %v; want %v", waited, maxAnswerTime)
		}
	})
}

// hanging is a network that swallows every request.
type hanging struct{}

func (hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}

func TestAtAndAny(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now().Add(time.Hour)
		broken := NotifierFunc(func(context.Context) (Notice, error) { return Notice{}, errors.New("broken") })
		if got, err := Any(broken, At(at.Add(time.Hour)), At(at)).Wait(t.Context()); err != nil || !got.Deadline.Equal(at) {
			t.Errorf("Wait() = %v, %v; want the first date", got, err)
		}
		if !time.Now().Equal(at) {
			t.Errorf("notice came at %v; want %v", time.Now(), at)
		}
		if _, err := Any(broken, broken).Wait(t.Context()); err == nil {
			t.Error("Wait() of broken notifiers = nil; want an error")
		}
	})
}

func TestTimes(t *testing.T) {
	lab.Clause(t, "T-PRE-27", "A-PRE-9")
	when := time.Date(2026, 11, 15, 1, 16, 44, 688195150, time.FixedZone("", 3*3600))
	back, err := pact.ParseTime(pact.FormatTime(when))
	if err != nil || !back.Equal(when) {
		t.Errorf("pact.ParseTime(%q) = %v, %v; want %v", pact.FormatTime(when), back, err, when)
	}
	for text, ok := range map[string]bool{
		"2026-11-15T01:16:44.68819515+00:00":  true,
		"2026-11-15T01:16:44.688195150-11:30": true,
		"2026-11-15T01:16:44Z":                true,
		"infinite-future":                     true,
		"infinite-past":                       true,
		"":                                    false,
		"soon":                                false,
		"2026-13-15T01:16:44Z":                false,
	} {
		if _, err := pact.ParseTime(text); (err == nil) != ok {
			t.Errorf("pact.ParseTime(%q) = %v; want ok %v", text, err, ok)
		}
	}
}

func FuzzNotice(f *testing.F) {
	f.Add("2026-11-15T01:16:44.68819515+00:00")
	f.Add(`{"time": "infinite-past"}`)
	f.Fuzz(func(t *testing.T, text string) {
		said(text, "fuzz")
		when, err := pact.ParseTime(text)
		if err != nil {
			return
		}
		if back, err := pact.ParseTime(pact.FormatTime(when)); err != nil || !back.Equal(when) {
			t.Errorf("pact.ParseTime(pact.FormatTime(%v)) = %v, %v", when, back, err)
		}
	})
}
