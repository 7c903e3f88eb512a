package web

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// stacksPause is the least time between two readings of stacks, however many people ask.
const stacksPause = 2 * time.Second

// stacksPatience is how long one may take.
const stacksPatience = 15 * time.Second

// A stackReader reads stacks on request, and keeps what was read last.
type stackReader struct {
	source Source
	turn   sync.Mutex // held while stacks are read

	mu struct {
		sync.Mutex
		last  *TimedStacks // or nil
		began time.Time    // of the last reading
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

// read reads stacks, unless that was done a moment ago: then those are what the reader gets.
func (s *stackReader) read(ctx context.Context) (*TimedStacks, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.mu.Lock()
	last, began := s.mu.last, s.mu.began
	s.mu.Unlock()
	if last != nil && time.Since(began) < stacksPause {
		return last, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err // gone while it waited for its turn
	}
	ctx, cancel := context.WithTimeout(ctx, stacksPatience)
	defer cancel()
	began = time.Now()
	stacks, err := s.source.Stacks(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.last, s.mu.began = &TimedStacks{stacks, began.UTC()}, began
	return s.mu.last, nil
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

// readStacks reads stacks now. That changes nothing, so readers may.
func (s *Server) readStacks(w http.ResponseWriter, r *http.Request) {
	if _, err := readQuery(r.URL.RawQuery); err != nil {
		refuse(w, http.StatusBadRequest, err.Error(), "")
		return
	}
	stacks, err := s.stacks.read(r.Context())
	if err != nil {
		refuse(w, http.StatusBadGateway, "no stacks: "+err.Error(), "")
		return
	}
	writeJSON(w, http.StatusOK, stacks)
}
