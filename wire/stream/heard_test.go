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
			life := serry.Life{Task: serry.TaskID{Job: "worker", Index: 1}, Incarnation: 9}
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

// TestFollowsConnectedLives: a host asks the next leader to tell of a life that a former leader called
// connected, although that life has sent no heartbeat yet. A life that is gone, or at another host now, is not
// asked for.
func TestFollowsConnectedLives(t *testing.T) {
	t.Run("C-LOST-5 A-SIDE-3", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t)
			d := newDesk(n, "a", 1)
			h, _ := host(t, n, stream.Relay, "a", "b")
			call(t, h, 1, echo, "")
			d.mu.Lock()
			session := d.mu.conns[1].Session()
			d.mu.Unlock()
			here := serry.Life{Task: serry.TaskID{Job: "worker", Index: 1}, Incarnation: 9}
			gone := serry.Life{Task: serry.TaskID{Job: "worker", Index: 2}, Incarnation: 10}
			moved := serry.Life{Task: serry.TaskID{Job: "worker", Index: 3}, Incarnation: 11}
			for _, s := range []stream.Standing{
				{Life: here, State: serry.Connected}, {Life: moved, State: serry.Connected}, {Life: gone, State: serry.Connected}, {Life: gone, State: serry.Disconnected},
			} {
				session.Standing(s)
				session.Flush()
			}
			synctest.Wait()
			h.Unfollow(moved.Incarnation)
			next := newDesk(n, "b", 2)
			n.crash("a")
			time.Sleep(2 * stream.BeatEvery)
			next.mu.Lock()
			defer next.mu.Unlock()
			if !slices.Equal(next.mu.follow, []serry.Life{here}) {
				t.Errorf("the next leader is asked for %v; want %v", next.mu.follow, here)
			}
		})
	})
}
