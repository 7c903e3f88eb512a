package member_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab/conform"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/store/member"
)

// A member that has lost its folder is not let in, and a new one takes its place.
func TestReplace(t *testing.T) {
	configs, members, stores := three(t)
	peers := configs["a"].Peers
	conform.Append(t, conform.Campaign(t, stores["a"], "a"), "kept")

	if err := member.Replace(t.Context(), configs["a"].Dir, peers["b"]); !errors.Is(err, member.ErrRuns) {
		t.Errorf("Replace() of one that runs = %v; want ErrRuns", err)
	}
	stores["b"].Close()
	members["b"].Close()
	if err := os.RemoveAll(configs["b"].Dir); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := member.Start(ctx, configs["b"]); !errors.Is(err, member.ErrKnown) {
		t.Fatalf("Start() without the folder = %v; want to be refused", err)
	}
	if err := member.Replace(t.Context(), configs["a"].Dir, peers["b"]); err != nil {
		t.Fatalf("Replace() = %v", err)
	}
	anew := configs["b"]
	anew.Join = true
	_, st := start(t, anew)
	list, err := member.List(t.Context(), configs["a"].Dir)
	if err != nil || len(list) != 3 {
		t.Errorf("List() = %v, %v; want three", list, err)
	}

	stores["a"].Close()
	members["a"].Close() // c and the new b are a majority, which a and c no longer are
	if l := conform.Load(t, conform.Campaign(t, st, "b")); len(l.Batches) != 1 {
		t.Errorf("Load() finds %d batches; want the one", len(l.Batches))
	}
}

// A replacement that was interrupted is repeated, on another host, and the new member is let in.
func TestReplaceInterrupted(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n, " members"), func(t *testing.T) {
			t.Parallel() // etcd lets them wait for seconds
			configs, members, stores := several(t, n, 0)
			lost := configs["b"]
			address := lost.Peers["b"]
			conform.Append(t, conform.Campaign(t, stores["a"], "a"), "kept")
			stores["b"].Close()
			members["b"].Close()
			if err := os.RemoveAll(lost.Dir); err != nil {
				t.Fatal(err)
			}
			for _, step := range []string{"note", "remove", "add", "forget"} {
				if err := member.ReplaceUntil(t.Context(), configs["a"].Dir, address, step); !errors.Is(err, member.ErrInterrupted) {
					t.Fatalf("Replace() until %s = %v; want to be interrupted", step, err)
				}
				if err := member.Replace(t.Context(), configs["c"].Dir, address); err != nil {
					t.Fatalf("Replace() after it was interrupted by %s = %v", step, err)
				}
				checkMembers(t, configs["a"].Dir, n, address)
			}
			if err := member.Replace(t.Context(), configs["a"].Dir, "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "there is none") {
				t.Errorf("Replace() of an address that is none of theirs = %v; want to be refused", err)
			}
			checkMembers(t, configs["a"].Dir, n, address)

			lost.Join = true
			_, st := start(t, lost)
			stores["a"].Close()
			members["a"].Close() // the new one counts for the majority
			if l := conform.Load(t, conform.Campaign(t, st, "b")); len(l.Batches) != 1 {
				t.Errorf("Load() finds %d batches; want the one", len(l.Batches))
			}
		})
	}
}

// checkMembers checks that there are n members, and that of these the one at an address is to come.
func checkMembers(t *testing.T, dir string, n int, address string) {
	t.Helper()
	list, err := member.List(t.Context(), dir)
	if err != nil || len(list) != n {
		t.Fatalf("List() = %v, %v; want %d members", list, err, n)
	}
	for _, e := range list {
		if (e.Name == "") != (e.Log == address) {
			t.Errorf("List() = %v; want that the member at %s, and no other, is to come", list, address)
		}
	}
}

// The leader of the journal is not that of etcd. A campaign gives etcd to another member only if one answers at
// once, which a busy machine can prevent: then the leader campaigns again.
func TestApart(t *testing.T) {
	_, members, stores := three(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for name, st := range stores {
		for apart := false; !apart; {
			r, err := st.Campaign(ctx, store.Candidate{Address: name})
			if err != nil {
				t.Fatalf("Campaign() of %s = %v; want it to lead the journal while another leads etcd", name, err)
			}
			apart = !members[name].Leads()
			conform.Append(t, r, name)
			if err := r.Resign(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// three starts three members.
func three(t *testing.T) (map[string]member.Config, map[string]*member.Member, map[string]store.Store) {
	t.Helper()
	return several(t, 3, 0)
}

// several starts n members: a, b, c and so on.
func several(t *testing.T, n int, quota int64) (map[string]member.Config, map[string]*member.Member, map[string]store.Store) {
	t.Helper()
	peers := make(map[string]string)
	for i, address := range reserve(t, n) {
		peers[string(rune('a'+i))] = address
	}
	configs := make(map[string]member.Config)
	members := make(map[string]*member.Member)
	stores := make(map[string]store.Store)
	for name := range peers {
		configs[name] = member.Config{Name: name, Peers: peers, Dir: folder(t), QuotaBytes: quota}
	}
	var mu sync.Mutex
	var starts sync.WaitGroup
	for name, cfg := range configs {
		starts.Go(func() {
			m, st := start(t, cfg)
			mu.Lock()
			defer mu.Unlock()
			members[name], stores[name] = m, st
		})
	}
	starts.Wait()
	return configs, members, stores
}
