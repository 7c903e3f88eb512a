package collective_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/memory"
)

func u32(v ...uint32) []uint32 { return v }

// Permutations as XLA's tests have them: ranks that are no target get zeros.
func TestPermute(t *testing.T) {
	clause.Cite(t, "CL-OP-17", "CL-OP-32", "CLT-OP-14")
	onEach(t, func(t *testing.T, w *world) {
		comms := w.clique(w.startAll(4), devices(4))
		for _, row := range []struct {
			pairs [][2]int
			want  []uint32
		}{
			{[][2]int{{1, 0}, {0, 1}, {2, 2}}, u32(11, 10, 12, 0)},
			{[][2]int{{0, 0}, {1, 1}, {2, 2}, {3, 3}}, u32(10, 11, 12, 13)},
			{[][2]int{{0, 1}, {1, 2}, {2, 3}, {3, 0}}, u32(13, 10, 11, 12)},
			{[][2]int{{2, 0}, {2, 1}, {2, 3}}, u32(12, 12, 0, 12)},
			{nil, u32(0, 0, 0, 0)},
		} {
			for _, n := range []int{2, 5000} {
				errs := each(comms, func(r int, c *collective.Comm) error {
					in, out := slices.Repeat(u32(uint32(10+r)), n), slices.Repeat(u32(99), n)
					err := c.Do(t.Context(), collective.Permute{In: memory.OfSlice(in), Out: memory.OfSlice(out), Count: int64(n), Type: memory.U32, Pairs: row.pairs})
					if err == nil && !slices.Equal(out, slices.Repeat(u32(row.want[r]), n)) {
						err = fmt.Errorf("permute %v on rank %d = %v", row.pairs, r, out[0])
					}
					return err
				})
				if err := errors.Join(errs...); err != nil {
					t.Fatal(err)
				}
			}
		}
		b := memory.Of(make([]byte, 8))
		for _, pairs := range [][][2]int{{{0, 1}, {2, 1}}, {{0, 4}}, {{-1, 0}}} {
			if err := comms[0].Do(t.Context(), collective.Permute{In: b, Out: memory.Of(make([]byte, 8)), Count: 1, Type: memory.U32, Pairs: pairs}); !errors.Is(err, collective.ErrInvalid) {
				t.Errorf("permute %v = %v; want ErrInvalid", pairs, err)
			}
		}
	})
}

