package collective_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/memory"
)

// The loopback ends every operation at once, as if all ranks had the data of this one.
func TestLoopback(t *testing.T) {
	clause.Cite(t, "CL-LPB-2", "CL-LPB-1", "CLT-OP-35")
	inBubble(t, func(t *testing.T, w *world) {
		w.group.Backends = []collective.Backend{collective.Loopback{}}
		c, err := w.start(life(1, 11)).Clique(t.Context(), devices(3), collective.CliqueOptions{}) // the other tasks do not exist
		if err != nil {
			t.Fatalf("Clique() = %v", err)
		}
		in := []byte{1, 2, 3, 4, 5, 6}
		u8, r := memory.U8, memory.Of
		out := make([]byte, 6)
		window, err := c.Offer(t.Context(), r(out))
		if err != nil || window.Size(2) != 6 {
			t.Fatalf("Offer() = %v, %v", window, err)
		}
		for _, row := range []struct {
			name string
			op   collective.Op
			want []byte
		}{
			{"allreduce", collective.AllReduce{In: r(in), Out: r(out), Count: 6, Type: u8, Reduction: collective.Sum}, in},
			{"reducescatter", collective.ReduceScatter{In: r(in), Out: r(out), Count: 2, Type: u8, Reduction: collective.Sum}, []byte{3, 4, 0, 0, 0, 0}},
			{"allgather", collective.AllGather{In: r(in[:2]), Out: r(out), Count: 2, Type: u8}, []byte{1, 2, 1, 2, 1, 2}},
			{"alltoall", collective.AllToAll{In: r(in), Out: r(out), Count: 2, Type: u8}, in},
			{"broadcast", collective.Broadcast{In: r(in), Out: r(out), Count: 6, Type: u8, Root: 1}, in},
			{"reduce", collective.Reduce{In: r(in), Out: r(out), Count: 6, Type: u8, Reduction: collective.Sum, Root: 1}, in},
			{"gather", collective.Gather{In: r(in[:2]), Out: r(out), Count: 2, Type: u8, Root: 1}, []byte{1, 2, 1, 2, 1, 2}},
			{"scatter", collective.Scatter{In: r(in), Out: r(out), Count: 2, Type: u8, Root: 1}, []byte{3, 4, 0, 0, 0, 0}},
			{"permute", collective.Permute{In: r(in), Out: r(out), Count: 6, Type: u8, Pairs: [][2]int{{0, 1}}}, in},
			{"permute to others", collective.Permute{In: r(in), Out: r(out), Count: 6, Type: u8, Pairs: [][2]int{{1, 0}}}, make([]byte, 6)},
			{"send", collective.Send{In: r(in), Count: 6, Type: u8, To: 2}, make([]byte, 6)},
			{"recv", collective.Recv{Out: r(out), Count: 6, Type: u8, From: 2}, make([]byte, 6)},
			{"barrier", collective.Barrier{}, make([]byte, 6)},
			{"put", collective.Put{Window: window, In: r(in), Count: 6, To: 2}, make([]byte, 6)},
			{"signal", collective.Signal{To: 2}, make([]byte, 6)},
			{"wait-signal", waitFor(2, 0, 1), make([]byte, 6)},
			{"quiet", collective.Quiet{}, make([]byte, 6)},
			{"fence", collective.Fence{}, make([]byte, 6)},
		} {
			clear(out)
			if err := c.Do(t.Context(), row.op); err != nil || !bytes.Equal(out, row.want) {
				t.Errorf("%s = %v, %v; want %v", row.name, out, err, row.want)
			}
		}
		if part, err := c.Split(t.Context(), 0, 0); err != nil || part.Size() != 3 {
			t.Errorf("Split() = %v, %v", part, err)
		}
	})
}

// A device is a backend that stands for a library: its operations wait until they are let go, and then call themselves a
// success, also after an abort.
type device struct {
	name   string
	serves bool
	runs   chan struct{} // is sent to when an operation begins
	closed *atomic.Int32
}

func (d device) Name() string                { return d.name }
func (d device) Serves(*collective.Key) bool { return d.serves }
func (d device) Alone() bool                 { return false }
func (d device) Close()                      { d.closed.Add(1) }
func (d device) Create(_ context.Context, _ *collective.Key, local []int) (list []collective.Communicator, err error) {
	for range local {
		list = append(list, d)
	}
	return list, nil
}

func (d device) Run(ctx context.Context, _ uint64, _ collective.Op) error {
	d.runs <- struct{}{}
	<-ctx.Done()
	return nil
}

