package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/transfer"
)

// viewed are the bytes of a view of a buffer, as a naive reading of its loops has them.
func viewed(from []byte, v transfer.View) (dense []byte) {
	places := []int64{v.Offset}
	for i, n := range v.Counts {
		var next []int64
		for _, at := range places {
			for k := range n {
				next = append(next, at+k*v.Strides[i])
			}
		}
		places = next
	}
	for _, at := range places {
		dense = append(dense, from[at:at+v.Run]...)
	}
	return dense
}

// A matrix of 6 rows and 8 columns, of elements of 4 bytes.
const rows, columns, element = 6, 8, 4

var strided = map[string]transfer.View{
	"a range":                              {Offset: 20, Run: 40},
	"a block":                              {Offset: columns*element + 8, Run: 3 * element, Counts: []int64{4}, Strides: []int64{columns * element}},
	"transposed":                           {Run: element, Counts: []int64{columns, rows}, Strides: []int64{element, columns * element}},
	"every second row, every third column": {Run: element, Counts: []int64{3, 3}, Strides: []int64{2 * columns * element, 3 * element}},
	"repeated":                             {Offset: 8, Run: 8, Counts: []int64{100}, Strides: []int64{0}},
	"backwards":                            {Offset: (rows*columns - 1) * element, Run: element, Counts: []int64{rows * columns}, Strides: []int64{-element}},
	"rows backwards, each twice":           {Offset: (rows - 1) * columns * element, Run: columns * element, Counts: []int64{rows, 2}, Strides: []int64{-columns * element, 0}},
}

// Parts of a matrix are sent, and received dense.
func TestStridedSends(t *testing.T) {
	clause.Cite(t, "TR-LAY-5", "TRT-242")
	onEach(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		matrix := fill(rows*columns*element, 1)
		key := uint64(0)
		for name, v := range strided {
			key++
			want := viewed(matrix, v)
			promise, definition := a.Pool().Event()
			op := a.sendOp(b, key, nil)
			op.Buffer, op.View, op.Spec = a.buffer(bytes.Clone(matrix), definition), v, bytesSpec(len(want))
			sent, got := a.begin(t.Context(), op), b.receive(a, key, len(want))
			op.Buffer.Delete()
			promise.Set(nil)
			if !bytes.Equal(content(t, got.Buffer), want) || sent.Event.Wait(t.Context()) != nil {
				t.Errorf("%s came out different", name)
			}
		}
	})
}

// What comes is put into parts of a matrix; the rest of it stays.
func TestStridedReceives(t *testing.T) {
	clause.Cite(t, "TR-LAY-5", "TR-PAB-6", "TRT-242")
	onEach(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		key := uint64(0)
		for name, v := range strided {
			if slices.ContainsFunc(v.Strides, func(s int64) bool { return s <= 0 }) {
				continue
			}
			key++
			matrix := fill(rows*columns*element, 2)
			data := fill(len(viewed(matrix, v)), key)
			want := bytes.Clone(matrix)
			places, n := make([]byte, len(matrix)), 0
			for i := range places {
				places[i] = byte(i)
			}
			for _, at := range viewed(places, v) {
				want[at] = data[n]
				n++
			}
			op := b.receiveOp(a, key, len(data))
			op.Buffer, op.View = b.buffer(matrix, nil), v
			got, sent := b.begin(t.Context(), op), a.send(b, key, data)
			if !bytes.Equal(content(t, got.Buffer), want) || sent.Event.Wait(t.Context()) != nil {
				t.Errorf("%s came out different", name)
			}
		}
	})
}

// A large part, whose half is cancelled at several times: memory is given back, and nothing is written after the end.
func TestStridedTransfersThatAreCancelled(t *testing.T) {
	clause.Cite(t, "TR-LAY-5", "TR-CAN-4", "TR-OBJ-5", "TR-BPR-6")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		meet(t, a, b)
		w.network.setPace(time.Millisecond)
		const size = 16 << 20
		half := transfer.View{Run: 1 << 10, Counts: []int64{size >> 11}, Strides: []int64{2 << 10}}
		for i, wait := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond} {
			into := make([]byte, size)
			promise, definition := a.Pool().Event()
			send, receive := a.sendOp(b, uint64(i), nil), b.receiveOp(a, uint64(i), size/2)
			send.Buffer, send.View, send.Spec = a.buffer(fill(size, 1), definition), half, bytesSpec(size/2)
			receive.Buffer, receive.View = b.buffer(into, nil), half
			ctx, cancel := context.WithCancel(t.Context())
			sent, got := a.begin(t.Context(), send), b.begin(ctx, receive)
			if i > 0 {
				promise.Set(nil)
			}
			time.Sleep(wait)
			cancel()
			for _, item := range []transfer.Item{sent, got} {
				if err := item.Event.Wait(t.Context()); !errors.Is(err, transfer.ErrCancelled) {
					t.Errorf("transfer %d = %v; want ErrCancelled", i, err)
				}
			}
			promise.Set(nil)
			time.Sleep(time.Second)
			if !bytes.Equal(into, make([]byte, size)) {
				t.Error("the buffer was written although the receive was cancelled")
			}
			synctest.Wait()
			for _, p := range []*process{a, b} {
				if n := p.Totals(); n.Staged != 0 || n.Staging != 0 {
					t.Errorf("%v holds %d bytes for parts, and %d wait", p.life, n.Staged, n.Staging)
				}
			}
		}
	})
}

