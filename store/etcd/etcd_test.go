package etcd_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/store/etcd"
	"github.com/serry-dev/serry/store/internal/conform"
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

func TestEtcd(t *testing.T) {
	_, client := one(t, member.Config{})
	var rigs atomic.Int32
	conform.Run(t, func(t *testing.T) conform.Rig {
		const partBytes = 2000
		prefix := fmt.Sprintf("/test %d/", rigs.Add(1))
		return conform.Rig{
			Open: func(t *testing.T) store.Store {
				st, err := etcd.Open(t.Context(), etcd.Config{Client: client, Prefix: prefix, PartBytes: partBytes, LeaseTTL: time.Minute, Compact: true})
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
	})
}
