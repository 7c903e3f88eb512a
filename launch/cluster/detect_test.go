package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry/internal/lab/clause"
)

// with is a system with some variables, in which every name resolves.
func with(vars map[string]string) System {
	return System{
		Env:    func(name string) string { return vars[name] },
		Root:   os.DevNull, // nothing is there
		Lookup: func(_ context.Context, host string) ([]string, error) { return []string{"10.0.0.9"}, nil },
		Pause:  time.Nanosecond,
	}
}

func ompi(uri string) map[string]string {
	return map[string]string{orteURI: uri, mpiSize: "4", mpiRank: "2", mpiLocal: "1"}
}

func slurm(nodes string) map[string]string {
	return map[string]string{
		"SLURM_JOB_ID": "12345", slurmNodes: nodes, "SLURM_NTASKS": "8", "SLURM_PROCID": "5", "SLURM_LOCALID": "3",
	}
}

// lws has what LeaderWorkerSet puts into a container.
func lws() map[string]string {
	return map[string]string{lwsLeader: "leader.svc.ns", "LWS_GROUP_SIZE": "4", "LWS_WORKER_INDEX": "3"}
}

// skypilot has what SkyPilot sets on the second of two nodes.
func skypilot(task string) map[string]string {
	return map[string]string{skyNodes: "10.0.0.1\n10.0.0.2\n", "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "1", skyTask: task}
}

// plus adds variables.
func plus(vars map[string]string, more ...string) map[string]string {
	for i := 0; i < len(more); i += 2 {
		vars[more[i]] = more[i+1]
	}
	return vars
}

func TestDetect(t *testing.T) {
	clause.Cite(t, "P-ENV-1", "TC-ENV-01", "TC-ENV-02", "TC-ENV-03", "TC-ENV-04", "TC-ENV-05", "TC-ENV-06", "TC-ENV-09",
		"C-ENV-3", "C-ENV-4", "C-ENV-10", "C-ENV-11", "C-ENV-12", "C-ENV-13", "P-ENV-2", "DLV-25", "DLVT-9")
	gke := map[string]string{
		"JAX_FORCE_TPU_INIT": "1", "TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "a,b,c,d", "TPU_WORKER_ID": "2",
		"MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": "1", "MEGASCALE_COORDINATOR_ADDRESS": "h0:8080",
	}
	const four, six = "1531576320.0;tcp://10.96.0.1,10.148.0.1,10.108.0.1:34911", "1314521088.0;tcp6://[fe80::b9b:ac5d:9cf0:b858,2620:10d:c083:150e::3000:2]:43370"
	for _, c := range []struct {
		name          string
		vars          map[string]string
		used          string
		address       string
		processes, id int
		devices       []int
	}{
		{"open mpi", ompi(four), "ompi", "10.96.0.1:62624", 4, 2, []int{1}},
		{"open mpi, version 6 of ip", ompi(six), "ompi", "[fe80::b9b:ac5d:9cf0:b858]:62880", 4, 2, []int{1}},
		{"open mpi, given port", plus(ompi(four), "JAX_COORDINATOR_PORT", "1234"), "ompi", "10.96.0.1:1234", 4, 2, []int{1}},
		{"open mpi, version 6, given port", plus(ompi(six), "JAX_COORDINATOR_PORT", "1234"), "ompi", "[fe80::b9b:ac5d:9cf0:b858]:1234", 4, 2, []int{1}},
		{"open mpi 5", map[string]string{mpiSize: "4", mpiRank: "2", mpiLocal: "0"}, "ompi", "", 4, 2, []int{0}},
		{"slurm, one node", slurm("node001"), "slurm", "node001:61497", 8, 5, []int{3}},
		{"slurm, given port", plus(slurm("node001"), "JAX_COORDINATOR_PORT", "99"), "slurm", "node001:99", 8, 5, []int{3}},
		{"open mpi before slurm", plus(slurm("node001"), orteURI, four, mpiSize, "2", mpiRank, "1", mpiLocal, "1"), "ompi", "10.96.0.1:62624", 2, 1, []int{1}},
		{"kubernetes engine, two slices", gke, "gketpu", "h0:8482", 8, 6, nil},
		{"torchrun", map[string]string{"MASTER_ADDR": "m", "MASTER_PORT": "29500", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"},
			"torchrun", "m:29501", 2, 1, []int{1}},
		{"leader worker set", lws(), "lws", "leader.svc.ns:55527", 4, 3, nil},
		{"leader worker set, given port", plus(lws(), "JAX_COORDINATOR_PORT", "99"), "lws", "leader.svc.ns:99", 4, 3, nil},
		{"slurm before leader worker set", plus(slurm("node001"), lwsLeader, "a", "LWS_GROUP_SIZE", "2", "LWS_WORKER_INDEX", "1"), "slurm", "node001:61497", 8, 5, []int{3}},
		{"skypilot", skypilot("sky-1_c_1"), "skypilot", "10.0.0.1:61802", 2, 1, nil},
		{"skypilot, another task on the same nodes", skypilot("sky-1_c_2"), "skypilot", "10.0.0.1:65495", 2, 1, nil},
		{"nothing", nil, "", "", 0, 0, nil},
		{"a pod that is in no indexed Job", map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "", "", 0, 0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, findings, err := Detect(t.Context(), with(c.vars), Place{}, Auto)
			if err != nil || p.Address.Is != c.address || p.Processes.Is != c.processes || p.ID.Is != c.id || !slices.Equal(p.Devices.Is, c.devices) {
				t.Errorf("Detect() = %+v, %v; want %s, %d of %d, %v", p, err, c.address, c.id, c.processes, c.devices)
			}
			for _, f := range findings {
				if f.Used != (f.Name == c.used) || f.Why == "" {
					t.Errorf("%+v; want %q used, and a reason", f, c.used)
				}
			}
			if len(findings) != len(Names()) {
				t.Errorf("%d findings; want one for each of %v", len(findings), Names())
			}
		})
	}
}

func TestSlurmNeedsAllFive(t *testing.T) {
	clause.Cite(t, "TC-ENV-05")
	for name := range slurm("n") {
		vars := slurm("n")
		delete(vars, name)
		if ok, why := allSet(slurmNodes, slurmVariables)(t.Context(), with(vars)); ok || !strings.Contains(why, name) {
			t.Errorf("without %s: present %v, %q; want that it is missing", name, ok, why)
		}
	}
}

func TestFirstHost(t *testing.T) {
	clause.Cite(t, "TC-ENV-04", "C-ENV-11")
	for list, want := range map[string]string{
		"node001": "node001", "node001,host2": "node001", "node[001-0015],host2": "node001", "node[001,007-015]": "node001",
		"node[001]": "node001", "rack[1-2]n[03,05]": "rack1n03", "a[1-2]b,c": "a1b", "[7-9]": "7",
		"": "", "node[1": "", "node]1": "", ",a": "",
	} {
		got, err := firstHost(list)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("firstHost(%q) = %q, %v; want %q", list, got, err, want)
		}
	}
}

