package transfer_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer"
	"github.com/serry-dev/serry/transfer/devicetest"
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

// Values whose lists do not fit each other are refused, with the length of each list.
func TestPutOfListsThatDoNotFit(t *testing.T) {
	clause.Cite(t, "TR-PRE-1", "TR-DPT-3", "TRT-001", "TRT-003")
	inBubble(t, func(t *testing.T, w *world) {
		a := puttingWorld(w)[0]
		type devices = []serry.DeviceID
		one := a.placement(0, devices{0}, devices{2})
		for want, v := range map[string]transfer.Placement{
			"1 sources, 2 destinations, 1 shapes, 1 buffers": {Src: one.Src, Dst: devices{2, 3}, Specs: one.Specs, Shards: one.Shards},
			"0 sources, 1 destinations, 1 shapes, 0 buffers": {Dst: devices{2}, Specs: one.Specs},
			"1 sources, 1 destinations, 0 shapes, 1 buffers": {Src: one.Src, Dst: one.Dst, Shards: one.Shards},
			"1 sources, 1 destinations, 1 shapes, 2 buffers": {Src: one.Src, Dst: one.Dst, Specs: one.Specs, Shards: append(one.Shards, one.Shards...)},
		} {
			if _, err := a.Put(t.Context(), []transfer.Placement{v}); !errors.Is(err, serry.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("Put() = %v; want ErrInvalid: %s", err, want)
			}
		}
		if n := len(a.Records()); n != 0 {
			t.Errorf("%d transfers began", n)
		}
	})
}

// putAll has every process put the same values, and returns what each of them has.
func putAll(t *testing.T, all []*process, values func(p *process) []transfer.Placement) []*transfer.Put {
	t.Helper()
	var puts []*transfer.Put
	for _, p := range all {
		put, err := p.Put(t.Context(), values(p))
		if err != nil {
			t.Fatal(err)
		}
		puts = append(puts, put)
	}
	for i, put := range puts {
		if err := put.Done.Wait(t.Context()); err != nil {
			t.Fatalf("process %d: %v", i, err)
		}
	}
	return puts
}

// A value that lies on the first half of all devices, whole on each, goes to the second half.
func TestPutOfCopies(t *testing.T) {
	clause.Cite(t, "TR-DPT-4", "TRT-082")
	inBubble(t, func(t *testing.T, w *world) {
		all := puttingWorld(w)
		src, dst := []serry.DeviceID{0, 1, 2}, []serry.DeviceID{3, 4, 5}
		puts := putAll(t, all, func(p *process) []transfer.Placement {
			v := p.placement(0, src, dst)
			for i := range src {
				v.Specs[i] = bytesSpec(4)
				if v.Shards[i] != nil {
					v.Shards[i] = p.buffer([]byte("same"), p.Pool().Ready())
				}
			}
			return []transfer.Placement{v}
		})
		for i, d := range dst {
			for task, put := range puts {
				b := put.Buffers[0][i]
				if here := w.engine.Owners[d] == all[task].life.Task; here != (b != nil) || here && string(content(t, b)) != "same" {
					t.Errorf("device %d has something else", d)
				}
			}
		}
	})
}

// A value in memory of a device goes to memory of the host of another process.
func TestPutFromDeviceToHost(t *testing.T) {
	clause.Cite(t, "TR-DPT-4", "TR-G-27", "TRT-087")
	inBubble(t, func(t *testing.T, w *world) {
		fakes := devices(w, 1, &devicetest.Fake{})
		a, b := w.pair()
		want := fill(5<<20, 1)
		puts := putAll(t, []*process{a, b}, func(p *process) []transfer.Placement {
			v := transfer.Placement{Src: []serry.DeviceID{0}, Dst: []serry.DeviceID{1}, Specs: []transfer.Spec{bytesSpec(len(want))}, Shards: make([]*transfer.Buffer, 1)}
			if p == a {
				v.Shards[0] = a.onDevice(fakes[0], want)
			}
			return []transfer.Placement{v}
		})
		if !bytes.Equal(content(t, puts[1].Buffers[0][0]), want) {
			t.Error("other bytes came")
		}
	})
}

