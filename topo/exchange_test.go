package topo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire/topopb"
)

// A fakeKV is a key-value store that answers as the service does, either
// strictly or with the rule for republished keys.
type fakeKV struct {
	republished func(key string, stored, offered []byte) bool // or nil

	mu struct {
		sync.Mutex
		values  map[string][]byte
		changed chan struct{} // closed and renewed at each change
		log     []string
	}
}

func newKV(republished func(string, []byte, []byte) bool) *fakeKV {
	kv := &fakeKV{republished: republished}
	kv.mu.values = map[string][]byte{}
	kv.mu.changed = make(chan struct{})
	return kv
}

func (kv *fakeKV) Insert(_ context.Context, key string, value []byte) error {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	kv.mu.log = append(kv.mu.log, "insert "+key)
	if old, ok := kv.mu.values[key]; ok {
		if kv.republished != nil && kv.republished(key, old, value) {
			return nil
		}
		return &serry.KeyError{Key: key, Err: serry.ErrExists}
	}
	kv.mu.values[key] = value
	close(kv.mu.changed)
	kv.mu.changed = make(chan struct{})
	return nil
}

func (kv *fakeKV) Get(ctx context.Context, keys []string, need int, wait time.Duration) (map[string][]byte, error) {
	timeout := time.After(wait)
	for {
		found, changed := kv.look(keys)
		if len(found) >= need {
			return found, nil
		}
		select {
		case <-changed:
		case <-timeout:
			return found, serry.ErrTimeout
		case <-ctx.Done():
			return found, context.Cause(ctx)
		}
	}
}

func (kv *fakeKV) look(keys []string) (map[string][]byte, chan struct{}) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	found := map[string][]byte{}
	for _, key := range keys {
		if v, ok := kv.mu.values[key]; ok {
			found[key] = v
		}
	}
	return found, kv.mu.changed
}

func (kv *fakeKV) Delete(_ context.Context, key string) error {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	delete(kv.mu.values, key)
	return nil
}

// A turn is one task's exchange and what it came to.
type turn struct {
	Exchange
	local  *topopb.LocalTopologyProto
	result *Result
	err    error
}

// together runs the turns side by side, as the tasks of a job do.
func together(t *testing.T, kv KV, turns ...*turn) {
	t.Helper()
	var wg sync.WaitGroup
	for _, turn := range turns {
		wg.Go(func() { turn.result, turn.err = turn.Run(t.Context(), kv, turn.local) })
	}
	wg.Wait()
}

func cudaTurn(tasks int, local *topopb.LocalTopologyProto) *turn {
	return &turn{local: local, Exchange: Exchange{
		Keys: JAXKeys("cuda"), Self: serry.TaskIndex(local.ProcessId), Tasks: tasks, Assign: true, AllowDuplicateOrdinals: true,
	}}
}

func (r *turn) layout() string {
	if r.err != nil {
		return r.err.Error()
	}
	return layout(r.result.Global)
}

func TestExchange(t *testing.T) {
	clause.Cite(t, "TC-TOP-06", "TC-TOP-15", "C-TOP-15", "C-TOP-20")
	synctest.Test(t, func(t *testing.T) {
		a, b := cudaTurn(2, local(0, "foo", 0, 0, 707)), cudaTurn(2, local(1, "bar", 1))
		together(t, newKV(nil), b, a)
		const want = "0:0/0,0/1,0/2 1:1/3"
		if a.layout() != want || b.layout() != want {
			t.Errorf("exchange = %s and %s; want %s for both", a.layout(), b.layout(), want)
		}
	})
}

func TestExchangeKeys(t *testing.T) {
	clause.Cite(t, "TC-TOP-30", "A-KEY-4", "A-KEY-5")
	synctest.Test(t, func(t *testing.T) {
		kv := newKV(nil)
		var turns []*turn
		for i := range serry.TaskIndex(2) {
			l, err := CPULocal(i, "b0", nil, 1)
			if err != nil {
				t.Fatal(err)
			}
			turns = append(turns, &turn{local: l, Exchange: Exchange{Keys: JAXKeys("cpu"), Self: i, Tasks: 2}})
		}
		together(t, kv, turns...)
		want := []string{"cpu:global_topology/cpu", "cpu:local_topology/cpu/0", "cpu:local_topology/cpu/1"}
		if got := slices.Sorted(maps.Keys(kv.mu.values)); !slices.Equal(got, want) {
			t.Errorf("keys written = %q; want %q", got, want)
		}
		const ids = "0:0/0 1:0/2048"
		if turns[1].layout() != ids {
			t.Errorf("exchange = %s; want the packed ids, %s", turns[1].layout(), ids)
		}
	})
}

