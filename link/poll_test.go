package link_test

import (
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
)

// A goroutine in Wait looks for its message each time where that helps, almost never where it does not, and in between at
// most as often for nothing as not.
func TestPatience(t *testing.T) {
	clause.Cite(t, "CL-TRN-1")
	const waits = 100_000
	for _, tt := range []struct {
		name        string
		came        func(wait int) bool
		least, most int // looks
	}{
		{"always in time", func(int) bool { return true }, waits, waits},
		{"never in time", func(int) bool { return false }, 1, waits / 100},
		{"in time from the middle on", func(wait int) bool { return wait >= waits/2 }, waits/2 - 600, waits/2 + waits/100},
		{"until the middle", func(wait int) bool { return wait < waits/2 }, waits / 2, waits/2 + waits/100},
		{"seldom in time", func(wait int) bool { return wait%10 == 0 }, 1, waits / 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if looks := link.Looks(waits, tt.came); looks < tt.least || looks > tt.most {
				t.Errorf("%d looks in %d waits; want %d to %d", looks, waits, tt.least, tt.most)
			}
		})
	}
}

// One goroutine of a Net looks at a time.
func TestOneLooks(t *testing.T) {
	clause.Cite(t, "CL-TRN-1")
	p := link.NewPollster(true)
	if !p.Begin() || p.Begin() {
		t.Error("Begin() twice; want the first to look, and not the second")
	}
	p.End()
	if !p.Begin() {
		t.Error("Begin() after the end; want it to look")
	}
	if link.NewPollster(false).Begin() {
		t.Error("Begin() on one processor; want it not to look")
	}
}
