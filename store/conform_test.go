package store_test

import (
	"testing"

	"github.com/serry-dev/serry/internal/lab/conform"
	"github.com/serry-dev/serry/store"
)

// clauses are those that the table of behaviours shows.
var clauses = []string{"C-LIM-2", "C-LOG-2", "C-LOG-3", "C-LOG-4", "C-LOG-5", "C-TERM-1", "C-TERM-2", "C-TERM-3", "NEW-45", "NEW-53"}

func TestShared(t *testing.T) {
	conform.Run(t, clauses, func(t *testing.T) conform.Rig {
		shared := store.NewShared(store.SharedConfig{})
		return conform.Rig{
			Open: func(*testing.T) store.Store { return shared.Open() },
			Kill: func(_ *testing.T, st store.Store) {
				st.(*store.Handle).Kill()
				shared.Expire()
			},
			Leftovers: func(*testing.T) int { return shared.Values() },
			Whole:     true,
			PartBytes: 1000,
		}
	})
}

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

// TestMemoryIsAnotherStore shows that a store in memory that is made again is not taken for the one
// before it, whose terms it counts anew.
func TestMemoryIsAnotherStore(t *testing.T) {
	t.Run("C-TERM-1", func(t *testing.T) {
		before, after := conform.Campaign(t, store.Memory(), "a"), conform.Campaign(t, store.Memory(), "a")
		if before.Store() == after.Store() || before.Term() != after.Term() {
			t.Errorf("store %d, term %d; then store %d, term %d; want two stores that count alike",
				before.Store(), before.Term(), after.Store(), after.Term())
		}
	})
}
