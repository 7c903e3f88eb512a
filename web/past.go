package web

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/wire"
)

// A Past is a job of which there is a recorded history: it is looked at as of any time of it (D-WEB-4). A [Config] takes one as
// its source. Then every document is that of the time in the value at of its address, in seconds since the service began, or of the
// end; the stream tells which times there are; and nothing is live.
type Past interface {
	Source

	// Span says which times there are. It is always the same.
	Span() Span

	// LookAt returns what was known of the job at a time.
	LookAt(ctx context.Context, at time.Duration) (diagnose.Evidence, error)
}

// A Span is the times of a recorded history. Times count from when the service began.
type Span struct {
	Begin, End time.Duration
	Records    int
	Moments    []time.Duration // when something happened, ascending
	Wall       time.Time       // what a wall clock showed when the service began; zero: that is not known
}

// A TimeLine is what a page is told of a [Span].
type TimeLine struct {
	Version int       `json:"version"`
	Begin   float64   `json:"begin_seconds"`
	End     float64   `json:"end_seconds"`
	Records int       `json:"records"`
	Moments []float64 `json:"moments"` // seconds
	Zero    time.Time `json:"zero"`    // time 0, as all documents have it
	Wall    bool      `json:"wall"`    // that is what a wall clock showed; otherwise it is the first second of 1970
}

// A Moment is all that a page shows at once of a job as of a time.
type Moment struct {
	Version int         `json:"version"`
	At      float64     `json:"at_seconds"`
	Job     wire.Status `json:"job"`
	Grid    Grid        `json:"grid"`
	Hosts   Hosts       `json:"hosts"`
	Waits   Waits       `json:"waits"`
	Why     any         `json:"why"`
	Events  []happening `json:"events"` // the oldest first
}

// topicPast is sent in place of all other topics where the page is that of a [Past].
const topicPast = "past"

// A replayer draws pictures of a past.
type replayer struct {
	past    Past         // set in newReplayer, then constant
	span    Span         // the same
	line    TimeLine     // the same
	viewers atomic.Int32 // streams

	turn sync.Mutex // held while the past is looked at; guards what follows
	at   time.Duration
	last *picture // of at, or nil
}

func newReplayer(past Past) *replayer {
	r := &replayer{past: past, span: past.Span()}
	r.line = TimeLine{Version: Version, Begin: r.span.Begin.Seconds(), End: r.span.End.Seconds(), Records: r.span.Records, Moments: []float64{}, Zero: r.zero(), Wall: !r.span.Wall.IsZero()}
	for _, m := range r.span.Moments {
		r.line.Moments = append(r.line.Moments, m.Seconds())
	}
	return r
}

// zero is time 0 of the service, on the one axis that all times of the page are on.
func (r *replayer) zero() time.Time {
	if r.span.Wall.IsZero() {
		return time.Unix(0, 0).UTC()
	}
	return r.span.Wall.UTC()
}

// aimed is the key of the time that a request is about.
type aimed struct{}

// At is the time that a request to the page of a [Past] is about. Panels of such a page go by it.
func At(ctx context.Context) (at time.Duration, ok bool) {
	at, ok = ctx.Value(aimed{}).(time.Duration)
	return at, ok
}

// aim takes the time out of the address of a request, so that no handler but the source of pictures has to know of it.
func (r *replayer) aim(req *http.Request) (*http.Request, error) {
	at := r.span.End
	values, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		return req, nil // the handler says so
	}
	if text := values.Get("at"); text != "" {
		seconds, err := strconv.ParseFloat(text, 64)
		at = time.Duration(math.Round(seconds * float64(time.Second)))
		if err != nil || len(values["at"]) > 1 || !(seconds >= 0 && seconds < 1e9) {
			return nil, fmt.Errorf("at is %q; want seconds since the service began, %.3f to %.3f", shown(text), r.line.Begin, r.line.End)
		}
	}
	values.Del("at")
	req = req.WithContext(context.WithValue(req.Context(), aimed{}, min(max(at, r.span.Begin), r.span.End)))
	u := *req.URL
	u.RawQuery = values.Encode()
	req.URL = &u
	return req, nil
}

// current is the picture of the time that a request is about.
func (r *replayer) current(ctx context.Context) (*picture, error) {
	at, ok := At(ctx)
	if !ok {
		at = r.span.End
	}
	r.turn.Lock()
	defer r.turn.Unlock()
	if r.last != nil && r.at == at {
		return r.last, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err // gone while it waited for its turn
	}
	e, err := r.past.LookAt(ctx, at)
	if err != nil {
		return nil, err
	}
	p := &picture{Evidence: e, report: diagnose.Judge(e), marks: diagnose.MarkRanks(e.Status, e.Hang), taken: time.Now(), past: true}
	p.Status.Clock = r.zero().Add(at)
	r.at, r.last = at, p
	return p, nil
}

// moment serves all that a page shows at once.
func (s *Server) moment(w http.ResponseWriter, req *http.Request) {
	p, _ := s.picture(w, req)
	if p == nil {
		return
	}
	writeJSON(w, http.StatusOK, Moment{
		Version: Version, At: p.Status.UpSeconds, Job: shortSummary(p.Status), Grid: newGrid(p), Hosts: newHosts(p),
		Waits: newWaits(p), Why: p.report, Events: s.happenings(p),
	})
}

// happenings are what has happened, the oldest first.
func (s *Server) happenings(p *picture) []happening {
	if s.past == nil {
		return s.hub.pastEvents()
	}
	all := (&history{}).update(p)
	if all == nil {
		all = []happening{}
	}
	return all
}

// stream says which times there are, and then nothing but that it is still here.
func (r *replayer) stream(w http.ResponseWriter, req *http.Request, instance string) {
	if r.viewers.Add(1) > maxViewers {
		r.viewers.Add(-1)
		refuse(w, http.StatusServiceUnavailable, fmt.Sprintf("%d viewers look at this page already", maxViewers), "close some")
		return
	}
	defer r.viewers.Add(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // of proxies
	v := viewer{w: w, control: http.NewResponseController(w)}
	line := fmt.Appendf(nil, "id: %s-1\nevent: %s\ndata: %s\n\n", instance, topicPast, encode(r.line))
	if v.greet(instance, false) != nil || v.send([][]byte{line}) != nil {
		return
	}
	ping := time.NewTicker(pingPause)
	defer ping.Stop()
	for {
		select {
		case <-ping.C:
			if v.send([][]byte{beat(nil)}) != nil {
				return
			}
		case <-req.Context().Done():
			return
		}
	}
}
