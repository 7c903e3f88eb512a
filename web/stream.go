package web

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// maxViewers is how many streams there are at most. A browser needs one for all its tabs.
	maxViewers = 1024

	// writePatience is how long a viewer may take for what it is sent. One that takes longer is cut off, and comes back with
	// the number of the last message that it has.
	writePatience = 10 * time.Second

	// pingPause is how often a viewer is sent a ping, whatever else it is sent, so that both sides notice a connection that is dead: the
	// page takes one over which nothing has come for 40 s for lost (stream.js). A comment would not do: browsers keep those to themselves.
	pingPause = 15 * time.Second

	// retryMillis is how long a browser waits before it comes back.
	retryMillis = 1000
)

var errEnding = errors.New("the page is closed")

// stream sends a viewer what happens, as it happens (D-WEB-9, 10).
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	q, err := readQuery(r.URL.RawQuery, "topics", "last")
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error(), "")
		return
	}
	topics, err := q.topics()
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error(), "topics are "+strings.Join(topicNames, ", "))
		return
	}
	last := r.Header.Get("Last-Event-ID")
	if last == "" {
		last = q["last"]
	}
	if s.past != nil {
		s.past.stream(w, r, s.hub.name())
		return
	}
	if !s.hub.join() {
		refuse(w, http.StatusServiceUnavailable, fmt.Sprintf("%d viewers look at this page already", maxViewers), "close some")
		return
	}
	defer s.hub.leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // of proxies
	v := viewer{w: w, control: http.NewResponseController(w)}
	if v.greet(s.hub.name(), last != "") != nil {
		return
	}
	ping := time.NewTicker(pingPause)
	defer ping.Stop()
	at, topics := readCursor(last), append(topics, topicPing)
	for {
		frames, now, reset, changed := s.hub.after(at, topics)
		if reset {
			frames = append([][]byte{[]byte("event: reset\ndata: {}\n\n")}, frames...)
		}
		if v.send(frames) != nil {
			return
		}
		at = now
		select {
		case <-changed:
		case <-ping.C:
			if v.send([][]byte{s.hub.beat()}) != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// A viewer is one end of a stream.
type viewer struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// greet begins a stream.
func (v viewer) greet(instance string, again bool) error {
	hello := struct {
		Version  int    `json:"version"`
		Instance string `json:"instance"`
		Again    bool   `json:"again,omitempty"` // it goes on with a former stream
	}{Version, instance, again}
	return v.send([][]byte{fmt.Appendf(nil, "retry: %d\nevent: hello\ndata: %s\n\n", retryMillis, encode(hello))})
}

// send writes frames in the time that a viewer has. The time is taken back once they are written: HTTP/2 ends a stream when its time is over,
// also one to which nothing is written.
func (v viewer) send(frames [][]byte) error {
	if len(frames) == 0 {
		return nil
	}
	if err := v.within(time.Now().Add(writePatience)); err != nil {
		return err
	}
	for _, frame := range frames {
		if _, err := v.w.Write(frame); err != nil {
			return err
		}
	}
	if err := v.control.Flush(); err != nil {
		return err
	}
	return v.within(time.Time{})
}

// within sets the time until which a viewer takes what it is sent; zero: it has time.
func (v viewer) within(until time.Time) error {
	if err := v.control.SetWriteDeadline(until); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// beat is a ping of now, for one viewer. It has no number: the viewer has the same messages as before it.
func (h *hub) beat() []byte {
	h.mu.Lock()
	err := h.mu.err
	h.mu.Unlock()
	return beat(err)
}

func beat(err error) []byte {
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", topicPing, encode(newPing(time.Now(), err)))
}

func (h *hub) name() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.instance
}

// readCursor reads the id of a message. What is none is a viewer that has something of which nothing is known: it is reset.
func readCursor(id string) cursor {
	if id == "" {
		return cursor{}
	}
	instance, number, _ := strings.Cut(id, "-")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return cursor{instance: "?"}
	}
	return cursor{instance, n}
}

// topics are the topics that a viewer wants; all if it does not say.
func (q query) topics() ([]string, error) {
	if q["topics"] == "" {
		return slices.Clone(topicNames), nil
	}
	var all []string
	for name := range strings.SplitSeq(q["topics"], ",") {
		if !slices.Contains(topicNames, name) {
			return nil, fmt.Errorf("topics: there is no %q", shown(name))
		}
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all, nil
}
