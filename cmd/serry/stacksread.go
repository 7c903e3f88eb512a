package main

import (
	"cmp"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"github.com/serry-dev/serry/internal/pystack"
)

// A rankHere is a rank of a job that is a process of this host.
type rankHere struct {
	rank string
	task string // as the service calls it, when that is known
	pids []int  // its process, and those that it has started, nearest first
	door string // where its launcher answers, or empty
}

// ranksHere finds the processes of this host that are ranks of the job at an address: by the variables that launchers
// give them, or because they are children of a launcher that is on the list of jobs with this address. Ranks behind a
// relay have the address of that.
func ranksHere(address string) []rankHere {
	launchers := launchersOf(address)
	all := (&site{root: os.DirFS("/")}).processesWith("_ADDRESS=")
	var found []rankHere
	for _, p := range topmost(all) {
		rank := rankOfProcess(p)
		door, launched := launchers[p.parent]
		if rank == "" || !overlap(jobOfProcess(p), address) && !launched {
			continue
		}
		found = append(found, rankHere{rank: rank, pids: withDescendants(all, p.pid), door: door})
	}
	slices.SortStableFunc(found, func(a, b rankHere) int {
		x, _ := strconv.Atoi(a.rank) // 0 for what is no number
		y, _ := strconv.Atoi(b.rank)
		return cmp.Compare(x, y)
	})
	return found
}

// launchersOf finds the launchers of this user that run a job of the service at an address, by their numbers, and where
// they answer.
func launchersOf(address string) map[int]string {
	doors := make(map[int]string)
	dir, err := registryDir()
	if err != nil {
		return doors // this user has no list
	}
	for _, f := range readEntries(dir) {
		if f.err == nil && f.Kind == kindRun && f.running() && overlap(f.Address, address) {
			doors[f.PID] = doorOf(f.path)
		}
	}
	return doors
}

// maxDescendants is how many processes of a rank are looked at for a Python.
const maxDescendants = 64

// withDescendants lists a process and those below it, nearest first.
func withDescendants(all []process, pid int) []int {
	pids := []int{pid}
	for i := 0; i < len(pids) && len(pids) < maxDescendants; i++ {
		for _, p := range all {
			if p.parent == pids[i] && !slices.Contains(pids, p.pid) {
				pids = append(pids, p.pid)
			}
		}
	}
	return pids[:min(len(pids), maxDescendants)]
}

// A rankReading is what was read of a rank.
type rankReading struct {
	Task string `json:"task"`
	pystack.Stacks
	Error string `json:"error,omitempty"` // why there are no stacks
	err   error
	far   bool // its launcher has told it, or itself
}

// readRanks reads all ranks at the same time, as many as there are processors.
func readRanks(ranks []rankHere) []rankReading {
	readings := make([]rankReading, len(ranks))
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for i, r := range ranks {
		free <- struct{}{}
		all.Go(func() {
			readings[i] = readRank(r)
			<-free
		})
	}
	all.Wait()
	return readings
}

// readRank reads the first Python of a rank. Of a rank without one it says what its process does.
func readRank(r rankHere) rankReading {
	if len(r.pids) == 0 {
		return rankReading{Task: r.task, Error: pystack.ErrPermission.Error(), err: pystack.ErrPermission}
	}
	s, err := pystack.First(r.pids)
	reading := rankReading{Task: r.task, Stacks: s, err: err}
	if err != nil {
		reading.Error = err.Error()
	}
	return reading
}
