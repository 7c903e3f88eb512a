package server_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/lab/shareddisk"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/xlapb"
)

func TestReplayGivesTheRepliesThatWereSent(t *testing.T) {
	lab.Clause(t, "C-LOG-1", "C-LOG-4", "NEW-44")
	synctest.Test(t, func(t *testing.T) {
		disk := shareddisk.New(shareddisk.Config{})
		cfg, _ := lead(t, disk, cluster(2))
		s := start(t, cfg)
		c := dialFake(t, s) // its n-th call is the n-th request of the server
		send := func(method string, m proto.Message) rpc.CallID {
			call := c.send(t, "/xla.coordination.CoordinationService/"+method, m)
			synctest.Wait()
			return call
		}
		for i := range 2 {
			send("RegisterTask", &xlapb.RegisterTaskRequest{SourceTaskId: int32(i), Incarnation: uint64(100 + i)})
		}
		who := func(i int) *xlapb.Incarnations { return &xlapb.Incarnations{TaskIncarnation: uint64(100 + i)} }
		for i := range 40 {
			k := i % 2
			send("InsertKeyValue", &xlapb.InsertKeyValueRequest{Incarnations: who(k), Kv: &xlapb.KeyValueEntry{Key: fmt.Sprint("k", i%7)}})
			send("TryGetKeyValue", &xlapb.TryGetKeyValueRequest{Incarnations: who(k), Key: "k3"})
			send("IncrementKeyValue", &xlapb.IncrementKeyValueRequest{Incarnations: who(k), Key: "n", Increment: 3})
			send("Barrier", &xlapb.BarrierRequest{Incarnations: who(k), SourceTaskId: int32(k), BarrierId: "b", Counter: int64(i / 2), BarrierTimeoutInMs: 1000})
			if i == 30 {
				time.Sleep(2 * time.Second) // one barrier times out
			}
		}
		send("ShutdownTask", &xlapb.ShutdownTaskRequest{Incarnations: who(0), SourceTaskId: 0})
		s.Lost(serryTask(1), "host silent")
		synctest.Wait()

		seen, failed := 0, 0
		err := server.Replay(t.Context(), disk.Journal(), nil, func(b server.Beginning) {
			if len(b.View.Tasks) != 2 {
				t.Errorf("the history begins with %d tasks; want 2", len(b.View.Tasks))
			}
		}, func(step server.Step) {
			for _, e := range step.Effects {
				r, ok := e.(coord.Reply)
				if !ok {
					continue
				}
				seen++
				live, ok := c.reply(rpc.CallID(r.Req))
				if !ok {
					t.Errorf("call %d was not answered, but is in the replay", r.Req)
				}
				if (live.status.Code == codes.OK) != (r.Err == nil) {
					t.Errorf("call %d: replayed error %v, sent was %v", r.Req, r.Err, live.status)
				}
				if v, ok := r.Result.(coord.Value); ok && !strings.Contains(string(live.body), string(v.Value)) {
					t.Errorf("call %d: replayed value %q, sent was %q", r.Req, v.Value, live.body)
				}
				if r.Err != nil {
					failed++
				}
			}
		})
		if err != nil || seen < 80 || failed < 2 {
			t.Errorf("Replay() = %v with %d replies, %d errors; want all that the journal has", err, seen, failed)
		}
	})
}

func TestReplayOfNothing(t *testing.T) {
	lab.Clause(t, "C-LOG-4")
	nobody := func(server.Step) {}
	if err := server.Replay(t.Context(), shareddisk.New(shareddisk.Config{}).Journal(), nil, func(server.Beginning) {}, nobody); err == nil {
		t.Error("Replay() of an empty journal = nil; want an error")
	}
	disk := shareddisk.New(shareddisk.Config{})
	reign, err := disk.Open().Campaign(t.Context(), store.Candidate{})
	if err != nil {
		t.Fatal(err)
	}
	if err := reign.Append(t.Context(), []byte("no record")); err != nil {
		t.Fatal(err)
	}
	cfg := cluster(1)
	cfg.Journal = reign
	if _, err := server.New(cfg); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("New() on records without a snapshot = %v; want %v", err, store.ErrDamaged)
	}
	for _, junk := range []string{"", "\xff", "\x05{}", "\x02{}", "\x02no snapshot"} {
		disk := shareddisk.New(shareddisk.Config{})
		reign, err := disk.Open().Campaign(t.Context(), store.Candidate{})
		if err != nil {
			t.Fatal(err)
		}
		if err := reign.Save(t.Context(), reign.Mark(), []byte(junk), nil); err != nil {
			t.Fatal(err)
		}
		cfg.Journal = reign
		if _, err := server.New(cfg); err == nil {
			t.Errorf("New() on the snapshot %q = nil; want an error", junk)
		}
	}
}
