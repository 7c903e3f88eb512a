package web

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// A Network is a [Source] whose service may have several servers, each of which may have a page. Where the server of a page ends
// the page leads to those of the others (D-WEB-4).
type Network interface {
	// Servers asks all servers of the service, and returns them in the order of their names. One that does not answer is in it, too.
	Servers(ctx context.Context) ([]ServerLink, error)
}

// A ServerLink is a server of a service, as serry peers -o json has it, and its page.
type ServerLink struct {
	Name    string  `json:"name,omitempty"`
	Address string  `json:"address,omitempty"` // where clients reach it
	State   string  `json:"state"`             // leads, stands by, down or to come
	Lag     *uint64 `json:"lag,omitempty"`     // entries of the log that it has yet to apply; nil: not known
	Page    string  `json:"page,omitempty"`    // the address of its page, without the token; empty: it has none, or is down
	Here    bool    `json:"here,omitempty"`    // it serves this page
	Local   bool    `json:"local,omitempty"`   // its page can be reached on its own host only
}

// Servers are the servers of the service.
type Servers struct {
	Version int          `json:"version"`
	Servers []ServerLink `json:"servers"`
}

const topicServers = "servers"

const (
	// surveyPause is how often the servers are asked while there are viewers.
	surveyPause = 10 * time.Second

	// surveyPatience is how long all of them may take. One that hangs must not keep the page from the others.
	surveyPatience = 8 * time.Second
)

// A surveyor keeps what is known of the servers.
type surveyor struct {
	network Network // or nil
	work    sync.WaitGroup

	mu struct {
		sync.Mutex
		asking bool
		asked  time.Time // when the last survey ended
		known  Servers
	}
}

// survey asks the servers unless that was done a moment ago. It does not wait for them.
func (h *hub) survey(ctx context.Context) {
	s := &h.surveyor
	if s.network == nil {
		return
	}
	s.mu.Lock()
	due := !s.mu.asking && (s.mu.asked.IsZero() || time.Since(s.mu.asked) >= surveyPause)
	s.mu.asking = s.mu.asking || due
	s.mu.Unlock()
	if !due {
		return
	}
	s.work.Go(func() {
		known := s.ask(ctx)
		if len(known.Servers) > 1 { // one that is alone has no others to lead to
			h.publishNow(topicServers, known)
		}
	})
}

// ask asks once.
func (s *surveyor) ask(ctx context.Context) Servers {
	ctx, cancel := context.WithTimeout(ctx, surveyPatience)
	defer cancel()
	found, err := s.network.Servers(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.asking, s.mu.asked = false, time.Now()
	if err == nil {
		s.mu.known = Servers{Version, found}
	}
	return s.mu.known
}

// publishNow sends a document to the viewers at once.
func (h *hub) publishNow(name string, document any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.publish(time.Now(), name, keyOf(document), document)
	close(h.mu.changed)
	h.mu.changed = make(chan struct{})
}

// servers lists the servers of the service, as they were when they were asked last.
func (s *Server) servers(w http.ResponseWriter, r *http.Request) {
	if p, _ := s.picture(w, r); p == nil {
		return
	}
	s.hub.surveyor.mu.Lock()
	known := s.hub.surveyor.mu.known
	s.hub.surveyor.mu.Unlock()
	if known.Servers == nil {
		known = Servers{Version, []ServerLink{}}
	}
	writeJSON(w, http.StatusOK, known)
}
