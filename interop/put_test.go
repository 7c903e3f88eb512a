package interop

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/serry-dev/serry"
	member "github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/topo"
	"github.com/serry-dev/serry/transfer/jax"
)

// A Go process is one of two processes of a JAX program: arrays are put on its device, and taken from there.
func TestDevicePutWithGo(t *testing.T) {
	clause.Cite(t, "TR-DPT-7", "TR-MAT-5", "TRT-164")
	skipShort(t)
	beside(t, 1)
	srv := serve(t, "--tasks", "2")
	address := unusedAddress(t) // JAX publishes the port that it is given (TR-DPT-7)
	p := start(t, "jax", environment("JAX_PLATFORMS=cpu", "JAX_COORDINATOR_BIND_ADDRESS=127.0.0.1:0"), jaxNew.python(t), "testdata/put.py", srv.addr, address)
	m := together(t, []int{1}, func(ctx context.Context, i int) (*member.Member, error) {
		return member.Join(ctx, member.Config{Address: srv.addr, Task: worker(i)})
	})[0]
	t.Cleanup(func() { m.Close() })
	local, err := topo.CPULocal(serry.TaskIndex(1), bootID(t), nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Exchange(t.Context(), topo.Exchange{Keys: topo.JAXKeys("cpu"), Tasks: 2}, local); err != nil {
		t.Fatal(err)
	}
	s, err := jax.Listen("127.0.0.1:0", jax.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	puts, err := jax.NewPuts(t.Context(), s, m.KV(), 1, jax.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(puts.Close)
	if line := p.line(); line != "ready 2" {
		t.Fatalf("jax says %q", line)
	}

	into := [][]byte{make([]byte, 4000), make([]byte, 4000), make([]byte, 4000)}
	for _, list := range [][][]byte{into[:1], into[1:]} {
		if _, err := puts.Put(t.Context(), []jax.Move{{From: 0, To: 1, Into: list}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 1000 {
		at := func(array int) uint32 { return binary.LittleEndian.Uint32(into[array][4*i:]) }
		if math.Float32frombits(at(0)) != float32(i) || math.Float32frombits(at(1)) != float32(i+1) || at(2) != uint32(2*i) {
			t.Fatalf("element %d came as %x, %x, %x", i, at(0), at(1), at(2))
		}
	}
	want := int64(0)
	var data []byte
	for i := range uint32(50_000) {
		data = binary.LittleEndian.AppendUint32(data, i)
		want += int64(i)
	}
	offers, err := puts.Put(t.Context(), []jax.Move{{From: 1, To: 0, Buffers: []jax.Buffer{{Bytes: data}}}})
	if err != nil {
		t.Fatal(err)
	}
	if line := p.line(); line != fmt.Sprint("sum ", want) {
		t.Errorf("jax says %q; want the sum %d", line, want)
	}
	<-offers[0].Done()
	if err := offers[0].Err(); err != nil {
		t.Errorf("the array that jax took: %v", err)
	}
	p.tell("leave")
	if err := m.Leave(t.Context()); err != nil {
		t.Errorf("Leave() = %v", err)
	}
}
