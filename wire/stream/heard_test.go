package stream_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/stream"
)

// TestHeardOnALostLine: which clients a host heard is told again if the beat that told it was lost with
// its connection. Else a client that beats once in five seconds would be silent for ten.
func TestHeardOnALostLine(t *testing.T) {
	t.Run("A-SIDE-3 A-SIDE-18", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t)
			d := newDesk(n, "a", 1)
			h, _ := host(t, n, stream.Relay, "a")
			time.Sleep(2 * stream.BeatEvery)
			first := n.last()
			mute(first)
			life := stream.Life{Task: serry.TaskID{Job: "worker", Index: 1}, Incarnation: 9}
			h.Heard(life)
			time.Sleep(2 * stream.BeatEvery)
			first.Close()
			time.Sleep(2 * stream.BeatEvery)
			d.mu.Lock()
			heard := slices.Clone(d.mu.heard)
			d.mu.Unlock()
			if lines := n.lines(); lines != 2 || !slices.Contains(heard, life) {
				t.Errorf("%d lines, on which the server heard of %v; want a second one, and %v", lines, heard, life)
			}
			time.Sleep(10 * stream.BeatEvery)
			d.mu.Lock()
			defer d.mu.Unlock()
			if len(d.mu.heard) != len(heard) {
				t.Errorf("the server heard of %v; want no more than %v: the beat was acknowledged", d.mu.heard, heard)
			}
		})
	})
}