func TestExchangeAlone(t *testing.T) {
	clause.Cite(t, "TC-TOP-22", "C-TOP-14")
	kv := newKV(nil)
	one := &turn{local: local(0, "a", 5, 7), Exchange: Exchange{Keys: JAXKeys("cuda"), Tasks: 1}}
	together(t, kv, one)
	if one.layout() != "0:0/5,0/7" || len(kv.mu.log) != 0 {
		t.Errorf("exchange alone = %s after %q; want ids 5 and 7 and an untouched store", one.layout(), kv.mu.log)
	}
}

func TestRejoin(t *testing.T) {
	for _, server := range []struct {
		name string
		rule func(string, []byte, []byte) bool
	}{{"strict server", nil}, {"server with the rule", Republished}} {
		t.Run(server.name, func(t *testing.T) {
			clause.Cite(t, "C-TOP-16", "C-TOP-19", "TC-TOP-07", "TC-TOP-08", "TC-TOP-27", "TC-TOP-28", "C-DINC-10", "C-DINC-11", "C-DINC-12")
			synctest.Test(t, func(t *testing.T) { rejoin(t, newKV(server.rule)) })
		})
	}
}

func rejoin(t *testing.T, kv *fakeKV) {
	a, b := cudaTurn(2, local(0, "foo", 0, 1)), cudaTurn(2, local(1, "bar", 0, 1))
	together(t, kv, a, b)
	want := a.layout()

	again := cudaTurn(2, local(1, "bar", 0, 1))
	together(t, kv, again)
	if again.layout() != want || len(again.result.Events) != 0 {
		t.Errorf("follower comes back = %s; want %s and no event", again.layout(), want)
	}

	leader := cudaTurn(2, local(0, "foo", 0, 1))
	together(t, kv, leader)
	if leader.layout() != want {
		t.Errorf("task 0 comes back = %s; want %s", leader.layout(), want)
	}

	moved := cudaTurn(2, local(1, "elsewhere", 0, 1))
	together(t, kv, moved)
	event := Event{Task: 1, Change: Moved, Field: "boot_id", Was: "bar", Now: "elsewhere"}
	if moved.layout() != want || !slices.Equal(moved.result.Events, []Event{event}) {
		t.Errorf("follower comes back elsewhere = %s; want %s and %v", moved.layout(), want, event)
	}

	grown := cudaTurn(2, local(1, "bar", 0, 1, 2))
	together(t, kv, grown)
	if !errors.Is(grown.err, ErrConflict) || !strings.Contains(grown.err.Error(), `number of devices was "2", is "3"`) {
		t.Errorf("follower comes back with a device more = %v; want a conflict that says so", grown.err)
	}
}

// The record tells a machine that was booted anew from another machine.
func TestRejoinWithRecord(t *testing.T) {
	clause.Cite(t, "P-TOP-3", "P-TOP-4", "C-TOP-17")
	synctest.Test(t, func(t *testing.T) {
		kv := newKV(Republished)
		life := func(boot, machine string) *turn {
			r := cudaTurn(2, local(1, boot, 0))
			r.Record = &TaskRecord{Task: 1, Tasks: 2, MachineID: machine, BootID: boot}
			return r
		}
		together(t, kv, cudaTurn(2, local(0, "foo", 0)), life("b1", "m1"))
		for _, test := range []struct {
			boot, machine string
			want          Change
		}{{"b2", "m1", Rebooted}, {"b1", "m2", Moved}} {
			r := life(test.boot, test.machine)
			together(t, kv, r)
			if r.err != nil || len(r.result.Events) != 1 || r.result.Events[0].Change != test.want {
				t.Errorf("comes back with boot %s on %s = %+v, %v; want one event, %v", test.boot, test.machine, r.result, r.err, test.want)
			}
		}
	})
}

