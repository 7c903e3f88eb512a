package collective

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Flight is what the members of a clique have recorded, merged: which rank began which operation when. Get it from
// [Comm.Flight], or from Options.Flights after a clique has failed. Its times are those of the process that gathered it.
type Flight struct {
	Clique string    `json:"clique"`
	By     int       `json:"by"` // the rank that gathered it
	At     time.Time `json:"at"`
	Err    string    `json:"err,omitempty"` // why the clique has failed
	Tracks []Track   `json:"tracks"`        // by rank
}

// A Track is the part of one rank.
type Track struct {
	Rank    int           `json:"rank"`
	Task    string        `json:"task"`
	Silent  string        `json:"silent,omitempty"` // why nothing is known of the rank
	Skew    time.Duration `json:"skew"`             // its clock was ahead by so much, which has been taken off its times
	Within  time.Duration `json:"within"`           // how exactly that is known
	Records []Record      `json:"records"`          // the oldest first
	Peers   []PeerTotal   `json:"peers,omitempty"`
}

// A Divergence is the first operation that not all ranks run.
type Divergence struct {
	Seq     uint64    `json:"seq"`
	Ops     []Variant `json:"ops"`               // what ranks run under this number, by the most ranks first
	Missing []int     `json:"missing,omitempty"` // ranks that have not begun it
}

// A Variant is an operation, and the ranks that run it.
type Variant struct {
	Op    string `json:"op"`
	Ranks []int  `json:"ranks"`
}

// A Lag says how late a rank began its operations.
type Lag struct {
	Rank   int           `json:"rank"`
	Behind time.Duration `json:"behind"` // the first of the others, over all operations
	Last   int           `json:"last"`   // how often no rank began later
	Of     int           `json:"of"`     // operations that were compared
}

// span is the numbers of the operations of all ranks that a track has, or false.
func (t *Track) span() (first, last uint64, known bool) {
	for i := range t.Records {
		if !t.Records[i].All {
			continue
		}
		if !known {
			first = t.Records[i].Seq
		}
		last, known = t.Records[i].Seq, true
	}
	return first, last, known
}

// find is the record of an operation of all ranks, or nil. Records are in the order of their numbers.
func (t *Track) find(seq uint64) *Record {
	for i := len(t.Records) - 1; i >= 0; i-- {
		if r := &t.Records[i]; r.All && r.Seq == seq {
			return r
		}
	}
	return nil
}

// known lists the tracks of ranks that answered.
func (f *Flight) known() (list []*Track) {
	for i := range f.Tracks {
		if f.Tracks[i].Silent == "" {
			list = append(list, &f.Tracks[i])
		}
	}
	return list
}

// common is the numbers that all tracks can be compared in: from the last first one to the least last one, and the
// greatest last one.
func common(tracks []*Track) (from, to, most uint64) {
	from, to = 1, ^uint64(0)
	for _, t := range tracks {
		first, last, known := t.span()
		if !known {
			to = 0
			continue
		}
		from, to, most = max(from, first), min(to, last), max(most, last)
	}
	return from, to, most
}

