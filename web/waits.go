package web

import (
	"fmt"
	"net/http"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/wire"
)

// Waits are what is waited for: the open barriers, as serry barriers -o json has them, and what the launchers of the job say of ranks that wait
// inside a computation or a transfer, of which the service sees nothing. Keys that are waited for are with the verdict.
type Waits struct {
	Version  int                  `json:"version"`
	Epoch    int                  `json:"epoch"`
	Barriers []wire.BarrierStatus `json:"barriers"`
	Places   []string             `json:"places"` // what people call the barriers
	Inside   []InsideWait         `json:"inside"`
}

// An InsideWait is ranks that wait inside a computation or a transfer.
type InsideWait struct {
	Place      string   `json:"place"`
	Ranks      int      `json:"ranks"`   // that wait
	Missing    []string `json:"missing"` // tasks that they wait for
	ForSeconds float64  `json:"for_seconds"`
}

func newWaits(p *picture) Waits {
	w := Waits{Version: Version, Epoch: p.Status.Epoch, Barriers: p.Status.Barriers, Places: make([]string, len(p.Status.Barriers)), Inside: []InsideWait{}}
	for i, b := range w.Barriers {
		w.Places[i] = diagnose.Place(b.ID)
	}
	if p.Hang == nil || p.Hang.Hang == nil || len(p.Status.Jobs) != 1 {
		return w
	}
	missing := p.Hang.Blamed(p.Status)
	for _, one := range p.Hang.Hang.Waits {
		if one.Barrier != "" {
			continue // the service has it
		}
		w.Inside = append(w.Inside, InsideWait{
			Place: placeInside(one), Ranks: one.Count, Missing: missing,
			ForSeconds: max(0, (p.Status.Clock.Sub(p.Hang.Begun) - p.Hang.Hang.Since).Seconds()),
		})
	}
	return w
}

// placeInside is what people call where ranks wait.
func placeInside(w diagnose.HangWait) string {
	switch {
	case w.Transfer.Key != "":
		return fmt.Sprintf("transfer %q", w.Transfer.Key)
	case w.In != "":
		return w.In
	case w.At != "":
		return w.At
	}
	return "a computation"
}

// key leaves out ages, which viewers count themselves.
func (w Waits) key() string {
	barriers := make([]wire.BarrierStatus, len(w.Barriers))
	for i, b := range w.Barriers {
		b.ForSeconds, b.LeftSeconds = 0, 0
		barriers[i] = b
	}
	inside := make([]InsideWait, len(w.Inside))
	for i, one := range w.Inside {
		one.ForSeconds = 0
		inside[i] = one
	}
	w.Barriers, w.Inside = barriers, inside
	return keyOf(w)
}

// waits is serry barriers -o json, and what ranks wait in besides.
func (s *Server) waits(w http.ResponseWriter, r *http.Request) {
	if p, _ := s.picture(w, r); p != nil {
		writeJSON(w, http.StatusOK, newWaits(p))
	}
}
