package server_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire/xlapb"
)

// keysOf lists the keys of links, as worker/0 sees them.
func keysOf(t *testing.T, k *task) (all []string) {
	t.Helper()
	r, err := k.GetKeyValueDir(t.Context(), &xlapb.GetKeyValueDirRequest{Incarnations: k.who(), DirectoryKey: "serry/link"})
	if err != nil {
		t.Fatalf("GetKeyValueDir() = %v", err)
	}
	for _, e := range r.Kv {
		all = append(all, e.Key)
	}
	return all
}

// What a life has published about its links goes when it is lost, and when another life takes its place. Keys of others,
// and other keys, stay.
func TestKeysOfLinksGoWithTheirLife(t *testing.T) {
	lab.Clause(t, "CL-TRN-29", "C-KV-12")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(2)
		cfg.Cluster.Recoverable = true
		l := lab.Serve(t, cfg)
		tasks := fleet(t, l, 2, 100)
		const first, second = "serry/link/worker/1/0000000000000065", "serry/link/worker/1/00000000000000c8"
		stay := []string{"serry/link/worker/0/0000000000000064", "serry/link/worker/1/00000000000000c9"}
		for _, key := range slices.Concat(stay, []string{first, first + "/ask", second, "own"}) {
			if err := tasks[0].insert(t.Context(), key); err != nil {
				t.Fatalf("InsertKeyValue(%q) = %v", key, err)
			}
		}
		poll := tasks[1].poll(t.Context())
		pending(t, "PollForError", poll)
		tasks[1].Cut()
		<-poll
		time.Sleep(2 * server.DefaultLostGrace)
		if got, want := keysOf(t, tasks[0]), []string{stay[0], second, stay[1]}; !slices.Equal(got, want) {
			t.Errorf("keys after a loss: %q; want %q", got, want)
		}
		for _, life := range []uint64{200, 201} {
			next := &task{N: l.N(t), id: 1, own: life}
			if err := next.register(t.Context()); err != nil {
				t.Fatalf("RegisterTask(%d) = %v", life, err)
			}
		}
		if got := keysOf(t, tasks[0]); !slices.Equal(got, stay) {
			t.Errorf("keys after another life has come: %q; want %q", got, stay)
		}
		if err := tasks[0].tryGet(t.Context(), "own"); err != nil {
			t.Errorf("TryGetKeyValue(own) = %v; want it untouched", err)
		}
	})
}
