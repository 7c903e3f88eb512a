package kernel

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/serry-dev/serry/internal/lab"
)

// A copy past the caches is a copy, at every place and of every length, and leaves the bytes around dst alone.
func TestCopyPast(t *testing.T) {
	lab.Clause(t, "CL-KRN-5")
	r := rand.New(rand.NewPCG(1, 2))
	check := func(n, place int) {
		src := make([]byte, n+7)[7:]
		for i := range src {
			src[i] = byte(r.Uint32())
		}
		room := bytes.Repeat([]byte{0xee}, n+place+64)
		want := bytes.Clone(room)
		copy(want[place:place+n], src)
		CopyPast(room[place:place+n:place+n], src)
		if !bytes.Equal(room, want) {
			t.Fatalf("CopyPast() of %d bytes at place %d differs from copy", n, place)
		}
	}
	for n := range 400 {
		for place := range 64 {
			check(n, place)
		}
	}
	for _, n := range []int{strideBytes - 1, strideBytes, 2*strideBytes + 100} {
		check(n, 3)
	}
}
