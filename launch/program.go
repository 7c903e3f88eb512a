package launch

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/serry-dev/serry/diagnose"
)

const (
	mostProgram = 1 << 20 // bytes of a program that are compared
	mostEnviron = 1 << 20 // bytes of an environment that are searched
)

// countVariables say how many ranks there are, to jax and to what else starts processes.
var countVariables = []string{"JAX_NUM_PROCESSES", "OMPI_COMM_WORLD_SIZE"}

// program is what the Python of a process runs; zero while there is none.
func (p *procProbe) program() (is diagnose.Program) {
	if p.python == nil {
		return is
	}
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.at)) // empty: it has ended
	script := diagnose.ProgramOf(strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00"))
	is.Name = script
	if script != "" && !strings.HasPrefix(script, "-") {
		is.Name, is.Sum = filepath.Base(script), sumOf(p.at, script)
	}
	is.Ranks, is.By = countOf(p.at)
	return is
}

// sumOf is a sum of the program as the process sees it: in its own file system, from where it is.
func sumOf(pid int, script string) string {
	at := fmt.Sprintf("/proc/%d/cwd", pid)
	if filepath.IsAbs(script) {
		at = fmt.Sprintf("/proc/%d/root", pid)
	}
	f, err := os.Open(at + "/" + script)
	if err != nil {
		return "" // it may have been replaced since
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, mostProgram)); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// countOf is how many ranks a process was told that there are, and by which variable.
func countOf(pid int) (count, by string) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return "", ""
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, mostEnviron)) // what was read counts
	for _, name := range countVariables {
		for word := range strings.SplitSeq(string(text), "\x00") {
			if value, ok := strings.CutPrefix(word, name+"="); ok && value != "" {
				return clipped(value), name
			}
		}
	}
	return "", ""
}

// checkPrograms says once in an attempt which ranks run something else than the others.
func (j *Job) checkPrograms(task int, is diagnose.Program) {
	if j.hangs.programs == nil {
		j.hangs.programs = make(map[int]diagnose.Program)
	}
	if is == (diagnose.Program{}) || j.hangs.compared {
		return
	}
	j.hangs.programs[task] = is
	if len(j.hangs.programs) < len(j.plan.tasks) {
		return
	}
	j.hangs.compared = true
	j.hangs.differ = diagnose.JudgePrograms(j.hangs.programs, len(j.plan.tasks))
	for _, line := range j.hangs.differ {
		j.warn("%s", line)
	}
}
