package collective_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/kernel"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/internal/lab/search"
	"github.com/serry-dev/serry/memory"
)

// The vectors of this file are those of XLA's tests of collective operations.

// formats has the bits of the mantissa and the bias of floats.
var formats = map[memory.DType][2]int{
	memory.F16: {10, 15}, memory.BF16: {7, 127}, memory.F32: {23, 127}, memory.F64: {52, 1023},
	memory.F8E4M3B11FNUZ: {3, 11}, memory.F8E4M3FN: {3, 7}, memory.F8E5M2: {2, 15},
}

// encode is small numbers as elements of a type.
func encode(dt memory.DType, values ...int) []byte {
	bits := dt.Bits()
	b := make([]byte, (len(values)*bits+7)/8)
	for i, v := range values {
		x := uint64(int64(v))
		switch f, isFloat := formats[dt]; {
		case dt == memory.C64:
			x = uint64(math.Float32bits(float32(v)))
		case isFloat && v == 0:
			x = 0
		case isFloat:
			frac, exp := math.Frexp(math.Abs(float64(v)))
			x = uint64(exp-1+f[1])<<f[0] | uint64((frac*2-1)*float64(uint64(1)<<f[0]))
			if v < 0 {
				x |= 1 << (bits - 1)
			}
		}
		switch {
		case dt == memory.C128:
			binary.LittleEndian.PutUint64(b[16*i:], math.Float64bits(float64(v)))
		case bits == 4:
			b[i/2] |= byte(x&15) << (i % 2 * 4)
		default:
			var le [8]byte
			binary.LittleEndian.PutUint64(le[:], x)
			copy(b[i*bits/8:(i+1)*bits/8], le[:])
		}
	}
	return b
}

