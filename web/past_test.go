package web

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/wire"
)

// A fakePast is the job of stalled, which begins its barrier at 59 s of 100.
type fakePast struct {
	fakeSource
	wall   time.Time
	looked []time.Duration
	broken error
}

func (f *fakePast) Span() Span {
	return Span{Begin: time.Second, End: 100 * time.Second, Records: 3, Moments: []time.Duration{time.Second, 59 * time.Second, 100 * time.Second}, Wall: f.wall}
}

func (f *fakePast) LookAt(ctx context.Context, at time.Duration) (diagnose.Evidence, error) {
	f.looked = append(f.looked, at)
	e, _ := f.Look(ctx)
	s := &e.Status
	s.UpSeconds, s.Clock = at.Seconds(), time.Time{}
	var notes []wire.NoteStatus
	for _, n := range s.Notes {
		if n.AtSeconds <= s.UpSeconds {
			notes = append(notes, n)
		}
	}
	s.Notes = notes
	s.Barriers[0].ForSeconds = s.UpSeconds - 59
	if s.UpSeconds < 59 {
		s.Barriers, s.Waiting = []wire.BarrierStatus{}, 0
	}
	return e, f.broken
}

func newFakePast() *fakePast {
	f := &fakePast{}
	f.mu.evidence = stalled().mu.evidence
	return f
}

// Of a past every document is that of the time in its address. Nothing is asked twice for the same time, and nothing while no one looks.
func TestPast(t *testing.T) {
	lab.Clause(t, "D-WEB-4")
	synctest.Test(t, func(t *testing.T) {
		f := newFakePast()
		s := newTestServer(t, f)
		defer s.Close()
		before := decode[Moment](t, get(s, "/api/v1/moment?at=30"))
		if before.At != 30 || before.Grid.States != ".4" || len(before.Waits.Barriers) != 0 || len(before.Events) != 1 || before.Events[0].Text != "rank 0 connected" {
			t.Errorf("/moment?at=30 = %+v; want four ranks at work, one event and no barrier", before)
		}
		if want := time.Unix(1, 0).UTC(); !before.Events[0].Time.Equal(want) || !before.Job.Clock.Equal(time.Unix(30, 0)) {
			t.Errorf("times %v and %v; want those of a service that began at %v", before.Events[0].Time, before.Job.Clock, time.Unix(0, 0).UTC())
		}
		end := decode[Moment](t, get(s, "/api/v1/moment"))
		if end.At != 100 || end.Grid.States != "w3m1" || end.Waits.Places[0] != `barrier "save-100"` || len(end.Events) != 2 || len(end.Job.Notes)+len(end.Job.Barriers) != 0 {
			t.Errorf("/moment = %+v; want the end, at which rank 3 is missing", end)
		}
		ranks := decode[RankList](t, get(s, "/api/v1/ranks?at=100&state=m"))
		if len(ranks.Rows) != 1 || ranks.Rows[0].Rank != "3" {
			t.Errorf("/ranks?at=100&state=m = %+v; want rank 3", ranks.Rows)
		}
		if got := decode[Waits](t, get(s, "/api/v1/waits?at=1e3")).Barriers; len(got) != 1 || got[0].ForSeconds != 41 {
			t.Errorf("/waits?at=1e3 = %+v; want those of the end", got)
		}
		if text := get(s, "/?at=30").Body.String(); !strings.Contains(text, "as of +30s\n") || !strings.Contains(text, "  +1.0s  rank 0 connected") {
			t.Errorf("text as of 30 s:\n%s", text)
		}
		if d := cmp.Diff([]time.Duration{30 * time.Second, 100 * time.Second, 30 * time.Second}, f.looked); d != "" {
			t.Errorf("looked at other times (-want +got):\n%s", d)
		}
		for _, at := range []string{"x", "-1", "NaN", "Inf", "1e10", "1&at=2"} {
			if w := get(s, "/api/v1/job?at="+at); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "1.000 to 100.000") {
				t.Errorf("/job?at=%s = %d %s; want 400 and a sentence", at, w.Code, w.Body)
			}
		}
		if w := get(s, "/api/v1/job?at=1&x=2"); w.Code != http.StatusBadRequest {
			t.Errorf("/job?at=1&x=2 = %d; want 400", w.Code)
		}
		f.broken = errors.New("damaged")
		if w := get(s, "/api/v1/job?at=2"); w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "the journal cannot be read: damaged") {
			t.Errorf("/job of a journal that is damaged = %d %s; want 502 and why", w.Code, w.Body)
		}
	})
}

// The stream of a past tells its times, and looks at nothing. A page of a job that runs knows no times.
func TestStreamOfPast(t *testing.T) {
	lab.Clause(t, "D-WEB-4")
	f := newFakePast()
	f.wall = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	s := newTestServer(t, f)
	defer s.Close()
	served := httptest.NewServer(s)
	defer served.Close()
	r, err := http.NewRequestWithContext(t.Context(), "GET", served.URL+"/api/v1/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+testToken)
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	lines := bufio.NewScanner(reply.Body)
	var data string
	for data == "" && lines.Scan() {
		data, _ = strings.CutPrefix(lines.Text(), `data: {"version":1,"begin`)
		if !strings.HasPrefix(data, "_seconds") {
			data = ""
		}
	}
	if want := `_seconds":1,"end_seconds":100,"records":3,"moments":[1,59,100],"zero":"2026-05-04T12:00:00Z","wall":true}`; data != want || len(f.looked) > 0 {
		t.Errorf("stream says %q after %d looks; want %q after none", data, len(f.looked), want)
	}

	live := newTestServer(t, stalled())
	defer live.Close()
	for _, path := range []string{"/api/v1/job?at=1", "/api/v1/moment"} {
		if w := get(live, path); w.Code != http.StatusBadRequest && w.Code != http.StatusNotFound {
			t.Errorf("%s of a job that runs = %d; want 400 or 404", path, w.Code)
		}
	}
}
