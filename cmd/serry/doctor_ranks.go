package main

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A schedulerWords are the variables of a scheduler that say which of how many a process is.
type schedulerWords struct{ name, size, rank string }

var schedulers = []schedulerWords{
	{"Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
	{"Slurm", "SLURM_NTASKS", "SLURM_PROCID"},
}

// leftover finds variables of a scheduler that speak of one process, where the job has more: those of a shell that was started by
// mpirun or srun. jax believes them, and starts a job of one.
func (s *site) leftover(size int) (schedulerWords, bool) {
	if s.variable("SERRY_RUN") != "" {
		return schedulerWords{}, false // serry run has set them
	}
	for _, w := range schedulers {
		if _, n, ok := s.number(w.size); ok && n == 1 && size > 1 {
			return w, true
		}
	}
	return schedulerWords{}, false
}

// size is how many ranks the job has, by the user or else by the service; 0: not known.
func (s *site) size(ctx context.Context) int {
	if s.tasks > 0 {
		return s.tasks
	}
	st, err := s.status(ctx)
	if err != nil {
		return 0
	}
	return st.Size
}

// checkScheduler finds variables that another job has left behind.
func checkScheduler(ctx context.Context, s *site) finding {
	size := s.size(ctx)
	w, found := s.leftover(size)
	if !found {
		return fine("none are in the way")
	}
	_, rank, _ := s.number(w.rank)
	return problem(fmt.Sprintf("unset %s %s, or serry run --cluster none", w.size, w.rank),
		"%s variables say rank %d of 1, and the job has %d ranks: jax believes them", w.name, rank, size)
}

// ranksHere are the processes of this host that are ranks of the job, or of all jobs where none is known.
func (s *site) ranksHere() []process {
	return slices.DeleteFunc(topmost(s.processes()), func(p process) bool {
		return rankOfProcess(p) == "" || plainAddress(jobOfProcess(p)) == ""
	})
}

// checkCounts finds ranks of one job on this host that were told different numbers of ranks.
func checkCounts(_ context.Context, s *site) finding {
	type said struct {
		rank  string
		count int
	}
	first := make(map[string]said)
	for _, p := range s.ranksHere() {
		_, n, ok := (&site{env: p.env}).number(countVariables...)
		if !ok {
			continue
		}
		now := said{rankOfProcess(p), n}
		before, known := first[jobOfProcess(p)]
		if known && before.count != n {
			return problem("tell all ranks the same number: JAX_NUM_PROCESSES, OMPI_COMM_WORLD_SIZE, or what starts them",
				"rank %s says %s, rank %s says %d", before.rank, counted(before.count, "rank"), now.rank, now.count)
		}
		first[jobOfProcess(p)] = now
	}
	return fine("ranks here agree")
}

// checkJaxlib finds ranks of one job on this host that have different versions of jaxlib.
func checkJaxlib(_ context.Context, s *site) finding {
	first := make(map[string][2]string) // by job: a rank, and its version
	for _, p := range s.ranksHere() {
		version := s.jaxlibOf(p.pid)
		if version == "" {
			continue
		}
		before, known := first[jobOfProcess(p)]
		if known && before[1] != version {
			return problem("install one version everywhere", "rank %s has jaxlib %s, rank %s has %s: their programs and messages may differ",
				rankOfProcess(p), version, before[0], before[1])
		}
		first[jobOfProcess(p)] = [2]string{rankOfProcess(p), version}
	}
	if len(first) == 0 {
		return skipped("no rank here has loaded jaxlib")
	}
	return fine("the ranks of each job here have the same")
}

// jaxlibOf is the version of the jaxlib that a process has loaded, by the metadata beside it.
func (s *site) jaxlibOf(pid int) string {
	maps, _ := fs.ReadFile(s.root, fmt.Sprintf("proc/%d/maps", pid)) // it may have ended
	for line := range strings.SplitSeq(string(maps), "\n") {
		_, file, ok := strings.Cut(line, "/")
		packages, _, of := strings.Cut(file, "/jaxlib/")
		if !ok || !of {
			continue
		}
		dir := path.Join("proc", strconv.Itoa(pid), "root", packages)
		found, _ := fs.Glob(s.root, escapeGlob(dir)+"/jaxlib-*.dist-info")
		if len(found) > 0 {
			return strings.TrimSuffix(strings.TrimPrefix(path.Base(found[0]), "jaxlib-"), ".dist-info")
		}
		return ""
	}
	return ""
}

// escapeGlob takes the meaning from characters of a path that patterns have one for.
func escapeGlob(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

// checkCommand finds programs that ignore the variables by which serry run keeps the last words of a rank.
func checkCommand(_ context.Context, s *site) finding {
	if len(s.command) == 0 {
		return skipped("no command was given: serry doctor -- python train.py")
	}
	ignores, unbuffered := pythonFlags(s.command)
	if ignores == "" || unbuffered {
		return fine("%s", path.Base(s.command[0]))
	}
	return warning(fmt.Sprintf("%s -u -X faulthandler", path.Base(s.command[0])),
		"python %s ignores PYTHONUNBUFFERED and PYTHONFAULTHANDLER, which serry run sets: last lines may be lost, and a crash has no stack", ignores)
}

// pythonFlags looks at the flags of a Python: the one by which it ignores variables, and whether it writes without a buffer.
func pythonFlags(command []string) (ignores string, unbuffered bool) {
	if len(command) == 0 || !isPython(command[0]) {
		return "", false
	}
	for i := 1; i < len(command); i++ {
		a := command[i]
		if len(a) < 2 || a[0] != '-' || a[1] == '-' {
			break
		}
		for j, c := range a[1:] {
			switch c {
			case 'I', 'E':
				ignores = "-" + string(c)
			case 'u':
				unbuffered = true
			case 'm', 'c': // what follows is the program
				return ignores, unbuffered
			case 'W', 'X':
				if j == len(a)-2 {
					i++ // its value is the next word
				}
			}
			if strings.ContainsRune("WX", c) {
				break
			}
		}
	}
	return ignores, unbuffered
}

// isPython says whether a program is a Python, by its name.
func isPython(program string) bool { return strings.HasPrefix(path.Base(program), "python") }

// checkBuffers finds ranks whose last words are lost when they are killed: Python keeps what it writes to a pipe or a file
// until 8 KiB have come together.
func checkBuffers(_ context.Context, s *site) finding {
	for _, p := range s.ranksHere() {
		line, _ := fs.ReadFile(s.root, fmt.Sprintf("proc/%d/cmdline", p.pid)) // it may have ended
		command := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		ignores, unbuffered := pythonFlags(command)
		if !isPython(command[0]) || unbuffered || ignores == "" && variableOf(p.env, "PYTHONUNBUFFERED") != "" {
			continue
		}
		to, err := fs.ReadLink(s.root, fmt.Sprintf("proc/%d/fd/1", p.pid))
		if err != nil || strings.HasPrefix(to, "/dev/") {
			continue // a terminal gets every line at once
		}
		return warning("PYTHONUNBUFFERED=1, which serry run sets, or python -u", "the output of rank %s (process %d) is buffered: its last lines may be lost", rankOfProcess(p), p.pid)
	}
	return fine("no rank here keeps its output back")
}
