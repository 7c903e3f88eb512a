package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/preempt"
	"github.com/serry-dev/serry/wire"
)

// What the job has left behind: barriers that have ended, collectives and transfers, preemptions, attempts.

const (
	recordsPause    = 2 * time.Second // between two questions
	recordsPatience = 15 * time.Second
)

// A BarrierList is the barriers that have ended lately, in pages.
type BarrierList struct {
	Version  int              `json:"version"`
	Jobs     []wire.JobStatus `json:"jobs"`
	Barriers []EndedBarrier   `json:"barriers"` // the newest first
	Next     string           `json:"next,omitempty"`
}

// An EndedBarrier is one with what people call it, and its last rank.
type EndedBarrier struct {
	wire.BarrierRecord
	Place string `json:"place"`
	Class string `json:"class"` // what its id has in common with others but for numbers
	Late  string `json:"late,omitempty"`
}

// askBarriers asks the service for its barriers.
func (s *Server) askBarriers(ctx context.Context, number uint64) (wire.BarrierLog, error) {
	return s.barrierLogs.get(ctx, fmt.Sprint(number), func(ctx context.Context) (wire.BarrierLog, error) { return s.panels.Processes.Barriers(ctx, number) })
}

func newEndedBarrier(b wire.BarrierRecord, jobs []wire.JobStatus) EndedBarrier {
	e := EndedBarrier{BarrierRecord: b, Place: diagnose.Place(b.ID), Class: wire.Class(b.ID)}
	if b.Last != "" {
		e.Late = diagnose.RankOf(b.Last, len(jobs) == 1)
	}
	return e
}

// barriers lists the barriers that have ended, the newest first.
func (s *Server) barriers(w http.ResponseWriter, r *http.Request) {
	q, err := readQuery(r.URL.RawQuery, "class", "after", "limit")
	limit, err2 := q.number("limit", maxRows, maxRows)
	after, err3 := q.number("after", math.MaxInt, math.MaxInt)
	if err := cmp.Or(err, err2, err3); err != nil {
		refuse(w, http.StatusBadRequest, err.Error(), "")
		return
	}
	log, err := s.askBarriers(r.Context(), 0)
	if err != nil {
		refuse(w, http.StatusBadGateway, "no barriers: "+err.Error(), "")
		return
	}
	list := BarrierList{Version: Version, Jobs: log.Jobs, Barriers: []EndedBarrier{}}
	for _, b := range log.Barriers {
		if b.Number >= uint64(after) || q["class"] != "" && q["class"] != wire.Class(b.ID) {
			continue
		}
		if len(list.Barriers) == limit {
			list.Next = fmt.Sprint(list.Barriers[max(0, limit-1)].Number)
			break
		}
		list.Barriers = append(list.Barriers, newEndedBarrier(b, log.Jobs))
	}
	writeJSON(w, http.StatusOK, list)
}

// barrier is one that has ended, with the arrivals of its ranks.
func (s *Server) barrier(w http.ResponseWriter, r *http.Request) {
	_, err := readQuery(r.URL.RawQuery)
	number, err2 := strconv.ParseUint(r.PathValue("number"), 10, 63)
	switch {
	case err != nil:
		refuse(w, http.StatusBadRequest, err.Error(), "")
		return
	case err2 != nil || number == 0:
		refuse(w, http.StatusNotFound, fmt.Sprintf("no barrier %q", shown(r.PathValue("number"))), "barriers have numbers: /api/v1/barriers lists them")
		return
	}
	log, err := s.askBarriers(r.Context(), number)
	switch {
	case err != nil:
		refuse(w, http.StatusBadGateway, "no barriers: "+err.Error(), "")
	case len(log.Barriers) == 0:
		refuse(w, http.StatusNotFound, fmt.Sprintf("no barrier %d", number), "the service keeps the last ones only, and those of the present leader")
	default:
		writeJSON(w, http.StatusOK, struct {
			Version int              `json:"version"`
			Jobs    []wire.JobStatus `json:"jobs"`
			EndedBarrier
		}{Version, log.Jobs, newEndedBarrier(log.Barriers[0], log.Jobs)})
	}
}