func FuzzFirstHost(f *testing.F) {
	f.Add("node[001,007-015],x")
	f.Fuzz(func(t *testing.T, list string) {
		if host, err := firstHost(list); err == nil && (host == "" || strings.ContainsAny(host, ",[]")) && !strings.ContainsAny(list, "[]") {
			t.Errorf("firstHost(%q) = %q; want one host", list, host)
		}
	})
}

// What is given is kept; where all is given nobody looks (TC-ENV-07).
func TestGivenValuesStay(t *testing.T) {
	clause.Cite(t, "TC-ENV-07", "C-ENV-2", "C-ENV-5", "C-ENV-1")
	given := Place{
		Address: Value[string]{"me:1", "--coordinator"}, Processes: Value[int]{2, "--nnodes"}, ID: Value[int]{1, "--node-rank"},
	}
	p, findings, err := Detect(t.Context(), with(slurm("n")), given, Auto)
	want := given
	want.Devices = Value[[]int]{[]int{3}, "SLURM_LOCALID"}
	if diff := cmp.Diff(want, p); err != nil || findings == nil || diff != "" {
		t.Errorf("three given: %v, differs (-want +got)\n%s", err, diff)
	}
	given.Devices = Value[[]int]{[]int{0}, "JAX_LOCAL_DEVICE_IDS"}
	p, findings, err = Detect(t.Context(), with(slurm("n")), given, Auto)
	if diff := cmp.Diff(given, p); err != nil || findings != nil || diff != "" {
		t.Errorf("all given: %v, findings %v, differs\n%s", err, findings, diff)
	}
	if p, findings, err := Detect(t.Context(), with(slurm("n")), Place{}, None); err != nil || findings != nil || p.ID.Known() {
		t.Errorf("Detect(none) = %+v, %v, %v; want nothing", p, findings, err)
	}
}