// expect runs an operation on every rank and compares the results. Nil is a rank without one.
func expect(t *testing.T, comms []*collective.Comm, name string, op func(rank int, out memory.Region) collective.Op, wants ...[]byte) {
	t.Helper()
	errs := each(comms, func(r int, c *collective.Comm) error {
		out := bytes.Repeat([]byte{0xEE}, len(wants[r]))
		if err := c.Do(t.Context(), op(c.Rank(), memory.Of(out))); err != nil {
			return err
		}
		if !bytes.Equal(out, wants[r]) {
			return fmt.Errorf("rank %d has %x; want %x", r, out, wants[r])
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// reduce is an all-reduce.
func reduce(dt memory.DType, kind collective.Reduction, n int, in func(rank int) []byte) func(int, memory.Region) collective.Op {
	return func(r int, out memory.Region) collective.Op {
		return collective.AllReduce{In: memory.Of(in(r)), Out: out, Count: int64(n), Type: dt, Reduction: kind}
	}
}

func always(b []byte) func(int) []byte { return func(int) []byte { return b } }

func TestReductionsOfAllTypes(t *testing.T) {
	clause.Cite(t, "CLT-OP-1", "CLT-OP-2", "CLT-OP-3", "CLT-OP-25", "CLT-TMO-4", "CL-OP-10", "CL-RED-1", "CL-OP-5")
	onEach(t, func(t *testing.T, w *world) {
		comms := w.clique(w.startAll(2), devices(2))
		unsigned := []memory.DType{memory.U4, memory.U8, memory.U16, memory.U32, memory.U64}
		types := append([]memory.DType{memory.F8E4M3B11FNUZ, memory.S4, memory.S8, memory.S16, memory.S32, memory.S64,
			memory.F16, memory.BF16, memory.F32, memory.F64}, unsigned...)
		for _, dt := range types {
			for _, sign := range []int{1, -1} {
				if sign < 0 && slices.Contains(unsigned, dt) {
					continue
				}
				in := encode(dt, sign, 2*sign, 3*sign)
				for kind, want := range map[collective.Reduction][]byte{
					collective.Sum: encode(dt, 2*sign, 4*sign, 6*sign), collective.Product: encode(dt, 1, 4, 9), collective.Min: in, collective.Max: in,
				} {
					name := fmt.Sprintf("%v of %v, sign %d", kind, dt, sign)
					if dt.Bits() == 4 { // the half that is not used is not specified
						expectMasked(t, comms, name, reduce(dt, kind, 3, always(in)), want)
						continue
					}
					expect(t, comms, name, reduce(dt, kind, 3, always(in)), want, want)
				}
			}
		}
		for _, dt := range []memory.DType{memory.C64, memory.C128} {
			want := encode(dt, 3, -1)
			expect(t, comms, "complex", reduce(dt, collective.Sum, 2, func(r int) []byte { return encode(dt, 1+r, -r) }), want, want)
		}
		expect(t, comms, "and", reduce(memory.PRED, collective.Min, 2, always([]byte{1, 0})), []byte{1, 0}, []byte{1, 0})
		isZero := func(r int) []byte { return []byte{byte(1 - r)} }
		expect(t, comms, "and of one", reduce(memory.PRED, collective.Min, 1, isZero), []byte{0}, []byte{0})
		expect(t, comms, "or of one", reduce(memory.PRED, collective.Max, 1, isZero), []byte{1}, []byte{1})
		one := encode(memory.BF16, 1)
		expect(t, comms, "least", reduce(memory.BF16, collective.Min, 1, func(r int) []byte { return encode(memory.BF16, r+1) }), one, one)
		three := bytes.Repeat([]byte{3}, 256)
		expect(t, comms, "256 bytes", reduce(memory.U8, collective.Sum, 256, func(r int) []byte { return bytes.Repeat([]byte{byte(r + 1)}, 256) }), three, three)
	})
}

// expectMasked is expect for three elements of four bits.
func expectMasked(t *testing.T, comms []*collective.Comm, name string, op func(int, memory.Region) collective.Op, want []byte) {
	t.Helper()
	errs := each(comms, func(r int, c *collective.Comm) error {
		out := make([]byte, 2)
		err := c.Do(t.Context(), op(r, memory.Of(out)))
		if out[1] &= 15; err == nil && !bytes.Equal(out, want) {
			err = fmt.Errorf("rank %d has %x; want %x", r, out, want)
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// plus is numbers with the rank added.
func plus(dt memory.DType, values ...int) func(rank int) []byte {
	return func(rank int) []byte {
		list := slices.Clone(values)
		for i := range list {
			list[i] += rank
		}
		return encode(dt, list...)
	}
}

// Types that are only moved, or are smaller than a byte.
func TestMovingTypes(t *testing.T) {
	clause.Cite(t, "CLT-OP-20", "CLT-OP-22", "CLT-OP-23", "CLT-OP-24", "CLT-OP-26", "CL-OP-5", "CL-OP-11", "CL-OP-12", "CL-OP-13")
	onEach(t, func(t *testing.T, w *world) {
		comms := w.clique(w.startAll(2), devices(2))
		gather := func(dt memory.DType, n int, in func(int) []byte) func(int, memory.Region) collective.Op {
			return func(r int, out memory.Region) collective.Op {
				return collective.AllGather{In: memory.Of(in(r)), Out: out, Count: int64(n), Type: dt}
			}
		}
		exchange := func(dt memory.DType, n int, in func(int) []byte) func(int, memory.Region) collective.Op {
			return func(r int, out memory.Region) collective.Op {
				return collective.AllToAll{In: memory.Of(in(r)), Out: out, Count: int64(n), Type: dt}
			}
		}
		swap := func(dt memory.DType, n int, in func(int) []byte) func(int, memory.Region) collective.Op {
			return func(r int, out memory.Region) collective.Op {
				return collective.Permute{In: memory.Of(in(r)), Out: out, Count: int64(n), Type: dt, Pairs: [][2]int{{0, 1}, {1, 0}}}
			}
		}
		scatter := func(dt memory.DType, n int, in func(int) []byte) func(int, memory.Region) collective.Op {
			return func(r int, out memory.Region) collective.Op {
				return collective.ReduceScatter{In: memory.Of(in(r)), Out: out, Count: int64(n), Type: dt, Reduction: collective.Sum}
			}
		}
		for _, dt := range []memory.DType{memory.S16, memory.U16, memory.U32, memory.S32} {
			in, all := plus(dt, 10, 15), encode(dt, 10, 15, 11, 16)
			expect(t, comms, "gather", gather(dt, 2, in), all, all)
			expect(t, comms, "all-to-all", exchange(dt, 1, in), encode(dt, 10, 11), encode(dt, 15, 16))
			expect(t, comms, "permute", swap(dt, 2, in), encode(dt, 11, 16), encode(dt, 10, 15))
			expect(t, comms, "sum", reduce(dt, collective.Sum, 2, in), encode(dt, 21, 31), encode(dt, 21, 31))
			expect(t, comms, "reduce-scatter", scatter(dt, 1, in), encode(dt, 21), encode(dt, 31))
			one, ten := encode(dt, 1, 2, 3, 4, 5, 6, 7, 8), encode(dt, 10, 11, 12, 13, 14, 15, 16, 17)
			expect(t, comms, "reduce-scatter of 8", scatter(dt, 4, func(r int) []byte { return [][]byte{one, ten}[r] }),
				encode(dt, 11, 13, 15, 17), encode(dt, 19, 21, 23, 25))
		}
		for _, dt := range []memory.DType{memory.S4, memory.U4} { // each block begins with a byte of its own
			all := slices.Concat(encode(dt, 3, 5, 7), encode(dt, 4, 6, 8))
			expect(t, comms, "gather", gather(dt, 3, plus(dt, 3, 5, 7)), all, all)
			two := func(r int) []byte { return append(encode(dt, 5+r), encode(dt, 7+r)...) }
			expect(t, comms, "all-to-all", exchange(dt, 1, two), slices.Concat(encode(dt, 5), encode(dt, 6)), slices.Concat(encode(dt, 7), encode(dt, 8)))
			expect(t, comms, "permute", swap(dt, 3, plus(dt, 3, 5, 7)), encode(dt, 4, 6, 8), encode(dt, 3, 5, 7))
			expectMasked(t, comms, "sum", reduce(dt, collective.Sum, 3, plus(dt, 3, 5, 7)), encode(dt, 7, 11, 15))
		}
		for _, dt := range []memory.DType{memory.F8E4M3FN, memory.F8E5M2, memory.F8E4M3B11FNUZ} {
			in, all := always(encode(dt, 1, 2)), encode(dt, 1, 2, 1, 2)
			expect(t, comms, "gather", gather(dt, 2, in), all, all)
			expect(t, comms, "all-to-all", exchange(dt, 1, in), encode(dt, 1, 1), encode(dt, 2, 2))
			expect(t, comms, "permute", swap(dt, 2, plus(dt, 1, 1)), encode(dt, 2, 2), encode(dt, 1, 1))
		}
	})
}

// Cliques by replica groups, in the orders that the groups have.
func TestGroupsOfDevices(t *testing.T) {
	clause.Cite(t, "CL-OP-30", "CLT-OP-5", "CLT-OP-8", "CLT-OP-13", "CLT-OP-16", "CLT-OP-17", "CLT-OP-18", "CL-GRP-2", "CL-OP-15")
	onEach(t, func(t *testing.T, w *world) {
		procs := w.startAll(4)
		table := collective.Table{{0}, {1}, {2}, {3}}
		u := func(v ...int) []byte { return encode(memory.U32, v...) }
		// run has each device of the groups run an operation in its clique. wants has results by device; nil is one in no group.
		run := func(name string, groups [][]int, op func(device int, out memory.Region) collective.Op, wants ...[]byte) {
			errs := each(procs, func(d int, p *process) error {
				group, err := collective.ReplicaGroups{Groups: groups}.Of(table, serry.DeviceID(d))
				if err != nil {
					if wants[d] != nil {
						return err
					}
					return nil
				}
				c, err := p.Clique(t.Context(), group, collective.CliqueOptions{})
				if err != nil {
					return err
				}
				defer c.Close(t.Context())
				out := make([]byte, len(wants[d]))
				if err := c.Do(t.Context(), op(d, memory.Of(out))); err != nil || !bytes.Equal(out, wants[d]) {
					return fmt.Errorf("device %d has %x, %w; want %x", d, out, err, wants[d])
				}
				return nil
			})
			if err := errors.Join(errs...); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		floats := make([]int, 137)
		for i := range floats {
			floats[i] = i
		}
		single, double := encode(memory.F32, floats...), encode(memory.F32, mapped(floats, func(i int) int { return 2 * i })...)
		run("sums in groups", [][]int{{0}, {1, 2}, {3}}, reduce(memory.F32, collective.Sum, 137, always(single)), single, double, double, single)

		from := func(root int) func(int, memory.Region) collective.Op {
			return func(d int, out memory.Region) collective.Op {
				return collective.Broadcast{In: memory.Of(u(10 + d)), Out: out, Count: 1, Type: memory.U32, Root: root}
			}
		}
		run("broadcast of two", [][]int{{1, 0}}, from(0), u(11), u(11), nil, nil)
		run("broadcast of four", [][]int{{1, 0, 2, 3}}, from(0), u(11), u(11), u(11), u(11))
		for root := range 2 {
			run("broadcast of a root", [][]int{{0, 1}}, from(root), u(10+root), u(10+root), nil, nil)
		}
		exchange := func(blocks int) func(int, memory.Region) collective.Op {
			return func(d int, out memory.Region) collective.Op {
				in := u(10+d, 15+d, 20+d, 25+d, 30+d, 35+d, 40+d, 45+d)[:blocks*8]
				return collective.AllToAll{In: memory.Of(in), Out: out, Count: 2, Type: memory.U32}
			}
		}
		run("all-to-all", [][]int{{0, 1, 2, 3}}, exchange(4), u(10, 15, 11, 16, 12, 17, 13, 18), u(20, 25, 21, 26, 22, 27, 23, 28),
			u(30, 35, 31, 36, 32, 37, 33, 38), u(40, 45, 41, 46, 42, 47, 43, 48))
		run("all-to-all in reverse", [][]int{{3, 2, 1, 0}}, exchange(4), u(43, 48, 42, 47, 41, 46, 40, 45), u(33, 38, 32, 37, 31, 36, 30, 35),
			u(23, 28, 22, 27, 21, 26, 20, 25), u(13, 18, 12, 17, 11, 16, 10, 15))
		run("all-to-all in groups", [][]int{{2, 1}, {3, 0}}, exchange(2), u(23, 28, 20, 25), u(22, 27, 21, 26), u(12, 17, 11, 16), u(13, 18, 10, 15))
		run("all-to-all alone", [][]int{{0}, {1}, {2}, {3}}, exchange(1), u(10, 15), u(11, 16), u(12, 17), u(13, 18))

		for subset := 1; subset < 16; subset++ {
			var group []int
			wants := make([][]byte, 4)
			for d := range 4 {
				if subset>>d&1 == 1 {
					group = append(group, d)
				}
			}
			for _, d := range group {
				wants[d] = encode(memory.F32, slices.Repeat([]int{len(group)}, 1024)...)
			}
			run("sum of a subset", [][]int{group}, reduce(memory.F32, collective.Sum, 1024, always(encode(memory.F32, slices.Repeat([]int{1}, 1024)...))), wants...)
		}
	})
}

func mapped[A, B any](list []A, f func(A) B) (out []B) {
	for _, v := range list {
		out = append(out, f(v))
	}
	return out
}

// Several operations together: operands of several types, and cliques of several sizes.
func TestOperationsTogether(t *testing.T) {
	clause.Cite(t, "CL-GRL-1", "CL-GRL-4", "CL-OP-25", "CLT-OP-4", "CLT-OP-7", "CLT-OP-10", "CLT-OP-11", "CLT-OP-12", "CLT-OP-20", "CLT-OP-21", "CLT-OP-22", "CL-GRL-3", "CL-GRL-5")
	if err := collective.Run(t.Context()); err != nil {
		t.Errorf("Run() of nothing = %v", err)
	}
	onEach(t, func(t *testing.T, w *world) {
		procs := w.startAll(4)
		all := w.clique(procs, devices(4))
		errs := each(procs, func(d int, p *process) error {
			first := serry.DeviceID(d / 2 * 2)
			pair, err := p.Clique(t.Context(), ids{first, first + 1}, collective.CliqueOptions{})
			if err != nil {
				return err
			}
			own, err := p.Clique(t.Context(), ids{serry.DeviceID(d)}, collective.CliqueOptions{})
			if err != nil {
				return err
			}
			sums := func(c *collective.Comm, v ...int) (collective.Call, []byte) {
				out := make([]byte, 4*len(v))
				return collective.Call{On: c, Op: collective.AllReduce{In: memory.Of(encode(memory.F32, v...)), Out: memory.Of(out), Count: int64(len(v)),
					Type: memory.F32, Reduction: collective.Sum}}, out
			}
			a, four := sums(all[d], d)
			b, two := sums(pair, d)
			c, one := sums(own, d)
			f, five := sums(all[d], 1, 2, 3, 4, 5)
			g, seven := sums(all[d], 1, 2, 3, 4, 5, 6, 7)
			r := d % 2
			u32, f32 := make([]byte, 16), make([]byte, 16)
			k := collective.Call{On: pair, Op: collective.AllGather{In: memory.Of(encode(memory.U32, 0, 1)), Out: memory.Of(u32), Count: 2, Type: memory.U32}}
			l := collective.Call{On: pair, Op: collective.AllGather{In: memory.Of(encode(memory.F32, 0, 1)), Out: memory.Of(f32), Count: 2, Type: memory.F32}}
			// A gather, and a reduce-scatter, along the second dimension are one for each row.
			rows, parts := make([]byte, 16), make([]byte, 16)
			calls := []collective.Call{a, b, c, f, g, k, l}
			for row := range 2 {
				in := encode(memory.U32, []int{10, 15}[row]+r)
				calls = append(calls, collective.Call{On: pair, Op: collective.AllGather{In: memory.Of(in), Out: memory.Of(rows[8*row:][:8]), Count: 1, Type: memory.U32}})
				one := 4*row + 1 + 9*r
				calls = append(calls, collective.Call{On: pair, Op: collective.ReduceScatter{In: memory.Of(encode(memory.U32, one, one+1, one+2, one+3)),
					Out: memory.Of(parts[8*row:][:8]), Count: 2, Type: memory.U32, Reduction: collective.Sum}})
			}
			if err := collective.Run(t.Context(), calls...); err != nil {
				return err
			}
			for name, pair := range map[string][2][]byte{
				"sum of four": {four, encode(memory.F32, 6)}, "sum of two": {two, encode(memory.F32, []int{1, 5}[d/2])}, "own": {one, encode(memory.F32, d)},
				"five": {five, encode(memory.F32, 4, 8, 12, 16, 20)}, "seven": {seven, encode(memory.F32, 4, 8, 12, 16, 20, 24, 28)},
				"gather": {u32, encode(memory.U32, 0, 1, 0, 1)}, "gather of floats": {f32, encode(memory.F32, 0, 1, 0, 1)},
				"rows": {rows, encode(memory.U32, 10, 11, 15, 16)}, "parts": {parts, encode(memory.U32, [][]int{{11, 13, 19, 21}, {15, 17, 23, 25}}[r]...)},
			} {
				if !bytes.Equal(pair[0], pair[1]) {
					return fmt.Errorf("device %d, %s: %x; want %x", d, name, pair[0], pair[1])
				}
			}
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	})
}

// Every type is moved, also one that has no reduction: as bytes.
func TestEveryTypeIsMoved(t *testing.T) {
	clause.Cite(t, "CL-DT-2", "CL-DT-1", "CL-OP-5")
	onEach(t, func(t *testing.T, w *world) {
		comms := w.clique(w.startAll(2), devices(2))
		for dt := memory.PRED; dt <= memory.F6E2M3FN; dt++ {
			if !dt.Valid() {
				continue
			}
			size, err := dt.Bytes(17)
			if err != nil {
				t.Fatal(err)
			}
			ins, want := [][]byte{fill(int(size), 1), fill(int(size), 2)}, []byte(nil)
			want = append(append(want, ins[0]...), ins[1]...)
			errs := each(comms, func(r int, c *collective.Comm) error {
				out := make([]byte, 2*size)
				err := c.Do(t.Context(), collective.AllGather{In: memory.Of(ins[r]), Out: memory.Of(out), Count: 17, Type: dt})
				if err == nil && !bytes.Equal(out, want) {
					err = fmt.Errorf("rank %d has other bytes", r)
				}
				return err
			})
			if err := errors.Join(errs...); err != nil {
				t.Errorf("%v: %v", dt, err)
			}
		}
	})
}

// Random operations of random types on many ranks give what a loop over all ranks gives, bit by bit the same on all of them.
func TestRandomReductions(t *testing.T) {
	clause.Cite(t, "CLT-OP-38", "CLT-OP-39", "CL-OP-7", "CL-OP-10")
	kinds := []collective.Reduction{collective.Sum, collective.Product, collective.Min, collective.Max}
	types := []memory.DType{memory.PRED, memory.S4, memory.U4, memory.S8, memory.U8, memory.S16, memory.U16, memory.S32, memory.U32, memory.S64, memory.U64,
		memory.F8E4M3FN, memory.F8E5M2, memory.F8E4M3B11FNUZ, memory.F16, memory.BF16, memory.F32, memory.F64, memory.C64, memory.C128}
	for _, p := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 31, 33} {
		inBubble(t, func(t *testing.T, w *world) {
			comms := ranksOf(w.clique([]*process{one(w, p)}, devices(p)))
			r := rand.New(rand.NewPCG(uint64(p), 3))
			counts := []int{0, 1, p - 1, p, p + 1, 127, 1<<10 - 1, 1 << 10, 1<<10 + 1, 5003, 1<<14 + 1}
			if p <= 3 {
				counts = append(counts, 1_000_000)
			}
			for range search.Pick(30, 12) {
				dt, kind, n := types[r.IntN(len(types))], kinds[r.IntN(len(kinds))], counts[r.IntN(len(counts))]
				if kernel.Check(kernel.Op(kind), dt) != nil {
					continue
				}
				ins, outs := make([][]byte, p), make([][]byte, p)
				for i := range ins {
					v := make([]int, n)
					for k := range v {
						v[k] = 1 + r.IntN(2) // sums of floats are exact; products stay finite
						switch narrow := dt.Bits() == 8 && formats[dt] != [2]int{}; {
						case dt == memory.PRED:
							v[k]--
						case narrow && i >= 2 && kind == collective.Product: // they hold few numbers
							v[k] = 1
						case narrow && i >= 2 && kind == collective.Sum:
							v[k] = 0
						}
					}
					if dt == memory.F16 && kind == collective.Product { // 2 to the 16th is too great
						clear(v)
					}
					ins[i], outs[i] = encode(dt, v...), make([]byte, (n*dt.Bits()+7)/8)
				}
				want := make([]byte, (n*dt.Bits()+7)/8)
				if err := kernel.Reduce(kernel.Op(kind), dt, want, ins...); err != nil {
					t.Fatal(err)
				}
				errs := each(comms, func(i int, c *collective.Comm) error {
					return c.Do(t.Context(), reduce(dt, kind, n, func(i int) []byte { return ins[i] })(i, memory.Of(outs[i])))
				})
				for i := range outs {
					if errs[i] != nil || !bytes.Equal(outs[i], want) {
						t.Fatalf("%v of %d %v on rank %d of %d: %v, or another result", kind, n, dt, i, p, errs[i])
					}
				}
			}
		})
	}
}

// Sums of floats that are not exact are the same, bit by bit, on all members.
func TestMembersAgreeOnSums(t *testing.T) {
	clause.Cite(t, "CLT-OP-39", "CL-OP-7")
	inBubble(t, func(t *testing.T, w *world) {
		for _, p := range []int{2, 3, 5, 8} {
			comms := ranksOf(w.clique([]*process{oneOf(w, p)}, devices(p)))
			for _, n := range []int{1, 1025, 30_000} {
				outs := make([][]float32, p)
				errs := each(comms, func(i int, c *collective.Comm) error {
					r := rand.New(rand.NewPCG(uint64(i), uint64(n)))
					in := make([]float32, n)
					for k := range in {
						in[k] = float32(r.NormFloat64() * math.Pow(10, float64(r.IntN(12))))
					}
					outs[i] = make([]float32, n)
					return collective.AllReduceSlice(t.Context(), c, outs[i], in, collective.Sum)
				})
				for i := range outs {
					if errs[i] != nil || !slices.Equal(outs[i], outs[0]) {
						t.Errorf("%d ranks, %d floats: rank %d has another sum, or %v", p, n, i, errs[i])
					}
				}
			}
		}
	})
}

// oneOf is the process of one, started when it is first asked for.
func oneOf(w *world, _ int) *process {
	if len(w.procs) == 0 {
		return one(w, 9)
	}
	return w.procs[0]
}

// Operations on different communicators make progress independently of each other, whatever the order in which ranks begin
// them, and take the longer of their times, not the sum.
func TestOperationsOverlap(t *testing.T) {
	clause.Cite(t, "CLT-OP-43", "CLT-OP-46", "CL-BUF-4", "CL-DES-2")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(2)
		var comms [2][2]*collective.Comm // by process, by traffic
		errs := each(procs, func(i int, p *process) error {
			for traffic := range 2 {
				c, err := p.Clique(t.Context(), devices(2), collective.CliqueOptions{Traffic: uint64(traffic)})
				if err != nil {
					return err
				}
				comms[i][traffic] = c
			}
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		errs = each(procs, func(i int, _ *process) error {
			return errors.Join(each([]int{0, 1}, func(k, traffic int) error {
				if i == 1 { // the second rank comes late to both, and in the opposite order
					pause(time.Duration(3-traffic) * time.Second)
				} else {
					pause(time.Duration(traffic) * time.Millisecond)
				}
				x := []int64{1}
				return collective.AllReduceSlice(t.Context(), comms[i][traffic], x, x, collective.Sum)
			})...)
		})
		if took := time.Since(began); errors.Join(errs...) != nil || took > 3500*time.Millisecond {
			t.Errorf("two operations that wait 2 s and 3 s end after %v: %v", took, errs)
		}
	})
}

var large = flag.Bool("large", false, "run what needs much memory")

// More than 2^31 elements in one operation.
func TestLargeExchange(t *testing.T) {
	clause.Cite(t, "CLT-OP-19", "CL-OP-38")
	if !*large {
		t.Skip("needs 1 GiB of memory: -large")
	}
	inBubble(t, func(t *testing.T, w *world) {
		comms := ranksOf(w.clique([]*process{one(w, 2)}, devices(2)))
		const n = 1<<30 + 8
		outs := make([][]byte, 2)
		errs := each(comms, func(i int, c *collective.Comm) error {
			in := bytes.Repeat([]byte{byte(i + 1)}, 2*n/8)
			outs[i] = make([]byte, 2*n/8)
			return c.Do(t.Context(), collective.AllToAll{In: memory.Of(in), Out: memory.Of(outs[i]), Count: n, Type: memory.U1})
		})
		for i, out := range outs {
			if errs[i] != nil || out[0] != 1 || out[n/8-1] != 1 || out[n/8] != 2 || out[2*n/8-1] != 2 {
				t.Errorf("rank %d: %v, or other data", i, errs[i])
			}
		}
	})
}
