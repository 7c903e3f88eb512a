package web

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/wire"
)

// writeJSON answers with a document.
func writeJSON(w http.ResponseWriter, code int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(encode(document), '\n')) // a reader that is gone needs no answer
}

// picture is what is known now, for a request with the values that it may have. Where it returns nil the request has been answered.
func (s *Server) picture(w http.ResponseWriter, r *http.Request, names ...string) (*picture, query) {
	q, err := readQuery(r.URL.RawQuery, names...)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error(), "")
		return nil, nil
	}
	p, err := s.current(r.Context())
	if err != nil {
		refuse(w, http.StatusBadGateway, err.Error(), "")
		return nil, nil
	}
	return p, q
}

// current is what is known now or, of a past, what was known at the time that the request is about.
func (s *Server) current(ctx context.Context) (*picture, error) {
	if s.past != nil {
		p, err := s.past.current(ctx)
		if err != nil {
			return nil, fmt.Errorf("the journal cannot be read: %w", err)
		}
		return p, nil
	}
	p, err := s.hub.current(ctx)
	if err != nil {
		return nil, fmt.Errorf("the service of the job does not answer: %w", err)
	}
	return p, nil
}

// job is serry status -o json.
func (s *Server) job(w http.ResponseWriter, r *http.Request) {
	if p, _ := s.picture(w, r); p != nil {
		writeJSON(w, http.StatusOK, summary(p.Status))
	}
}

// why is serry why -o json.
func (s *Server) why(w http.ResponseWriter, r *http.Request) {
	if p, _ := s.picture(w, r); p != nil {
		writeJSON(w, http.StatusOK, p.report)
	}
}

// grid is how all ranks are, and on which hosts.
func (s *Server) grid(w http.ResponseWriter, r *http.Request) {
	if p, _ := s.picture(w, r); p != nil {
		writeJSON(w, http.StatusOK, struct {
			Grid
			Hosts []HostRun `json:"hosts"`
		}{newGrid(p), newHosts(p).Hosts})
	}
}

// A RankList is serry tasks -o json, in pages.
type RankList struct {
	Version int               `json:"version"`
	Epoch   int               `json:"epoch"`
	Tasks   []wire.TaskStatus `json:"tasks"`
	Total   int               `json:"total"`          // that fit the query
	Next    string            `json:"next,omitempty"` // the value of after for the next page
	Rows    []RankRow         `json:"rows"`           // what the page shows of them
}

// A RankRow is what the page shows of a rank beside its status.
type RankRow struct {
	Rank  string `json:"rank"` // what people call it
	Mark  string `json:"mark"`
	Host  string `json:"host,omitempty"`
	Step  *int64 `json:"step,omitempty"`
	Lag   *int64 `json:"lag,omitempty"` // steps behind the first
	Doing string `json:"doing,omitempty"`
}

// orders of ranks.
var orders = []string{"rank", "trouble", "lag"}

// marks are those of package diagnose, as values of state.
var marks = []string{"F", "!", "-", "r", "m", "s", "w", ".", "x"}

// ranks lists ranks.
func (s *Server) ranks(w http.ResponseWriter, r *http.Request) {
	p, q := s.picture(w, r, "state", "host", "sort", "after", "limit")
	if p == nil {
		return
	}
	state, err := q.oneOf("state", append(slices.Clone(marks), states...))
	sort, err2 := q.oneOf("sort", orders)
	limit, err3 := q.number("limit", maxRows, maxRows)
	after, err4 := q.number("after", math.MaxInt32, 0)
	if err := cmp.Or(err, err2, err3, err4); err != nil {
		refuse(w, http.StatusBadRequest, err.Error(), "")
		return
	}
	var chosen []int
	for i := range p.Status.Tasks {
		t := &p.Status.Tasks[i]
		if (state == "" || state == t.State || state == string(rune(p.marks[i].Mark))) && (q["host"] == "" || q["host"] == diagnose.HostOf(t.From)) {
			chosen = append(chosen, i)
		}
	}
	p.sort(chosen, sort)
	list := RankList{Version: Version, Epoch: p.Status.Epoch, Tasks: []wire.TaskStatus{}, Total: len(chosen), Rows: []RankRow{}}
	end := min(len(chosen), after+limit)
	for _, i := range chosen[min(after, end):end] {
		list.Tasks = append(list.Tasks, p.Status.Tasks[i])
		list.Rows = append(list.Rows, p.row(i))
	}
	if end < len(chosen) {
		list.Next = fmt.Sprint(end)
	}
	writeJSON(w, http.StatusOK, list)
}

// states of tasks, as serry tasks --state takes them.
var states = []string{wire.StateConnected, wire.StateRegistering, wire.StateFailed, wire.StateLeft, wire.StateAbsent}

// sort orders ranks. Those that are equal stay in the order of their numbers.
func (p *picture) sort(ranks []int, by string) {
	most := p.mostSteps()
	lag := func(i int) int64 {
		if step := p.step(i); step >= 0 {
			return most - step
		}
		return 0
	}
	slices.SortStableFunc(ranks, func(a, b int) int {
		switch by {
		case "trouble":
			return cmp.Or(cmp.Compare(p.marks[b].Trouble, p.marks[a].Trouble), cmp.Compare(lag(b), lag(a)))
		case "lag":
			return cmp.Compare(lag(b), lag(a))
		}
		return 0
	})
}

// step is the step that a rank has reported; -1: none.
func (p *picture) step(i int) int64 {
	if i < len(p.Status.Steps) {
		return p.Status.Steps[i]
	}
	return -1
}

func (p *picture) mostSteps() int64 {
	most := int64(-1)
	for _, n := range p.Status.Steps {
		most = max(most, n)
	}
	return most
}

func (p *picture) row(i int) RankRow {
	t := &p.Status.Tasks[i]
	row := RankRow{
		Rank: diagnose.RankOf(t.Task, len(p.Status.Jobs) == 1), Mark: string(rune(p.marks[i].Mark)),
		Host: diagnose.HostOf(t.From), Doing: p.marks[i].Doing,
	}
	if step := p.step(i); step >= 0 {
		lag := p.mostSteps() - step
		row.Step, row.Lag = &step, &lag
	}
	return row
}

// rank is one rank, by its name or, where there is one job, by its number.
func (s *Server) rank(w http.ResponseWriter, r *http.Request) {
	p, _ := s.picture(w, r)
	if p == nil {
		return
	}
	i := p.find(r.PathValue("id"))
	if i < 0 {
		refuseRank(w, p, r.PathValue("id"))
		return
	}
	detail := struct {
		Version int `json:"version"`
		wire.TaskStatus
		RankRow
		Missing []string `json:"missing"` // barriers that wait for it
	}{Version: Version, TaskStatus: p.Status.Tasks[i], RankRow: p.row(i), Missing: []string{}}
	for _, b := range p.Status.Barriers {
		if slices.Contains(b.Missing, detail.Task) {
			detail.Missing = append(detail.Missing, b.ID)
		}
	}
	writeJSON(w, http.StatusOK, detail)
}

// find is the index of a rank, by its name or, where there is one job, by its number; -1: there is none.
func (p *picture) find(id string) int {
	return slices.IndexFunc(p.Status.Tasks, func(t wire.TaskStatus) bool {
		return t.Task == id || diagnose.RankOf(t.Task, len(p.Status.Jobs) == 1) == id
	})
}

func refuseRank(w http.ResponseWriter, p *picture, id string) {
	refuse(w, http.StatusNotFound, fmt.Sprintf("no rank %q", shown(id)), fmt.Sprintf("the job has %d ranks", p.Status.Size))
}
