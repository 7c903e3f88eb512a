package launch

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A reaper takes the last word of children that the job did not start. The processes that tasks leave
// behind become our children; each that ends stays in the table of processes until its parent has asked
// how it ended, so that a task which starts many short ones fills the table of the whole machine.
type reaper struct {
	signals chan os.Signal
	quit    chan struct{}
	done    chan struct{}
}

// reapEvery is how often we look at most: a look costs a read for every child.
const reapEvery = 100 * time.Millisecond

func startReaper(m *local) *reaper {
	r := &reaper{signals: make(chan os.Signal, 1), quit: make(chan struct{}), done: make(chan struct{})}
	signal.Notify(r.signals, syscall.SIGCHLD)
	go func() {
		defer close(r.done)
		for r.wait() {
			m.reapUnknown()
		}
	}()
	return r
}

// wait returns when a child has ended, and the last look is long enough ago.
func (r *reaper) wait() bool {
	select {
	case <-r.signals:
	case <-r.quit:
		return false
	}
	select {
	case <-time.After(reapEvery):
		return true
	case <-r.quit:
		return false
	}
}

func (r *reaper) stop() {
	signal.Stop(r.signals)
	close(r.quit)
	<-r.done
}

// reapUnknown reaps children that have ended, but neither the first process of a group, for which
// another goroutine waits, nor the guard. A program that starts processes of its own waits for them
// itself: without Config.Reap the launcher reaps only processes in groups that it made.
//
// It runs on the thread that starts processes, so that none of these numbers can become that of a new
// task between the look at it and the wait for it.
func (m *local) reapUnknown() {
	m.onThread(func() {
		pids, _ := children()
		for _, pid := range pids {
			m.mu.Lock()
			first := m.mu.first[pid]
			m.mu.Unlock()
			if first || pid == m.guard.pid() {
				continue
			}
			s, ok := readStat(pid)
			if !ok || s.state != 'Z' {
				continue
			}
			m.mu.Lock()
			ours := m.reapAll || m.mu.first[s.group]
			m.mu.Unlock()
			if ours {
				_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // who waits for its group may be first
			}
		}
	})
}

// A stat is what the kernel tells of a process.
type stat struct {
	state   byte
	group   int
	exiting bool
}

// readStat returns false for a process that is not there.
func readStat(pid int) (s stat, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return s, false
	}
	// After the name, in brackets, come state, parent, group and three more; the seventh has the flags.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const state, group, flags, exiting = 0, 2, 6, 0x4
	if len(fields) <= flags {
		return s, true
	}
	s.state = fields[state][0]
	s.group, _ = strconv.Atoi(fields[group]) // a number
	n, _ := strconv.ParseUint(fields[flags], 10, 64)
	s.exiting = n&exiting != 0
	return s, true
}
