package storm_test

import (
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/lab/storm"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/store/member"
)

// etcdAtOnce is how many fleets on etcd run at the same time: most of what they do is wait.
const etcdAtOnce = 8

// TestEtcdOfFleets plays schedules with servers on a real etcd, the way to which has faults, in real time: a
// fifth as many as in virtual time, and at most 500.
func TestEtcdOfFleets(t *testing.T) {
	lab.Clause(t, "C-LOG-2", "C-LOG-4", "C-LOG-5", "C-TERM-1", "C-TERM-2", "C-REQ-2", "C-LIM-1")
	var total tally
	n := min(max(1, *schedules/5), 500)
	o := storm.Options{Etcd: startEtcd(t), Planted: wanted(), Verbose: *schedules == 1, Without: strings.Split(*without, ",")}
	if seed, err := searchStorm(t, o, *first, n, &total); err != nil {
		t.Fatalf("schedule %d: %v\nto repeat it: go test ./internal/lab/storm -run TestEtcdOfFleets -first %d -schedules 1 -count 20", seed, err, seed)
	}
	for _, fault := range storm.EtcdFaults() {
		if n >= 60 && total.struck[fault] == 0 {
			t.Errorf("no schedule had the fault %q", fault)
		}
	}
	t.Logf("%d schedules from %d on; %d leaderships; faults: %v", n, *first, total.reigns, total.struck)
}

// TestPlantedFaultsOfEtcdAreFound looks for mistakes in the store of etcd.
func TestPlantedFaultsOfEtcdAreFound(t *testing.T) {
	for _, fault := range []plant.Faults{plant.LateDuplicate, plant.NoFence} {
		t.Run(fault.String(), func(t *testing.T) {
			most := *enough / 20
			seed, err := searchStorm(t, storm.Options{Etcd: startEtcd(t), Planted: fault}, *first, most, new(tally))
			if err == nil {
				t.Fatalf("not found in %d schedules from %d on", most, *first)
			}
			t.Logf("found by schedule %d: %.600v", seed, err)
		})
	}
}

// atOnce runs f several times at the same time, also where parallel tests would stand in line for a processor.
func atOnce(n uint64, f func()) {
	var all sync.WaitGroup
	for range n {
		all.Go(f)
	}
	all.Wait()
}

// startEtcd starts an etcd with one member, in memory where the system has a folder for that, and returns
// its address.
func startEtcd(t *testing.T) string {
	t.Helper()
	parent := "/dev/shm"
	if _, err := os.Stat(parent); err != nil {
		parent = ""
	}
	dir, err := os.MkdirTemp(parent, "serry")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := l.Addr().String()
	l.Close()
	m, err := member.Start(t.Context(), member.Config{Name: "a", Peers: map[string]string{"a": free}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return "unix:" + dir + "/client.sock"
}
