package collective

import (
	"context"
	"errors"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry/internal/processor"
)

const (
	defaultRecords = 4096
	recordPage     = 64 // records whose memory is made together, when they are first needed
)

// A recorder keeps the last operations of one rank (CL-FLR-1). It is guarded by the lock of the communicator, which an
// operation takes to get its number and again when it ends: so a record costs no lock of its own, and no allocation
// once the ring is full. The memory of records that were never needed is not made: a group has many idle cliques.
type recorder struct {
	limit uint64 // records, a power of two; 0 means that none are kept
	pages []*[recordPage]entry
	count uint64 // of records so far, those that were overwritten among them
}

// An entry is the record of one operation. Ticks are those of the group's meter, which is read when an operation begins, whether there
// is a record of it or not, and when it ends: the system's clock would be most of what a record costs. An entry has no pointers, so the
// garbage collector does not look at the ring. What is below outcome is set when the operation ends.
type entry struct {
	what       description
	seq        uint64 // with the mark of what it counts
	began      processor.Ticks
	outcome    uint8           // running, done, or the place of its cause behind them
	algorithm  uint8           // place in algorithms, from 1 on; or 0
	slowest    int32           // the rank that it waited for longest, or -1
	longest    time.Duration   // it waited for that rank
	first      processor.Ticks // when the first message of another rank was there, or 0
	ended      processor.Ticks
	sent, came int64 // bytes
}

// The outcomes of an operation that has no cause in causes.
const (
	outcomeRunning = iota
	outcomeDone
	outcomeRefused
	outcomeCauses
)

func outcomeOf(err error) uint8 {
	if err == nil {
		return outcomeDone
	}
	for i, cause := range causes {
		if errors.Is(err, cause) {
			return uint8(outcomeCauses + i)
		}
	}
	return outcomeRefused
}

func outcomeText(o uint8) string {
	switch {
	case o == outcomeRunning:
		return "running"
	case o == outcomeDone:
		return "done"
	case o >= outcomeCauses && int(o-outcomeCauses) < len(causes):
		return causes[o-outcomeCauses].Error()
	}
	return "refused"
}

// newRecorder makes a recorder of so many records, which is rounded up to a power of two of whole pages: the place of
// a record is found without a division.
func newRecorder(records int) recorder {
	if records <= 0 {
		return recorder{}
	}
	pages := 1 << bits.Len(uint(records-1)/recordPage)
	return recorder{limit: uint64(pages * recordPage), pages: make([]*[recordPage]entry, 0, pages)}
}

// at is the place of a record that has not been overwritten; records are counted from 1.
func (r *recorder) at(number uint64) *entry {
	i := (number - 1) & (r.limit - 1)
	return &r.pages[i/recordPage][i%recordPage]
}

// begin records an operation that begins.
func (r *recorder) begin(op *operation) {
	op.trace = trace{slowest: -1} // the memory may be that of an operation before
	if r.limit == 0 {
		return
	}
	r.count++
	if r.count <= r.limit && (r.count-1)%recordPage == 0 {
		r.pages = append(r.pages, new([recordPage]entry))
	}
	op.trace.number = r.count
	e := r.at(r.count)
	e.what, e.seq, e.began, e.outcome = op.call.description, op.seq, op.began, outcomeRunning
}

// end records its end, unless so many have begun since that its record is gone.
func (r *recorder) end(op *operation, now processor.Ticks, err error) {
	t := &op.trace
	if t.number == 0 || r.count-t.number >= r.limit {
		return
	}
	e := r.at(t.number)
	e.ended, e.outcome = now, outcomeOf(err)
	e.algorithm, e.first, e.sent, e.came = t.algorithm, t.first, t.sent, t.came
	e.slowest, e.longest = t.slowest, t.longest
}

// last copies the last records, the oldest first.
func (r *recorder) last(most int) []entry {
	n := min(r.count, r.limit, uint64(max(most, 0)))
	list := make([]entry, 0, n)
	for i := r.count - n + 1; i <= r.count; i++ {
		e := *r.at(i)
		if e.outcome == outcomeRunning { // the rest is that of the record before
			e = entry{what: e.what, seq: e.seq, began: e.began, slowest: -1}
		}
		list = append(list, e)
	}
	return list
}

// A trace is what an operation notes for its record while it runs. Only the goroutine that runs it touches the trace.
type trace struct {
	number     uint64 // of its record, or 0; set under the lock of the communicator
	first      processor.Ticks
	sent, came int64
	longest    time.Duration
	slowest    int32
	algorithm  uint8
}

// A talliedPeer has what this rank has sent to another one and got from it, and how long it waited for it.
type talliedPeer struct{ sent, came, waited atomic.Int64 }

// moved notes a message.
func (o *operation) moved(peer, bytes int, receive bool) {
	if o.trace.number == 0 {
		return
	}
	if receive {
		o.trace.came += int64(bytes)
		o.comm.peers[peer].came.Add(int64(bytes))
		return
	}
	o.trace.sent += int64(bytes)
	o.comm.peers[peer].sent.Add(int64(bytes))
}

