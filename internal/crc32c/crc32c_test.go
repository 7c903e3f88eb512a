package crc32c

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// The same checksums as those of the standard library, for every length and place, also piece by piece.
func TestSum(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 1<<16)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	for range 5000 {
		at := r.IntN(len(b))
		p := b[at : at+r.IntN(len(b)-at+1)]
		cut, crc := r.IntN(len(p)+1), r.Uint32()
		if got, want := Update(crc, p), crc32.Update(crc, table, p); got != want {
			t.Fatalf("Update(%08x, %d bytes at %d) = %08x; want %08x", crc, len(p), at, got, want)
		}
		if got, want := Update(Sum(p[:cut]), p[cut:]), crc32.Checksum(p, table); got != want {
			t.Fatalf("%d bytes at %d, cut at %d: %08x; want %08x", len(p), at, cut, got, want)
		}
	}
}

func FuzzUpdate(f *testing.F) {
	f.Add(uint32(0), make([]byte, leastBytes))
	f.Add(^uint32(0), make([]byte, 3*leastBytes+1))
	f.Fuzz(func(t *testing.T, crc uint32, p []byte) {
		if got, want := Update(crc, p), crc32.Update(crc, table, p); got != want {
			t.Errorf("Update(%08x, %d bytes) = %08x; want %08x", crc, len(p), got, want)
		}
	})
}

func BenchmarkUpdate(b *testing.B) {
	p := make([]byte, 512<<10)
	for name, update := range map[string]func(uint32, []byte) uint32{
		"ours":     Update,
		"standard": func(crc uint32, p []byte) uint32 { return crc32.Update(crc, table, p) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(p)))
			crc := uint32(0)
			for b.Loop() {
				crc = update(crc, p)
			}
		})
	}
}
