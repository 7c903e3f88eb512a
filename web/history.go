package web

import (
	"fmt"
	"slices"
	"time"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/wire"
)

// A happening is something that happened to the job, as people are told of it.
type happening struct {
	Key   string    `json:"key"` // the same for the same happening with more to it
	Time  time.Time `json:"time"`
	Text  string    `json:"text"`
	Bad   bool      `json:"bad,omitempty"` // it is an error
	Kind  string    `json:"kind"`          // rank, barrier, job or service
	Task  string    `json:"task,omitempty"`
	Epoch int       `json:"epoch,omitempty"`
}

// Kinds of happenings.
const (
	kindRank    = "rank"
	kindBarrier = "barrier"
	kindJob     = "job"
	kindService = "service" // it was out of reach, or another server leads
)

var kinds = []string{kindRank, kindBarrier, kindJob, kindService}

// A history draws happenings from pictures: each note of the service once, also where another server takes over or a new
// attempt has a service of its own, and outages, which no service tells of. It belongs to the loop of the hub.
type history struct {
	service  uint64    // the last one that answered
	leader   string    // the server that did
	number   uint64    // of its newest note that was told
	at       float64   // service time of that
	takeover time.Time // the last one that was told
	lost     time.Time // since when no service has answered; zero: it answers
}

// update returns what has happened since the last picture, the oldest first.
func (h *history) update(p *picture) []happening {
	s := p.Status
	var news []happening
	if !h.lost.IsZero() {
		text := fmt.Sprintf("the service answers again, after %s", diagnose.Ago(p.taken.Sub(h.lost).Seconds()))
		news = append(news, happening{Key: fmt.Sprintf("back %d", p.taken.UnixMilli()), Time: s.Clock, Text: text, Kind: kindService})
		h.lost = time.Time{}
	}
	if t := s.Takeover; t != nil && !t.At.Equal(h.takeover) {
		h.takeover = t.At
		text := diagnose.TakeoverText(t, s.Leader, s.Clock.Location(), s.Counts[wire.StateFailed])
		news = append(news, happening{Key: fmt.Sprintf("takeover %d", t.At.UnixMilli()), Time: t.At, Text: text, Kind: kindService, Epoch: s.Epoch})
	}
	fresh := h.service != s.Service
	moved := !fresh && (h.leader != s.Leader || newestNumber(s) < h.number) // another server counts its notes anew
	if fresh {
		h.number, h.at = 0, 0
	}
	h.service, h.leader = s.Service, s.Leader
	for _, n := range s.Notes {
		if moved && n.AtSeconds <= h.at || !moved && n.Number <= h.number {
			continue
		}
		news = append(news, newHappening(s, n))
	}
	if len(s.Notes) > 0 {
		h.number, h.at = newestNumber(s), max(h.at, s.Notes[len(s.Notes)-1].AtSeconds)
	} else if moved {
		h.number = 0
	}
	slices.SortStableFunc(news, func(a, b happening) int { return a.Time.Compare(b.Time) })
	return news
}

func newestNumber(s wire.Status) uint64 {
	if len(s.Notes) == 0 {
		return 0
	}
	return s.Notes[len(s.Notes)-1].Number
}

// newHappening makes one of a note, with the time of the service's own clock.
func newHappening(s wire.Status, n wire.NoteStatus) happening {
	at := s.Clock.Add(-time.Duration((s.UpSeconds - n.AtSeconds) * float64(time.Second))).Round(time.Millisecond)
	kind := kindJob
	switch {
	case n.Barrier != "":
		kind = kindBarrier
	case n.Task != "":
		kind = kindRank
	}
	return happening{
		Key:  fmt.Sprintf("%x %v %s %s %s", s.Service, n.AtSeconds, n.What, n.Task, n.Barrier),
		Time: at, Text: diagnose.NoteText(s, n), Bad: n.Error != "", Kind: kind, Task: n.Task, Epoch: s.Epoch,
	}
}

// away notes that the service does not answer, once an outage.
func (h *history) away(now time.Time, err error) []happening {
	if !h.lost.IsZero() {
		return nil
	}
	h.lost = now
	return []happening{{Key: fmt.Sprintf("away %d", now.UnixMilli()), Time: now, Text: "the service does not answer: " + err.Error(), Bad: true, Kind: kindService}}
}