// wait waits for a message, and notes for how long. What has ended already costs no look at the clock.
func (o *operation) wait(ctx context.Context, f *flight) error {
	if o.trace.number == 0 || f.ticket.Over() {
		return f.ticket.Wait(ctx)
	}
	from := time.Now()
	err := f.ticket.Wait(ctx)
	if f.receive && o.trace.first == 0 {
		o.trace.first = o.comm.group.meter.Now()
	}
	o.noteWait(f.rank, time.Since(from))
	return err
}

// noteWait notes that the operation has waited for a rank.
func (o *operation) noteWait(rank int, d time.Duration) {
	if o.trace.number == 0 {
		return
	}
	o.comm.peers[rank].waited.Add(int64(d))
	if d > o.trace.longest {
		o.trace.slowest, o.trace.longest = int32(rank), d
	}
}

// A Record is one operation of one rank, as its flight recorder has it.
type Record struct {
	Seq       uint64        `json:"seq"`                 // its number: of those of all ranks, or of those between two
	Op        string        `json:"op"`                  // "allreduce of 1024 f32 by sum"
	Kind      string        `json:"kind"`                // its first word
	All       bool          `json:"all"`                 // all ranks run it, under one number
	Algorithm string        `json:"algorithm,omitempty"` // how it was carried out
	Began     time.Time     `json:"began"`
	First     time.Time     `json:"first,omitzero"` // the rank had waited, and the first message was there
	Ended     time.Time     `json:"ended,omitzero"`
	Sent      int64         `json:"sent"` // bytes
	Received  int64         `json:"received"`
	Slowest   int           `json:"slowest"`           // the rank that it waited for longest, or -1
	Waited    time.Duration `json:"waited"`            // for that rank
	Waiting   []int         `json:"waiting,omitempty"` // ranks that it waits for now
	Outcome   string        `json:"outcome"`           // "running", "done", or why it failed

	seq       uint64 // with the mark of what it counts
	what      description
	algorithm uint8
	outcome   uint8
}

// Records returns the last operations that this rank has begun, at most so many, the oldest first.
func (c *Comm) Records(most int) []Record {
	list, last, waiting := c.recorded(most)
	records, rate := make([]Record, len(list)), c.group.meter.Rate()
	for i := range list {
		records[i] = list[i].record(c.group.meter.Made(), rate)
		records[i].Waiting = waiting[last-uint64(len(list)-1-i)]
	}
	return records
}

// recorded copies the last entries, the number of the last of them, and by their numbers whom the operations under way wait for.
// It holds the lock of the clique, so that no operation under way ends and becomes another one meanwhile.
func (c *Comm) recorded(most int) (list []entry, last uint64, waiting map[uint64][]int) {
	c.clique.mu.Lock()
	defer c.clique.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting = make(map[uint64][]int)
	for op := range c.clique.mu.running {
		if op.comm == c {
			waiting[op.trace.number] = op.waiting()
		}
	}
	return c.mu.record.last(most), c.mu.record.count, waiting
}

// record is the entry in words.
func (e *entry) record(made time.Time, rate processor.Rate) Record {
	at := func(t processor.Ticks, known bool) time.Time {
		if !known {
			return time.Time{}
		}
		return made.Add(rate.Duration(t)).Round(0)
	}
	r := Record{seq: e.seq,
		Began: at(e.began, true), First: at(e.first, e.first != 0), Ended: at(e.ended, e.outcome != outcomeRunning), Sent: e.sent, Received: e.came, Slowest: int(e.slowest), Waited: e.longest,
		what: e.what, outcome: e.outcome, algorithm: e.algorithm}
	r.name()
	return r
}

// name sets the fields that follow from others.
func (r *Record) name() {
	r.Seq, r.All = plainNumber(r.seq), r.seq&(transferBit|remoteBit) == 0 && r.seq != 0
	r.Op, r.Outcome = r.what.String(), outcomeText(r.outcome)
	if r.algorithm > 0 && int(r.algorithm) <= len(algorithms) {
		r.Algorithm = string(algorithms[r.algorithm-1])
	}
	r.Kind = "unknown"
	if int(r.what.op) < len(operations) {
		r.Kind = string(operations[r.what.op])
	}
}

// A PeerTotal is what one rank has exchanged with another one since the clique was formed.
type PeerTotal struct {
	Rank     int           `json:"rank"`
	Sent     int64         `json:"sent"` // bytes
	Received int64         `json:"received"`
	Waited   time.Duration `json:"waited"` // for messages to it and from it
}

// PeerTotals returns what this rank has exchanged with every other one, as far as it is recorded.
func (c *Comm) PeerTotals() (list []PeerTotal) {
	for rank := range c.peers {
		p := &c.peers[rank]
		t := PeerTotal{Rank: rank, Sent: p.sent.Load(), Received: p.came.Load(), Waited: time.Duration(p.waited.Load())}
		if t.Sent != 0 || t.Received != 0 || t.Waited != 0 {
			list = append(list, t)
		}
	}
	return list
}
