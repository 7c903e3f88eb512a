package store_test

import (
	"testing"

	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/store/internal/conform"
)

func TestShared(t *testing.T) {
	conform.Run(t, func(t *testing.T) conform.Rig {
		shared := store.NewShared(store.SharedConfig{})
		return conform.Rig{
			Open: func(*testing.T) store.Store { return shared.Open() },
			Kill: func(_ *testing.T, st store.Store) {
				st.(*store.Seat).Kill()
				shared.Expire()
			},
			Leftovers: func(*testing.T) int { return shared.Values() },
			Whole:     true,
			PartBytes: 1000,
		}
	})
}

func TestFile(t *testing.T) {
	conform.Run(t, func(t *testing.T) conform.Rig {
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