func TestNamedMethods(t *testing.T) {
	clause.Cite(t, "TC-ENV-08", "C-ENV-3", "P-ENV-3")
	for name, words := range map[string]string{
		"lsf":    "want auto, none or one of ompi, slurm, gcetpu, gketpu, k8s, torchrun, lws, skypilot",
		"ompi":   "is not there: neither OMPI_MCA_orte_hnp_uri nor",
		"mpi4py": "want auto",
	} {
		p, _, err := Detect(t.Context(), with(slurm("n")), Place{}, name)
		if err == nil || !strings.Contains(err.Error(), words) || p.Validate() == nil {
			t.Errorf("Detect(%s) = %+v, %v; want %q, and no place to take", name, p, err, words)
		}
	}
	if p, _, err := Detect(t.Context(), with(plus(slurm("n"), orteURI, "x")), Place{}, "slurm"); err != nil || p.ID.Is != 5 {
		t.Errorf("Detect(slurm) = %+v, %v; want the one that was asked for", p, err)
	}
}

func TestDetectionThatFails(t *testing.T) {
	clause.Cite(t, "C-ENV-10", "C-ENV-14", "C-ENV-15")
	unknown := func(context.Context, string) ([]string, error) { return nil, errors.New("no such host") }
	for _, c := range []struct {
		name, method string
		vars         map[string]string
		lookup       bool
		want         string
	}{
		{"no address in the uri", Auto, ompi("12.0;udp://1.2.3.4:5"), true, "no address"},
		{"no job in the uri", Auto, ompi("x;tcp://1.2.3.4:5"), true, "no number of a job"},
		{"rank is no number", Auto, plus(ompi("0.0;tcp://1.2.3.4:5"), mpiRank, "two"), true, `"two"`},
		{"slurm brackets", Auto, slurm("n[1"), true, "brackets"},
		{"worker id missing", Auto, map[string]string{"JAX_FORCE_TPU_INIT": "1", "TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "a"}, true, "TPU_WORKER_ID is not set"},
		{"name that never resolves", Auto, map[string]string{
			"JAX_FORCE_TPU_INIT": "1", "TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "a", "TPU_WORKER_ID": "0"}, false, "no such host"},
		{"no more ports", Auto, map[string]string{"MASTER_ADDR": "m", "MASTER_PORT": "65535", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}, true, "no port after it"},
		{"leader worker set of an unknown size", Auto, plus(lws(), "LWS_GROUP_SIZE", "four"), true, `"four"`},
		{"skypilot without an address", Auto, plus(skypilot("t"), skyNodes, " \n"), true, "no address"},
		{"skypilot rank is no number", Auto, plus(skypilot("t"), "SKYPILOT_NODE_RANK", "x"), true, `"x"`},
		{"slurm step is no number", Auto, plus(slurm("n"), slurmStep, "batch"), true, `"batch"`},
		{"no service account", Auto, map[string]string{"KUBERNETES_SERVICE_HOST": "h", completionIndex: "0"}, true, "service account"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sys := with(c.vars)
			if !c.lookup {
				sys.Lookup = unknown
			}
			if p, _, err := Detect(t.Context(), sys, Place{}, c.method); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Detect() = %+v, %v; want an error with %q", p, err, c.want)
			}
		})
	}
}

func TestFromEnvironment(t *testing.T) {
	clause.Cite(t, "C-ENV-1", "P-ENV-2")
	p, err := FromEnvironment(with(map[string]string{
		"JAX_COORDINATOR_ADDRESS": "h:1", "JAX_NUM_PROCESSES": "4", "JAX_PROCESS_ID": "3", "JAX_LOCAL_DEVICE_IDS": "0, 2",
	}))
	if err != nil || p.Address.Is != "h:1" || p.Processes.Is != 4 || p.ID.Is != 3 || !slices.Equal(p.Devices.Is, []int{0, 2}) || p.Validate() != nil {
		t.Errorf("FromEnvironment() = %+v, %v; want all four", p, err)
	}
	for name, value := range map[string]string{"JAX_NUM_PROCESSES": "many", "JAX_PROCESS_ID": "-1", "JAX_LOCAL_DEVICE_IDS": "0,x"} {
		if _, err := FromEnvironment(with(map[string]string{name: value})); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v; want an error that names it", name, value, err)
		}
	}
	if p, err := FromEnvironment(with(nil)); err != nil || p.complete() {
		t.Errorf("FromEnvironment() of nothing = %+v, %v; want nothing", p, err)
	}
}

func TestValidate(t *testing.T) {
	clause.Cite(t, "TC-ENV-13", "C-ENV-7")
	good := Place{Address: Value[string]{"h:1", "x"}, Processes: Value[int]{4, "x"}, ID: Value[int]{3, "x"}}
	if err := good.Validate(); err != nil {
		t.Errorf("Validate() = %v; want nil", err)
	}
	for name, change := range map[string]func(*Place){
		"no address": func(p *Place) { p.Address = Value[string]{} },
		"no port":    func(p *Place) { p.Address.Is = "h" },
		"no number":  func(p *Place) { p.Processes = Value[int]{} },
		"no id":      func(p *Place) { p.ID = Value[int]{} },
		"id 4 of 4":  func(p *Place) { p.ID.Is = 4 },
	} {
		bad := good
		if change(&bad); bad.Validate() == nil {
			t.Errorf("%s: Validate() = nil; want an error", name)
		}
	}
}

func TestBind(t *testing.T) {
	clause.Cite(t, "TC-ENV-13", "C-ENV-1")
	if got, err := Bind("h:1234"); got != "[::]:1234" || err != nil {
		t.Errorf("Bind(h:1234) = %q, %v; want [::]:1234", got, err)
	}
	if _, err := Bind("h"); err == nil {
		t.Error("Bind(h) = nil; want an error")
	}
}

// A file of addresses is read before the variables.
func TestAddressesInAFile(t *testing.T) {
	clause.Cite(t, "C-ENV-4")
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "addresses"), []byte("x:1,y:2\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	sys := with(map[string]string{
		"JAX_FORCE_TPU_INIT": "1", "TPU_SKIP_MDS_QUERY": "1", "TPU_PROCESS_ADDRESSES_PATH": "/addresses",
		"TPU_WORKER_HOSTNAMES": "a,b,c", "TPU_WORKER_ID": "1",
	})
	sys.Root = root
	if p, _, err := Detect(t.Context(), sys, Place{}, Auto); err != nil || p.Address.Is != "x:8482" || p.Processes.Is != 2 {
		t.Errorf("Detect() = %+v, %v; want x:8482 of 2", p, err)
	}
}

