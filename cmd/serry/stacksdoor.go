package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/serry-dev/serry/internal/pystack"
)

// A stacksDoor is a socket beside the entry of a job, at which commands of this user ask the launcher for the stacks of
// its ranks. Many hosts let only the ancestors of a process read it (Yama, D-ST-3): there the launcher can, and a command
// cannot.
type stacksDoor struct {
	listener net.Listener // or nil: this host has none, and the job runs all the same
	serving  sync.WaitGroup
}

const (
	doorSuffix   = ".sock"
	doorPatience = 5 * time.Second // for one question and its answer
	doorCallers  = 4               // that are served at a time; the others wait to be accepted
	doorPause    = 50 * time.Millisecond
	maxQuestion  = 1 << 20  // bytes
	maxAsked     = 4096     // ranks of a question
	maxAnswer    = 64 << 20 // bytes
)

// doorOf is the socket beside an entry.
func doorOf(entry string) string { return strings.TrimSuffix(entry, entrySuffix) + doorSuffix }

// openStacksDoor serves the socket beside an entry, which only this user can reach.
func openStacksDoor(entry string) *stacksDoor {
	d := &stacksDoor{}
	if entry == "" {
		return d
	}
	l, err := net.Listen("unix", doorOf(entry))
	if err != nil {
		return d // the path is too long for a socket, for one
	}
	d.listener = l
	d.serving.Go(d.serve)
	return d
}

// close removes the socket, and waits for the answers that are under way.
func (d *stacksDoor) close() {
	if d.listener != nil {
		d.listener.Close()
		d.serving.Wait()
	}
}

func (d *stacksDoor) serve() {
	places := make(chan struct{}, doorCallers)
	for {
		places <- struct{}{}
		conn, err := d.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many files are open, for one
			<-places
			time.Sleep(doorPause)
			continue
		}
		d.serving.Go(func() {
			answerStacks(conn)
			<-places
		})
	}
}

// A stacksQuestion asks for the stacks of some ranks.
type stacksQuestion struct {
	Version int             `json:"version"`
	Ranks   []rankProcesses `json:"ranks"`
}

// rankProcesses are those of a rank, nearest first.
type rankProcesses struct {
	Task string `json:"task"`
	PIDs []int  `json:"pids"`
}

// answerStacks answers one question. A question that makes no sense gets no answer. Processes that are not below this
// one are refused, as the kernel would refuse the caller.
func answerStacks(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(doorPatience)) // a socket has deadlines
	var q stacksQuestion
	if err := json.NewDecoder(io.LimitReader(conn, maxQuestion)).Decode(&q); err != nil || q.Version != outputVersion || len(q.Ranks) > maxAsked {
		return
	}
	var ranks []rankHere
	here := &site{root: os.DirFS("/")}
	for _, r := range q.Ranks {
		rank := rankHere{task: r.Task}
		for _, pid := range r.PIDs[:min(len(r.PIDs), maxDescendants)] {
			if here.descends(pid, os.Getpid()) {
				rank.pids = append(rank.pids, pid)
			}
		}
		ranks = append(ranks, rank)
	}
	_ = json.NewEncoder(conn).Encode(readRanks(ranks)) // the caller is gone
}

// maxAncestors bounds the way up from a process.
const maxAncestors = 256

// descends says whether a process is below another.
func (s *site) descends(pid, ancestor int) bool {
	for range maxAncestors {
		if pid <= 1 {
			return false
		}
		if _, pid = s.nameOf(pid); pid == ancestor {
			return true
		}
	}
	return false
}

// askDoor asks a launcher.
func askDoor(door string, ranks []rankHere) ([]rankReading, error) {
	conn, err := net.DialTimeout("unix", door, doorPatience)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(doorPatience)) // a socket has deadlines
	q := stacksQuestion{Version: outputVersion}
	for _, r := range ranks {
		q.Ranks = append(q.Ranks, rankProcesses{r.task, r.pids})
	}
	if err := json.NewEncoder(conn).Encode(q); err != nil {
		return nil, err
	}
	var readings []rankReading
	if err := json.NewDecoder(io.LimitReader(conn, maxAnswer)).Decode(&readings); err != nil {
		return nil, err
	}
	if len(readings) != len(ranks) {
		return nil, fmt.Errorf("%d answers for %d ranks", len(readings), len(ranks))
	}
	for i := range readings {
		readings[i].Task, readings[i].err = ranks[i].task, refusal(readings[i].Error)
	}
	return readings, nil
}

// refusal is the error that a text stands for.
func refusal(text string) error {
	for _, err := range []error{pystack.ErrPermission, pystack.ErrNotPython, pystack.ErrGone} {
		if err.Error() == text {
			return err
		}
	}
	if text == "" {
		return nil
	}
	return errors.New(text)
}

// askLaunchers asks the launchers of ranks that this process must not read. Where one does not answer, the reading
// stays as it is.
func askLaunchers(ranks []rankHere, readings []rankReading) {
	places := make(map[string][]int) // in both lists, by socket
	for i, r := range readings {
		if errors.Is(r.err, pystack.ErrPermission) && ranks[i].door != "" {
			places[ranks[i].door] = append(places[ranks[i].door], i)
		}
	}
	for door, at := range places {
		var refused []rankHere
		for _, i := range at {
			refused = append(refused, ranks[i])
		}
		answers, err := askDoor(door, refused)
		if err != nil {
			continue
		}
		for j, i := range at {
			readings[i] = answers[j]
		}
	}
}
