package etcd_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/serry-dev/serry/internal/lab/conform"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/store/etcd"
	"github.com/serry-dev/serry/store/member"
)

// one starts an etcd of one member, and a client that goes through its socket like that of an etcd
// elsewhere.
func one(t testing.TB, cfg member.Config) (*member.Member, *clientv3.Client) {
	t.Helper()
	cfg.Name, cfg.Peers = "a", map[string]string{"a": reserve(t)}
	if cfg.Dir == "" {
		cfg.Dir = folder(t)
	}
	m := start(t, cfg)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix:" + cfg.Dir + "/client.sock"}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return m, client
}

func start(t testing.TB, cfg member.Config) *member.Member {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	m, err := member.Start(ctx, cfg)
	if err != nil {
		t.Fatalf("Start() = %v", err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// folder is a folder with a path short enough for a socket.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "serry")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// reserve finds an address that nobody listens on.
func reserve(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// clauses are those that the table of behaviours shows.
var clauses = []string{"C-LIM-2", "C-LOG-2", "C-LOG-3", "C-LOG-4", "C-LOG-5", "C-TERM-1", "C-TERM-2", "C-TERM-3", "NEW-45", "NEW-53"}

func TestEtcd(t *testing.T) {
	m, client := one(t, member.Config{})
	rigs := 0
	for name, dial := range map[string]func(context.Context, etcd.Config) (store.Store, error){
		"inside": m.Open,
		"socket": func(ctx context.Context, cfg etcd.Config) (store.Store, error) {
			cfg.Client, cfg.Compact = client, true
			return etcd.Open(ctx, cfg)
		},
	} {
		t.Run(name, func(t *testing.T) {
			conform.Run(t, clauses, func(t *testing.T) conform.Rig {
				rigs++
				return rig(client, fmt.Sprintf("/test %d/", rigs), dial)
			})
		})
	}
}

// rig is a journal below a prefix.
func rig(client *clientv3.Client, prefix string, dial func(context.Context, etcd.Config) (store.Store, error)) conform.Rig {
	const partBytes = 2000
	return conform.Rig{
		Open: func(t *testing.T) store.Store {
			st, err := dial(t.Context(), etcd.Config{Prefix: prefix, PartBytes: partBytes, LeaseTTL: time.Minute})
			if err != nil {
				t.Fatalf("Open() = %v", err)
			}
			t.Cleanup(func() { st.Close() })
			return st
		},
		Kill: func(t *testing.T, st store.Store) {
			etcd.Kill(st)
			if err := etcd.Expire(t.Context(), client, prefix); err != nil {
				t.Fatal(err)
			}
		},
		Leftovers: func(t *testing.T) int {
			resp, err := client.Get(t.Context(), prefix+"blob/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil {
				t.Fatal(err)
			}
			return int(resp.Count)
		},
		PartBytes: partBytes,
	}
}

// A journal can be read while another leads, as it was when it was opened.
func TestRead(t *testing.T) {
	_, client := one(t, member.Config{})
	cfg := etcd.Config{Client: client, PartBytes: 1000}
	r := conform.Campaign(t, open(t, cfg), "a")
	conform.Append(t, r, "one")
	if err := r.Save(t.Context(), r.Mark(), []byte("snapshot"), nil); err != nil {
		t.Fatal(err)
	}
	value := conform.Bytes("value", 2500)
	conform.Put(t, r, value)
	large := string(conform.Bytes("large", 3500))
	conform.Append(t, r, "two", large)
	h, err := etcd.Read(t.Context(), cfg)
	if err != nil {
		t.Fatalf("Read() = %v", err)
	}
	defer h.Close()
	conform.Append(t, r, "too late")
	if err := r.Save(t.Context(), r.Mark(), []byte("too late"), nil); err != nil {
		t.Fatal(err)
	}
	want := conform.Loaded{Snapshot: "snapshot", Saved: true, Batches: []string{"two", large}}
	if diff := cmp.Diff(want, conform.Load(t, h)); diff != "" {
		t.Errorf("Load() differs (-want +got):\n%s", diff)
	}
	name := filepath.Join(t.TempDir(), "history")
	conform.Export(t, h, name)
	exported, err := store.Read(name)
	if err != nil {
		t.Fatal(err)
	}
	defer exported.Close()
	if got, err := exported.Get(t.Context(), conform.Ref(value)); err != nil || !bytes.Equal(got, value) {
		t.Errorf("Get() = %d bytes, %v; want the value", len(got), err)
	}
	resp, err := client.Get(t.Context(), "x")
	if err == nil {
		_, err = client.Compact(t.Context(), resp.Header.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "compacted") {
		t.Errorf("Load() of what etcd has dropped = %v; want an error that says so", err)
	}
}