func TestExchangeNamesTheMissing(t *testing.T) {
	clause.Cite(t, "TC-TOP-23", "P-TOP-2", "C-TOP-18", "C-DINC-12")
	synctest.Test(t, func(t *testing.T) {
		a, b := cudaTurn(4, local(0, "foo", 0)), cudaTurn(4, local(2, "bar", 0))
		a.Wait = time.Second
		together(t, newKV(nil), a, b)
		missing, ok := errors.AsType[*MissingError](a.err)
		if !ok || !slices.Equal(missing.Missing, []serry.TaskIndex{1, 3}) || !errors.Is(a.err, serry.ErrTimeout) {
			t.Errorf("task 0 = %v; want tasks 1 and 3 missing after a timeout", a.err)
		}
		told, ok := errors.AsType[*LeaderError](b.err)
		if !ok || !strings.Contains(told.Text, "from tasks 1, 3") {
			t.Errorf("task 2 = %v; want what task 0 found", b.err)
		}
	})
}

// Without a word from task 0, as when that is a jaxlib process, a follower ends
// by its own wait.
func TestFollowerTimesOut(t *testing.T) {
	clause.Cite(t, "TC-TOP-23", "C-TOP-20", "C-TOP-21")
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		b := cudaTurn(3, local(1, "bar", 0))
		together(t, newKV(nil), b)
		if waited := time.Since(start); !errors.Is(b.err, serry.ErrTimeout) || waited != FollowerWait {
			t.Errorf("follower = %v after %v; want a timeout after %v", b.err, waited, FollowerWait)
		}
	})
}

// What task 0 could not build is told to all at once, and forgotten when a task
// 0 comes back to a store that has been mended.
func TestLeaderErrorIsTold(t *testing.T) {
	clause.Cite(t, "C-DINC-12", "TC-TOP-11")
	synctest.Test(t, func(t *testing.T) {
		kv := newKV(nil)
		a, b := cudaTurn(2, local(0, "foo", 0)), cudaTurn(2, inPartition(local(1, "bar", 0), 1))
		start := time.Now()
		together(t, kv, a, b)
		if !errors.Is(a.err, serry.ErrInvalid) || time.Since(start) != 0 {
			t.Errorf("task 0 = %v after %v; want an invalid request at once", a.err, time.Since(start))
		}
		if told, ok := errors.AsType[*LeaderError](b.err); !ok || !strings.Contains(told.Text, "partition index") {
			t.Errorf("task 1 = %v; want what task 0 found", b.err)
		}
		_ = kv.Delete(t.Context(), a.Keys.Local(1))
		together(t, kv, cudaTurn(2, local(1, "bar", 0))) // still told of the old failure
		back := cudaTurn(2, local(0, "foo", 0))
		together(t, kv, back)
		if back.err != nil {
			t.Errorf("task 0 comes back to a mended store = %v; want a topology", back.err)
		}
		if left, _ := kv.look([]string{back.Keys.Error()}); len(left) != 0 {
			t.Errorf("the old failure is still there: %q", left)
		}
	})
}

func TestExchangeRefuses(t *testing.T) {
	tests := []struct {
		name   string
		clause string
		stored map[string]string
		turn   *turn
		want   error
		text   string
	}{
		{"number outside the job", "C-DINC-12", nil, cudaTurn(2, local(2, "")), serry.ErrInvalid, "task 2 in a job of 2"},
		{"no tasks", "C-TOP-14", nil, cudaTurn(0, local(0, "")), serry.ErrInvalid, "job of 0"},
		{"topology of another", "C-TOP-23", nil, &turn{local: local(1, ""), Exchange: Exchange{Tasks: 2}}, serry.ErrInvalid, "of task 1"},
		{"ordinal twice", "P-TOP-7", nil, &turn{local: local(0, "", 3, 3), Exchange: Exchange{Tasks: 1}}, serry.ErrInvalid, "two devices with ordinal 3"},
		{"key and number differ", "C-TOP-23", map[string]string{"cuda:local_topology/cuda/1": "\x08\x07"},
			cudaTurn(2, local(0, "")), serry.ErrInvalid, "holds the topology of task 7"},
		{"garbage from a task", "C-TOP-22", map[string]string{"cuda:local_topology/cuda/1": "\xff\xff"},
			cudaTurn(2, local(0, "")), ErrDamaged, "cuda:local_topology/cuda/1"},
		{"garbage in the own place", "C-TOP-22", map[string]string{"cuda:local_topology/cuda/1": "\xff"},
			cudaTurn(2, local(1, "")), ErrDamaged, "cuda:local_topology/cuda/1"},
		{"garbage for all", "C-TOP-22", map[string]string{"cuda:global_topology/cuda": "\x0a"},
			cudaTurn(2, local(1, "")), ErrDamaged, "cuda:global_topology/cuda"},
		{"task 0 has fewer tasks in mind", "C-DINC-12", map[string]string{"cuda:global_topology/cuda": "\x0a\x00\x0a\x02\x08\x01"},
			cudaTurn(3, local(2, "")), serry.ErrInvalid, "task 0 believes in 2 tasks, task 2 in 3"},
		{"not in the topology", "C-TOP-40", map[string]string{"cuda:global_topology/cuda": "\x0a\x00\x0a\x02\x08\x05"},
			cudaTurn(2, local(1, "")), serry.ErrInvalid, "task 1 is not in"},
		{"another global topology", "C-DINC-12", map[string]string{
			"cuda:local_topology/cuda/1": "\x08\x01", "cuda:global_topology/cuda": "\x0a\x00"},
			cudaTurn(2, local(0, "")), ErrConflict, "global_topology"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			clause.Cite(t, test.clause)
			synctest.Test(t, func(t *testing.T) {
				kv := newKV(nil)
				for _, key := range slices.Sorted(maps.Keys(test.stored)) {
					kv.mu.values[key] = []byte(test.stored[key])
				}
				together(t, kv, test.turn)
				if err := test.turn.err; !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
					t.Errorf("Run() = %v; want %v with %q", err, test.want, test.text)
				}
			})
		})
	}
}

