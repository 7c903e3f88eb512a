package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/serry-dev/serry"
	membership "github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/memory"
)

// fourRanks is a clique of four devices, all of this process.
func fourRanks(t *testing.T) []*collective.Comm {
	t.Helper()
	m, err := membership.Join(t.Context(), membership.Config{Address: serve(t, "--tasks", "1").addr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	net, err := link.Open(t.Context(), m, m.KV(), link.Options{Plain: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { net.Close(context.Background()) })
	task := serry.TaskID{Job: "worker"}
	devices := []serry.DeviceID{0, 1, 2, 3}
	g, err := collective.New(m, net, collective.Options{Owners: map[serry.DeviceID]serry.TaskID{0: task, 1: task, 2: task, 3: task}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close(context.Background()) })
	c, err := g.Clique(t.Context(), devices, collective.CliqueOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c.Local()
}

// analyse has PyTorch's analyser read a flight, and returns what it prints.
func analyse(t *testing.T, f *collective.Flight) string {
	t.Helper()
	dir := t.TempDir()
	for rank := range f.Tracks {
		file, err := os.Create(filepath.Join(dir, fmt.Sprint("rank_", rank)))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.WritePyTorch(file, rank); err != nil {
			t.Fatalf("WritePyTorch(%d) = %v", rank, err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	python := torch.python(t)
	cmd := exec.Command(python, "-W", "ignore", "-m", "torch.distributed.flight_recorder.fr_trace", dir)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(filepath.Dir(python), "../stubs"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("fr_trace = %v\n%s", err, out)
	}
	return string(out)
}

// PyTorch's analyser reads the records of serry: it finds the rank that has not begun an operation, the one that runs another, and
// nothing where all is well.
func TestFlightsInPyTorch(t *testing.T) {
	lab.Clause(t, "CL-FLR-3")
	skipShort(t)
	beside(t, 1)
	vector := func(count int64) memory.Region { return memory.OfSlice(make([]float32, count)) }
	sum := func() collective.Op {
		return collective.AllReduce{Out: vector(16), In: vector(16), Count: 16, Type: memory.F32, Reduction: collective.Sum}
	}
	every := []func() collective.Op{
		sum,
		func() collective.Op { return collective.Barrier{} },
		func() collective.Op {
			return collective.AllGather{Out: vector(16), In: vector(4), Count: 4, Type: memory.F32}
		},
		func() collective.Op {
			return collective.ReduceScatter{Out: vector(4), In: vector(16), Count: 4, Type: memory.F32, Reduction: collective.Max}
		},
		func() collective.Op {
			return collective.AllToAll{Out: vector(16), In: vector(16), Count: 4, Type: memory.F32}
		},
		func() collective.Op {
			return collective.Broadcast{Out: vector(16), In: vector(16), Count: 16, Type: memory.F32, Root: 1}
		},
		func() collective.Op {
			return collective.Gather{Out: vector(16), In: vector(4), Count: 4, Type: memory.F32}
		},
		func() collective.Op {
			return collective.Scatter{Out: vector(4), In: vector(16), Count: 4, Type: memory.F32}
		},
	}
	comms := fourRanks(t)
	start := func(ranks []*collective.Comm, op func() collective.Op) (all []*collective.Future) {
		for _, c := range ranks {
			all = append(all, c.Start(t.Context(), op()))
		}
		return all
	}
	wait := func(all []*collective.Future, want error) {
		t.Helper()
		for i, f := range all {
			if err := f.Wait(); !errors.Is(err, want) {
				t.Fatalf("Wait() of operation %d = %v; want %v", i, err, want)
			}
		}
	}
	for _, op := range every {
		wait(start(comms, op), nil)
	}
	if out := analyse(t, comms[0].Flight(t.Context())); strings.Contains(out, "sequence number") {
		t.Errorf("all is well, and the analyser says\n%s", out)
	}
	hung := start(comms[:3], sum)
	want := fmt.Sprintf("Not all ranks joining collective, sequence number: %d", len(every)+1)
	if out := analyse(t, comms[0].Flight(t.Context())); !strings.Contains(out, want) || !strings.Contains(out, "missing ranks: {3}") {
		t.Errorf("rank 3 has not come, and the analyser says\n%s", out)
	}
	wait(append(hung, start(comms[3:], sum)...), nil)
	wait(append(start(comms[:3], sum), start(comms[3:], every[1])...), collective.ErrMismatch)
	// The analyser calls the rank whose file it reads first right, and all that differ from it culprits.
	want = fmt.Sprintf("Collective sequence number: %d has errors", len(every)+2)
	if out := analyse(t, comms[0].Flight(t.Context())); !strings.Contains(out, want) || !strings.Contains(out, "COLLECTIVE_TYPE_MISMATCH") {
		t.Errorf("rank 3 has run a barrier, and the analyser says\n%s", out)
	}
}
