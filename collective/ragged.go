package collective

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/serry-dev/serry/memory"
)

// RaggedAllToAll gives rows of In to all ranks. A rank has the same number of updates for each rank, the k updates for
// rank i from place i·k on in each of the four lists. An update takes SendSizes rows of In from InOffsets on, and writes
// them to Out of the other rank from OutOffsets on; that rank has the same number in its RecvSizes. Rows that no update
// writes keep their contents (CL-OP-34).
type RaggedAllToAll struct {
	Out, In memory.Region
	Row     int64 // elements of a row
	Type    memory.DType

	InOffsets, SendSizes, OutOffsets, RecvSizes []int64
}

// raggedRows is a ragged exchange in bytes.
type raggedRows struct {
	updates    int // for each rank
	row        int64
	op         RaggedAllToAll
	inRows     int64
	outRows    int64
	out        []byte
	in         []byte
	mine, them []byte // the metadata that is exchanged: offset and size of each update
}

func (o RaggedAllToAll) prepare(c *Comm) (*call, error) {
	k := newCall(c, ragged, o.Type, o.Row)
	p := k.job.Ranks
	n := len(o.SendSizes)
	switch row := k.total; {
	case len(o.InOffsets) != n || len(o.OutOffsets) != n || len(o.RecvSizes) != n || n == 0 || n%p != 0:
		k.fail("lists of %d, %d, %d and %d updates for %d ranks", len(o.InOffsets), n, len(o.OutOffsets), len(o.RecvSizes), p)
	case row == 0:
		k.fail("rows of %d %v", o.Row, o.Type)
	default:
		r := &raggedRows{updates: n / p, row: row, op: o, inRows: o.In.Len() / row, outRows: o.Out.Len() / row}
		r.in, r.out = k.region("input", o.In, r.inRows*row), k.region("output", o.Out, r.outRows*row)
		if overlap(r.in, r.out) {
			k.fail("input and output overlap")
		}
		k.rows, k.counts = r, uint64(r.updates)
	}
	return k.done()
}

// exchangeRows first exchanges where rows go, so that each receiver can check it, and then the rows.
func (o *operation) exchangeRows(ctx context.Context) error {
	r := o.call.rows
	if err := r.checkMine(); err != nil {
		return err
	}
	for i := range r.op.SendSizes {
		r.mine = binary.LittleEndian.AppendUint64(r.mine, uint64(r.op.OutOffsets[i]))
		r.mine = binary.LittleEndian.AppendUint64(r.mine, uint64(r.op.SendSizes[i]))
	}
	r.them = make([]byte, len(r.mine))
	meta, err := AllToAll{In: memory.Of(r.mine), Out: memory.Of(r.them), Count: int64(r.updates) * 16, Type: memory.U8}.prepare(o.comm)
	if err != nil {
		return err
	}
	p, err := o.comm.plan(meta)
	if err != nil {
		return err
	}
	exchange := new(engine)
	exchange.prepare(o, p, meta)
	if err := exchange.run(ctx); err != nil {
		return err
	}
	if err := r.checkTheirs(); err != nil {
		return err
	}
	e := &engine{op: o, tiles: 1, flights: make([][]flight, 1)}
	err = e.exchange(ctx, r)
	if err != nil {
		e.cancel(err)
	}
	return err
}

// checkMine checks what this rank sends, before anything is sent.
func (r *raggedRows) checkMine() error {
	total := int64(0)
	for i, n := range r.op.SendSizes {
		at := r.op.InOffsets[i]
		switch {
		case n < 0 || at < 0 || r.op.OutOffsets[i] < 0 || r.op.RecvSizes[i] < 0:
			return invalid("ragged alltoall: update %d has a negative size or offset", i)
		case n > r.inRows || at > r.inRows-n:
			return invalid("ragged alltoall: update %d takes %d rows from %d on, of %d", i, n, at, r.inRows)
		}
		total += min(r.op.RecvSizes[i], r.outRows+1)
	}
	if total > r.outRows {
		return invalid("ragged alltoall: more than %d rows are to be received", r.outRows)
	}
	return nil
}

// checkTheirs checks what the others want to write, before anything is written.
func (r *raggedRows) checkTheirs() error {
	for i := range r.op.RecvSizes {
		at, n := r.update(i)
		switch {
		case n != r.op.RecvSizes[i]:
			return invalid("ragged alltoall: rank %d sends %d rows, %d are to be received", i/r.updates, n, r.op.RecvSizes[i])
		case at < 0 || n > r.outRows || at > r.outRows-n:
			return invalid("ragged alltoall: rank %d writes %d rows from %d on, of %d", i/r.updates, n, at, r.outRows)
		}
	}
	return nil
}

// update is where another rank writes, and how many rows.
func (r *raggedRows) update(i int) (at, rows int64) {
	le := binary.LittleEndian
	return int64(le.Uint64(r.them[16*i:])), int64(le.Uint64(r.them[16*i+8:]))
}

// rowsNumber is the first number of the messages with rows: behind those of the metadata.
const rowsNumber = 1 << 15

// exchange sends and receives all rows at once. The updates between two ranks are one message.
func (e *engine) exchange(ctx context.Context, r *raggedRows) error {
	for peer := range e.op.comm.Size() {
		var from, to [][]byte
		for i := peer * r.updates; i < (peer+1)*r.updates; i++ {
			at, n := r.update(i)
			to = append(to, r.out[at*r.row:(at+n)*r.row])
			at, n = r.op.InOffsets[i], r.op.SendSizes[i]
			from = append(from, r.in[at*r.row:(at+n)*r.row])
		}
		if peer == e.op.comm.rank {
			if err := deliver(from, to, true); err != nil {
				return fmt.Errorf("rows of this rank: %w", err)
			}
			continue
		}
		if err := e.moveSegs(ctx, peer, rowsNumber, 0, to, true); err != nil {
			return err
		}
		if err := e.moveSegs(ctx, peer, rowsNumber, 0, from, false); err != nil {
			return err
		}
	}
	return e.await(ctx, 0)
}