// collectives is serry why --collectives -o json.
func (s *Server) collectives(w http.ResponseWriter, r *http.Request) {
	q, err := readQuery(r.URL.RawQuery, "clique")
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error(), "")
		return
	}
	s.document(w, r, "collectives", s.panels.Processes.Collectives, func(doc any) any { return ofClique(doc, q["clique"]) })
}

// ofClique leaves the cliques of one name in a document of collectives; empty: all.
func ofClique(doc any, name string) any {
	if name == "" {
		return doc
	}
	var all map[string]any
	numbers := json.NewDecoder(bytes.NewReader(encode(doc)))
	numbers.UseNumber() // as they are: some have more digits than a float
	if err := numbers.Decode(&all); err != nil {
		return doc // it is no object, and so has no cliques
	}
	cliques, _ := all["cliques"].([]any)
	all["cliques"] = slices.DeleteFunc(append([]any{}, cliques...), func(c any) bool {
		one, _ := c.(map[string]any)
		return one["clique"] != name
	})
	return all
}

// transfers is serry why --transfers -o json.
func (s *Server) transfers(w http.ResponseWriter, r *http.Request) {
	if _, err := readQuery(r.URL.RawQuery); err != nil {
		refuse(w, http.StatusBadRequest, err.Error(), "")
		return
	}
	s.document(w, r, "transfers", s.panels.Processes.Transfers, func(doc any) any { return doc })
}

// document answers with a part of one that the source makes.
func (s *Server) document(w http.ResponseWriter, r *http.Request, name string, read func(context.Context) (any, error), part func(any) any) {
	doc, err := s.documents.get(r.Context(), name, read)
	if err != nil {
		refuse(w, http.StatusBadGateway, "no "+name+": "+err.Error(), "")
		return
	}
	writeJSON(w, http.StatusOK, part(doc))
}

// preemptions are which ranks were told to go, and which have saved at which step.
func (s *Server) preemptions(w http.ResponseWriter, r *http.Request) {
	p, _ := s.picture(w, r)
	if p == nil {
		return
	}
	notices, receipts := p.Saves.Notices, p.Saves.Receipts
	writeJSON(w, http.StatusOK, struct {
		Version  int                    `json:"version"`
		Rounds   []diagnose.Save        `json:"rounds"`
		Notices  []preempt.Announcement `json:"notices"`
		Receipts []preempt.Receipt      `json:"receipts"`
		More     int                    `json:"more,omitempty"` // receipts that are left out
	}{
		Version, p.report.Saves, append([]preempt.Announcement{}, notices[max(0, len(notices)-maxRows):]...),
		append([]preempt.Receipt{}, receipts[max(0, len(receipts)-maxRows):]...), max(0, len(receipts)-maxRows),
	})
}

// attempts are those of the job, as far as the launcher has told the service of them; else the one that runs.
func (s *Server) attempts(w http.ResponseWriter, r *http.Request) {
	p, _ := s.picture(w, r)
	if p == nil {
		return
	}
	st := p.Status
	all := []diagnose.Attempt{{Number: st.Epoch, Began: st.Clock.Add(-time.Duration(st.UpSeconds * float64(time.Second))).Round(time.Millisecond)}}
	if p.Hang != nil && len(p.Hang.Attempts) > 0 {
		all = append([]diagnose.Attempt{}, p.Hang.Attempts...)
	}
	for i := range all {
		last := []string{}
		for _, line := range all[i].Last {
			last = append(last, escapes.ReplaceAllString(line, ""))
		}
		if all[i].Last = last; s.hide.logs {
			all[i].Last = nil
		}
	}
	writeJSON(w, http.StatusOK, struct {
		Version  int                `json:"version"`
		Clock    time.Time          `json:"clock"`    // of the service, now or as of the time of a journal
		Attempts []diagnose.Attempt `json:"attempts"` // the oldest first; the last one runs
	}{Version, st.Clock, all})
}
