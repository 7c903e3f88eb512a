package store_test

import (
	"context"
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/internal/lab/conform"
	"github.com/serry-dev/serry/store"
)

// clauses are those that the table of behaviours shows.
var clauses = []string{"C-LIM-2", "C-LOG-2", "C-LOG-3", "C-LOG-4", "C-LOG-5", "C-TERM-1", "C-TERM-2", "C-TERM-3", "NEW-45", "NEW-53"}

func TestFile(t *testing.T) {
	conform.Run(t, clauses, func(t *testing.T) conform.Rig {
		dir := t.TempDir()
		var last store.Store
		return conform.Rig{
			Open: func(t *testing.T) store.Store {
				st, err := store.File(dir)
				if err != nil {
					t.Fatalf("File() = %v", err)
				}
				t.Cleanup(func() { st.Close() })
				store.Cut(st, 10_000)
				last = st
				return st
			},
			Kill:      func(_ *testing.T, st store.Store) { store.Crash(st) },
			Leftovers: func(t *testing.T) int { return store.Parts(last) },
			Alone:     true,
			PartBytes: 10_000,
		}
	})
}

// A File store needs no disk to end a reign, so a context that has ended does not keep its successor waiting.
func TestFileResigns(t *testing.T) {
	clause.Cite(t, "C-TERM-1")
	st, err := store.File(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	r := conform.Campaign(t, st, "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Resign(ctx); err != nil {
		t.Errorf("Resign() = %v", err)
	}
	<-r.Deposed()
	if next := conform.Campaign(t, st, "b"); next.Term() != r.Term()+1 {
		t.Errorf("Term() of the successor = %d; want %d", next.Term(), r.Term()+1)
	}
}