// Backends are an explicit list: the first that serves the clique is taken, and all processes must take the same.
func TestBackends(t *testing.T) {
	clause.Cite(t, "CL-ABT-11", "CL-DES-6", "CL-CCH-1", "CLT-DES-13")
	inBubble(t, func(t *testing.T, w *world) {
		runs, closed := make(chan struct{}, 8), new(atomic.Int32)
		small := device{"small", false, runs, closed}
		lib := device{"lib", true, runs, closed}
		w.group.Backends = []collective.Backend{small, lib, collective.Host{}}
		procs := w.startAll(2)
		comms := w.clique(procs, devices(2))
		go func() {
			<-runs
			<-runs
			comms[1].Revoke(errors.New("enough"))
		}()
		errs := each(comms, func(_ int, c *collective.Comm) error { return c.Do(t.Context(), collective.Barrier{}) })
		for r, err := range errs {
			if !errors.Is(err, collective.ErrCancelled) {
				t.Errorf("rank %d: an operation that was aborted = %v; want ErrCancelled", r, err)
			}
		}
		w.group.Backends = []collective.Backend{collective.Host{}}
		other := w.start(life(2, 12))
		errs = each([]*process{procs[0], procs[1], other}, func(_ int, p *process) error {
			_, err := p.Clique(t.Context(), devices(3), collective.CliqueOptions{})
			return err
		})
		for r, err := range errs {
			if !errors.Is(err, collective.ErrMismatch) || !strings.Contains(err.Error(), `"host"`) {
				t.Errorf("rank %d: a clique of two backends = %v; want ErrMismatch", r, err)
			}
		}
		synctest.Wait() // communicators are closed in the background
		if closed.Load() != 2 {
			t.Errorf("%d communicators were closed; want 2", closed.Load())
		}
	})
}

func TestBackendsAreChecked(t *testing.T) {
	clause.Cite(t, "CL-DES-6")
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(life(0, 10))
		for _, list := range [][]collective.Backend{{nil}, {collective.Host{}, collective.Host{}}} {
			if _, err := collective.New(member{job: w.job, life: p.life}, p.net, collective.Options{Backends: list}); !errors.Is(err, collective.ErrInvalid) {
				t.Errorf("New() with backends %v = %v; want ErrInvalid", list, err)
			}
		}
	})
}

// A picky backend has no operation but the all-reduce, which it leaves to the data of this rank.
type picky struct{ device }

func (p picky) Create(_ context.Context, _ *collective.Key, local []int) (list []collective.Communicator, err error) {
	for range local {
		list = append(list, p)
	}
	return list, nil
}

func (p picky) Run(_ context.Context, _ uint64, o collective.Op) error {
	if _, ok := o.(collective.AllReduce); ok {
		return nil
	}
	return collective.ErrUnsupported
}

// An operation that the backend does not have is refused. The clique is as it was, and runs others.
func TestBackendRefuses(t *testing.T) {
	clause.Cite(t, "CL-ERR-10", "CL-DES-6")
	onEach(t, func(t *testing.T, w *world) {
		w.group.Backends = []collective.Backend{picky{device{"picky", true, nil, new(atomic.Int32)}}}
		comms := w.clique(w.startAll(2), devices(2))
		b := func() memory.Region { return memory.Of(make([]byte, 8)) }
		for range 3 {
			for _, op := range []collective.Op{collective.Barrier{}, collective.Send{In: b(), Count: 1, Type: memory.U8, To: 0}, collective.Signal{}} {
				for r, err := range each(comms, func(_ int, c *collective.Comm) error { return c.Do(t.Context(), op) }) {
					if !errors.Is(err, collective.ErrUnsupported) {
						t.Errorf("rank %d: Do(%T) = %v; want ErrUnsupported", r, op, err)
					}
				}
			}
			errs := each(comms, func(_ int, c *collective.Comm) error {
				if _, err := c.Offer(t.Context(), b()); !errors.Is(err, collective.ErrUnsupported) {
					return err
				}
				return c.Do(t.Context(), collective.AllReduce{In: b(), Out: b(), Count: 8, Type: memory.U8, Reduction: collective.Sum})
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatalf("after an operation that was refused: %v", err)
			}
		}
		err := comms[0].Do(t.Context(), collective.Using{Op: collective.AllReduce{In: b(), Out: b(), Count: 8, Type: memory.U8, Reduction: collective.Sum}, Algorithm: "ring"})
		if !errors.Is(err, collective.ErrUnsupported) || comms[0].Err() != nil {
			t.Errorf("an algorithm of serry on another backend = %v, and then the clique %v", err, comms[0].Err())
		}
	})
}
