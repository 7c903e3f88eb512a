package transfer_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/transfer"
)

func TestLocalCopy(t *testing.T) {
	clause.Cite(t, "TR-OBJ-2", "TR-OBJ-3", "TR-PRE-3", "TRT-070", "TRT-071", "TRT-072", "TRT-073", "TRT-074")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		for name, c := range map[string]struct {
			bytes []byte
			err   error
		}{
			"value": {[]byte("value"), nil}, "error": {[]byte("value"), errProducer},
			"token": {nil, nil}, "error token": {nil, errProducer},
		} {
			promise, definition := a.Pool().Event()
			src := a.buffer(c.bytes, definition)
			copied, err := a.Copy(t.Context(), src, a.device)
			if err != nil {
				t.Fatalf("%s: Copy() of a buffer that is not defined = %v", name, err)
			}
			src.Delete()
			time.Sleep(3 * time.Second)
			if copied.Definition().State() != transfer.Unrecorded {
				t.Errorf("%s: the copy is defined before its source", name)
			}
			promise.Set(c.err)
			if err := copied.Definition().Wait(t.Context()); err != c.err {
				t.Errorf("%s: copy = %v; want %v itself", name, err, c.err)
			}
			if c.err == nil && string(content(t, copied)) != string(c.bytes) {
				t.Errorf("%s: copy has %q", name, content(t, copied))
			}
		}
		if _, err := a.Copy(t.Context(), a.buffer([]byte("x"), a.Pool().Ready()), b.device); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("Copy() to a device of another process = %v; want ErrInvalid", err)
		}
	})
}

// A puttingWorld has three processes with two devices each.
func puttingWorld(w *world) []*process {
	w.engine.Owners = make(map[serry.DeviceID]serry.TaskID)
	for d := range serry.DeviceID(6) {
		w.engine.Owners[d] = life(int(d/2), 0).Task
	}
	return w.startAll(3)
}

// placement says where the shards of a value go, and has those that lie in process p. Shard i of value v is "v.i", longer by i.
func (p *process) placement(value int, src, dst []serry.DeviceID) transfer.Placement {
	v := transfer.Placement{Src: src, Dst: dst}
	for i, d := range src {
		text := shardText(value, i)
		v.Specs = append(v.Specs, bytesSpec(len(text)))
		var b *transfer.Buffer
		if p.world.engine.Owners[d] == p.life.Task {
			b = p.buffer([]byte(text), p.Pool().Ready())
		}
		v.Shards = append(v.Shards, b)
	}
	return v
}

func shardText(value, shard int) string { return fmt.Sprintf("%d.%0*d", value, 1+shard, shard) }

func TestPut(t *testing.T) {
	clause.Cite(t, "TR-DPT-2", "TR-DPT-4", "TR-DPT-9", "TR-ORD-5", "TRT-080", "TRT-081", "TRT-083", "TRT-084", "TRT-088", "TRT-095", "TRT-096", "TR-H-5", "TR-H-19")
	inBubble(t, func(t *testing.T, w *world) {
		all := puttingWorld(w)
		type devices = []serry.DeviceID
		calls := [][][2]devices{ // of each call, the sources and destinations of its values
			{{{0}, {2}}},
			{{{0, 1}, {2, 3}}, {{0, 1}, {2, 3}}, {{2, 3}, {0, 1}}, {{0, 1}, {2, 3}}},
			{{{0, 1}, {1, 2}}, {{0, 2}, {2, 0}}, {{3}, {0}}},
			{{{2, 0}, {3, 4}}, {{}, {}}, {{4}, {5}}},
		}
		puts := make([][]*transfer.Put, len(all))
		for i, p := range all {
			for _, call := range calls {
				var values []transfer.Placement
				for v, where := range call {
					values = append(values, p.placement(v, where[0], where[1]))
				}
				put, err := p.Put(t.Context(), values)
				if err != nil {
					t.Fatal(err)
				}
				puts[i] = append(puts[i], put)
			}
		}
		for i, p := range all {
			for c, put := range puts[i] {
				if err := put.Done.Wait(t.Context()); err != nil {
					t.Fatalf("process %d, call %d: %v", i, c, err)
				}
				for v, shards := range put.Buffers {
					for s, b := range shards {
						here := w.engine.Owners[calls[c][v][1][s]] == p.life.Task
						if here != (b != nil) || here && string(content(t, b)) != shardText(v, s) {
							t.Errorf("process %d, call %d: shard %d of value %d is wrong", i, c, s, v)
						}
					}
				}
			}
		}
	})
}

// A process is killed and replaced. The others go on with its next life, although that has not counted what was before.
func TestPutAfterRestart(t *testing.T) {
	clause.Cite(t, "TR-MAT-5", "TR-MAT-4")
	inBubble(t, func(t *testing.T, w *world) {
		all := puttingWorld(w)
		put := func(value int) {
			var last *transfer.Put
			for _, p := range all[:2] {
				v, err := p.Put(t.Context(), []transfer.Placement{p.placement(value, []serry.DeviceID{0}, []serry.DeviceID{2})})
				if err != nil {
					t.Fatal(err)
				}
				last = v
			}
			if got := content(t, last.Buffers[0][0]); string(got) != shardText(value, 0) {
				t.Errorf("value %d came as %q", value, got)
			}
		}
		put(1)
		put(2)
		w.kill(all[1])
		all[1] = w.start(life(1, 30))
		synctest.Wait()
		put(3)
	})
}

func TestPutRefuses(t *testing.T) {
	clause.Cite(t, "TR-DPT-3", "TRT-091")
	inBubble(t, func(t *testing.T, w *world) {
		a := puttingWorld(w)[0]
		short := a.placement(0, []serry.DeviceID{0, 1}, []serry.DeviceID{2})
		missing := a.placement(0, []serry.DeviceID{0}, []serry.DeviceID{2})
		missing.Shards[0] = nil
		for name, v := range map[string]transfer.Placement{
			"fewer destinations": short, "no data": missing, "unknown device": a.placement(0, []serry.DeviceID{0}, []serry.DeviceID{77}),
		} {
			if _, err := a.Put(t.Context(), []transfer.Placement{a.placement(0, []serry.DeviceID{0}, []serry.DeviceID{1}), v}); !errors.Is(err, serry.ErrInvalid) {
				t.Errorf("Put(%s) = %v; want ErrInvalid", name, err)
			}
		}
	})
}
