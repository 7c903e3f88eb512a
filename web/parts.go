package web

import (
	"net/http"
	"time"

	"github.com/serry-dev/serry/wire"
)

// Parts of the answer of serry status, for programs that want no more.

// goodput is how much of the time was of use.
func (s *Server) goodput(w http.ResponseWriter, r *http.Request) {
	if p, _ := s.picture(w, r); p != nil {
		writeJSON(w, http.StatusOK, struct {
			Version int                 `json:"version"`
			Goodput *wire.GoodputStatus `json:"goodput"` // null: no steps were reported
		}{Version, p.Status.Goodput})
	}
}

// stragglers are the ranks and hosts that hold the others up.
func (s *Server) stragglers(w http.ResponseWriter, r *http.Request) {
	if p, _ := s.picture(w, r); p != nil {
		writeJSON(w, http.StatusOK, struct {
			Version    int                    `json:"version"`
			Stragglers []wire.StragglerStatus `json:"stragglers"`
		}{Version, append([]wire.StragglerStatus{}, p.Status.Stragglers...)})
	}
}

// coordinator is the server that leads, and what it keeps.
func (s *Server) coordinator(w http.ResponseWriter, r *http.Request) {
	if p, _ := s.picture(w, r); p != nil {
		writeJSON(w, http.StatusOK, struct {
			Version    int            `json:"version"`
			Clock      time.Time      `json:"clock"`
			Leader     string         `json:"leader,omitempty"`
			Term       uint64         `json:"term,omitempty"`
			Takeover   *wire.Takeover `json:"takeover,omitempty"`
			Keys       int            `json:"keys"`
			StoreBytes int64          `json:"store_bytes"`
			Waiting    int            `json:"waiting_calls"`
		}{Version, p.Status.Clock, p.Status.Leader, p.Status.Term, p.Status.Takeover, p.Status.Keys, p.Status.StoreBytes, p.Status.Waiting})
	}
}
