package transfer_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/transfer"
)

// grid is a sharding over devices, perTask of which each task drives.
func grid(t testing.TB, perTask int, devices []int, spec mesh.Spec, axes ...mesh.Axis) *mesh.Sharding {
	t.Helper()
	var list []mesh.Device
	for _, d := range devices {
		list = append(list, mesh.Device{ID: serry.DeviceID(d), Task: serry.TaskIndex(d / perTask)})
	}
	m, err := mesh.New(list, axes...)
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.Shard(spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func axis(name string, size int) mesh.Axis { return mesh.Axis{Name: name, Size: size} }

// upTo lists from, from+1 and so on, n numbers.
func upTo(from, n int) (list []int) {
	for i := range n {
		list = append(list, from+i)
	}
	return list
}

// A field is an array of 16-bit elements, and the processes that have it.
type field struct {
	t        *testing.T
	shape    []int
	whole    mesh.Block
	from, to *mesh.Sharding
	all      []*process
	perTask  int
}

// newField starts the processes of an array.
func newField(t *testing.T, w *world, tasks, perTask int, shape []int, from, to *mesh.Sharding) *field {
	t.Helper()
	w.engine.Owners = make(map[serry.DeviceID]serry.TaskID)
	for d := range tasks * perTask {
		w.engine.Owners[serry.DeviceID(d)] = life(d/perTask, 0).Task
	}
	size := 2
	for _, n := range shape {
		size *= n
	}
	return &field{t: t, shape: shape, whole: mesh.Block{Shape: shape, Element: mesh.Element{Name: "uint16", Bytes: 2}, Data: fill(size, 5)},
		from: from, to: to, all: w.startAll(tasks), perTask: perTask}
}

// ask is the call that one process makes.
func (f *field) ask(p *process, key uint64) transfer.Reshard {
	q := transfer.Reshard{Key: key, Type: memory.U16, Shape: f.shape, From: f.from, To: f.to, Shards: make(map[serry.DeviceID]*transfer.Buffer)}
	for _, s := range f.shards(f.from) {
		if int(s.Device)/f.perTask != p.life.Task.Index {
			continue
		}
		data := f.whole.Slice(s.Index).Data
		b, err := p.Pool().Buffer(specOf(s.Index), transfer.Memory{Region: memory.Of(data), Device: s.Device})
		if err != nil || b.Define(p.Pool().Ready()) != nil {
			f.t.Fatal(err)
		}
		q.Shards[s.Device] = b
	}
	return q
}

func specOf(x mesh.Index) transfer.Spec {
	s := transfer.Spec{Type: memory.U16, Dims: make([]int64, len(x))}
	for d, r := range x {
		s.Dims[d] = int64(r.Len())
	}
	return s
}

func (f *field) shards(s *mesh.Sharding) []mesh.Shard {
	f.t.Helper()
	list, err := s.Shards(f.shape)
	if err != nil {
		f.t.Fatal(err)
	}
	return list
}

// takesPart says whether a process has a device of either sharding.
func (f *field) takesPart(p *process) bool {
	for _, s := range append(f.shards(f.from), f.shards(f.to)...) {
		if int(s.Device)/f.perTask == p.life.Task.Index {
			return true
		}
	}
	return false
}

// check compares what a process has with the whole array.
func (f *field) check(p *process, r *transfer.Resharded) {
	f.t.Helper()
	for _, s := range f.shards(f.to) {
		if int(s.Device)/f.perTask != p.life.Task.Index {
			continue
		}
		if !bytes.Equal(content(f.t, r.Shards[s.Device]), f.whole.Slice(s.Index).Data) {
			f.t.Errorf("device %d has other content", s.Device)
		}
	}
}

// least is how many bytes a process has to fetch: a naive count, element by element.
func (f *field) least(p *process) (n int64) {
	has := func(s *mesh.Sharding, at []int) bool {
		for _, x := range f.shards(s) {
			inside := int(x.Device)/f.perTask == p.life.Task.Index
			for d, r := range x.Index {
				inside = inside && at[d] >= r.Start && at[d] < r.Stop
			}
			if inside {
				return true
			}
		}
		return false
	}
	at := make([]int, len(f.shape))
	for {
		if has(f.to, at) && !has(f.from, at) {
			n += 2
		}
		d := len(at) - 1
		for ; d >= 0; d-- {
			if at[d]++; at[d] < f.shape[d] {
				break
			}
			at[d] = 0
		}
		if d < 0 {
			return n
		}
	}
}

// run reshards on all processes, and checks what comes out.
func (f *field) run() {
	f.t.Helper()
	results := make(map[*process]*transfer.Resharded)
	for _, p := range f.all {
		if !f.takesPart(p) {
			continue
		}
		r, err := p.Reshard(f.t.Context(), f.ask(p, 1))
		if err != nil {
			f.t.Fatalf("%v: Reshard() = %v", p.life, err)
		}
		results[p] = r
	}
	for p, r := range results {
		if err := r.Done().Wait(f.t.Context()); err != nil {
			f.t.Errorf("%v: %v", p.life, err)
			continue
		}
		f.check(p, r)
		if got, want := r.Fetched(), f.least(p); got != want {
			f.t.Errorf("%v fetched %d bytes; want %d, which it does not have", p.life, got, want)
		}
	}
}

func TestReshard(t *testing.T) {
	clause.Cite(t, "TR-LAY-8", "TR-DPT-11", "TRT-244", "TR-H-19")
	x, y := mesh.Dim{"x"}, mesh.Dim{"y"}
	for name, c := range map[string]struct {
		tasks, perTask int
		shape          []int
		from, to       *mesh.Sharding
	}{
		"4 to 3":          {7, 1, []int{24, 5}, grid(t, 1, upTo(0, 4), mesh.P(x), axis("x", 4)), grid(t, 1, upTo(4, 3), mesh.P(x), axis("x", 3))},
		"2 to 8":          {4, 2, []int{16, 6}, grid(t, 2, []int{0, 1}, mesh.P(x), axis("x", 2)), grid(t, 2, upTo(0, 8), mesh.P(x), axis("x", 8))},
		"rows to columns": {4, 1, []int{8, 12, 3}, grid(t, 1, upTo(0, 4), mesh.P(x), axis("x", 4)), grid(t, 1, upTo(0, 4), mesh.P(nil, x), axis("x", 4))},
		"to all":          {3, 2, []int{12, 4}, grid(t, 2, upTo(0, 6), mesh.P(x), axis("x", 6)), grid(t, 2, upTo(0, 6), mesh.P(), axis("x", 6))},
		"from all":        {3, 2, []int{12, 4}, grid(t, 2, upTo(0, 6), mesh.P(), axis("x", 6)), grid(t, 2, upTo(0, 6), mesh.P(nil, x), axis("x", 2), axis("y", 3))},
		"blocks":          {4, 2, []int{8, 8}, grid(t, 2, upTo(0, 8), mesh.P(x, y), axis("x", 4), axis("y", 2)), grid(t, 2, upTo(0, 8), mesh.P(y, x), axis("x", 4), axis("y", 2))},
		"nothing":         {2, 1, []int{0, 4}, grid(t, 1, []int{0}, mesh.P()), grid(t, 1, []int{1}, mesh.P())},
		"one element":     {2, 1, []int{}, grid(t, 1, []int{0}, mesh.P()), grid(t, 1, []int{1}, mesh.P())},
		"as it is":        {2, 1, []int{4, 4}, grid(t, 1, upTo(0, 2), mesh.P(x), axis("x", 2)), grid(t, 1, upTo(0, 2), mesh.P(x), axis("x", 2))},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) { newField(t, w, c.tasks, c.perTask, c.shape, c.from, c.to).run() })
		})
	}
}

