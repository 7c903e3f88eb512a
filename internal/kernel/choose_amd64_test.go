package kernel

import (
	"testing"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/memory"
)

// A processor without an instruction has no kernel that needs it.
func TestChoose(t *testing.T) {
	lab.Clause(t, "CL-KRN-1")
	if got := choose(false, true); len(got) != 0 {
		t.Errorf("choose() without AVX2 has kernels for %d types", len(got))
	}
	if _, ok := choose(true, false)[memory.F16]; ok {
		t.Error("choose() without F16C has kernels for f16")
	}
	if got, want := len(choose(true, true)), len(avx2)+len(f16c)+2; got != want {
		t.Errorf("choose() has kernels for %d types; want %d", got, want)
	}
}
