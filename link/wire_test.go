package link

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/crc32c"
	"github.com/serry-dev/serry/internal/lab/clause"
)

func testHello() hello {
	h := hello{
		oldest: 1, newest: 1, order: 'l', lane: 2, lanes: 4, largest: ChunkBytes, job: 0x1122334455667788, set: 9, lastSet: 8,
		from: serry.Life{Task: serry.TaskID{Job: "worker", Index: 3}, Incarnation: 0xA1},
		to:   serry.Life{Task: serry.TaskID{Job: "ps", Index: 0}, Incarnation: 0xB2},
	}
	for i := range h.nonce {
		h.nonce[i] = byte(i)
	}
	return h
}

// The bytes of the header and of each frame of the link family are fixed.
func TestGoldenBytes(t *testing.T) {
	clause.Cite(t, "CLT-DES-3", "CL-TRN-25", "CL-TRN-26")
	frame := func(h Header, payload []byte) string {
		h.length = uint32(len(payload))
		b := append(h.append(nil), payload...)
		back, err := parseHeader(b)
		if err != nil || back != h {
			t.Errorf("parseHeader(%x) = %+v, %v; want %+v", b, back, err, h)
		}
		return hex.EncodeToString(b)
	}
	said := testHello()
	hi := said.append(nil)
	for name, row := range map[string]struct{ got, want string }{
		"collective data": {
			frame(Header{Family: Collective, Type: CollectiveData, Class: Bulk, Stream: 1, Generation: 2, Step: 3, Seq: 4, Offset: 5, flags: flagChecksum}, nil),
			"775e010102030100" + "0100000000000000" + "02000000" + "03000000" + "0400000000000000" + "0500000000000000" + "00000000" + "e1ae0f91",
		},
		"transfer credit": {
			frame(Header{Family: Transfer, Type: transferCredit, Stream: 1}, []byte{8, 0, 0, 0, 0, 0, 0, 0}),
			"775e010205000000" + "0100000000000000" + "00000000" + "00000000" + "0000000000000000" + "0000000000000000" + "08000000" + "89bbca33" + "0800000000000000",
		},
		"HELLO": {
			frame(Header{Type: typeHello}, hi),
			"775e010001000000" + strings.Repeat("0", 64) + "61000000" + "a9f08f58" +
				"01016c0204" + "00004000" + "8877665544332211" + "0900000000000000" + "0800000000000000" + "a100000000000000" + "b200000000000000" +
				"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f" + "0800" + hex.EncodeToString([]byte("worker/3")) + "0400" + hex.EncodeToString([]byte("ps/0")),
		},
		"AUTH": {
			frame(Header{Type: typeAuth}, proof([]byte("key"), dialler, []byte("a"), []byte("b"))),
			"775e010002000000" + strings.Repeat("0", 64) + "20000000" + "7a4cc04d" + "8804d016bdf339f288e1ef8c6daa2eb5d8a839532f0689aa12f2a85f70339d4b",
		},
		"REFUSED": {
			frame(Header{Type: typeRefused}, appendRefused(nil, Stale, "old")),
			"775e010003000000" + strings.Repeat("0", 64) + "05000000" + "91d642e1" + "04006f6c64",
		},
		"PING":   {frame(Header{Type: typePing, Seq: 7}, nil), "775e010004000000" + strings.Repeat("0", 32) + "0700000000000000" + "0000000000000000" + "00000000" + "da0d76d9"},
		"PONG":   {frame(Header{Type: typePong, Seq: 7}, nil), "775e010005000000" + strings.Repeat("0", 32) + "0700000000000000" + "0000000000000000" + "00000000" + "f118b604"},
		"BYE":    {frame(Header{Type: typeBye}, []byte("enough")), "775e010006000000" + strings.Repeat("0", 64) + "06000000" + "3c859427" + "656e6f756768"},
		"WINDOW": {frame(Header{Type: typeWindow, Seq: 1 << 20}, nil), "775e010007000000" + strings.Repeat("0", 32) + "0000100000000000" + "0000000000000000" + "00000000" + "d5a081c8"},
	} {
		if row.got != row.want {
			t.Errorf("%s is\n%s; want\n%s", name, row.got, row.want)
		}
	}
	if back, err := parseHello(hi); err != nil || back != said {
		t.Errorf("parseHello() = %v:\n%s", err, cmp.Diff(said, back, cmp.AllowUnexported(hello{})))
	}
}

// A proof fits one role, one secret and one pair of hellos.
func TestProofs(t *testing.T) {
	clause.Cite(t, "CL-TRN-25")
	base := proof([]byte("key"), dialler, []byte("a"), []byte("bc"))
	for name, other := range map[string][]byte{
		"role": proof([]byte("key"), acceptor, []byte("a"), []byte("bc")), "secret": proof([]byte("kez"), dialler, []byte("a"), []byte("bc")),
		"no secret": proof(nil, dialler, []byte("a"), []byte("bc")), "hellos": proof([]byte("key"), dialler, []byte("ab"), []byte("c")),
		"order": proof([]byte("key"), dialler, []byte("bc"), []byte("a")),
	} {
		if bytes.Equal(base, other) {
			t.Errorf("another %s has the same proof", name)
		}
	}
}

