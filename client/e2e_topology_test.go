package client_test

import (
	"context"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/topo"
	"github.com/serry-dev/serry/wire/topopb"
)

// devices is what a task on a host publishes: how many there are.
func devices(task int, boot string, n int) *topopb.LocalTopologyProto {
	l := &topopb.LocalTopologyProto{ProcessId: int32(task), BootId: boot}
	for i := range n {
		l.Devices = append(l.Devices, &topopb.DeviceProto{LocalDeviceOrdinal: int32(i)})
	}
	return l
}

// exchange lets all tasks exchange topologies, the last first, and returns what they agree on.
func exchange(t *testing.T, tasks []*task, locals []*topopb.LocalTopologyProto) *topo.Topology {
	t.Helper()
	found := make([]*topopb.GlobalTopologyProto, len(tasks))
	ends := make([]<-chan error, len(tasks))
	for i := len(tasks) - 1; i >= 0; i-- {
		ends[i] = async(func() error {
			e := topo.Exchange{Keys: topo.Keys{Platform: "cpu"}, Tasks: len(tasks), Assign: true, Record: &topo.TaskRecord{}}
			r, err := tasks[i].Exchange(context.Background(), e, locals[i])
			if err == nil {
				found[i] = r.Global
			}
			return err
		})
		synctest.Wait()
	}
	for i, end := range ends {
		if err := <-end; err != nil {
			t.Fatalf("Exchange() of task %d = %v", i, err)
		}
		if !proto.Equal(found[i], found[0]) {
			t.Errorf("task %d found %v; want the same as task 0, %v", i, found[i], found[0])
		}
	}
	all, err := topo.Read(found[0])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestDevicesOfTwoTasks(t *testing.T) {
	lab.Clause(t, "T-E2E-2")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		tasks := newFleet(t, d, cluster(2)).join(2)
		all := exchange(t, tasks, []*topopb.LocalTopologyProto{devices(0, "foo", 3), devices(1, "bar", 1)})
		for i, want := range []struct {
			task, partition int
		}{{0, 0}, {0, 0}, {0, 0}, {1, 1}} {
			got, ok := all.Device(serry.DeviceID(i))
			if !ok || int(got.Task) != want.task || got.Partition != want.partition {
				t.Errorf("device %d is %+v, %v; want it of task %d in partition %d", i, got, ok, want.task, want.partition)
			}
		}
		keys := []string{"key1", "key2"}
		for i, k := range tasks {
			put(t, k, keys[i])
		}
		for i, k := range tasks {
			wantValue(t, k, keys[1-i], "value of "+keys[1-i])
		}
	})
}

func TestDevicesOfElevenTasks(t *testing.T) {
	lab.Clause(t, "T-E2E-3")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		const n = 11
		tasks := newFleet(t, d, cluster(n)).join(n)
		var locals []*topopb.LocalTopologyProto
		for i := range n {
			locals = append(locals, devices(i, []string{"even", "odd"}[i%2], 1))
		}
		all := exchange(t, tasks, locals)
		if got := all.Tasks(); len(got) != n || got[n-1] != n-1 {
			t.Errorf("Tasks() = %v; want 0 to %d", got, n-1)
		}
		// The devices of one host follow each other: 0, 2, 4, ..., then 1, 3, ...
		for i := range n {
			want := 2 * i
			if i > n/2 {
				want = 2*(i-n/2) - 1
			}
			got, ok := all.Device(serry.DeviceID(i))
			if !ok || int(got.Task) != want || got.Partition != want%2 {
				t.Errorf("device %d is %+v, %v; want it of task %d in partition %d", i, got, ok, want, want%2)
			}
		}
	})
}
