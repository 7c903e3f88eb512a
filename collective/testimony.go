package collective

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"
)

// A service asks the processes of a job for their records when a person wants to know (serry why --collectives, CL-FLR-5).
// Unlike [Comm.Flight] that needs no links between them, and no process of the clique that still runs its own code well.

// An answerer is a member that answers questions of the service.
type answerer interface {
	Answer(kind string, answer func(ctx context.Context, argument string, most int) []byte)
}

const (
	testimonyVersion = 1
	testifiedPeers   = 8                        // totals of so many peers for each rank
	recordBytes      = 160                      // about what a record takes
	rankBytes        = 64 + 26*testifiedPeers   // about what a rank takes beside its records
	namedRanks       = 256                      // cliques of up to so many ranks name the tasks of all of them
	maxTestified     = 1 << 17                  // ranks of all flights of one reply
	endedKept        = gatherTime + time.Minute // cliques that have ended are told of for so long
)

// testify says what this process has recorded, in at most so many bytes: of cliques that are in use, and of those that have
// ended just now. The argument, a number, says how many records of each rank are wanted; without it there are as many as fit.
func (g *Group) testify(_ context.Context, argument string, most int) []byte {
	cliques := g.testified()
	ranks := 0
	for _, c := range cliques {
		ranks += len(c.first.Local())
	}
	b := appendTime([]byte{testimonyVersion}, time.Now())
	records := (most/max(ranks, 1) - rankBytes) / recordBytes
	if n, err := strconv.Atoi(argument); err == nil {
		records = min(records, n)
	}
	for _, c := range cliques {
		next := c.appendTestimony(b, min(max(records, 1), toldRecords))
		if len(next) > most {
			continue
		}
		b = next
	}
	return b
}

// testified lists the cliques to tell of, those in use first.
func (g *Group) testified() []*clique {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []*clique
	for _, stream := range slices.Sorted(maps.Keys(g.mu.streams)) {
		list = append(list, g.mu.streams[stream])
	}
	for _, stream := range slices.Backward(g.mu.overs) {
		if e := g.mu.over[stream]; e != nil && e.clique != nil && time.Since(e.at) < endedKept {
			list = append(list, e.clique)
		}
	}
	return list
}

// appendTestimony adds a clique: its name, why it has failed, how many ranks it has, and those of this process.
func (c *clique) appendTestimony(b []byte, records int) []byte {
	b = binary.LittleEndian.AppendUint64(b, c.stream)
	b = appendText(b, c.key.String())
	var why string
	if e := c.failed.Load(); e != nil {
		why = e.Error()
	}
	b = appendText(b, why)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(c.key.Ranks)))
	named := c.key.Ranks
	if len(named) > namedRanks {
		named = nil
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(named)))
	for _, p := range named {
		b = appendText(b, p.Life.Task.String())
	}
	local := c.first.Local()
	b = binary.LittleEndian.AppendUint16(b, uint16(len(local)))
	for _, comm := range local {
		track := comm.appendTrack(nil, records, testifiedPeers)
		b = appendText(b, c.key.Ranks[comm.rank].Life.Task.String())
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(track))), track...)
	}
	return b
}

// A Testimony is what a process has answered to the service, and when it was asked and has answered by the clock of that.
type Testimony struct {
	Body            []byte
	Asked, Answered time.Time
}

var errTestimony = errors.New("malformed records")

// MergeTestimonies makes flights of what processes have answered, one for each clique. A rank that none of them tells of is
// silent. An answer that makes no sense is left out and named by the error; the flights are those of the others.
func MergeTestimonies(list []Testimony) ([]*Flight, error) {
	m := merger{flights: make(map[flightName]*Flight)}
	var bad error
	for _, t := range list {
		if !m.add(t) {
			bad = errTestimony
		}
	}
	flights := slices.Collect(maps.Values(m.flights))
	for _, f := range flights {
		for i := range f.Tracks {
			if t := &f.Tracks[i]; t.Records == nil {
				t.Silent = cmp.Or(t.Silent, "did not answer")
			}
		}
	}
	slices.SortFunc(flights, func(a, b *Flight) int { return cmp.Compare(a.Clique, b.Clique) })
	return flights, bad
}

// A flightName tells cliques apart.
type flightName struct {
	stream uint64
	key    string
}

// A merger puts testimonies together.
type merger struct {
	flights map[flightName]*Flight
	ranks   int // of all flights
}

// add takes one testimony, as far as it makes sense.
func (m *merger) add(t Testimony) bool {
	r := &reader{rest: t.Body}
	if r.byte() != testimonyVersion {
		return false
	}
	skew, within := skewOf(r.time(), t.Asked, t.Answered)
	for len(r.rest) > 0 && !r.failed {
		if !m.clique(r, t.Answered, skew, within) {
			return false
		}
	}
	return !r.failed
}

// clique takes what a process says of one clique.
func (m *merger) clique(r *reader, at time.Time, skew, within time.Duration) bool {
	name := flightName{r.uint64(), r.text()}
	why, size := r.text(), int(r.uint16())
	f := m.flights[name]
	if f == nil {
		if m.ranks += size; r.failed || m.ranks > maxTestified {
			return false
		}
		f = &Flight{Clique: name.key, By: -1, Tracks: make([]Track, size)}
		m.flights[name] = f
		for i := range f.Tracks {
			f.Tracks[i].Rank = i
		}
	}
	f.Err = cmp.Or(f.Err, why)
	if at.After(f.At) {
		f.At = at
	}
	for i := range r.count(2) {
		if task := r.text(); i < len(f.Tracks) {
			f.Tracks[i].Task = task
		}
	}
	for range r.count(2 + 4) {
		task := r.text()
		n := int(r.uint32())
		if n > len(r.rest) {
			return false
		}
		rank, t, _, ok := parseTrack(r.take(n))
		if !ok || rank >= len(f.Tracks) {
			return false
		}
		t.Rank, t.Task, t.Skew, t.Within = rank, task, skew, within
		if t.Records == nil {
			t.Records = []Record{}
		}
		t.shift()
		f.Tracks[rank] = t
	}
	return !r.failed
}
