package interop

import (
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// T-REAL-1: an unmodified jax program attaches by two environment variables
// alone, computes across four processes, and every process exits 0.
func TestJobAttachesByEnvironment(t *testing.T) {
	clause(t, "T-REAL-1", "A-ATT-1", "A-CH-4", "A-KEY-1", "C-VER-1", "C-WIRE-3")
	eachTransport(t, func(t *testing.T, tr transport) {
		eachVenv(t, []venv{jaxNew, jax092, jax082}, func(t *testing.T, v venv) {
			srv := serve(t, tr, "--tasks", "4")
			runJob(t, srv.addr, v, 4, 1)
		})
	})
}

// T-REAL-14: four processes leave and join again without ending; the second
// time is another epoch on the same server.
func TestJobJoinsAgainInTheSameProcesses(t *testing.T) {
	clause(t, "T-REAL-14", "C-EPOCH-2", "C-EPOCH-4", "A-SEQ-2")
	eachTransport(t, func(t *testing.T, tr transport) {
		eachVenv(t, []venv{jaxNew, jax092}, func(t *testing.T, v venv) {
			srv := serve(t, tr, "--tasks", "4")
			runJob(t, srv.addr, v, 4, 2)
		})
	})
}

// T-REAL-2: the address is a gRPC target: a Unix socket, or a list of which
// only the second is served.
func TestTargetForms(t *testing.T) {
	clause(t, "T-REAL-2", "A-CH-9")
	eachTransport(t, func(t *testing.T, tr transport) {
		t.Run("unix", func(t *testing.T) {
			target := "unix:" + filepath.Join(t.TempDir(), "serry.sock")
			serveOn(t, tr, target, "--tasks", "2")
			leave(join(t, target, 2, clientConfig{venv: jaxNew})...)
		})
		t.Run("list", func(t *testing.T) {
			srv := serve(t, tr, "--tasks", "2")
			target := fmt.Sprintf("ipv4:%s,%s", deadAddr(t), srv.addr)
			leave(join(t, target, 2, clientConfig{venv: jaxNew})...)
		})
		t.Run("dns", func(t *testing.T) {
			srv := serve(t, tr, "--tasks", "2")
			leave(join(t, "dns:///"+srv.addr, 2, clientConfig{venv: jax092})...)
		})
	})
}

// Both dialects reach one state: a process of each is a job.
func TestDialectsMixInOneJob(t *testing.T) {
	clause(t, "C-VER-1", "C-VER-4")
	eachTransport(t, func(t *testing.T, tr transport) {
		srv := serve(t, tr, "--tasks", "2")
		a := newClient(t, srv.addr, clientConfig{venv: jaxNew, task: 0})
		b := newClient(t, srv.addr, clientConfig{venv: jax092, task: 1})
		connect(a, b)
		a.call("key_value_set", "greeting", "from the new").value(nil)
		b.begin("blocking_key_value_get", "answer", 60_000)
		b2 := "from the old"
		a.call("key_value_set", "answer", b2).value(nil)
		if got := b.end().text(); got != b2 {
			t.Errorf("b: answer = %q; want %q", got, b2)
		}
		if got := b.call("key_value_try_get", "greeting").text(); got != "from the new" {
			t.Errorf("b: greeting = %q; want %q", got, "from the new")
		}
		for range 2 { // the second use of the id counts on in both dialects
			barrier("both", a, b)
		}
		if a, b := liveNodes(a, b); !cmp.Equal(a, b) || len(a) != 2 {
			t.Errorf("get_live_nodes = %v and %v; want the same two tasks", a, b)
		}
		leave(a, b)
	})
}

// sight is what one process of testdata/job.py prints of a round.
type sight struct {
	Gathered  []int
	Sum       float64
	Neighbour string
	Keys      []string
	Alive     []int
}

// runJob runs testdata/job.py in n processes and checks each round and exit.
func runJob(t *testing.T, addr string, v venv, n, rounds int) {
	t.Helper()
	job := make([]*process, n)
	for i := range job {
		job[i] = start(t, fmt.Sprintf("%s process %d", v, i),
			environment("JAX_COORDINATOR_ADDRESS="+addr, "JAX_COORDINATOR_BIND_ADDRESS=127.0.0.1:0"),
			v.python(t), "testdata/job.py", fmt.Sprint(n), fmt.Sprint(i), fmt.Sprint(rounds))
	}
	for range rounds {
		for i, p := range job {
			var got sight
			line := p.line()
			if err := json.Unmarshal([]byte(line), &got); err != nil {
				t.Fatalf("%s: printed %q: %v", p.name, line, err)
			}
			if diff := cmp.Diff(wantSight(n, i), got); diff != "" {
				t.Errorf("%s: saw (-want +got)\n%s", p.name, diff)
			}
		}
	}
	for _, p := range job {
		p.leaves()
	}
}

func wantSight(n, me int) sight {
	want := sight{
		Sum:       float64(n * (n + 1) / 2),
		Neighbour: fmt.Sprintf("hello from %d", (me+1)%n),
	}
	for i := range n {
		want.Gathered = append(want.Gathered, i)
		want.Alive = append(want.Alive, i)
		want.Keys = append(want.Keys, fmt.Sprintf("from/%d", i))
	}
	return want
}

// deadAddr returns an address on which nobody listens any more.
func deadAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return l.Addr().String()
}

// barrier takes clients through one use of a barrier of all tasks.
func barrier(id string, clients ...*client) {
	for _, c := range clients {
		c.t.Helper()
		c.begin("wait_at_barrier", id, 60_000)
	}
	for _, c := range clients {
		c.end().value(nil)
	}
}

// liveNodes asks two clients at once who of both is alive, with incarnations.
func liveNodes(a, b *client) (fromA, fromB map[string]uint64) {
	a.t.Helper()
	a.begin("get_live_nodes", []int{0, 1})
	b.begin("get_live_nodes", []int{0, 1})
	a.end().value(&fromA)
	b.end().value(&fromB)
	return fromA, fromB
}
