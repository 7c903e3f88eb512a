package interop

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/serry-dev/serry"
	member "github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/topo"
	"github.com/serry-dev/serry/wire/topopb"
)

// Go members and jax processes are one job. They find the same devices, whoever of them is task 0 and
// builds the topology, meet at barriers, read each other's keys and agree on who is alive.
func TestGoMembersBesideJax(t *testing.T) {
	lab.Clause(t, "P-TOP-8", "C-TOP-6", "C-TOP-12", "C-TOP-43", "C-VER-4", "A-LIVE-1")
	skipShort(t)
	t.Parallel()
	for _, goTasks := range [][]int{{0, 3}, {1, 2}} {
		t.Run(fmt.Sprint("Go is ", goTasks), func(t *testing.T) {
			beside(t, 2)
			srv := serve(t, "--tasks", "4")
			j := joinMixed(t, srv.addr, jaxNew, 4, goTasks...)
			j.sameTopology()
			j.shareKeys()
			j.meet("step")
			j.meet("step") // uses of one id are counted alike
			j.agree()
			j.leave()
		})
	}
}

// sameTopology has all tasks exchange their devices, and compares what jax made of it, what the Go
// members made of it, and what is in the store. In the end the jax processes compute on their own
// devices of that topology.
func (j *mixedJob) sameTopology() {
	j.t.Helper()
	locals := make([]*topopb.LocalTopologyProto, j.size)
	for i := range locals {
		local, err := topo.CPULocal(serry.TaskIndex(i), bootID(j.t), nil, devicesEach)
		if err != nil {
			j.t.Fatal(err)
		}
		if j.venv == jax092 && !j.isGo(i) { // C-TOP-43: the name was another then
			for _, d := range local.Devices {
				d.DebugString = fmt.Sprint("TFRT_CPU_", d.GlobalDeviceId)
			}
		}
		locals[i] = local
	}
	for _, c := range j.jax {
		c.begin("devices")
	}
	results := together(j.t, j.members, func(ctx context.Context, m *member.Member) (*topo.Result, error) {
		return m.Exchange(ctx, topo.Exchange{Keys: topo.JAXKeys("cpu"), Tasks: j.size}, locals[m.Task().Index])
	})
	for i, r := range results {
		if diff := cmp.Diff(results[0].Global, r.Global, protocmp.Transform()); diff != "" {
			j.t.Errorf("%v: topology differs from that of %v (-want +got)\n%s", j.members[i].Task(), j.members[0].Task(), diff)
		}
	}
	for _, c := range j.jax {
		var got [][2]int
		c.end().value(&got)
		if diff := cmp.Diff(devicesOf(results[0].Global), got); diff != "" {
			j.t.Errorf("%s: jax.devices() differ from the topology of %v (-want +got)\n%s", c.name, j.members[0].Task(), diff)
		}
	}
	j.topologyKeys(locals)
	j.compute()
}

// topologyKeys holds the keys of the topology to what a Go member would write for each task, byte by
// byte, and the global one to what jaxlib reads there.
func (j *mixedJob) topologyKeys(locals []*topopb.LocalTopologyProto) {
	j.t.Helper()
	for i, local := range locals {
		want, err := topo.Encode(local)
		if err != nil {
			j.t.Fatal(err)
		}
		key := fmt.Sprint("cpu:local_topology/cpu/", i)
		got, err := j.members[0].KV().Get(j.t.Context(), key)
		if err != nil || !bytes.Equal(got, want) {
			j.t.Errorf("Get(%s) = %q, %v; want %q", key, got, err, want)
		}
	}
	const key = "cpu:global_topology/cpu"
	stored, err := j.members[0].KV().Get(j.t.Context(), key)
	if err != nil {
		j.t.Fatalf("Get(%s) = %v", key, err)
	}
	for _, c := range j.jax {
		if got := c.call("bytes_of", key).text(); got != latin1(stored) {
			j.t.Errorf("%s: key %s = %q; want %q", c.name, key, got, stored)
		}
	}
}

// compute sums over all devices of the jax processes, which meet through the store for it.
func (j *mixedJob) compute() {
	j.t.Helper()
	var ids []int
	for i := range j.size {
		for o := range devicesEach {
			if !j.isGo(i) {
				ids = append(ids, i*2048+o) // how jaxlib numbers CPU devices (C-TOP-42)
			}
		}
	}
	for _, c := range j.jax {
		c.begin("total", ids)
	}
	for _, c := range j.jax {
		var got int
		if c.end().value(&got); got != len(ids) {
			j.t.Errorf("%s: sum over devices %v = %d; want %d", c.name, ids, got, len(ids))
		}
	}
}

// devicesOf lists a topology as testdata/member.py does: id and task of every device.
func devicesOf(g *topopb.GlobalTopologyProto) (devices [][2]int) {
	for _, p := range g.Processes {
		for _, d := range p.Devices {
			devices = append(devices, [2]int{int(d.GlobalDeviceId), int(p.ProcessId)})
		}
	}
	return devices
}

// bootID is the boot of this host, as jaxlib finds it.
func bootID(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Skip("this host does not tell its boot: ", err)
	}
	return topo.BootID(string(content))
}

// latin1 is a string of one character for each byte, as bytes come from Python.
func latin1(b []byte) string {
	runes := make([]rune, len(b))
	for i, c := range b {
		runes[i] = rune(c)
	}
	return string(runes)
}
