package launch

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/serry-dev/serry/goodput"
	"github.com/serry-dev/serry/internal/pystack"
	"github.com/serry-dev/serry/secure"
)

// Variables that tasks read to find their job, beside [secure.EnvSecretFile] and [goodput.EnvStepFile]. Package client reads those
// that concern it.
const (
	EnvAddress    = "SERRY_ADDRESS"     // of the coordination service
	EnvTask       = "SERRY_TASK"        // number of the task in the job
	EnvTasks      = "SERRY_TASKS"       // how many there are
	EnvLocalTask  = "SERRY_LOCAL_TASK"  // number of the task on its host
	EnvLocalTasks = "SERRY_LOCAL_TASKS" // how many there are on its host
	EnvNode       = "SERRY_NODE"        // number of the host
	EnvNodes      = "SERRY_NODES"       // how many there are
	EnvAttempt    = "SERRY_ATTEMPT"     // number of the attempt, from 1
	EnvLife       = "SERRY_LIFE"        // how many processes the task has had in this attempt, with this one
	EnvRun        = "SERRY_RUN"         // the same for everything that a job started, and nothing else

	EnvHeartbeatTimeout = "SERRY_HEARTBEAT_TIMEOUT" // how long the service lets a task be silent
)

// A seat is one task of an attempt as its host sees it.
type seat struct {
	Task, Tasks   int
	Local, Locals int
	Node, Nodes   int
	Attempt, Life int
}

// valid says whether a seat can be one of this host. It comes from another.
func (s seat) valid(cfg Config) bool {
	return s.Tasks == cfg.total() && s.Task >= 0 && s.Task < s.Tasks && s.Locals == cfg.Tasks && s.Local >= 0 && s.Local < s.Locals &&
		s.Nodes == cfg.nodes() && s.Node >= 0 && s.Node < s.Nodes && s.Task == s.Node*s.Locals+s.Local && s.Attempt > 0 && s.Life > 0
}

// environment is that of one process.
type environment struct {
	base    []string
	run     string
	address string
	secret  string // file with the secret of the attempt, or empty
	steps   string // file for steps, or empty
	shim    string // folder of the program that Python runs at its start, or empty
	signal  int    // at which that writes stacks
	beat    string // heartbeat timeout of the service
	mpi     bool   // tell jax its rank by the variables of Open MPI
	devices []int  // accelerators of this host
}

// list makes the variables of the task at s. What jax reads is set as A-ATT-11 says: the Open MPI
// detection is the first that jax tries, and the only one that takes a rank from the environment
// alone. The user's own device ids stay.
func (e environment) list(s seat) []string {
	set := map[string]string{
		EnvAddress: e.address, EnvRun: e.run, goodput.EnvStepFile: e.steps, EnvHeartbeatTimeout: e.beat, secure.EnvSecretFile: e.secret,
		EnvTask: strconv.Itoa(s.Task), EnvTasks: strconv.Itoa(s.Tasks),
		EnvLocalTask: strconv.Itoa(s.Local), EnvLocalTasks: strconv.Itoa(s.Locals),
		EnvNode: strconv.Itoa(s.Node), EnvNodes: strconv.Itoa(s.Nodes),
		EnvAttempt: strconv.Itoa(s.Attempt), EnvLife: strconv.Itoa(s.Life),

		"JAX_COORDINATOR_ADDRESS":      e.address,
		"JAX_COORDINATOR_BIND_ADDRESS": "127.0.0.1:0", // process 0 starts a service that no task calls; it must not take the address of serry's
	}
	var unset []string
	if e.mpi {
		set["OMPI_MCA_orte_hnp_uri"] = "0.0;tcp://127.0.0.1:0" // must be there; is not read when the address is known
		set["OMPI_COMM_WORLD_SIZE"] = strconv.Itoa(s.Tasks)
		set["OMPI_COMM_WORLD_RANK"] = strconv.Itoa(s.Task)
		set["OMPI_COMM_WORLD_LOCAL_RANK"] = strconv.Itoa(s.Local)
		unset = append(unset, "OMPI_VERSION")
		if e.value("JAX_LOCAL_DEVICE_IDS") == "" {
			set["JAX_LOCAL_DEVICE_IDS"] = deviceIDs(e.devices, s)
		}
	}
	// Python buffers what it writes to a pipe, and a rank that is killed takes its last lines with it; and it dies of
	// a fault without a word. A program that wants it so says so, also by an empty value (DLV-23).
	for _, name := range []string{"PYTHONUNBUFFERED", "PYTHONFAULTHANDLER"} {
		if !e.says(name) {
			set[name] = "1"
		}
	}
	if e.shim != "" { // D-ST-8
		set["PYTHONPATH"] = e.shim
		if own := e.value("PYTHONPATH"); own != "" {
			set["PYTHONPATH"] += string(os.PathListSeparator) + own
		}
		set[pystack.EnvSignal] = strconv.Itoa(e.signal)
	}
	if host, _, err := net.SplitHostPort(e.address); err == nil && e.proxied() {
		set["no_grpc_proxy"] = e.noProxy(host)
	}
	return merge(e.base, set, unset)
}

