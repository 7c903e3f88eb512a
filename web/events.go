package web

import (
	"cmp"
	"fmt"
	"math"
	"net/http"

	"github.com/serry-dev/serry/diagnose"
)

// An EventList is what happened, in pages.
type EventList struct {
	Version int             `json:"version"`
	Events  []NumberedEvent `json:"events"`         // the newest first
	Next    string          `json:"next,omitempty"` // the value of before for the next page
}

// A NumberedEvent is one that happened. Numbers ascend; they are those of the messages of the stream, so they hold for as long as this server of
// the page runs. Of a journal they count its events.
type NumberedEvent struct {
	Number uint64 `json:"number"`
	happening
}

// events lists what happened, the newest first.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	p, q := s.picture(w, r, "kind", "rank", "after", "before", "limit")
	if p == nil {
		return
	}
	kind, err := q.oneOf("kind", kinds)
	limit, err2 := q.number("limit", maxRows, maxRows)
	after, err3 := q.number("after", math.MaxInt, 0)
	before, err4 := q.number("before", math.MaxInt, math.MaxInt)
	if err := cmp.Or(err, err2, err3, err4); err != nil {
		refuse(w, http.StatusBadRequest, err.Error(), "")
		return
	}
	list := EventList{Version: Version, Events: []NumberedEvent{}}
	past := s.numbered(p)
	for i := len(past) - 1; i >= 0; i-- {
		e := past[i]
		rank := diagnose.RankOf(e.Task, len(p.Status.Jobs) == 1)
		if e.Number <= uint64(after) || e.Number >= uint64(before) || kind != "" && e.Kind != kind || q["rank"] != "" && q["rank"] != rank && q["rank"] != e.Task {
			continue
		}
		if len(list.Events) == limit {
			list.Next = fmt.Sprint(list.Events[max(0, limit-1)].Number)
			break
		}
		list.Events = append(list.Events, e)
	}
	writeJSON(w, http.StatusOK, list)
}

// numbered is what has happened, the oldest first, with numbers.
func (s *Server) numbered(p *picture) []NumberedEvent {
	var all []NumberedEvent
	if s.past == nil {
		s.hub.mu.Lock()
		defer s.hub.mu.Unlock()
		for _, e := range s.hub.mu.events {
			all = append(all, NumberedEvent{e.number, e.happening})
		}
		return all
	}
	for i, h := range s.happenings(p) {
		all = append(all, NumberedEvent{uint64(i + 1), h})
	}
	return all
}