// recordedNumbers lists the numbers from the first to the last that some track has. It does not count from one to the other:
// a process that has lost its mind may claim any number.
func recordedNumbers(tracks []*Track, first, last uint64) []uint64 {
	known := make(map[uint64]bool)
	for _, t := range tracks {
		for i := range t.Records {
			if r := &t.Records[i]; r.All && r.Seq >= first && r.Seq <= last {
				known[r.Seq] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(known))
}

// Divergence finds the first operation that the ranks do not all run: some run another one under its number, or have not
// begun it. Nil means that there is none among those that are recorded.
func (f *Flight) Divergence() *Divergence {
	tracks := f.known()
	from, to, most := common(tracks)
	for _, seq := range recordedNumbers(tracks, from, to) {
		if d := diverge(tracks, seq); len(d.Ops) > 1 {
			return d
		}
	}
	if to < most {
		return diverge(tracks, to+1)
	}
	return nil
}

// diverge groups the ranks by what they run under a number.
func diverge(tracks []*Track, seq uint64) *Divergence {
	d := &Divergence{Seq: seq}
	var whats []description
	for _, t := range tracks {
		r := t.find(seq)
		if r == nil {
			if _, last, _ := t.span(); last < seq {
				d.Missing = append(d.Missing, t.Rank)
			}
			continue
		}
		i := slices.Index(whats, r.what)
		if i < 0 {
			i = len(whats)
			whats, d.Ops = append(whats, r.what), append(d.Ops, Variant{Op: r.Op})
		}
		d.Ops[i].Ranks = append(d.Ops[i].Ranks, t.Rank)
	}
	slices.SortStableFunc(d.Ops, func(a, b Variant) int { return cmp.Compare(len(b.Ranks), len(a.Ranks)) })
	return d
}

// Lags says how late each rank began the operations that all of them have recorded, the slowest first.
func (f *Flight) Lags() []Lag {
	tracks := f.known()
	lags := make([]Lag, len(tracks))
	for i, t := range tracks {
		lags[i].Rank = t.Rank
	}
	from, to, _ := common(tracks)
	for _, seq := range recordedNumbers(tracks, from, to) {
		began := make([]time.Time, 0, len(tracks))
		for _, t := range tracks {
			if r := t.find(seq); r != nil {
				began = append(began, r.Began)
			}
		}
		if len(began) == len(tracks) {
			addLags(lags, began)
		}
	}
	slices.SortStableFunc(lags, func(a, b Lag) int { return cmp.Compare(b.Behind, a.Behind) })
	return lags
}

func addLags(lags []Lag, began []time.Time) {
	first, last := slices.MinFunc(began, time.Time.Compare), slices.MaxFunc(began, time.Time.Compare)
	for i := range lags {
		lags[i].Of++
		lags[i].Behind += began[i].Sub(first)
		if began[i].Equal(last) && last.After(first) {
			lags[i].Last++
		}
	}
}

// String says in few lines what matters: the first divergence, the slowest rank, and the ranks that did not answer.
func (f *Flight) String() string {
	var lines []string
	if d := f.Divergence(); d != nil {
		lines = append(lines, d.lines(f)...)
	}
	if lags := f.Lags(); len(lags) > 1 && lags[0].Behind > 0 {
		lines = append(lines, fmt.Sprintf("rank %d is the slowest: it came last in %d of %d operations, %v behind the first in all",
			lags[0].Rank, lags[0].Last, lags[0].Of, lags[0].Behind.Round(time.Microsecond)))
	}
	for _, t := range f.Tracks {
		if t.Silent != "" {
			lines = append(lines, fmt.Sprintf("rank %d (%s): %s", t.Rank, t.Task, t.Silent))
		}
	}
	if lines == nil {
		return "all ranks ran the same operations"
	}
	return strings.Join(lines, "\n")
}

// lines is the divergence in words. The ranks that are fewest are named first: they are the ones to look at.
func (d *Divergence) lines(f *Flight) (lines []string) {
	for i := len(d.Ops) - 1; i > 0; i-- {
		lines = append(lines, fmt.Sprintf("%s called %s as operation %d where %s called %s",
			ranksText(d.Ops[i].Ranks), d.Ops[i].Op, d.Seq, ranksText(d.Ops[0].Ranks), d.Ops[0].Op))
	}
	if len(d.Missing) == 0 || len(d.Ops) == 0 {
		return lines
	}
	lines = append(lines, fmt.Sprintf("operation %d, %s, has been called by %s, and not by %s", d.Seq, d.Ops[0].Op, ranksText(d.Ops[0].Ranks), ranksText(d.Missing)))
	for _, rank := range d.Missing[:min(len(d.Missing), 4)] {
		lines = append(lines, fmt.Sprintf("rank %d %s", rank, f.Tracks[rank].doing(f.At)))
	}
	return lines
}

// doing says what a rank does, as far as its records tell.
func (t *Track) doing(now time.Time) string {
	_, last, known := t.span()
	if !known {
		return "has begun no operation"
	}
	r := t.find(last)
	if r.Ended.IsZero() {
		return fmt.Sprintf("is in operation %d, %s, for %v", r.Seq, r.Op, now.Sub(r.Began).Round(time.Millisecond))
	}
	return fmt.Sprintf("ended operation %d, %s, %v before (%s)", r.Seq, r.Op, now.Sub(r.Ended).Round(time.Millisecond), r.Outcome)
}

// WriteJSON writes one line of JSON for each record, with its rank and task (CL-FLR-3).
func (f *Flight) WriteJSON(w io.Writer) error {
	out := json.NewEncoder(w)
	for i := range f.Tracks {
		t := &f.Tracks[i]
		for k := range t.Records {
			line := struct {
				Clique string `json:"clique"`
				Rank   int    `json:"rank"`
				Task   string `json:"task"`
				*Record
			}{f.Clique, t.Rank, t.Task, &t.Records[k]}
			if err := out.Encode(line); err != nil {
				return err
			}
		}
	}
	return nil
}
