package transfer_test

import (
	"bytes"
	"flag"
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer"
)

var huge = flag.Int64("huge", 0, "bytes of a huge buffer; 0 means to leave its test out")

// A buffer of more bytes than 32 bits can count goes through a link, and through shared memory. It is empty but for marks, among
// others at its ends and where 32 bits end.
func TestHugeBuffer(t *testing.T) {
	clause.Cite(t, "TR-SZE-3", "TRT-240")
	if *huge == 0 {
		t.Skip("go test -huge says how many bytes it has")
	}
	for path, options := range map[transfer.Path]link.Options{transfer.ByLink: {TCPOnly: true}, transfer.ByMemory: {}} {
		t.Run(string(path), func(t *testing.T) {
			w := &world{job: newJob(), t: t, link: options}
			a, b := w.pair()
			from, into := a.hugeBuffer(), b.hugeBuffer()
			if err := from.Define(a.Pool().Ready()); err != nil {
				t.Fatal(err)
			}
			marks := fill(64, 1)
			var places []int64
			for at := int64(0); at+64 <= *huge; at += 1<<29 - 32 {
				places = append(places, at)
			}
			for _, at := range append(places, 1<<32-32, *huge-64) {
				if at >= 0 && at+64 <= *huge {
					copy(content(t, from)[at:], marks)
				}
			}
			send, receive := a.sendOp(b, 1, nil), b.receiveOp(a, 1, 0)
			send.Buffer, receive.Buffer = from, into
			sent, got := a.begin(t.Context(), send), b.begin(t.Context(), receive)
			if !bytes.Equal(content(t, got.Buffer), content(t, from)) || sent.Event.Wait(t.Context()) != nil {
				t.Error("bytes came out different")
			}
			if p := b.paths(); p[0] != path {
				t.Errorf("the bytes went by %v; want %v", p[0], path)
			}
		})
	}
}

// hugeBuffer makes a buffer in an arena of its own.
func (p *process) hugeBuffer() *transfer.Buffer {
	t := p.world.t
	r, err := arena(t, *huge).Alloc(*huge)
	if err != nil {
		t.Fatal(err)
	}
	b, err := p.Pool().Buffer(transfer.Spec{Type: memory.U8, Dims: []int64{*huge}}, transfer.Memory{Region: r, Device: p.device})
	if err != nil {
		t.Fatal(err)
	}
	return b
}
