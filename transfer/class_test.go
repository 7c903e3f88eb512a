package transfer_test

import (
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/transfer"
)

// Urgent transfers saturate the link. One byte in twenty is of the bulk class all the same.
func TestBulkBesideUrgent(t *testing.T) {
	clause.Cite(t, "TR-STR-4", "TRT-236")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		meet(t, a, b)
		w.network.setPace(time.Millisecond)
		const size, count = 32 << 20, 12
		data := a.buffer(make([]byte, size), a.Pool().Ready())
		bulk := a.sendOp(b, 100, make([]byte, 2*size))
		bulk.Class = transfer.Bulk
		slow, err := a.Transfer(t.Context(), []transfer.Op{bulk})
		if err != nil {
			t.Fatal(err)
		}
		var ops []transfer.Op
		for key := range uint64(count) {
			op := a.sendOp(b, key, nil)
			op.Buffer, op.Class = data, transfer.Urgent
			ops = append(ops, op)
			b.receive(a, key, size)
		}
		urgent, err := a.Transfer(t.Context(), ops)
		if err != nil {
			t.Fatal(err)
		}
		b.receive(a, 100, 2*size)
		if err := urgent.Done().Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		done, all := slow.Progress()
		const piece = 4 << 20 // turns are of pieces: of 101 pieces five are of the bulk class, though that is less than a twentieth
		if moved := int64(size*count) + done; done == all || done/piece < moved/piece/20 {
			t.Errorf("beside %d bytes that are urgent, %d of bulk have moved; want at least one piece in twenty, and not all of %d", size*count, done, all)
		}
		if err := slow.Done().Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
