package server

import (
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
)

func TestDefaultStoreBytes(t *testing.T) {
	clause.Cite(t, "SEC-102")
	const gib = 1 << 30
	for _, tt := range []struct {
		name         string
		memory, want int64
	}{
		{"a quarter", 64 * gib, 16 * gib},
		{"hosts that are nearly alike agree", 61*gib + 12345, 8 * gib},
		{"more memory than is of use", 4096 * gib, 64 * gib},
		{"next to none", 1, 1},
	} {
		if got := defaultStoreBytes(tt.memory); got != tt.want {
			t.Errorf("%s: defaultStoreBytes() = %d; want %d", tt.name, got, tt.want)
		}
	}
	if memory() < 1<<20 {
		t.Errorf("memory() = %d; want what this machine has", memory())
	}
}
