package cluster

// schedulers are those that end what they have started: by SIGTERM, and by SIGKILL when the time is over that they
// give. Each is known by a variable, whether or not it also tells a place: a job on one host has one, too.
var schedulers = []struct{ name, variable string }{
	{"Open MPI", mpiRank},
	{"Slurm", "SLURM_JOB_ID"},
	{"SkyPilot", skyTask},
	{"Kubernetes", "KUBERNETES_SERVICE_HOST"},
	{"torchrun", "TORCHELASTIC_RUN_ID"},
}

// Scheduler is what keeps the deadline of a process that is told to end by SIGTERM (DLV-26), and the variable that
// says so; it is not known where a person or an unknown program has started the process.
func Scheduler(sys System) Value[string] {
	for _, s := range schedulers {
		if sys.env(s.variable) != "" {
			return Value[string]{s.name, s.variable}
		}
	}
	return Value[string]{}
}
