package server

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/detect"
	"github.com/serry-dev/serry/wire"
)

// stats are the numbers that the server counts as it works. Every field is atomic, because many goroutines
// count and the metrics page reads. Arrays stand in place of maps, so that counting takes no lock and no memory.
type stats struct {
	calls [dialects][maxOps]methodStats

	// Of the owner. Their quotient says how many calls share a wave, and with it a write.
	batches, events atomic.Uint64

	lostBy [evidenceSorts]atomic.Uint64 // tasks lost, by the sort of evidence
	waits  histogram                    // of calls at barriers, in seconds
}

const (
	dialects = int(wire.Serry) + 1

	// maxOps is more operations than there are; should there ever be more, the rest share the last row.
	maxOps = 64
)

// methodStats are the numbers of one operation in one dialect. A call that waits is received and not yet
// answered.
type methodStats struct {
	bytesIn, bytesOut atomic.Uint64
	codes             [codes.Unauthenticated + 1]atomic.Uint64
}

func newStats() *stats { return &stats{waits: newHistogram(waitBounds())} }

// of returns the numbers of calls of such a shape. An operation beyond the table shares the last row rather than
// being lost: a total that is wrong by its label is better than one that is too small.
func (s *stats) of(shape wire.Shape) *methodStats {
	return &s.calls[shape.Dialect][min(int(shape.Op), maxOps-1)]
}

// received counts the bytes of a request.
func (m *methodStats) received(bytes int) { m.bytesIn.Add(uint64(bytes)) }

// answered counts a call by how it ended. Codes that gRPC does not define count as the last one.
func (m *methodStats) answered(c codes.Code, bytes int) {
	m.bytesOut.Add(uint64(bytes))
	m.codes[min(c, codes.Unauthenticated)].Add(1)
}

// Sorts of evidence against tasks. The texts of package detect are for people; these are for the metrics page,
// where few values may be labels.
const (
	bySilence = iota
	byConnection
	byProcess
	byOther
	evidenceSorts
)

// lost counts tasks that are declared dead. Silence has no evidence text: it is what is left when nothing was seen.
// A closed connection, a client that no longer reads and a stream that was not resumed are one sort, because one
// fault of a network shows itself as any of the three.
func (s *stats) lost(losses []coord.Loss) {
	for _, l := range losses {
		sort := byOther
		switch {
		case l.Evidence == "":
			sort = bySilence
		case l.Evidence == detect.ConnectionClosed || l.Evidence == detect.NotReading || l.Evidence == detect.StreamNotResumed:
			sort = byConnection
		case strings.HasPrefix(l.Evidence, detect.ProcessExited):
			sort = byProcess
		}
		s.lostBy[sort].Add(1)
	}
}

// barrierWait counts a call that has waited at a barrier.
func (s *stats) barrierWait(t coord.Time) { s.waits.observe(time.Duration(t).Seconds()) }

// A histogram counts values by size, as Prometheus does: how many are at or below each bound. The client library
// has one, too, but it takes a lock and is made for numbers that a registry owns; this one is read on demand.
type histogram struct {
	bounds []float64       // ascending; set once
	counts []atomic.Uint64 // one more than bounds
	micros atomic.Uint64   // sum of the values, in millionths
}

// newHistogram makes an empty one. The last count is for values beyond every bound.
func newHistogram(bounds []float64) histogram {
	return histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

// waitBounds are the steps for waits: from a millisecond, a barrier of a step, to an hour, the start of a job
// whose last host is late.
func waitBounds() []float64 {
	return []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 100, 300, 1000, 3600}
}

// observe counts a value. The sum is kept as a whole number, because there is no atomic float.
func (h *histogram) observe(v float64) {
	i, _ := slices.BinarySearch(h.bounds, v)
	h.counts[i].Add(1)
	h.micros.Add(uint64(v * 1e6))
}

// read returns the number of values, their sum, and how many are at or below each bound. The three may differ by
// values that are counted meanwhile, which no reader of a graph will see.
func (h *histogram) read() (count uint64, sum float64, below map[float64]uint64) {
	below = make(map[float64]uint64, len(h.bounds))
	for i := range h.counts {
		count += h.counts[i].Load()
		if i < len(h.bounds) {
			below[h.bounds[i]] = count
		}
	}
	return count, float64(h.micros.Load()) / 1e6, below
}