// DLV-24: flags that say it all are not overruled by an environment that cannot be read.
func TestBrokenDetectorBesideAGivenPlace(t *testing.T) {
	clause.Cite(t, "DLV-24")
	given := Place{Address: Value[string]{"a:1", "--coordinator"}, Processes: Value[int]{2, "--nnodes"}, ID: Value[int]{1, "--node-rank"}}
	broken := with(plus(slurm("n[1-"), "SLURM_NTASKS", "many"))
	got, findings, err := Detect(t.Context(), broken, given, Auto)
	i := slices.IndexFunc(findings, func(f Finding) bool { return f.Err != nil })
	if diff := cmp.Diff(given, got); diff != "" || err != nil || i < 0 || findings[i].Name != "slurm" || findings[i].Used {
		t.Errorf("Detect() = %v, %+v; want the given place, and a finding with the error\n%s", err, findings, diff)
	}
	given.ID = Value[int]{}
	if _, _, err := Detect(t.Context(), broken, given, Auto); err == nil {
		t.Error("Detect() without the own number = nil; want the error of the environment")
	}
}

// DLV-20: a batch script of several nodes is no step, and its process is on one node only.
func TestForgottenStep(t *testing.T) {
	clause.Cite(t, "DLV-20")
	batch := func(more ...string) System {
		return with(plus(map[string]string{"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURM_PROCID": "0"}, more...))
	}
	for name, c := range map[string]struct {
		sys  System
		want bool
	}{
		"a batch script":             {batch(), true},
		"a batch script of one node": {batch("SLURM_JOB_NUM_NODES", "1"), false},
		"a step":                     {batch(slurmNodes, "n[1-2]"), false},
		"no Slurm":                   {with(nil), false},
		"nonsense":                   {batch("SLURM_JOB_NUM_NODES", "two"), false},
	} {
		if nodes, got := ForgottenStep(c.sys); got != c.want || got && nodes != 2 {
			t.Errorf("%s: ForgottenStep() = %d, %v; want %v", name, nodes, got, c.want)
		}
	}
}