func TestExchangeComparesCounts(t *testing.T) {
	clause.Cite(t, "C-DINC-12")
	synctest.Test(t, func(t *testing.T) {
		a, b := cudaTurn(2, local(0, "a", 0)), cudaTurn(3, local(1, "b", 0))
		a.Record, b.Record = &TaskRecord{Tasks: 2}, &TaskRecord{Task: 1, Tasks: 3}
		together(t, newKV(nil), a, b)
		if want := "task 1 believes in 3 tasks, task 0 in 2"; a.err == nil || !strings.Contains(a.err.Error(), want) {
			t.Errorf("task 0 = %v; want %q", a.err, want)
		}
		if _, ok := errors.AsType[*LeaderError](b.err); !ok {
			t.Errorf("task 1 = %v; want what task 0 found", b.err)
		}
	})
}

// Map order, arrival order and restarts make no difference to who gets what.
func TestExchangeOfMany(t *testing.T) {
	clause.Cite(t, "TC-TOP-16", "C-TOP-32")
	synctest.Test(t, func(t *testing.T) {
		kv := newKV(Republished)
		var turns []*turn
		for i := range serry.TaskIndex(11) {
			turns = append(turns, cudaTurn(11, local(i, []string{"even", "odd"}[i%2], 0)))
		}
		together(t, kv, turns...)
		for _, r := range turns {
			if r.err != nil || !proto.Equal(r.result.Global, turns[0].result.Global) {
				t.Errorf("task %d = %s; want what task 0 has, %s", r.Self, r.layout(), turns[0].layout())
			}
		}
		if want := "0:0/0 1:1/6 2:0/1"; !strings.HasPrefix(turns[0].layout(), want) {
			t.Errorf("exchange = %s; want it to begin %s", turns[0].layout(), want)
		}
	})
}

func TestExchangeEndsWithItsContext(t *testing.T) {
	clause.Cite(t, "C-TOP-18")
	synctest.Test(t, func(t *testing.T) {
		for i := range serry.TaskIndex(2) {
			ctx, cancel := context.WithCancelCause(t.Context())
			reason := fmt.Errorf("task %d was told to stop", i)
			go func() { synctest.Wait(); cancel(reason) }()
			r := cudaTurn(3, local(i, ""))
			if _, err := r.Run(ctx, newKV(nil), r.local); !errors.Is(err, reason) {
				t.Errorf("task %d = %v; want %v", i, err, reason)
			}
		}
	})
}

func ExampleExchange() {
	local, err := CPULocal(0, "boot-1", nil, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	alone := Exchange{Keys: JAXKeys("cpu"), Self: 0, Tasks: 1}
	result, err := alone.Run(context.Background(), nil, local) // nobody to exchange with: no store
	if err != nil {
		fmt.Println(err)
		return
	}
	topology, _ := Read(result.Global)
	fmt.Println(len(topology.Devices()), "devices")
	// Output: 2 devices
}
