package web

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/wire"
)

// Processes are those of a job, and the service, as commands ask them for what only they know. Its methods may be called at the same
// time, and take some seconds.
type Processes interface {
	// Logs are the last lines of a task; nil: no launcher has any.
	Logs(ctx context.Context, task serry.TaskID, q wire.LogQuery) (*wire.LogTail, error)

	// Barriers are those that have ended lately; with a number, that one with its arrivals.
	Barriers(ctx context.Context, number uint64) (wire.BarrierLog, error)

	// Collectives and Transfers are the documents of serry why --collectives and --transfers.
	Collectives(ctx context.Context) (any, error)
	Transfers(ctx context.Context) (any, error)
}

const (
	logsPause    = time.Second // between two questions about the same lines
	logsPatience = 8 * time.Second
	logsTail     = 200 // lines, where a request names none
	mostTail     = 500
)

// A LogPage is some lines of a rank.
type LogPage struct {
	wire.LogTail
	Task string `json:"task"`
	Rank string `json:"rank"` // what people call it
}

// logs are the last lines of a rank, by its name or, where there is one job, by its number.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) {
	p, q := s.picture(w, r, "tail", "before", "after")
	if p == nil {
		return
	}
	tail, err := q.number("tail", mostTail, logsTail)
	before, err2 := q.number("before", math.MaxInt, 0)
	after, err3 := q.number("after", math.MaxInt, 0)
	if err := cmp.Or(err, err2, err3); err != nil {
		refuse(w, http.StatusBadRequest, err.Error(), "")
		return
	}
	i := p.find(r.PathValue("id"))
	if i < 0 {
		refuseRank(w, p, r.PathValue("id"))
		return
	}
	task, err := serry.ParseTaskID(p.Status.Tasks[i].Task)
	switch {
	case s.hide.logs:
		refuse(w, http.StatusForbidden, "lines are hidden (--web-hide logs)", "")
		return
	case err != nil:
		refuse(w, http.StatusBadGateway, err.Error(), "")
		return
	}
	page := LogPage{Task: task.String(), Rank: diagnose.RankOf(task.String(), len(p.Status.Jobs) == 1)}
	query := wire.LogQuery{Tail: tail, Before: uint64(before), After: uint64(after)}
	found, err := s.lines.get(r.Context(), fmt.Sprint(task, query), func(ctx context.Context) (*wire.LogTail, error) { return s.panels.Processes.Logs(ctx, task, query) })
	switch {
	case err != nil:
		refuse(w, http.StatusBadGateway, "no lines: "+err.Error(), "")
		return
	case found == nil:
		refuse(w, http.StatusNotFound, "no launcher has lines of rank "+page.Rank, "serry run keeps the last lines of its ranks, unless it is given --no-stacks")
		return
	}
	page.LogTail = *found
	page.Lines = make([]wire.LogLine, len(found.Lines))
	for i, l := range found.Lines {
		l.Text = escapes.ReplaceAllString(l.Text, "")
		page.Lines[i] = l
	}
	writeJSON(w, http.StatusOK, page)
}

// escapes are sequences by which programs colour what they write on a terminal. Without their first character the rest would be
// left in the text.
var escapes = regexp.MustCompile("\x1b\\[[0-9;?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(\x07|\x1b\\\\)|\x1b[@-_]")
