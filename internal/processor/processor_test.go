package processor_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/internal/processor"
)

// A thread that may run on one processor alone reads its number.
func TestNumber(t *testing.T) {
	if processor.Number() == processor.None {
		t.Skip("this processor does not tell its number")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		t.Fatal(err)
	}
	defer unix.SchedSetaffinity(0, &may)
	for p := range 1024 {
		if !may.IsSet(p) {
			continue
		}
		var one unix.CPUSet
		one.Set(p)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			t.Fatal(err)
		}
		if got := processor.Number(); got != p {
			t.Errorf("Number() = %d on processor %d", got, p)
		}
	}
}

// What the meter says lies between what the clock said before and after it. It may be wrong by as much as passed between two looks, at clock and
// counter: when the meter was made, and when the rate was asked for.
func TestMeter(t *testing.T) {
	clause.Cite(t, "CL-FLR-1")
	before := time.Now()
	m := processor.NewMeter()
	after := time.Now()
	for range 1000 {
		from := time.Since(after)
		now := m.Now()
		to := time.Since(before)
		got := m.Rate().Duration(now)
		slack := time.Since(before) - to + after.Sub(before) + time.Microsecond
		if got < from-slack || got > to+slack {
			t.Fatalf("%d ticks are %v; want %v to %v, or %v less or more", now, got, from, to, slack)
		}
	}
}

func TestMeterInABubble(t *testing.T) {
	clause.Cite(t, "CL-FLR-1")
	synctest.Test(t, func(t *testing.T) {
		m := processor.NewMeter()
		time.Sleep(time.Hour)
		if got := m.Rate().Duration(m.Now()); got != time.Hour {
			t.Errorf("after an hour of the bubble: %v", got)
		}
	})
}

func BenchmarkMeter(b *testing.B) {
	m := processor.NewMeter()
	for b.Loop() {
		m.Now()
	}
}

func BenchmarkNumber(b *testing.B) {
	for b.Loop() {
		processor.Number()
	}
}

func BenchmarkClock(b *testing.B) {
	made := time.Now()
	for b.Loop() {
		_ = time.Since(made)
	}
}
