package launch

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/serry-dev/serry/diagnose"
)

// A stray is a process of an attempt that is over. A person or a supervisor has started it again. It cannot join the present
// attempt, because that has another address, unless Config.Listen fixes the address. A stray looks like a rank of the present
// attempt, so the launcher names it.
type stray struct{ Task, Attempt, PID int }

// A strayed event says that there is one. Now is the attempt that the launcher of its host runs.
type strayed struct {
	stray
	Now  int
	Host string
	from hand // of the host that says so; nil: this one
}

const (
	strayEvery = 2 // looks at processes: one in two is also for strays
	strayLooks = 3 // times that a process is looked at: a child has the variables of its parent until it runs its own program
	mostStrays = 8 // that a job names in one attempt
)

// straySearch finds the strays of a run. It reads the variables of new processes alone, so a search costs hardly more than the
// list of processes.
type straySearch struct {
	run    string
	looked map[int]int // by process: how often it has been looked at
}

// find lists processes of attempts before this one that were not found before.
func (s *straySearch) find(attempt int) (found []stray) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil // the next look may see them
	}
	living := make(map[int]int, len(s.looked))
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		living[pid] = s.looked[pid]
		if living[pid] >= strayLooks {
			continue
		}
		living[pid]++
		if p, ok := s.read(pid); ok && p.Attempt < attempt {
			living[pid] = strayLooks
			found = append(found, p)
		}
	}
	s.looked = living
	return found
}

// read reads the variables of a process, and returns false for one that is not of this run.
func (s *straySearch) read(pid int) (p stray, ok bool) {
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil || !(mark{EnvRun + "=" + s.run}).in(environ) {
		return stray{}, false // it has ended, or is of another user
	}
	p = stray{Task: -1, PID: pid}
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		name, value, _ := bytes.Cut(entry, []byte("="))
		n, err := strconv.Atoi(string(value))
		switch {
		case err != nil:
		case string(name) == EnvTask:
			p.Task = n
		case string(name) == EnvAttempt:
			p.Attempt = n
		}
	}
	return p, p.Task >= 0 && p.Attempt > 0
}

// strayed names a process of an older attempt, once.
func (j *Job) strayed(ev strayed) {
	if ev.Attempt >= j.plan.attempt || ev.Now != j.plan.attempt || len(j.hangs.strays) >= mostStrays {
		return
	}
	s := diagnose.Stray{Rank: ev.Task, Attempt: ev.Attempt, PID: ev.PID, Host: ev.Host, Now: j.plan.attempt, Reaches: j.cfg.Listen != "", Seen: time.Now()}
	if slices.ContainsFunc(j.hangs.strays, func(o diagnose.Stray) bool { return o.PID == s.PID && o.Host == s.Host }) {
		return
	}
	j.hangs.strays = append(j.hangs.strays, s)
	j.note("%s", s.Text())
}