// Each kind of broken header has its own error.
func TestBrokenHeaders(t *testing.T) {
	clause.Cite(t, "CL-TRN-26", "CLT-DES-3")
	valid := Header{Family: Collective, Type: CollectiveData, length: 5}
	for name, row := range map[string]struct {
		change func(b []byte) []byte
		want   error
	}{
		"magic":   {func(b []byte) []byte { b[0]++; return b }, errMagic},
		"check":   {func(b []byte) []byte { b[20]++; return b }, errHeader},
		"version": {func([]byte) []byte { return reseal(valid, func(b []byte) { b[2] = 2 }) }, errVersion},
		"family":  {func([]byte) []byte { return reseal(valid, func(b []byte) { b[3] = 3 }) }, errFamily},
		"data": {func([]byte) []byte {
			return (&Header{Family: Transfer, Type: TransferData, length: ChunkBytes + 1}).append(nil)
		}, errLength},
		"control": {func([]byte) []byte {
			return (&Header{Family: Transfer, Type: Offer, length: ControlBytes + 1}).append(nil)
		}, errLength},
		"link": {func([]byte) []byte { return (&Header{Type: typeHello, length: ControlBytes + 1}).append(nil) }, errLength},
	} {
		if _, err := parseHeader(row.change(valid.append(nil))); !errors.Is(err, row.want) {
			t.Errorf("%s: parseHeader() = %v; want %v", name, err, row.want)
		}
	}
	if _, err := parseHeader(valid.append(nil)); err != nil {
		t.Errorf("parseHeader() of a good one = %v", err)
	}
}

// reseal changes the bytes of a header and makes its checksum right again.
func reseal(h Header, change func([]byte)) []byte {
	b := h.append(nil)
	change(b)
	return sealed(b)
}

// However many urgent messages there are, normal and bulk ones get their share.
func TestAgeing(t *testing.T) {
	clause.Cite(t, "CL-TRN-28")
	var s sender
	for class := Urgent; class < classes; class++ {
		s.queue[class] = []*post{{header: Header{Class: class}, size: 1 << 40, chunk: 1}}
	}
	taken := make(map[Class]int)
	for range 10_000 {
		p, _, _, ok := s.next()
		if !ok {
			t.Fatal("the queue is empty")
		}
		taken[p.header.Class]++
	}
	if taken[Urgent] < 9_000 || taken[Bulk] < 500 {
		t.Errorf("chunks by class: %v; want most of them urgent, and a twentieth bulk", taken)
	}
}

func FuzzHeader(f *testing.F) {
	h := Header{Family: Collective, Type: OpDesc, length: 4}
	f.Add(h.append(nil))
	f.Add(make([]byte, headerBytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headerBytes {
			return
		}
		h, err := parseHeader(b)
		if err != nil {
			return
		}
		if !bytes.Equal(h.append(nil), b[:headerBytes]) {
			t.Errorf("the header of %x is written as %x", b[:headerBytes], h.append(nil))
		}
	})
}

// Words about progress are read as they were written, and one that cannot be is an error.
func FuzzWords(f *testing.F) {
	w := word{of: message{family: Collective, generation: 1, step: 2, stream: 3}, started: 5, ended: 4}
	f.Add(w.append(w.append(nil)))
	f.Add(make([]byte, wordBytes-1))
	f.Add(bytes.Repeat([]byte{9}, wordBytes))
	f.Add(make([]byte, (maxWords+1)*wordBytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := parseWords(b)
		if err != nil {
			return
		}
		var again []byte
		for _, w := range all {
			again = w.append(again)
		}
		if len(all) > maxWords || !bytes.Equal(again, b) {
			t.Errorf("the words of %x are written as %x", b, again)
		}
	})
}

func FuzzHello(f *testing.F) {
	h := testHello()
	f.Add(h.append(nil))
	f.Add(bytes.Repeat([]byte{0xff}, 200))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHello(b)
		if err != nil {
			return
		}
		again, err := parseHello(h.append(nil))
		if err != nil || again != h {
			t.Errorf("parseHello of what was read = %+v, %v; want %+v", again, err, h)
		}
	})
}

func FuzzRefused(f *testing.F) {
	f.Add(appendRefused(nil, Stale, "old\nnews"))
	f.Fuzz(func(t *testing.T, b []byte) {
		code, text := parseRefused(b)
		if strings.ContainsAny(text, "\n\r\x00") || len(text) > 4*512 {
			t.Errorf("parseRefused(%x) = %v, %q", b, code, text)
		}
		_ = code.String()
	})
}

func FuzzAddresses(f *testing.F) {
	f.Add("tcp:10.0.0.2:4001,tcp:[fd00::2]:4001,unix:@name")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseAddresses("tcp:", text)
		if err != nil {
			return
		}
		again, err := parseAddresses("tcp:", formatAddresses("tcp:", all))
		if diff := cmp.Diff(all, again); err != nil || diff != "" {
			t.Errorf("%q is read as %q, then as %q, %v", text, all, again, err)
		}
	})
}

// sealed makes the checksum of a header right.
func sealed(b []byte) []byte {
	binary.LittleEndian.PutUint32(b[44:], crc32c.Sum(b[:44]))
	return b
}