// Random meshes and specs: every element comes out once, and no byte moves that need not.
func TestReshardAtRandom(t *testing.T) {
	clause.Cite(t, "TR-LAY-8", "TRT-244")
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			perTask := 1 + r.IntN(2)
			draw := func() *mesh.Sharding {
				a, b := 1+r.IntN(3), 1+r.IntN(2)
				devices := r.Perm(8)[:a*b]
				specs := []mesh.Spec{mesh.P(), mesh.P(mesh.Dim{"x"}), mesh.P(nil, mesh.Dim{"x"}), mesh.P(mesh.Dim{"x"}, mesh.Dim{"y"}), mesh.P(mesh.Dim{"x", "y"}), mesh.P(nil, nil, mesh.Dim{"y"})}
				return grid(t, perTask, devices, specs[r.IntN(len(specs))], axis("x", a), axis("y", b))
			}
			from, to := draw(), draw()
			inBubble(t, func(t *testing.T, w *world) {
				if seed%2 == 0 {
					w.link.Segments = new(link.Local)
				}
				f := newField(t, w, 8/perTask, perTask, []int{12, 6, 4}, from, to)
				var resets sync.WaitGroup
				if seed%3 == 0 {
					resets.Go(func() {
						for range 5 {
							time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
							w.network.reset(hostOf(f.all[0].life))
						}
					})
				}
				f.run()
				resets.Wait()
			})
		})
	}
}

