package jax_test

import (
	"bytes"
	"encoding/hex"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/transfer/jax"
)

// corpus are messages and their bytes, which a stock JAX process understands.
var corpus = []struct {
	name    string
	message jax.Message
	hex     string
}{
	{"first message, empty handshake", jax.NewEstablish(nil), "02 00 00 00 1a 00"},
	{"answer with two lanes", jax.NewEstablish([]string{"10.0.0.2:4001", "10.0.0.2:4002"}, 8),
		"23 00 00 00 1a 21 12 0d 31 30 2e 30 2e 30 2e 32 3a 34 30 30 31 12 0d 31 30 2e 30 2e 30 2e 32 3a 34 30 30 32 1a 01 08"},
	{"pull of one buffer", jax.NewPull(9, 0, 0, 0), "07 00 00 00 0a 05 08 09 12 01 00"},
	{"pull with an end", jax.NewPull(9, 72, 1789000000_000000, 0, 1),
		"13 00 00 00 0a 11 08 09 12 02 00 01 18 48 20 80 a0 83 ac e0 e2 96 03"},
	{"packet in the middle", jax.NewPacket(0, 1, 1<<20, 1<<20, false), "0c 00 00 00 12 0a 10 01 18 80 80 40 20 80 80 40"},
	{"packet, the last", jax.NewPacket(1, 0, 0, 4, true), "08 00 00 00 12 06 08 01 20 04 28 01"},
	{"error", jax.NewFailure(0, 0, 0, true, "Pull expired"), "12 00 00 00 2a 10 20 01 2a 0c 50 75 6c 6c 20 65 78 70 69 72 65 64"},
	{"half close", jax.HalfClose{}, "02 00 00 00 22 00"},
}

var comparable = cmp.AllowUnexported(jax.PullRequest{}, jax.Packet{}, jax.Failure{}, jax.Establish{})

func TestCorpus(t *testing.T) {
	clause.Cite(t, "TRT-152", "TR-W-36", "TR-W-4", "TR-W-7")
	for _, c := range corpus {
		t.Run(c.name, func(t *testing.T) {
			want := must(hex.DecodeString(strings.ReplaceAll(c.hex, " ", "")))(t)
			if got := jax.Frame(c.message); !bytes.Equal(got, want) {
				t.Errorf("frame(%+v) = % x\nwant % x", c.message, got, want)
			}
			got, err := jax.ReadFrame(bytes.NewReader(want), make([]byte, 4096))
			if diff := cmp.Diff(c.message, got, comparable); err != nil || diff != "" {
				t.Errorf("readFrame() = %v, -want +got:\n%s", err, diff)
			}
		})
	}
}

func TestBadFrames(t *testing.T) {
	clause.Cite(t, "TRT-105", "TRT-106", "TR-W-8", "TR-W-26", "TR-H-8")
	for name, text := range map[string]string{
		"four zero bytes":       "00000000",
		"no known kind":         "020000003200",
		"a kind that is no one": "0200000012",
		"longer than allowed":   "fd0f0000",
		"longest number":        "ffffffff",
		"cut in the middle":     "0c000000120a",
		"half a tag":            "01000000ff",
		"packed numbers cut":    "06000000 0a041202 80ff",
	} {
		t.Run(name, func(t *testing.T) {
			data := must(hex.DecodeString(strings.ReplaceAll(text, " ", "")))(t)
			if m, err := jax.ReadFrame(bytes.NewReader(data), make([]byte, 4096)); err == nil || err == io.EOF {
				t.Errorf("readFrame(%s) = %+v, %v; want an error", text, m, err)
			}
		})
	}
}

func TestLongTextsAreCut(t *testing.T) {
	clause.Cite(t, "TR-W-17")
	data := jax.Frame(jax.NewFailure(1, 2, 3, true, strings.Repeat("x", 100_000)))
	if len(data) > 4096 {
		t.Fatalf("frame of %d bytes; want at most 4096", len(data))
	}
	must(jax.ReadFrame(bytes.NewReader(data), make([]byte, 4096)))(t)
}

func FuzzDecode(f *testing.F) {
	for _, c := range corpus {
		f.Add(jax.Frame(c.message)[4:])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := jax.Decode(data)
		if err != nil {
			return
		}
		again, err := jax.Decode(jax.Frame(m)[4:])
		if err != nil {
			t.Fatalf("decode(encode(%+v)) = %v", m, err)
		}
		if !bytes.Equal(jax.Frame(again), jax.Frame(m)) {
			t.Fatalf("encode(decode(encode(%+v))) differs", m)
		}
	})
}
