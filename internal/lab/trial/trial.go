// Package trial has the operations of cliques with data whose right result is known, for tests that run them.
//
// [All] lists the trials of a clique, but for [OneSided]; [Trial.Run] runs one on a rank and judges it. A test that also judges what becomes of
// memory after a failure prepares an [Attempt] itself.
package trial

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/memory"
)

// A Trial is an operation on vectors of bytes, with what each rank must have at its end.
type Trial struct {
	Name string
	op   func(rank int, in, out memory.Region) collective.Op
	in   func(rank int) []byte        // nil on ranks that give nothing
	want func(rank int) []byte        // nil on ranks that get nothing
	same func(rank int) (in, out int) // where the two may be the same memory: offsets in one buffer; or nil
}

// All lists all operations on p ranks and count bytes. Trials with other seeds have other data.
func All(p, count, root int, seed uint64) []Trial {
	seed *= 0x9E3779B97F4A7C15
	whole, blocks := filled(p, count, seed), filled(p, count*p, seed)
	add := func(in func(int) []byte) []byte {
		total := bytes.Clone(in(0))
		for r := 1; r < p; r++ {
			accumulate(total, in(r))
		}
		return total
	}
	sumOfWhole := sync.OnceValue(func() []byte { return add(whole) })
	sumOfBlocks := sync.OnceValue(func() []byte { return add(blocks) })
	all := sync.OnceValue(func() (list []byte) {
		for r := range p {
			list = append(list, whole(r)...)
		}
		return list
	})
	at := func(rank int, f func() []byte) func(int) []byte {
		return func(r int) []byte {
			if r != rank {
				return nil
			}
			return f()
		}
	}
	block := func(b []byte, i int) []byte { return b[i*count : (i+1)*count] }
	n := int64(count)
	return []Trial{
		{"allreduce", func(_ int, in, out memory.Region) collective.Op {
			return collective.AllReduce{Out: out, In: in, Count: n, Type: memory.U8, Reduction: collective.Sum}
		}, whole, func(int) []byte { return sumOfWhole() }, func(int) (int, int) { return 0, 0 }},
		{"reducescatter", func(_ int, in, out memory.Region) collective.Op {
			return collective.ReduceScatter{Out: out, In: in, Count: n, Type: memory.U8, Reduction: collective.Sum}
		}, blocks, func(r int) []byte { return block(sumOfBlocks(), r) }, func(r int) (int, int) { return 0, r * count }},
		{"allgather", func(_ int, in, out memory.Region) collective.Op {
			return collective.AllGather{Out: out, In: in, Count: n, Type: memory.U8}
		}, whole, func(int) []byte { return all() }, func(r int) (int, int) { return r * count, 0 }},
		{"alltoall", func(_ int, in, out memory.Region) collective.Op {
			return collective.AllToAll{Out: out, In: in, Count: n, Type: memory.U8}
		}, blocks, func(r int) (list []byte) {
			for i := range p {
				list = append(list, block(blocks(i), r)...)
			}
			return list
		}, nil},
		{"broadcast", func(_ int, in, out memory.Region) collective.Op {
			return collective.Broadcast{Out: out, In: in, Count: n, Type: memory.U8, Root: root}
		}, at(root, func() []byte { return whole(root) }), func(int) []byte { return whole(root) }, func(int) (int, int) { return 0, 0 }},
		{"reduce", func(_ int, in, out memory.Region) collective.Op {
			return collective.Reduce{Out: out, In: in, Count: n, Type: memory.U8, Reduction: collective.Sum, Root: root}
		}, whole, at(root, func() []byte { return sumOfWhole() }), func(int) (int, int) { return 0, 0 }},
		{"gather", func(_ int, in, out memory.Region) collective.Op {
			return collective.Gather{Out: out, In: in, Count: n, Type: memory.U8, Root: root}
		}, whole, at(root, all), nil},
		{"scatter", func(_ int, in, out memory.Region) collective.Op {
			return collective.Scatter{Out: out, In: in, Count: n, Type: memory.U8, Root: root}
		}, at(root, func() []byte { return blocks(root) }), func(r int) []byte { return block(blocks(root), r) }, nil},
		{"barrier", func(int, memory.Region, memory.Region) collective.Op { return collective.Barrier{} },
			func(int) []byte { return nil }, func(int) []byte { return nil }, nil},
	}
}

// OneSided is an exchange by Put and Signal: every rank writes a block into the memory of every rank. Before that it writes
// other bytes to the same place; a Fence must keep the two in order.
func OneSided(p, count int, seed uint64) Trial {
	blocks := filled(p, count*p, seed*0x9E3779B97F4A7C15)
	return Trial{Name: "put", in: blocks, want: func(r int) (list []byte) {
		for i := range p {
			list = append(list, blocks(i)[r*count:(r+1)*count]...)
		}
		return list
	}}
}

// InPlace says whether input and output may be the same memory.
func (x Trial) InPlace() bool { return x.same != nil }

// Run runs the trial on one rank and checks its result.
func (x Trial) Run(ctx context.Context, c *collective.Comm, inPlace bool) error {
	a := x.Prepare(c.Rank(), inPlace)
	if err := a.Run(ctx, c); err != nil {
		return err
	}
	return a.Check()
}

// An Attempt is a trial on one rank, with its memory. The result lies between canaries, which must stay.
type Attempt struct {
	Op        collective.Op // nil for one of several: an exchange by Put and Signal
	what      string
	in, want  []byte
	given     []byte // where the input lies
	out       []byte
	memory    []byte // what out lies in
	separated bool   // input and output are different memory
}

const (
	margin = 16
	poison = 0xDD
)

