package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// check judges a schedule when all launchers have ended.
func (d *drill) check(first *drillLauncher) {
	d.checkNothingLeft()
	d.checkLogs()
	if first.struck == "kill" {
		return // no one is left to say how the job ended
	}
	d.checkBudget(first)
	d.checkEnd(first)
}

// checkNothingLeft: no process outlives the job. A guard needs a moment after its launcher was killed; where
// it was killed before, what has left its group may live on, and is ended here.
func (d *drill) checkNothingLeft() {
	unguarded := false
	for _, n := range d.all() {
		unguarded = unguarded || n.noGuard && n.struck == "kill"
	}
	d.mu.Lock()
	lives := d.mu.lives
	d.mu.Unlock()
	for _, l := range lives {
		if unguarded && l.Daemon {
			if l.alive() {
				_ = syscall.Kill(l.Pid, syscall.SIGKILL)
			}
			continue
		}
		select {
		case <-l.gone:
		case <-time.After(time.Minute):
			d.wrong("process %d of %s outlives its job", l.Pid, l.place())
			_ = syscall.Kill(l.Pid, syscall.SIGKILL)
		}
	}
}

// checkLogs: the log of a task has every line that it wrote before it ended by itself, whatever reads the
// output of the launcher.
func (d *drill) checkLogs() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.mu.lives {
		if l.Daemon || l.said == nil || l.killed || d.onStruckHost(l) {
			continue
		}
		name := fmt.Sprintf("rank-%d.log", l.Task)
		if l.Life > 1 {
			name = fmt.Sprintf("rank-%d.life-%d.log", l.Task, l.Life)
		}
		files, _ := filepath.Glob(filepath.Join(d.dir, "logs-*", fmt.Sprintf("attempt-%d", l.Attempt), name))
		found := 0
		for _, f := range files {
			text, _ := os.ReadFile(f)
			found = max(found, bytes.Count(text, []byte("line ")))
		}
		if found != l.lines {
			d.mu.bad = append(d.mu.bad, fmt.Sprintf("the log of %s has %d lines of %d", l.place(), found, l.lines))
		}
	}
}

// failed says whether a process failed by itself or by the test, and not because of another one.
func (l *drillLife) failed() bool {
	return !l.Daemon && (l.killed || l.said != nil && l.said.Code != 0 && l.said.Code != codeLostMember)
}

var restartsLeft = regexp.MustCompile(`(\d+) restarts? left`)

// checkBudget: restarts are charged once a cause.
func (d *drill) checkBudget(first *drillLauncher) {
	causes := d.mu.killed
	for _, l := range d.mu.lives {
		if l.failed() {
			causes++
		}
	}
	left := d.restarts
	for _, m := range restartsLeft.FindAllStringSubmatch(first.stderr.String(), -1) {
		n, _ := strconv.Atoi(m[1])
		left = min(left, n)
	}
	if charged := d.restarts - left; charged > causes {
		d.wrong("%d restarts were charged for %d causes", charged, causes)
	}
}

var (
	rootNamed   = regexp.MustCompile(`(?m)^serry: error: (?:task|rank) (\d+): (.*?)(?:, first of \d+ (?:tasks|ranks))?(?:, .* after its start)?(?:, in attempt \d+|, with \d+ restarts?)?$`)
	interrupted = regexp.MustCompile(`(?m)^serry: error: ended by signal (\d+) after`)
)

// checkEnd: the exit status and the root that is named are what happened.
func (d *drill) checkEnd(first *drillLauncher) {
	text, code := first.stderr.String(), first.cmd.ProcessState.ExitCode()
	attempt := 1
	for _, l := range d.mu.lives {
		attempt = max(attempt, l.Attempt)
	}
	switch root, sig := rootNamed.FindStringSubmatch(text), interrupted.FindStringSubmatch(text); {
	case code == 0:
		d.checkWell(attempt)
	case root != nil:
		task, _ := strconv.Atoi(root[1])
		d.checkRoot(task, attempt, root[2], code)
	case sig != nil:
		if number, _ := strconv.Atoi(sig[1]); code != 128+number || first.struck == "" {
			d.wrong("exit code %d after signal %d, launcher 0 was told %q", code, number, first.struck)
		}
	case code == 1 && strings.Contains(text, "no host came for node") && d.mu.killed > 0:
	default:
		d.wrong("exit code %d, and no cause is named", code)
	}
}

// checkWell: every task of the last attempt ended with exit code 0.
func (d *drill) checkWell(attempt int) {
	for task := range d.nodes * d.tasks {
		if l := d.last(task, attempt); l == nil || l.said == nil || l.said.Code != 0 {
			d.wrong("exit code 0, but the last process of task %d did not end well", task)
		}
	}
}

// last is the last process of a task in an attempt, or nil.
func (d *drill) last(task, attempt int) (last *drillLife) {
	for _, l := range d.mu.lives {
		if !l.Daemon && l.Task == task && l.Attempt == attempt && (last == nil || l.Life >= last.Life) {
			last = l
		}
	}
	return last
}

// checkRoot: what is named first did happen, and is no consequence of another failure.
func (d *drill) checkRoot(task, attempt int, how string, code int) {
	l := d.last(task, attempt)
	struck := d.mu.killed > 0
	want := -1
	switch {
	case strings.Contains(how, "host is lost") && struck:
		want = 1
	case strings.Contains(how, "host was told to end") && struck:
		return
	case strings.Contains(how, "without joining") && d.service == "run":
		want = 1 // it was started again when all others were done, and the service had ended their epoch
	case l == nil:
		if !struck {
			d.wrong("task %d of attempt %d is named first, and never ran", task, attempt)
		}
		return
	case l.killed || l.said != nil && l.said.Code < 0:
		want = 128 + int(syscall.SIGKILL)
	case l.said != nil && l.said.Code == codeLostMember:
		if !struck && d.service == "" {
			d.wrong("task %d is named first, but it only lost its membership", task)
		}
		return
	case l.said != nil:
		want = l.said.Code
	case struck:
		return // it was told to end with its host
	}
	if code != want {
		d.wrong("task %d is named first: %s, exit code %d; want %d", task, how, code, want)
	}
}
