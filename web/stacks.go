package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// stacksPause is the least time between two readings of stacks, however many viewers ask.
const stacksPause = 2 * time.Second

// stacksPatience is how long one may take.
const stacksPatience = 15 * time.Second

// A stackReader reads stacks on request, and keeps what was read last.
type stackReader struct {
	source Source

	turn sync.Mutex // held while stacks are read; a request that does not get it at once is refused. It guards what follows

	// The last reading: when it began, the tasks that it was of, and what it got, or nil if it failed.
	began time.Time
	of    []string // nil: all
	got   *TimedStacks

	mu struct {
		sync.Mutex
		last *TimedStacks // of all tasks, or nil
	}
}

// TimedStacks are stacks, and when they were read.
type TimedStacks struct {
	Stacks
	Time time.Time `json:"time"`
}

func (s *stackReader) lately() *TimedStacks {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.last
}

// errStacksBusy is the answer while stacks are read for another request, and right after a reading that failed. Requests do not queue: each
// would read anew when its turn came, and any number of them could wait.
var errStacksBusy = errors.New("stacks are being read for another request, or were asked for a moment ago")

// read reads the stacks of tasks, or of all. If they were read a moment ago it returns those.
func (s *stackReader) read(ctx context.Context, tasks []string) (*TimedStacks, error) {
	if !s.turn.TryLock() {
		return nil, errStacksBusy
	}
	defer s.turn.Unlock()
	began := time.Now()
	switch early := began.Sub(s.began) < stacksPause; {
	case early && s.got != nil && slices.Equal(tasks, s.of):
		return s.got, nil
	case early:
		return nil, errStacksBusy
	}
	s.began, s.of, s.got = began, tasks, nil
	ctx, cancel := context.WithTimeout(ctx, stacksPatience)
	defer cancel()
	stacks, err := s.source.Stacks(ctx, tasks)
	if err != nil {
		return nil, err
	}
	s.got = &TimedStacks{stacks, began.UTC()}
	if tasks == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.last = s.got
	}
	return s.got, nil
}

// lastStacks is what was read last.
func (s *Server) lastStacks(w http.ResponseWriter, r *http.Request) {
	if _, err := readQuery(r.URL.RawQuery); err != nil {
		refuse(w, http.StatusBadRequest, err.Error(), "")
		return
	}
	last := s.stacks.lately()
	if last == nil {
		refuse(w, http.StatusNotFound, "no stacks have been read yet", "POST reads them")
		return
	}
	writeJSON(w, http.StatusOK, last)
}

// readStacks reads stacks now. That changes nothing, so the token of viewers is enough; but it costs the ranks time, so a cookie is not.
func (s *Server) readStacks(w http.ResponseWriter, r *http.Request) {
	if !s.access.orders(r) {
		refuse(w, http.StatusForbidden, "a cookie alone reads no stacks: the request does not show the token", orderHint)
		return
	}
	q, err := readQuery(r.URL.RawQuery, "ranks")
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error(), "")
		return
	}
	var tasks []string
	if q["ranks"] != "" {
		p, err := s.current(r.Context())
		if err == nil {
			tasks, err = p.named(q["ranks"])
		}
		if err != nil {
			refuse(w, http.StatusBadRequest, err.Error(), "")
			return
		}
	}
	stacks, err := s.stacks.read(r.Context(), tasks)
	if errors.Is(err, errStacksBusy) {
		w.Header().Set("Retry-After", strconv.Itoa(int(stacksPause.Seconds())))
		refuse(w, http.StatusTooManyRequests, err.Error(), "ask again in a few seconds, or GET those that were read last")
		return
	}
	if err != nil {
		refuse(w, http.StatusBadGateway, "no stacks: "+err.Error(), "")
		return
	}
	writeJSON(w, http.StatusOK, stacks)
}

// named are the tasks of a list of ranks with commas between them.
func (p *picture) named(list string) ([]string, error) {
	var tasks []string
	for id := range strings.SplitSeq(list, ",") {
		i := p.find(id)
		if i < 0 {
			return nil, fmt.Errorf("ranks: there is no rank %q", shown(id))
		}
		if task := p.Status.Tasks[i].Task; !slices.Contains(tasks, task) {
			tasks = append(tasks, task)
		}
	}
	return tasks, nil
}
