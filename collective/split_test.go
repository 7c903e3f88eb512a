package collective_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// twoEach has two processes that drive two devices each, and their clique: by process, the communicators of its ranks.
func twoEach(w *world) [][]*collective.Comm {
	w.t.Helper()
	w.group.Owners = make(map[serry.DeviceID]serry.TaskID)
	for _, d := range devices(4) {
		w.group.Owners[d] = life(int(d)/2, 0).Task
	}
	var local [][]*collective.Comm
	for _, c := range w.clique(w.startAll(2), devices(4)) {
		local = append(local, c.Local())
	}
	return local
}

// A process with several ranks splits them in one call, while another process does it rank by rank.
func TestSplitAll(t *testing.T) {
	clause.Cite(t, "CL-SPL-2", "CL-SPL-3", "CL-SPL-1", "CLT-SPL-7")
	onEach(t, func(t *testing.T, w *world) {
		local := twoEach(w)
		colors, keys := []int{0, 1, 0, -1}, []int{1, 0, 0, 0}
		parts := make([]*collective.Comm, 4)
		errs := each([]func() error{
			func() error {
				list, err := collective.SplitAll(t.Context(), local[0], colors[:2], keys[:2])
				copy(parts, list)
				return err
			},
			func() (err error) { parts[2], err = local[1][0].Split(t.Context(), colors[2], keys[2]); return err },
			func() (err error) { parts[3], err = local[1][1].Split(t.Context(), colors[3], keys[3]); return err },
		}, func(_ int, f func() error) error { return f() })
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("SplitAll() = %v", err)
		}
		if parts[3] != nil || parts[1].Size() != 1 || parts[0].Rank() != 1 || parts[2].Rank() != 0 {
			t.Errorf("SplitAll() = %v; want rank 1 alone, and rank 2 before rank 0", parts)
		}
		works(t, []*collective.Comm{parts[2], parts[0]}, 1000)
		works(t, append(local[0], local[1]...), 1000)
	})
}

// What is no split of one clique is refused, and the clique goes on: nothing was sent, and no number taken.
func TestSplitAllRefuses(t *testing.T) {
	clause.Cite(t, "CL-SPL-3", "CLT-SPL-7")
	inBubble(t, func(t *testing.T, w *world) {
		local := twoEach(w)
		a, b := local[0][0], local[0][1]
		other, err := w.procs[0].Clique(t.Context(), devices(2), collective.CliqueOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for name, row := range map[string]struct {
			comms        []*collective.Comm
			colors, keys []int
		}{
			"nothing":            {nil, nil, nil},
			"fewer colors":       {local[0], []int{0}, []int{0, 0}},
			"more keys":          {local[0], []int{0, 0}, []int{0, 0, 0}},
			"no communicator":    {[]*collective.Comm{a, nil}, []int{0, 0}, []int{0, 0}},
			"another clique":     {[]*collective.Comm{a, other}, []int{0, 0}, []int{0, 0}},
			"a rank twice":       {[]*collective.Comm{b, b}, []int{0, 0}, []int{0, 0}},
			"of another process": {[]*collective.Comm{a, local[1][0]}, []int{0, 0}, []int{0, 0}},
		} {
			if parts, err := collective.SplitAll(t.Context(), row.comms, row.colors, row.keys); !errors.Is(err, collective.ErrInvalid) || parts != nil {
				t.Errorf("%s: SplitAll() = %v, %v; want ErrInvalid", name, parts, err)
			}
		}
		works(t, append(local[0], local[1]...), 1000)
	})
}

// The other process does not come: all ranks get the error, and no part stays held.
func TestSplitAllFails(t *testing.T) {
	clause.Cite(t, "CL-SPL-1", "CL-SPL-3")
	inBubble(t, func(t *testing.T, w *world) {
		local := twoEach(w)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if parts, err := collective.SplitAll(ctx, local[0], []int{0, 0}, []int{0, 0}); parts != nil || !errors.Is(err, collective.ErrTimeout) {
			t.Errorf("SplitAll() = %v, %v; want ErrTimeout", parts, err)
		}
		if _, err := collective.SplitAll(t.Context(), local[1], []int{0, 0}, []int{0, 0}); !errors.Is(err, collective.ErrTimeout) {
			t.Errorf("SplitAll() of those that come late = %v; want ErrTimeout", err)
		}
	})
}