// DLV-21: two jobs that may run on the same hosts at the same time have different names, and where the scheduler says
// nothing but their numbers, different ports.
func TestJobsAreToldApart(t *testing.T) {
	clause.Cite(t, "DLV-21", "P-ENV-6")
	step := func(job, step string) map[string]string {
		return plus(slurm("n[1-2]"), "SLURM_JOB_ID", job, slurmStep, step)
	}
	torch := map[string]string{"MASTER_ADDR": "m", "MASTER_PORT": "29500", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "r"}
	for _, c := range []struct {
		name         string
		vars         map[string]string
		job, address string
	}{
		{"first step", step("12345", "0"), "12345.0", "n1:61497"},
		{"second step", step("12345", "1"), "12345.1", "n1:62006"},
		{"third step", step("12345", "2"), "12345.2", "n1:62515"},
		{"the next job", step("12346", "0"), "12346.0", "n1:61498"},
		{"an interactive step", step("12345", "4294967290"), "12345.4294967290", "n1:62539"},
		{"open mpi", ompi("1531576320.0;tcp://10.96.0.1:34911"), "1531576320", "10.96.0.1:62624"},
		{"torchrun", torch, "r", "m:29501"},
		{"skypilot", skypilot("sky-1_c_1"), "sky-1_c_1", "10.0.0.1:61802"},
	} {
		p, _, err := Detect(t.Context(), with(c.vars), Place{}, Auto)
		if err != nil || p.Job.Is != c.job || !p.Job.Known() || p.Address.Is != c.address {
			t.Errorf("%s: Detect() = %+v, %v; want job %s at %s", c.name, p, err, c.job, c.address)
		}
	}
}

// Where the user says where to meet, launchers of one job may come from several steps.
func TestGivenAddressHasNoJob(t *testing.T) {
	clause.Cite(t, "DLV-21")
	given := Place{Address: Value[string]{"a:1", "--coordinator"}}
	p, _, err := Detect(t.Context(), with(plus(slurm("n"), slurmStep, "3")), given, Auto)
	if err != nil || p.Job.Known() || p.ID.Is != 5 {
		t.Errorf("Detect() = %+v, %v; want no name of the job", p, err)
	}
	given.Job = Value[string]{"mine", "--job-id"}
	if p, _, err := Detect(t.Context(), with(slurm("n")), given, Auto); err != nil || p.Job.Is != "mine" {
		t.Errorf("Detect() = %+v, %v; want the given name", p, err)
	}
}

// DLV-26: what keeps the deadline of a process that is told to end.
func TestScheduler(t *testing.T) {
	clause.Cite(t, "DLV-26")
	for _, c := range []struct {
		vars map[string]string
		want string
	}{
		{slurm("n"), "Slurm"},
		{map[string]string{"SLURM_JOB_ID": "7"}, "Slurm"}, // a batch script
		{map[string]string{"KUBERNETES_SERVICE_HOST": "h"}, "Kubernetes"},
		{ompi("x"), "Open MPI"},
		{skypilot("t"), "SkyPilot"},
		{map[string]string{"TORCHELASTIC_RUN_ID": "r"}, "torchrun"},
		{map[string]string{"JAX_NUM_PROCESSES": "2"}, ""},
		{nil, ""},
	} {
		if got := Scheduler(with(c.vars)); got.Is != c.want || got.Known() != (c.want != "") {
			t.Errorf("Scheduler(%v) = %+v; want %q", c.vars, got, c.want)
		}
	}
}
