package collective

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lockrank"
	"github.com/serry-dev/serry/link"
)

const (
	toldRecords = 256             // that a rank tells of itself: with toldPeers they fit a frame of control
	toldPeers   = 256             // those that it waited for longest
	toldWaiting = 8               // ranks that an operation under way waits for
	gatherTime  = 2 * time.Second // that members have to answer
	maxQueries  = 64              // under way in one group
)

// The two steps of a record's frame.
const (
	askRecords = iota
	tellRecords
)

// queries are the questions of a group that are under way.
type queries struct {
	mu   lockrank.Mutex[queriesLock]
	next uint64
	open map[uint64]*query // guarded by mu
}

// A query asks the members of one clique for their records.
type query struct {
	clique  *clique
	done    chan struct{}            // closed when missing is 0
	asked   map[serry.Life]time.Time // guarded by the lock of queries, like the rest
	missing int                      // ranks, and 1 for the asker until it has asked all
	tracks  map[int]Track
}

// Flight asks all members of the clique for their records, and merges them (CL-FLR-2). It waits two seconds for them, or
// until ctx ends. It works while operations hang, and for some seconds after the clique has failed. Members are asked over
// links that there are: a rank without one, or that does not answer, is named as silent.
func (c *Comm) Flight(ctx context.Context) *Flight {
	ctx, cancel := context.WithTimeout(ctx, gatherTime)
	defer cancel()
	g := c.group
	q, number := g.queries.begin(c.clique)
	silent := make(map[serry.Life]string)
	for _, peer := range c.clique.others {
		if err := c.clique.askRecords(q, number, peer); err != nil {
			silent[peer] = err.Error()
		}
	}
	g.queries.wait(ctx, q, number)
	return c.merge(q.tracks, silent)
}

// merge puts the tracks of all ranks together.
func (c *Comm) merge(told map[int]Track, silent map[serry.Life]string) *Flight {
	f := &Flight{Clique: c.Key().String(), By: c.rank, At: time.Now().Round(0)}
	if err := c.Err(); err != nil {
		f.Err = err.Error()
	}
	for rank, p := range c.Key().Ranks {
		t, ok := told[rank]
		switch own := c.clique.comms[rank]; {
		case own != nil:
			t = Track{Records: own.Records(toldRecords), Peers: own.PeerTotals()}
			if c.group.opt.Records < 0 {
				t.Silent = noRecords
			}
		case !ok && silent[p.Life] != "":
			t.Silent = silent[p.Life]
		case !ok:
			t.Silent = "did not answer"
		}
		t.Rank, t.Task = rank, p.Life.Task.String()
		f.Tracks = append(f.Tracks, t)
	}
	return f
}

var (
	errNoLink  = errors.New("there is no link to it")
	errQueries = errors.New("too many questions are under way")
)

// begin opens a question. The number is 0 if there are too many.
func (s *queries) begin(c *clique) (q *query, number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q = &query{clique: c, missing: 1, done: make(chan struct{}), asked: make(map[serry.Life]time.Time), tracks: make(map[int]Track)}
	if len(s.open) >= maxQueries {
		return q, 0
	}
	if s.open == nil {
		s.open = make(map[uint64]*query)
	}
	s.next++
	s.open[s.next] = q
	return q, s.next
}

// askRecords asks one process. The link may answer before Post returns: so the question is noted first.
func (c *clique) askRecords(q *query, number uint64, peer serry.Life) error {
	l := c.linked(peer)
	failed := c.failed.Load()
	switch {
	case number == 0:
		return errQueries
	case failed != nil && failed.Life == peer:
		return failed.Err
	case l == nil:
		return errNoLink
	case l.Err() != nil:
		return l.Err()
	}
	s := &c.group.queries
	ranks := len(c.key.RanksOf(peer))
	s.mu.Lock()
	q.asked[peer] = time.Now()
	q.missing += ranks
	s.mu.Unlock()
	h := link.Header{Family: link.Collective, Type: link.Record, Class: link.Control, Stream: c.stream, Generation: c.key.Generation, Seq: number, Step: askRecords}
	_, err := l.Post(h)
	if err != nil {
		s.forgo(q, ranks)
	}
	return err
}

// forgo notes that so many no longer have to answer.
func (s *queries) forgo(q *query, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.missing -= n; q.missing == 0 {
		close(q.done)
	}
}

// wait waits until all ranks that were asked have answered, or ctx ends, and closes the question.
func (s *queries) wait(ctx context.Context, q *query, number uint64) {
	s.forgo(q, 1)
	select {
	case <-q.done:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, number) // nothing is added to the question any more
}

// heardRecord takes a question for the records of this process, or an answer to one.
func (g *Group) heardRecord(l *link.Link, h link.Header, payload []byte) {
	c := g.cliqueOrEnded(h)
	switch {
	case c == nil || !c.holds(l.Peer()):
	case h.Step == askRecords:
		for _, comm := range c.first.Local() {
			h.Step = tellRecords
			if _, err := l.Post(h, comm.appendTrack(nil, toldRecords, toldPeers)); err != nil {
				g.log.Debug("records not told", "peer", l.Peer().Task, "err", err)
			}
		}
	default:
		g.queries.answered(c, l.Peer(), h.Seq, payload)
	}
}

