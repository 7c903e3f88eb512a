package launch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
)

// variables makes a map of an environment, in which no name may be twice.
func variables(t *testing.T, list []string) map[string]string {
	t.Helper()
	vars := make(map[string]string)
	for _, v := range list {
		name, value, _ := strings.Cut(v, "=")
		if _, twice := vars[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		vars[name] = value
	}
	return vars
}

func TestEnvironmentOfJax(t *testing.T) {
	clause.Cite(t, "A-ATT-1", "A-ATT-11", "A-ATT-7", "DLV-23")
	at := seat{Task: 5, Tasks: 8, Local: 1, Locals: 4, Node: 1, Nodes: 2, Attempt: 3, Life: 2}
	for _, c := range []struct {
		name string
		env  environment
		want map[string]string // "": not there
	}{
		{"place in the job", environment{mpi: true}, map[string]string{
			"JAX_COORDINATOR_ADDRESS": "127.0.0.1:1", "JAX_COORDINATOR_BIND_ADDRESS": "127.0.0.1:0",
			"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
			"JAX_LOCAL_DEVICE_IDS": "1", "SERRY_TASK": "5", "SERRY_TASKS": "8", "SERRY_LOCAL_TASK": "1", "SERRY_LOCAL_TASKS": "4",
			"SERRY_NODE": "1", "SERRY_NODES": "2", "SERRY_ATTEMPT": "3", "SERRY_LIFE": "2", "SERRY_ADDRESS": "127.0.0.1:1",
			"no_grpc_proxy": "",
		}},
		{"no version of Open MPI", environment{mpi: true, base: []string{"OMPI_VERSION=5.0.1", "OMPI_COMM_WORLD_RANK=77"}},
			map[string]string{"OMPI_VERSION": "", "OMPI_COMM_WORLD_RANK": "5"}},
		{"a real MPI", environment{base: []string{"OMPI_VERSION=5.0.1", "OMPI_COMM_WORLD_RANK=77"}},
			map[string]string{"OMPI_VERSION": "5.0.1", "OMPI_COMM_WORLD_RANK": "77", "JAX_LOCAL_DEVICE_IDS": "", "SERRY_TASK": "5"}},
		{"device ids of the user", environment{mpi: true, base: []string{"JAX_LOCAL_DEVICE_IDS=0,2"}},
			map[string]string{"JAX_LOCAL_DEVICE_IDS": "0,2"}},
		{"devices in equal parts", environment{mpi: true, devices: []int{0, 1, 2, 3, 4, 5, 6, 7}},
			map[string]string{"JAX_LOCAL_DEVICE_IDS": "2,3"}},
		{"devices that cannot be dealt", environment{mpi: true, devices: []int{0, 1, 2}},
			map[string]string{"JAX_LOCAL_DEVICE_IDS": "1"}},
		{"a proxy is not for us", environment{base: []string{"http_proxy=http://p", "no_proxy=a,b"}},
			map[string]string{"no_grpc_proxy": "a,b,127.0.0.1", "no_proxy": "a,b"}},
		{"Python does not buffer, and says where it died", environment{}, map[string]string{"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}},
		{"unless the user says otherwise", environment{base: []string{"PYTHONUNBUFFERED=", "PYTHONFAULTHANDLER=0"}},
			map[string]string{"PYTHONUNBUFFERED": "", "PYTHONFAULTHANDLER": "0"}},
		{"the shim comes first", environment{shim: "/tmp/shim", signal: 44, base: []string{"PYTHONPATH=/a:/b"}}, map[string]string{"PYTHONPATH": "/tmp/shim:/a:/b", "SERRY_STACK_SIGNAL": "44"}},
		{"the shim alone", environment{shim: "/tmp/shim", signal: 44, base: []string{"PYTHONPATH="}}, map[string]string{"PYTHONPATH": "/tmp/shim"}},
		{"no shim", environment{base: []string{"PYTHONPATH=/a"}}, map[string]string{"PYTHONPATH": "/a", "SERRY_STACK_SIGNAL": ""}},
		{"the last word counts", environment{base: []string{"X=1", "X=2"}}, map[string]string{"X": "2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.env.address = "127.0.0.1:1"
			got := variables(t, c.env.list(at))
			for name, want := range c.want {
				if got[name] != want {
					t.Errorf("%s is %q; want %q", name, got[name], want)
				}
			}
		})
	}
}

func TestAccelerators(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "dev"), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"} {
		if err := os.WriteFile(filepath.Join(root, "dev", name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		env  []string
		want []int
	}{
		{nil, []int{0, 1}},
		{[]string{"CUDA_VISIBLE_DEVICES=4,5,6"}, []int{0, 1, 2}},
		{[]string{"CUDA_VISIBLE_DEVICES="}, []int{0, 1}},
	} {
		if got := (environment{base: c.env}).accelerators(root); !slices.Equal(got, c.want) {
			t.Errorf("accelerators with %q = %v; want %v", c.env, got, c.want)
		}
	}
}