// Prepare makes the memory of a rank.
func (x Trial) Prepare(rank int, inPlace bool) *Attempt {
	return x.PrepareIn(rank, inPlace, func(size int) memory.Region { return memory.Of(make([]byte, size)) })
}

// PrepareIn is Prepare with memory that the caller provides.
func (x Trial) PrepareIn(rank int, inPlace bool, provide func(size int) memory.Region) *Attempt {
	a := &Attempt{what: fmt.Sprintf("%s on rank %d", x.Name, rank), in: x.in(rank), want: x.want(rank), separated: !inPlace}
	size, i, o := len(a.want), 0, 0
	if inPlace {
		i, o = x.same(rank)
		size = max(i+len(a.in), o+len(a.want))
	}
	whole := provide(margin + size + margin)
	out := whole.Slice(int64(margin+o), int64(margin+o+len(a.want)))
	in := whole.Slice(int64(margin+i), int64(margin+i)) // empty
	if inPlace {
		in = whole.Slice(int64(margin+i), int64(margin+i+len(a.in)))
	} else if len(a.in) > 0 {
		in = provide(len(a.in))
	}
	a.memory, a.out, a.given = whole.Bytes(), out.Bytes(), in.Bytes()
	fill(a.memory, 0xEE)
	copy(a.memory, Fill(margin, 99))
	copy(a.memory[margin+size:], Fill(margin, 99))
	copy(a.given, a.in)
	if x.op != nil {
		a.Op = x.op(rank, in, out)
	}
	return a
}

// fill writes v to all of b. The race detector sees a few large writes: one for each byte takes most of the time of a test.
func fill(b []byte, v byte) {
	for i := range min(len(b), 64) {
		b[i] = v
	}
	for n := 64; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// Run runs the operations of the attempt. When it returns, no rank writes into its memory any more.
func (a *Attempt) Run(ctx context.Context, c *collective.Comm) error {
	if a.Op != nil {
		return c.Do(ctx, a.Op)
	}
	w, err := c.Offer(ctx, memory.Of(a.out))
	if err != nil {
		return err
	}
	if err = a.putAll(ctx, c, w); err != nil && c.Err() == nil { // the others must not put into a window that is closed
		c.Revoke(err)
		err = c.Err()
	}
	return errors.Join(err, w.Close(context.WithoutCancel(ctx)))
}

// putAll writes a block into the window of every rank, and waits for those of the others.
func (a *Attempt) putAll(ctx context.Context, c *collective.Comm, w *collective.Window) error {
	p := c.Size()
	size := len(a.given) / p
	wrong := memory.Of(bytes.Repeat([]byte{0xAA}, size))
	put := func(to int, in memory.Region) collective.Op {
		return collective.Put{Window: w, To: to, Offset: int64(c.Rank() * size), In: in, Count: int64(size)}
	}
	var wait collective.WaitSignal
	for i := range p {
		to := (c.Rank() + i) % p
		wait.Signals = append(wait.Signals, collective.Signals{From: to, Count: 1})
		right := memory.Of(a.given[to*size : (to+1)*size])
		for _, op := range []collective.Op{put(to, wrong), collective.Fence{}, put(to, right), collective.Signal{To: to}} {
			if err := c.Do(ctx, op); err != nil {
				return err
			}
		}
	}
	for _, op := range []collective.Op{wait, collective.Quiet{}} {
		if err := c.Do(ctx, op); err != nil {
			return err
		}
	}
	return nil
}

// Check says what is wrong after the operation has succeeded.
func (a *Attempt) Check() error {
	if !bytes.Equal(a.out, a.want) {
		return fmt.Errorf("%s = %.20x; want %.20x", a.what, a.out, a.want)
	}
	return a.checkRest()
}

// checkRest says what is wrong with memory that the operation may not change.
func (a *Attempt) checkRest() error {
	canary := Fill(margin, 99)
	switch {
	case a.separated && !bytes.Equal(a.given, a.in):
		return fmt.Errorf("%s changed its input", a.what)
	case !bytes.Equal(a.memory[:margin], canary) || !bytes.Equal(a.memory[len(a.memory)-margin:], canary):
		return fmt.Errorf("%s wrote outside of its output", a.what)
	}
	return nil
}

// Poison is called when the operation has failed: it says what is wrong, and fills all memory so that Touched finds
// later writes (CL-ABT-17).
func (a *Attempt) Poison() error {
	err := a.checkRest()
	fill(a.given, poison)
	fill(a.memory, poison)
	return err
}

// Touched says whether memory was written after Poison.
func (a *Attempt) Touched() bool {
	clean := bytes.Repeat([]byte{poison}, max(len(a.given), len(a.memory)))
	return !bytes.Equal(a.given, clean[:len(a.given)]) || !bytes.Equal(a.memory, clean[:len(a.memory)])
}

// filled makes n bytes for each rank, when they are first asked for: they are asked for often.
func filled(p, n int, seed uint64) func(rank int) []byte {
	made := make([]func() []byte, p)
	for rank := range made {
		made[rank] = sync.OnceValue(func() []byte { return Fill(n, seed+uint64(rank)) })
	}
	return func(rank int) []byte { return made[rank]() }
}

// accumulate adds b to total, byte by byte. No other goroutine has total yet, and b never changes, so the race detector would find
// nothing here, at the cost of a call for each byte.
//
//go:norace
func accumulate(total, b []byte) {
	for i := range b {
		total[i] += b[i]
	}
}

// Fill makes bytes that tell where they belong. No other goroutine has them yet: see accumulate.
//
//go:norace
func Fill(n int, seed uint64) []byte {
	b := make([]byte, 0, n+8)
	x := seed*0x9E3779B97F4A7C15 + 1
	for len(b) < n {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b[:n]
}