// answered takes the track of one rank. The clock of its process is compared with ours: its time lies between that of the
// question and that of the answer, and half of the way is the best guess.
func (s *queries) answered(c *clique, from serry.Life, number uint64, payload []byte) {
	now := time.Now()
	rank, t, theirs, ok := parseTrack(payload)
	if !ok || rank >= len(c.key.Ranks) || c.key.Ranks[rank].Life != from {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.open[number]
	if q == nil || q.clique != c || q.asked[from].IsZero() {
		return
	}
	if _, known := q.tracks[rank]; known {
		return
	}
	t.Skew, t.Within = skewOf(theirs, q.asked[from], now)
	t.shift()
	q.tracks[rank] = t
	if q.missing--; q.missing == 0 {
		close(q.done)
	}
}

// skewOf is how far the clock of a process is ahead of the one that timed the question and the answer. The process read its clock,
// theirs, at some moment between the two. A difference that this moment alone explains counts as none: processes of one
// host have one clock, the clocks of hosts are kept alike, and else an answer that comes late would move all times of its
// process.
func skewOf(theirs, asked, answered time.Time) (skew, within time.Duration) {
	within = answered.Sub(asked) / 2
	if skew = theirs.Sub(asked.Add(within)); skew.Abs() <= within {
		skew = 0
	}
	return skew, within
}

// shift takes the skew off the times of the records.
func (t *Track) shift() {
	for i := range t.Records {
		r := &t.Records[i]
		for _, at := range []*time.Time{&r.Began, &r.First, &r.Ended} {
			if !at.IsZero() {
				*at = at.Add(-t.Skew)
			}
		}
	}
}

// appendTrack adds what this rank tells of itself: so many records at most, and totals of so many peers.
func (c *Comm) appendTrack(b []byte, records, totals int) []byte {
	le := binary.LittleEndian
	list := c.Records(records)
	b = le.AppendUint16(b, uint16(c.rank))
	b = appendTime(b, time.Now())
	b = append(b, flag(c.group.opt.Records < 0))
	b = le.AppendUint16(b, uint16(len(list)))
	for i := range list {
		b = list[i].append(b)
	}
	peers := c.PeerTotals()
	slices.SortStableFunc(peers, func(a, b PeerTotal) int { return cmp.Compare(b.Waited, a.Waited) })
	peers = peers[:min(len(peers), totals)]
	b = le.AppendUint16(b, uint16(len(peers)))
	for _, p := range peers {
		b = le.AppendUint16(b, uint16(p.Rank))
		b = le.AppendUint64(b, uint64(p.Sent))
		b = le.AppendUint64(b, uint64(p.Received))
		b = le.AppendUint64(b, uint64(p.Waited))
	}
	return b
}

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
}

// appendTime adds a time, with 0 for none.
func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return binary.LittleEndian.AppendUint64(b, 0)
	}
	return binary.LittleEndian.AppendUint64(b, uint64(t.UnixNano()))
}

func (r *reader) time() time.Time {
	if ns := r.uint64(); ns != 0 {
		return time.Unix(0, int64(ns))
	}
	return time.Time{}
}

// append adds a record.
func (r *Record) append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(r.what.append(b), r.seq)
	b = append(b, r.algorithm, r.outcome)
	b = appendTime(appendTime(appendTime(b, r.Began), r.First), r.Ended)
	b = le.AppendUint64(b, uint64(r.Sent))
	b = le.AppendUint64(b, uint64(r.Received))
	b = le.AppendUint16(b, uint16(r.Slowest+1))
	b = le.AppendUint64(b, uint64(r.Waited))
	waiting := r.Waiting[:min(len(r.Waiting), toldWaiting)]
	b = le.AppendUint16(b, uint16(len(waiting)))
	for _, rank := range waiting {
		b = le.AppendUint16(b, uint16(rank))
	}
	return b
}

// record reads what append wrote.
func (r *reader) record() Record {
	rec := Record{what: r.description()}
	rec.seq, rec.algorithm, rec.outcome = r.uint64(), r.byte(), r.byte()
	rec.Began, rec.First, rec.Ended = r.time(), r.time(), r.time()
	rec.Sent, rec.Received = int64(r.uint64()), int64(r.uint64())
	rec.Slowest, rec.Waited = int(r.uint16())-1, time.Duration(r.uint64())
	for range r.count(2) {
		rec.Waiting = append(rec.Waiting, int(r.uint16()))
	}
	rec.name()
	return rec
}

// noRecords is why a rank is silent whose recorder is off.
const noRecords = "it records nothing"

// leastRecordBytes is what a record has at least.
const leastRecordBytes = 64

// parseTrack reads what appendTrack wrote: the rank, its records, and its time.
func parseTrack(b []byte) (rank int, t Track, now time.Time, ok bool) {
	r := reader{rest: b}
	rank, now = int(r.uint16()), r.time()
	if r.byte() != 0 {
		t.Silent = noRecords
	}
	for range r.count(leastRecordBytes) {
		t.Records = append(t.Records, r.record())
	}
	for range r.count(26) {
		t.Peers = append(t.Peers, PeerTotal{Rank: int(r.uint16()), Sent: int64(r.uint64()), Received: int64(r.uint64()), Waited: time.Duration(r.uint64())})
	}
	return rank, t, now, !r.failed && len(t.Records) <= toldRecords
}

// gather gathers the records of a clique that has failed, in the process that found it: before a program or a launcher that
// hears of the failure can end the members (CL-FLR-4). A clique that was closed, or revoked by the program, has no riddle.
func (c *clique) gather(e *Error) {
	if c.comms[e.Origin] == nil || errors.Is(e, ErrClosed) || errors.Is(e, ErrCancelled) || c.group.opt.Records < 0 || c.backend.Alone() {
		return
	}
	c.group.background(gatherTime, func(ctx context.Context) {
		f := c.comms[e.Origin].Flight(ctx)
		c.group.log.Warn("what members did before the clique failed", "clique", c.key.String(), "rank", e.Origin, "seq", e.Seq, "detail", f.String())
		select {
		case c.group.opt.Flights <- f:
		default:
		}
	})
}