// says is whether the base has a variable, be it empty.
func (e environment) says(name string) bool {
	return slices.ContainsFunc(e.base, func(v string) bool { return strings.HasPrefix(v, name+"=") })
}

// value is what the base says of a variable; the last word counts.
func (e environment) value(name string) string {
	for i := len(e.base) - 1; i >= 0; i-- {
		if key, value, _ := strings.Cut(e.base[i], "="); key == name {
			return value
		}
	}
	return ""
}

// proxied says whether gRPC would send calls through an HTTP proxy (A-ATT-7).
func (e environment) proxied() bool {
	return e.value("grpc_proxy") != "" || e.value("https_proxy") != "" || e.value("http_proxy") != ""
}

// noProxy adds a host to those that gRPC calls directly.
func (e environment) noProxy(host string) string {
	list := e.value("no_grpc_proxy")
	if list == "" {
		list = e.value("no_proxy")
	}
	return strings.TrimPrefix(list+","+host, ",")
}

// deviceIDs deals the accelerators of a host to its tasks in equal parts; where that does not work
// out, each task gets the one of its own number. The list is never empty.
func deviceIDs(devices []int, s seat) string {
	mine := []int{s.Local}
	if n := len(devices) / s.Locals; n > 0 && len(devices)%s.Locals == 0 {
		mine = devices[s.Local*n : (s.Local+1)*n]
	}
	texts := make([]string, len(mine))
	for i, d := range mine {
		texts[i] = strconv.Itoa(d)
	}
	return strings.Join(texts, ",")
}

// accelerators numbers the accelerators that a process on this host would see, as jax does: those
// made visible, or all whose device file is there. root is where /dev is.
func (e environment) accelerators(root string) []int {
	n := 0
	for _, name := range []string{"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"} {
		if list := e.value(name); list != "" {
			n = len(strings.Split(list, ","))
			break
		}
	}
	if n == 0 {
		files, _ := filepath.Glob(filepath.Join(root, "dev/nvidia[0-9]*")) // the pattern is well formed
		n = len(files)
	}
	ids := make([]int, n)
	for i := range ids {
		ids[i] = i
	}
	return ids
}

// Accelerators numbers the accelerators of this host that a program with the variables of this process sees.
func Accelerators() []int { return environment{base: os.Environ()}.accelerators("/") }

// merge returns base with variables set and others taken out. Of a variable that base has twice, the
// last word counts.
func merge(base []string, set map[string]string, unset []string) []string {
	for _, name := range unset {
		set[name] = ""
	}
	last := make(map[string]int)
	for i, v := range base {
		name, _, _ := strings.Cut(v, "=")
		last[name] = i
	}
	var merged []string
	for i, v := range base {
		if name, _, _ := strings.Cut(v, "="); !has(set, name) && last[name] == i {
			merged = append(merged, v)
		}
	}
	for _, name := range sortedKeys(set) {
		if v := set[name]; v != "" {
			merged = append(merged, name+"="+v)
		}
	}
	return merged
}

func baseEnvironment(given []string) []string {
	if given == nil {
		return os.Environ()
	}
	return given
}