// Transfers are matched in order for each pair of ranks, whatever other operations run between them.
func TestSendRecv(t *testing.T) {
	clause.Cite(t, "CL-OP-18", "CL-DES-2", "CL-GRL-5", "CLT-OP-27", "CLT-OP-28", "CLT-OP-30")
	onEach(t, func(t *testing.T, w *world) {
		const p = 3
		comms := w.clique(w.startAll(p), devices(p))
		errs := each(comms, func(r int, c *collective.Comm) error {
			for step := range 20 {
				n := step * step * 300
				var calls []collective.Call
				var outs, wants [][]byte
				for q := range p { // to and from all ranks, itself too, in both directions at once
					out := make([]byte, n)
					outs, wants = append(outs, out), append(wants, fill(n, uint64(q*p+r)))
					calls = append(calls,
						collective.Call{On: c, Op: collective.Send{In: memory.Of(fill(n, uint64(r*p+q))), Count: int64(n), Type: memory.U8, To: q}},
						collective.Call{On: c, Op: collective.Recv{Out: memory.Of(out), Count: int64(n), Type: memory.U8, From: q}})
				}
				if r == step%p {
					slices.Reverse(calls)
				}
				calls = append(calls, collective.Call{On: c, Op: collective.Barrier{}})
				if err := collective.Run(t.Context(), calls...); err != nil {
					return err
				}
				for q := range p {
					if !bytes.Equal(outs[q], wants[q]) {
						return fmt.Errorf("step %d: rank %d got something else from rank %d", step, r, q)
					}
				}
			}
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	})
}

// The two ends of a transfer differ: both fail.
func TestTransferMismatch(t *testing.T) {
	clause.Cite(t, "CL-OP-6", "CL-OP-18")
	for _, n := range []int64{4, 5000} {
		for _, late := range []int{-1, 0, 1} {
			onEach(t, func(t *testing.T, w *world) {
				comms := w.clique(w.startAll(2), devices(2))
				b := make([]byte, 100_000)
				errs := each(comms, func(r int, c *collective.Comm) error {
					if r == late {
						<-time.After(20 * time.Millisecond)
					}
					var op collective.Op = collective.Send{In: memory.Of(b), Count: n, Type: memory.F32, To: 1}
					if r == 1 {
						op = collective.Recv{Out: memory.Of(b), Count: n + 1, Type: memory.F32, From: 0}
					}
					if err := c.Do(t.Context(), op); err != nil {
						return err
					}
					return c.Do(t.Context(), collective.Barrier{})
				})
				for r, err := range errs {
					if e := failure(t, err); !errors.Is(e, collective.ErrMismatch) || !slices.Equal(e.Ranks, []int{0, 1}) {
						t.Errorf("rank %d: %v; want a mismatch", r, err)
					}
				}
			})
		}
	}
}

// The example of the specification, and random exchanges against a plain model.
func TestRaggedAllToAll(t *testing.T) {
	clause.Cite(t, "CL-OP-14", "CL-OP-34", "CL-OP-37", "CLT-OP-31")
	onEach(t, func(t *testing.T, w *world) {
		w.startAll(8)
		two := w.clique(w.procs[:2], devices(2))
		outs := [][]int32{make([]int32, 4), make([]int32, 4)}
		ops := []collective.RaggedAllToAll{
			{In: memory.OfSlice([]int32{1, 2, 2}), InOffsets: []int64{0, 1}, SendSizes: []int64{1, 2}, OutOffsets: []int64{0, 0}, RecvSizes: []int64{1, 1}},
			{In: memory.OfSlice([]int32{3, 4, 0}), InOffsets: []int64{0, 1}, SendSizes: []int64{1, 1}, OutOffsets: []int64{1, 2}, RecvSizes: []int64{2, 1}},
		}
		errs := each(two, func(r int, c *collective.Comm) error {
			op := ops[r]
			op.Out, op.Row, op.Type = memory.OfSlice(outs[r]), 1, memory.S32
			return c.Do(t.Context(), op)
		})
		if err := errors.Join(errs...); err != nil || !slices.Equal(outs[0], []int32{1, 3, 0, 0}) || !slices.Equal(outs[1], []int32{2, 2, 4, 0}) {
			t.Errorf("the worked example = %v, %v", outs, err)
		}
		types := []memory.DType{memory.U8, memory.S4, memory.BF16, memory.S32}
		for i, p := range []int{1, 2, 4, 8} {
			comms := w.clique(w.procs[:p], devices(p))
			for seed := range uint64(10) {
				dt := types[(int(seed)+i)%len(types)]
				if err := randomRows(t, comms, dt, seed); err != nil {
					t.Fatalf("%d ranks, %v, seed %d: %v", p, dt, seed, err)
				}
			}
		}
	})
}

// randomRows exchanges random rows.
func randomRows(t *testing.T, comms []*collective.Comm, dt memory.DType, seed uint64) error {
	p, rnd := len(comms), rand.New(rand.NewPCG(seed, 1))
	k, elements := 1+int(seed%3), 1+rnd.IntN(2000)
	n, row := p*k, (elements*dt.Bits()+7)/8
	sizes := make([][]int64, p) // by sender: of each update
	for s := range sizes {
		for range n {
			sizes[s] = append(sizes[s], int64(rnd.IntN(10)))
		}
	}
	ops := make([]collective.RaggedAllToAll, p)
	outs, wants := make([][]byte, p), make([][]byte, p)
	ends := make([]int64, p) // of what was placed in each output
	for r := range ops {
		ops[r] = collective.RaggedAllToAll{Row: int64(elements), Type: dt, OutOffsets: make([]int64, n), InOffsets: make([]int64, n), RecvSizes: make([]int64, n), SendSizes: sizes[r]}
	}
	for s := range p {
		at := int64(0)
		for i, rows := range sizes[s] {
			to := i / k
			ops[s].InOffsets[i], ops[s].OutOffsets[i] = at, ends[to]
			ops[to].RecvSizes[s*k+i%k] = rows
			at, ends[to] = at+rows, ends[to]+rows
		}
		ops[s].In = memory.Of(fill(int(at)*row, seed+uint64(s)))
	}
	for r := range p {
		outs[r] = fill(int(ends[r]+2)*row, 55) // the last rows stay
		wants[r] = bytes.Clone(outs[r])
		ops[r].Out = memory.Of(outs[r])
	}
	for s := range p {
		for i, rows := range sizes[s] {
			from, to := ops[s].InOffsets[i]*int64(row), ops[s].OutOffsets[i]*int64(row)
			copy(wants[i/k][to:], ops[s].In.Bytes()[from:from+rows*int64(row)])
		}
	}
	errs := each(comms, func(r int, c *collective.Comm) error { return c.Do(t.Context(), ops[r]) })
	for r := range p {
		if errs[r] == nil && !bytes.Equal(outs[r], wants[r]) {
			errs[r] = fmt.Errorf("rank %d has other rows", r)
		}
	}
	return errors.Join(errs...)
}

// Bad metadata end the operation on all members, and nothing is written.
func TestRaggedFaults(t *testing.T) {
	clause.Cite(t, "CL-OP-35", "CLT-OP-33")
	for name, spoil := range map[string]func(o *collective.RaggedAllToAll){
		"negative":      func(o *collective.RaggedAllToAll) { o.SendSizes = []int64{-1, 1} },
		"beyond input":  func(o *collective.RaggedAllToAll) { o.InOffsets = []int64{0, 3} },
		"beyond output": func(o *collective.RaggedAllToAll) { o.OutOffsets = []int64{0, 9} },
		"too many":      func(o *collective.RaggedAllToAll) { o.RecvSizes = []int64{1, 1 << 62} },
		"other size":    func(o *collective.RaggedAllToAll) { o.RecvSizes = []int64{1, 2} },
	} {
		onEach(t, func(t *testing.T, w *world) {
			comms := w.clique(w.startAll(2), devices(2))
			errs := each(comms, func(r int, c *collective.Comm) error {
				out := bytes.Repeat([]byte{9}, 4)
				o := collective.RaggedAllToAll{Out: memory.Of(out), In: memory.Of([]byte{1, 2, 3}), Row: 1, Type: memory.U8,
					InOffsets: []int64{0, 1}, SendSizes: []int64{1, 1}, OutOffsets: []int64{int64(r), int64(r)}, RecvSizes: []int64{1, 1}}
				if r == 0 {
					spoil(&o)
				}
				err := c.Do(t.Context(), o)
				if err != nil && name != "other size" && !bytes.Equal(out, []byte{9, 9, 9, 9}) && name != "beyond output" {
					t.Errorf("%s: rank %d has %v after %v", name, r, out, err)
				}
				for err == nil {
					err = c.Do(t.Context(), collective.Barrier{})
				}
				return err
			})
			for r, err := range errs {
				if e := failure(t, err); !errors.Is(e, collective.ErrInvalid) {
					t.Errorf("%s: rank %d gets %v; want ErrInvalid", name, r, err)
				}
			}
		})
	}
}

// A clique is split into cliques that do not depend on it.
func TestSplit(t *testing.T) {
	clause.Cite(t, "CL-SPL-1", "CL-SPL-9", "CLT-SPL-1", "CLT-SPL-2", "CLT-SPL-8")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(5)
		comms := w.clique(procs, devices(5))
		parts := make([]*collective.Comm, 5)
		errs := each(comms, func(r int, c *collective.Comm) (err error) {
			color := r % 2
			if r == 4 {
				color = -1
			}
			parts[r], err = c.Split(t.Context(), color, -r) // in reverse order
			return err
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("Split() = %v", err)
		}
		if parts[4] != nil {
			t.Error("a rank without a color is in a part")
		}
		for r, want := range []int{1, 1, 0, 0} {
			if parts[r].Rank() != want || parts[r].Size() != 2 {
				t.Errorf("rank %d is rank %d of %d in its part; want %d of 2", r, parts[r].Rank(), parts[r].Size(), want)
			}
		}
		works(t, []*collective.Comm{parts[2], parts[0]}, 1000)
		w.kill(procs[1])
		_, err := loop(t.Context(), comms[0], 10)
		if !errors.Is(err, collective.ErrPeerFailed) {
			t.Errorf("the clique = %v; want that a member is lost", err)
		}
		works(t, []*collective.Comm{parts[2], parts[0]}, 1000)
		if _, err := loop(t.Context(), parts[3], 10); !errors.Is(err, collective.ErrPeerFailed) {
			t.Errorf("the part with the lost member = %v", err)
		}
	})
}

// A process is lost, or the link between two others breaks, at any moment of a split. All get an error that has the ranks of
// the clique, also where only the part was not formed, and none waits for members that have given up.
func TestFaultInSplit(t *testing.T) {
	clause.Cite(t, "CL-SPL-1", "CL-ABT-20", "CL-ERR-9")
	for _, what := range []fault{kills, parts} {
		for step := range 12 {
			inBubble(t, func(t *testing.T, w *world) {
				procs := w.startAll(3)
				comms := w.clique(procs, devices(3))
				synctest.Wait()
				w.atWrite(procs[0], step, func() {
					if what == kills {
						w.kill(procs[0])
						return
					}
					w.network.part(hostOf(procs[0].life), hostOf(procs[1].life))
				})
				began := time.Now()
				errs := each(comms, func(r int, c *collective.Comm) error {
					part, err := c.Split(t.Context(), 0, -r)
					if err == nil {
						part.Do(t.Context(), collective.Barrier{})
						err, _ = loop(t.Context(), c, 10)
					}
					return err
				})
				for r, err := range errs {
					want := []int{0}
					if what == parts {
						want = []int{0, 1}
					} else if r == 0 {
						continue
					}
					if errors.Is(err, collective.ErrCancelled) { // a member that knew the cause gave up
						time.Sleep(100 * time.Millisecond)
						err = comms[r].Err()
					}
					if e := failure(t, err); !slices.Equal(e.Ranks, want) {
						t.Errorf("%s at write %d: rank %d gets %v; want that it blames %v", what, step, r, err, want)
					}
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("%s at write %d: it took %v", what, step, took)
				}
			})
		}
	}
}

// Slices of numbers need no regions.
func TestSlices(t *testing.T) {
	clause.Cite(t, "CL-DES-5")
	inBubble(t, func(t *testing.T, w *world) {
		comms := w.clique(w.startAll(2), devices(2))
		errs := each(comms, func(r int, c *collective.Comm) error {
			x := []float32{1, float32(r)}
			if err := collective.AllReduceSlice(t.Context(), c, x, x, collective.Sum); err != nil || !slices.Equal(x, []float32{2, 1}) {
				return fmt.Errorf("AllReduceSlice() = %v, %v", x, err)
			}
			y := []int64{int64(r + 5)}
			if err := collective.BroadcastSlice(t.Context(), c, y, 1); err != nil || y[0] != 6 {
				return fmt.Errorf("BroadcastSlice() = %v, %v", y, err)
			}
			z := make([]uint16, 4)
			if err := collective.AllGatherSlice(t.Context(), c, z, []uint16{uint16(r), 7}); err != nil || !slices.Equal(z, []uint16{0, 7, 1, 7}) {
				return fmt.Errorf("AllGatherSlice() = %v, %v", z, err)
			}
			d := make([]complex64, 1)
			if err := collective.ReduceScatterSlice(t.Context(), c, d, []complex64{1i, 2}, collective.Sum); err != nil || d[0] != []complex64{2i, 4}[r] {
				return fmt.Errorf("ReduceScatterSlice() = %v, %v", d, err)
			}
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	})
}
