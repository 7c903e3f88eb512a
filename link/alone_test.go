package link_test

import (
	"context"
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
)

// A counted member knows how many tasks its job has.
type counted struct {
	member
	tasks int
}

func (m counted) Tasks(context.Context) (s serry.Snapshot, err error) {
	for i := range m.tasks {
		s.Tasks = append(s.Tasks, serry.TaskInfo{Task: life(i, 0).Task})
	}
	return s, nil
}

// In a job of one process there is no socket and no key, and a link of the process to itself works. With two tasks there
// are both, although only one has come.
func TestAlone(t *testing.T) {
	clause.Cite(t, "CL-TRN-11")
	inBubble(t, func(t *testing.T, w *world) {
		for tasks, sockets := range map[int]int{1: 0, 2: 1} {
			me := life(0, uint64(10+tasks))
			o := link.Options{Network: dialler{w.network, hostOf(me)}, Listen: []string{hostOf(me) + ":0"}, Secret: secret}
			n, err := link.Open(t.Context(), counted{member{w.job, me, 7, false}, tasks}, w.job, o)
			if err != nil {
				t.Fatal(err)
			}
			l, err := n.Link(t.Context(), me)
			if err != nil {
				t.Fatal(err)
			}
			exchange(t, l, l, 1)
			if got := len(w.network.listeners); got != sockets || len(w.keyNames()) != sockets {
				t.Errorf("of %d tasks, one has %d sockets and the keys %q; want %d of each", tasks, got, w.keyNames(), sockets)
			}
			if err := n.Close(t.Context()); err != nil {
				t.Errorf("Close() = %v", err)
			}
		}
	})
}
