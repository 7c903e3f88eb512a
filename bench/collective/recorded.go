package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/serry-dev/serry/bench/internal/sheet"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/collective/gauge"
	"github.com/serry-dev/serry/memory"
)

// What the flight recorder costs (CL-FLR-1): all-reduces of the same processes on the same vectors, with records and without, in
// turn. These rows have no peer.
const (
	recorded   = "recorded"
	unrecorded = "unrecorded"
)

// What an operation with records may cost more than one without: of 8 bytes so much time, of 64 KiB such a part.
const (
	recordBar     = 50 * time.Nanosecond
	recordPartBar = 0.02
)

// The difference is small beside that of two turns, and beside that of two cliques, whose memory lies elsewhere. So there are many
// turns of each kind in a round, and several cliques have them in turn.
const (
	recordTurns   = 20
	recordCliques = 4
)

// recordedRows measures what records cost.
func recordedRows(p plan, ours *peer, over string, ranks int) (rows []row, err error) {
	for _, w := range []gauge.Work{{Bytes: 8, Count: 1000}, {Bytes: 64 << 10, Count: 100}} {
		pair := []row{{Op: recorded}, {Op: unrecorded}}
		for i := range pair {
			r := &pair[i]
			r.Over, r.Ranks, r.Bytes, r.times = over, ranks, w.Bytes, make(map[string][]float64)
		}
		for turn := range recordTurns*p.rounds + recordCliques {
			for i := range pair {
				r := &pair[(i+turn)%2]
				w.Op = r.Op
				took, err := ours.measure(w)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", w.Op, err)
				}
				if turn >= recordCliques { // the first ones prepare the cliques
					r.times[ourName] = append(r.times[ourName], took.Seconds()*1e6)
				}
			}
		}
		rows = append(rows, judgeRecords(pair[0], pair[1])...)
	}
	return rows, nil
}

// judgeRecords compares turns with records with those without, each with the one beside it.
func judgeRecords(with, without row) []row {
	with, without = with.judged(), without.judged()
	if with.Ranks != 2 {
		return []row{with, without}
	}
	var more, parts []float64
	for i, took := range with.times[ourName] {
		other := without.times[ourName][i]
		more, parts = append(more, took-other), append(parts, took/other-1)
	}
	if with.Bytes == 8 {
		cost := sheet.Median(more)
		with.Bar = fmt.Sprintf("%+.0f ns, <= %d ns", 1e3*cost, recordBar.Nanoseconds())
		with.Kept = sheet.Kept(cost <= recordBar.Seconds()*1e6)
	} else {
		part := sheet.Median(parts)
		with.Bar = fmt.Sprintf("%+.1f%%, <= %g%%", 100*part, 100*recordPartBar)
		with.Kept = sheet.Kept(part <= recordPartBar)
	}
	return []row{with, without}
}

// envUnrecorded tells a rank of serry which service the clique without records uses: a process has one group in a job.
const envUnrecorded = "SERRY_BENCH_UNRECORDED"

// recordSides are cliques of the same ranks, with records and without.
type recordSides struct {
	with, without []*collective.Comm
	turns         map[string]int // that were taken, by operation
}

// sum runs all-reduces one after the other, with records or without.
func (r *rank) sum(ctx context.Context, w gauge.Work) (time.Duration, error) {
	if r.sides.turns == nil {
		if err := r.formSides(ctx); err != nil {
			return 0, err
		}
	}
	side := r.sides.with
	if w.Op == unrecorded {
		side = r.sides.without
	}
	c := side[r.sides.turns[w.Op]%recordCliques]
	r.sides.turns[w.Op]++
	if int64(len(r.vector)) < w.Bytes/4 {
		r.vector = make([]float32, w.Bytes/4)
	}
	v := memory.OfSlice(r.vector[:w.Bytes/4])
	op := collective.AllReduce{Out: v, In: v, Count: w.Bytes / 4, Type: memory.F32, Reduction: collective.Sum}
	if err := c.Do(ctx, collective.Barrier{}); err != nil {
		return 0, err
	}
	begun := time.Now()
	for range w.Count {
		if err := c.Do(ctx, op); err != nil {
			return 0, err
		}
	}
	return r.slowest(ctx, time.Since(begun)/time.Duration(w.Count))
}

// formSides forms the cliques. They last as long as the process.
func (r *rank) formSides(ctx context.Context) error {
	cfg, tasks, err := client.ConfigFromEnv()
	if err != nil {
		return err
	}
	if cfg.Address = os.Getenv(envUnrecorded); cfg.Address == "" {
		return errors.New(envUnrecorded + " is not set")
	}
	without, _, _, err := open(ctx, cfg, collective.Options{Records: -1})
	if err != nil {
		return err
	}
	for i := range uint64(recordCliques) {
		traffic := collective.CliqueOptions{Traffic: 2 + i} // the others of the rank have 0 and 1
		a, err := r.group.Clique(ctx, devices(tasks), traffic)
		if err != nil {
			return err
		}
		b, err := without.Clique(ctx, devices(tasks), traffic)
		if err != nil {
			return err
		}
		r.sides.with, r.sides.without = append(r.sides.with, a), append(r.sides.without, b)
	}
	r.sides.turns = make(map[string]int)
	return nil
}