// Views that do not lie in their buffers, or are not of the size of their value, are refused.
func TestViewsThatAreRefused(t *testing.T) {
	clause.Cite(t, "TR-LAY-5", "TR-PRE-1")
	inBubble(t, func(t *testing.T, w *world) {
		a, _ := w.pair()
		data := a.buffer(make([]byte, 100), a.Pool().Ready())
		for name, c := range map[string]struct {
			view transfer.View
			size int
		}{
			"beyond the end":       {transfer.View{Offset: 90, Run: 11}, 11},
			"beyond the beginning": {transfer.View{Run: 1, Counts: []int64{2}, Strides: []int64{-1}}, 2},
			"a loop beyond":        {transfer.View{Run: 10, Counts: []int64{10}, Strides: []int64{11}}, 100},
			"another size":         {transfer.View{Run: 10}, 11},
			"no run":               {transfer.View{Offset: 5}, 0},
			"no rounds":            {transfer.View{Run: 1, Counts: []int64{0}, Strides: []int64{1}}, 0},
			"loops that differ":    {transfer.View{Run: 1, Counts: []int64{1}}, 1},
			"very large":           {transfer.View{Run: 1, Counts: []int64{1 << 62, 1 << 62}, Strides: []int64{0, 0}}, 0},
			"a very long stride":   {transfer.View{Run: 1, Counts: []int64{2}, Strides: []int64{-1 << 63}}, 2},
		} {
			op := transfer.Op{Src: 0, Dst: 1, Buffer: data, View: c.view, Spec: bytesSpec(c.size)}
			if _, err := a.Transfer(t.Context(), []transfer.Op{op}); !errors.Is(err, serry.ErrInvalid) {
				t.Errorf("Transfer(%s) = %v; want ErrInvalid", name, err)
			}
		}
		for name, v := range map[string]transfer.View{
			"repeated": {Run: 10, Counts: []int64{2}, Strides: []int64{0}}, "overlapping": {Run: 10, Counts: []int64{2}, Strides: []int64{9}},
		} {
			op := transfer.Op{Src: 1, Dst: 0, Buffer: a.buffer(make([]byte, 100), nil), View: v, Spec: bytesSpec(20)}
			if _, err := a.Transfer(t.Context(), []transfer.Op{op}); !errors.Is(err, serry.ErrInvalid) {
				t.Errorf("Transfer(receive, %s) = %v; want ErrInvalid", name, err)
			}
			op.Buffer.Delete()
		}
		if _, err := a.Transfer(t.Context(), []transfer.Op{{Src: 1, Dst: 0, View: transfer.View{Run: 1}, Spec: bytesSpec(1)}}); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("Transfer(no buffer) = %v; want ErrInvalid", err)
		}
		d, err := data.Donate(t.Context()) // what was refused holds nothing
		if err != nil {
			t.Fatal(err)
		}
		if _, ready := d.Confirm(); ready.State() < transfer.Complete {
			t.Error("a call that was refused still uses the buffer")
		}
	})
}

// Sends with strides to a peer that receives nothing keep all memory that there is to gather in. One to another peer goes all the same.
func TestStridedSendsBesideASilentPeer(t *testing.T) {
	clause.Cite(t, "TR-BPR-3", "TR-ORD-7", "TR-LAY-5")
	inBubble(t, func(t *testing.T, w *world) {
		all := w.startAll(3)
		a, silent, b := all[0], all[1], all[2]
		const size = 100 << 20
		row := fill(1<<20, 1)
		repeated := transfer.View{Run: 1 << 20, Counts: []int64{size >> 20}, Strides: []int64{0}}
		send := func(to *process, key uint64) transfer.Item {
			op := a.sendOp(to, key, nil)
			op.Buffer, op.View, op.Spec = a.buffer(row, a.Pool().Ready()), repeated, bytesSpec(size)
			return a.begin(t.Context(), op)
		}
		for key := range uint64(4) { // more than the room for all
			send(silent, key)
		}
		time.Sleep(time.Second)
		begun := time.Now()
		sent, got := send(b, 1), b.receive(a, 1, size)
		if !bytes.Equal(content(t, got.Buffer), bytes.Repeat(row, size>>20)) || sent.Event.Wait(t.Context()) != nil {
			t.Error("the transfer with the other peer is wrong")
		}
		if d := time.Since(begun); d > 10*time.Second {
			t.Errorf("it took %v", d)
		}
	})
}
