package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/diagnose"
)

// Acts change the job (D-WEB-14). A page has them only where its user wants that.
type Acts interface {
	// Names are the acts that there are: a choice of the constants below.
	Names() []string

	// Do does one, and says what has become of it.
	Do(ctx context.Context, act Act) (said string, err error)
}

// Names of acts.
const (
	ActPut     = "put"     // store Value under Key
	ActDelete  = "delete"  // remove Key and everything below it
	ActRestart = "restart" // end the process of Task, so that it is started again
	ActKill    = "kill"    // end the process of Task, whatever follows
	ActStop    = "stop"    // end the job
)

// An Act is one change of the job.
type Act struct {
	Name  string
	Key   string
	Value string
	Task  serry.TaskID
}

const (
	actBytes    = 96 << 10 // of a request
	actPatience = 40 * time.Second
	actHeader   = "Serry-Act" // which no form and no other site can send
)

// readAct reads what a request wants.
func readAct(name string, body []byte) (act Act, rank string, err error) {
	var given struct {
		Key   *string `json:"key"`
		Value *string `json:"value"`
		Rank  *string `json:"rank"`
	}
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	if err := d.Decode(&given); err != nil || d.More() {
		return act, "", fmt.Errorf("the body is no object that %s takes", name)
	}
	act.Name = name
	needs := map[string][3]bool{ActPut: {true, true, false}, ActDelete: {true, false, false}, ActRestart: {2: true}, ActKill: {2: true}, ActStop: {}}[name]
	for i, f := range []struct {
		name  string
		given *string
		to    *string
	}{{"key", given.Key, &act.Key}, {"value", given.Value, &act.Value}, {"rank", given.Rank, &rank}} {
		switch {
		case needs[i] && (f.given == nil || *f.given == "" && f.name != "value"):
			return act, "", fmt.Errorf("%s needs a %s", name, f.name)
		case !needs[i] && f.given != nil:
			return act, "", fmt.Errorf("%s takes no %s", name, f.name)
		case needs[i]:
			*f.to = *f.given
		}
	}
	return act, rank, nil
}

// act serves a request for a change. The change is in the log and an event for all viewers, also if it fails.
func (s *Server) act(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("act")
	switch {
	case !slices.Contains(s.panels.Acts.Names(), name):
		refuse(w, http.StatusNotFound, fmt.Sprintf("this page cannot %q", shown(name)), "it can "+strings.Join(s.panels.Acts.Names(), ", "))
		return
	case !s.access.writes(r) && s.access.writer.holds(r):
		refuse(w, http.StatusForbidden, "a cookie alone changes nothing: the request does not show the token", orderHint)
		return
	case !s.access.writes(r):
		refuse(w, http.StatusForbidden, "this token lets viewers look, not change", "open the address for changes that serry has printed")
		return
	case r.Header.Get("Content-Type") != "application/json" || r.Header.Get(actHeader) == "":
		refuse(w, http.StatusUnsupportedMediaType, "want application/json, and the header "+actHeader, "")
		return
	}
	if _, err := readQuery(r.URL.RawQuery); err != nil {
		refuse(w, http.StatusBadRequest, err.Error(), "")
		return
	}
	var body json.RawMessage
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		refuse(w, http.StatusBadRequest, "the body is no object", "")
		return
	}
	act, rank, err := readAct(name, body)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error(), "")
		return
	}
	p, err := s.hub.current(r.Context())
	if err != nil {
		refuse(w, http.StatusBadGateway, "the service of the job does not answer: "+err.Error(), "")
		return
	}
	what := "job"
	switch {
	case act.Key != "":
		what = fmt.Sprintf("key %q", shown(act.Key))
	case rank != "":
		i := p.find(rank)
		if i < 0 {
			refuseRank(w, p, rank)
			return
		}
		if act.Task, err = serry.ParseTaskID(p.Status.Tasks[i].Task); err != nil {
			refuse(w, http.StatusBadGateway, err.Error(), "")
			return
		}
		what = "rank " + diagnose.RankOf(p.Status.Tasks[i].Task, len(p.Status.Jobs) == 1)
	}
	s.do(w, r, act, what)
}

// do does an act. It goes on when the viewer has closed the page.
func (s *Server) do(w http.ResponseWriter, r *http.Request, act Act, what string) {
	from, _, _ := net.SplitHostPort(r.RemoteAddr)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actPatience)
	defer cancel()
	said, err := s.panels.Acts.Do(ctx, act)
	text := fmt.Sprintf("%s %s, from the page, by %s", act.Name, what, from)
	if err != nil {
		text += ": " + err.Error()
	} else if said != "" {
		text += ": " + said
	}
	s.log.Warn("changed by the page", "act", act.Name, "of", what, "from", from, "err", err)
	s.hub.tell(happening{Time: time.Now().UTC(), Text: text, Bad: err != nil, Kind: kindJob, Task: taskName(act.Task)})
	s.sizes.forget()
	if err != nil {
		refuse(w, http.StatusConflict, err.Error(), "")
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Version int    `json:"version"`
		Said    string `json:"said"`
	}{Version, text})
}

func taskName(t serry.TaskID) string {
	if t.IsZero() {
		return ""
	}
	return t.String()
}

// rights says what the page of a viewer may show, and what it may change.
func (s *Server) rights(w http.ResponseWriter, r *http.Request) {
	if _, err := readQuery(r.URL.RawQuery); err != nil {
		refuse(w, http.StatusBadRequest, err.Error(), "")
		return
	}
	rights := struct {
		Version int      `json:"version"`
		Panels  []string `json:"panels"` // beside those that every page has
		Acts    []string `json:"acts"`   // that the token of the request allows: none with a cookie alone
		Hidden  []string `json:"hidden"` // values, logs
	}{Version, []string{}, []string{}, []string{}}
	if s.panels.Keys != nil {
		rights.Panels = append(rights.Panels, "keys")
	}
	if s.panels.Processes != nil {
		rights.Panels = append(rights.Panels, "logs", "barriers", "collectives", "transfers")
	}
	if s.panels.Acts != nil && s.access.writes(r) {
		rights.Acts = append(rights.Acts, s.panels.Acts.Names()...)
	}
	if s.hide.values {
		rights.Hidden = append(rights.Hidden, hideValues)
	}
	if s.hide.logs {
		rights.Hidden = append(rights.Hidden, hideLogs)
	}
	writeJSON(w, http.StatusOK, rights)
}