// A copy leaves its source as it is. A shard that stays where it is can be taken as it is, and memory can be given away.
func TestCopyReuseAndDonate(t *testing.T) {
	clause.Cite(t, "TR-OBJ-5", "TR-OBJ-7", "TR-DPT-12", "TRT-092", "TRT-094")
	inBubble(t, func(t *testing.T, w *world) {
		allocated := 0
		w.engine.Owners = map[serry.DeviceID]serry.TaskID{0: life(0, 0).Task, 1: life(0, 0).Task, 2: life(1, 0).Task}
		w.engine.Alloc = func(n int64) (transfer.Memory, error) {
			allocated++
			return transfer.Memory{Region: memory.Of(make([]byte, n))}, nil
		}
		a, b := w.pair()
		b.device = 2
		m := arena(t, 1<<20)
		for name, src := range map[string]*transfer.Buffer{"heap": a.buffer([]byte("value"), a.Pool().Ready()), "arena": a.inArena(m, []byte("value"))} {
			copied, err := a.Copy(t.Context(), src, 1)
			if err != nil {
				t.Fatal(err)
			}
			copy(content(t, copied), "other")
			if string(content(t, src)) != "value" {
				t.Errorf("%s: a copy shares memory with its source", name)
			}
			d, err := src.Donate(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			given, ready := d.Confirm()
			if err := ready.Wait(t.Context()); err != nil || string(given.Region.Bytes()) != "value" {
				t.Errorf("%s: donated memory has %q: %v", name, given.Region.Bytes(), err)
			}
			if _, err := a.Copy(t.Context(), src, 1); !errors.Is(err, serry.ErrInvalid) {
				t.Errorf("%s: Copy() of a buffer that was donated = %v; want ErrInvalid", name, err)
			}
		}
		for _, reuse := range []bool{true, false} {
			allocated = 0
			stays, goes := a.buffer([]byte("stays"), a.Pool().Ready()), a.buffer([]byte("goes"), a.Pool().Ready())
			puts := putAll(t, []*process{a, b}, func(p *process) []transfer.Placement {
				v := transfer.Placement{Src: []serry.DeviceID{0, 1}, Dst: []serry.DeviceID{0, 2}, Specs: []transfer.Spec{bytesSpec(5), bytesSpec(4)}, Shards: make([]*transfer.Buffer, 2), Reuse: reuse}
				if p == a {
					v.Shards = []*transfer.Buffer{stays, goes}
				}
				return []transfer.Placement{v}
			})
			if same := puts[0].Buffers[0][0] == stays; same != reuse || string(content(t, puts[0].Buffers[0][0])) != "stays" {
				t.Errorf("Reuse: %v: the shard that stays is the same buffer: %v", reuse, same)
			}
			if string(content(t, puts[1].Buffers[0][1])) != "goes" {
				t.Errorf("Reuse: %v: the other shard is wrong", reuse)
			}
			want := 2 // for the copy and for what was received
			if reuse {
				want = 1
			}
			if allocated != want {
				t.Errorf("Reuse: %v: memory was taken %d times; want %d", reuse, allocated, want)
			}
		}
	})
}

// Elements that are smaller than a byte are moved and copied as they are stored.
func TestPutOfSmallElements(t *testing.T) {
	clause.Cite(t, "TR-LAY-7", "TRT-093")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		for i, c := range []struct {
			spec transfer.Spec
			size int
		}{
			{transfer.Spec{Type: memory.S4, Dims: []int64{7}}, 4}, {transfer.Spec{Type: memory.U2, Dims: []int64{3, 3}}, 3},
			{transfer.Spec{Type: memory.U4, Dims: []int64{1000, 1}}, 500}, {transfer.Spec{Type: memory.S4, Dims: []int64{7}, Layout: "one a byte", Size: 7}, 7},
		} {
			want := fill(c.size, uint64(i))
			src, err := a.Pool().Buffer(c.spec, transfer.Memory{Region: memory.Of(want)})
			if err != nil || src.Define(a.Pool().Ready()) != nil {
				t.Fatalf("Buffer(%v) of %d bytes = %v", c.spec, c.size, err)
			}
			puts := putAll(t, []*process{a, b}, func(p *process) []transfer.Placement {
				v := transfer.Placement{Src: []serry.DeviceID{0, 0}, Dst: []serry.DeviceID{1, 0}, Specs: []transfer.Spec{c.spec, c.spec}, Shards: make([]*transfer.Buffer, 2)}
				if p == a {
					v.Shards = []*transfer.Buffer{src, src}
				}
				return []transfer.Placement{v}
			})
			if !bytes.Equal(content(t, puts[1].Buffers[0][0]), want) || !bytes.Equal(content(t, puts[0].Buffers[0][1]), want) {
				t.Errorf("%v came out different", c.spec)
			}
		}
	})
}

// Copies in the memory of a device have a priority: the greatest that there is, unless they are bulk.
func TestPriorityOfCopiesInsideADevice(t *testing.T) {
	clause.Cite(t, "TR-STR-5", "TRT-263")
	inBubble(t, func(t *testing.T, w *world) {
		fakes := devices(w, 1, &devicetest.Fake{Rate: 1e9})
		a, _ := w.pair()
		var puts []*transfer.Put
		for _, c := range []transfer.Class{transfer.Bulk, transfer.Bulk, transfer.Bulk, transfer.Normal, transfer.Urgent} {
			v := transfer.Placement{Src: []serry.DeviceID{0}, Dst: []serry.DeviceID{0}, Specs: []transfer.Spec{bytesSpec(1 << 20)}, Shards: []*transfer.Buffer{a.onDevice(fakes[0], fill(1<<20, 1))}, Class: c}
			put, err := a.Put(t.Context(), []transfer.Placement{v})
			if err != nil {
				t.Fatal(err)
			}
			puts = append(puts, put)
			a.Pool().Flush() // so that it is submitted before the next one
		}
		for _, put := range puts {
			if err := put.Done.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		var order []transfer.Class
		for _, c := range fakes[0].Copies() {
			order = append(order, c.Class)
		}
		want := []transfer.Class{transfer.Bulk, transfer.Urgent, transfer.Urgent, transfer.Bulk, transfer.Bulk} // the first one had begun
		if !slices.Equal(order, want) {
			t.Errorf("copies went by queues of the classes %v; want %v", order, want)
		}
	})
}