// A process that holds a replica is killed while others pull from it: they get the rest from another one.
func TestReshardWhenAHolderDies(t *testing.T) {
	clause.Cite(t, "TR-LAY-9", "TR-ERR-5")
	inBubble(t, func(t *testing.T, w *world) {
		from := grid(t, 1, []int{0, 1}, mesh.P(), axis("x", 2))
		to := grid(t, 1, []int{2, 3}, mesh.P(nil, mesh.Dim{"x"}), axis("x", 2))
		f := newField(t, w, 4, 1, []int{4096, 4096}, from, to)
		w.network.setPace(time.Millisecond)
		results := make([]*transfer.Resharded, 4)
		for i, p := range f.all {
			var err error
			if results[i], err = p.Reshard(t.Context(), f.ask(p, 1)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Millisecond)
		w.kill(f.all[0])
		for i, p := range f.all[1:] {
			if err := results[i+1].Done().Wait(t.Context()); err != nil {
				t.Errorf("%v: %v", p.life, err)
			}
			f.check(p, results[i+1])
		}
		lost := func(r transfer.Record) bool {
			return errors.Is(r.Err, transfer.ErrUnavailable) && r.Peer == f.all[0].life
		}
		if !slices.ContainsFunc(f.all[2].Records(), lost) && !slices.ContainsFunc(f.all[3].Records(), lost) {
			t.Error("no transfer with the process that was killed has failed")
		}
	})
}

// Without a replica the shards that need the lost bytes fail, and no others.
func TestReshardWhenTheOnlyHolderDies(t *testing.T) {
	clause.Cite(t, "TR-LAY-9", "TR-GRP-7")
	inBubble(t, func(t *testing.T, w *world) {
		from := grid(t, 1, []int{0, 1}, mesh.P(mesh.Dim{"x"}), axis("x", 2))
		to := grid(t, 1, []int{2, 3}, mesh.P(mesh.Dim{"x"}), axis("x", 2))
		f := newField(t, w, 4, 1, []int{4096, 4096}, from, to)
		results := make([]*transfer.Resharded, 4)
		for i, p := range f.all {
			if i == 0 {
				continue // it never gets so far
			}
			var err error
			if results[i], err = p.Reshard(t.Context(), f.ask(p, 1)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		w.kill(f.all[0])
		w.set(f.all[0].life, serry.Failed)
		if err := results[2].Done().Wait(t.Context()); !errors.Is(err, transfer.ErrUnavailable) {
			t.Errorf("the shard whose bytes are lost: %v; want ErrUnavailable", err)
		}
		for _, i := range []int{1, 3} {
			if err := results[i].Done().Wait(t.Context()); err != nil {
				t.Errorf("process %d: %v", i, err)
			}
		}
		f.check(f.all[3], results[3])
		next := f.ask(f.all[2], 2)
		if _, err := f.all[2].Reshard(t.Context(), next); !errors.Is(err, mesh.ErrNoHolder) {
			t.Errorf("Reshard() without a holder = %v; want ErrNoHolder", err)
		}
	})
}

func TestReshardsThatAreRefused(t *testing.T) {
	clause.Cite(t, "TR-PRE-1", "TR-PRE-4", "TR-LAY-8")
	inBubble(t, func(t *testing.T, w *world) {
		from := grid(t, 1, []int{0}, mesh.P())
		to := grid(t, 1, []int{1}, mesh.P())
		f := newField(t, w, 3, 1, []int{4, 4}, from, to)
		a, b, c := f.all[0], f.all[1], f.all[2]
		for name, change := range map[string]func(*transfer.Reshard){
			"no shard":         func(q *transfer.Reshard) { q.Shards = nil },
			"another size":     func(q *transfer.Reshard) { q.Shape = []int{4, 5} },
			"no sharding":      func(q *transfer.Reshard) { q.To = nil },
			"half bytes":       func(q *transfer.Reshard) { q.Type = memory.U4 },
			"large key":        func(q *transfer.Reshard) { q.Key = 1 << 63 },
			"unknown device":   func(q *transfer.Reshard) { q.To = grid(t, 1, []int{9}, mesh.P()) },
			"too many devices": func(q *transfer.Reshard) { q.To = grid(t, 1, upTo(0, 3), mesh.P(mesh.Dim{"x"}), axis("x", 3)) },
		} {
			q := f.ask(a, 1)
			change(&q)
			if _, err := a.Reshard(t.Context(), q); err == nil {
				t.Errorf("%s: Reshard() = nil; want an error", name)
			}
		}
		if _, err := c.Reshard(t.Context(), f.ask(c, 1)); !errors.Is(err, transfer.ErrInvalid) {
			t.Errorf("Reshard() of a process without devices = %v; want ErrInvalid", err)
		}
		// Processes that mean different arrays do not get data of each other.
		q := f.ask(a, 2)
		first, err := a.Reshard(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		q = f.ask(b, 2)
		q.Shape = []int{2, 8}
		second, err := b.Reshard(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if err := second.Done().Wait(t.Context()); !errors.Is(err, transfer.ErrDenied) {
			t.Errorf("Reshard() of another shape = %v; want ErrDenied", err)
		}
		if err := first.Done().Wait(t.Context()); err != nil {
			t.Errorf("the other side = %v", err)
		}
	})
}
