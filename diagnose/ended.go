package diagnose

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/detect"
	"github.com/serry-dev/serry/wire"
)

// This file has the words for ranks that have ended and for hosts that are gone (D-CLI-2). What was seen of one reaches the
// service as a text (C-LOST-3): "process exited: HOW" of launchers and relays, where details may follow after a semicolon, "raised EXCEPTION"
// of launchers, "host silent" of the service, and "host silent: NAME: WHY" of launchers.
const (
	exitedWords = "process exited: "
	raisedWords = "raised "
	silentWords = "host silent"
	memoryWords = ", killed because "
	maybeWords  = ", probably killed for memory"
)

// faults are the signals by which a process ends that has made a mistake, in the words of a person.
var faults = map[int]string{4: "illegal instruction", 5: "trap", 6: "abort", 7: "bus error", 8: "arithmetic error", 11: "segmentation fault"}

// ended says in one line how a rank has ended, or nothing where the evidence does not tell.
func (f *Failure) ended() string {
	how, exited := strings.CutPrefix(f.Evidence, exitedWords)
	if text, ok := strings.CutPrefix(how, raisedWords); ok {
		name, rest, _ := strings.Cut(text, ": ")
		return strings.TrimSuffix(fmt.Sprintf("%s raised %s %s: %s", f.rank, name, f.when(), rest), ": ")
	}
	if !exited {
		return ""
	}
	how, _, _ = strings.Cut(how, "; ")
	if how, told := strings.CutSuffix(how, detect.ToldToEnd); told {
		return fmt.Sprintf("%s ended %s%s: %s", f.rank, f.when(), detect.ToldToEnd, how)
	}
	if _, why, ok := strings.Cut(how, memoryWords); ok {
		return fmt.Sprintf("%s was killed %s because %s", f.rank, f.when(), why)
	}
	if strings.HasSuffix(how, ", killed for memory") {
		return fmt.Sprintf("%s was killed %s for memory", f.rank, f.when())
	}
	if strings.HasSuffix(how, maybeWords) {
		return fmt.Sprintf("%s was probably killed for memory, %s", f.rank, f.when())
	}
	if code, ok := strings.CutPrefix(how, "code "); ok {
		return fmt.Sprintf("%s exited %s with code %s", f.rank, f.when(), code)
	}
	number, err := strconv.Atoi(strings.TrimPrefix(how, "signal "))
	if err != nil {
		return ""
	}
	if fault, ok := faults[number]; ok {
		crashed := "crashed"
		if f.also {
			crashed = "crashed first"
		}
		return fmt.Sprintf("%s %s %s: %s (signal %d)", f.rank, crashed, f.when(), fault, number)
	}
	return fmt.Sprintf("%s was killed %s: signal %d, not sent by serry", f.rank, f.when(), number)
}

// crashedToo says whether another rank has ended by a signal, which is not what follows when a rank is lost: clients that are told of it
// abort themselves.
func (j *judge) crashedToo(f *Failure) bool {
	return slices.ContainsFunc(j.status.Tasks, func(t wire.TaskStatus) bool {
		_, how, ok := strings.Cut(t.Error, exitedWords+"signal ")
		return ok && t.Task != f.Task && !strings.HasPrefix(how, "6") && !strings.Contains(how, detect.ToldToEnd)
	})
}

// when says when it happened.
func (f *Failure) when() string {
	if f.at.IsZero() {
		return Ago(f.AgoSeconds) + " ago"
	}
	return "at " + f.at.Format(time.TimeOnly)
}

// A lostHost is a host of which nothing is heard, with the ranks that were lost with it (D-SC-13).
type lostHost struct {
	name  string // what people call it: its name, or its address
	ranks string
	since time.Time // when it was last heard
	peers int       // ranks on other hosts that are heard
	ended int       // ranks on other hosts that have ended since, as a rule because they were told of it
	why   string    // what its launcher found, or empty
}

// WantsSight says whether the evidence should have from where each task was last heard, and when: a host is silent.
func WantsSight(s wire.Status) bool {
	return s.First != nil && strings.HasPrefix(s.First.Evidence, silentWords)
}

// silentHost finds the host that a rank was lost with, or nil if the rank was lost by itself.
func (j *judge) silentHost(f *Failure) *lostHost {
	rest, ok := strings.CutPrefix(f.Evidence, silentWords)
	if !ok {
		return nil
	}
	h := &lostHost{since: f.at}
	h.name, h.why, _ = strings.Cut(strings.TrimPrefix(rest, ": "), ": ")
	first := j.tasks[f.Task]
	var names []string
	for i := range j.status.Tasks {
		t := &j.status.Tasks[i]
		switch {
		case t.State == wire.StateConnected:
			h.peers++
		case t.State == wire.StateFailed && strings.Contains(t.Error, f.Evidence) && (first == nil || HostOf(t.From) == HostOf(first.From)):
			names = append(names, t.Task)
		case t.State != wire.StateAbsent && !strings.Contains(t.Error, silentWords):
			h.ended++
		}
	}
	if !slices.Contains(names, f.Task) {
		names = []string{f.Task}
	}
	h.ranks = j.ranks(names)
	if first != nil && first.HeardSeconds != nil && !j.status.Clock.IsZero() {
		h.since = j.status.Clock.Add(-time.Duration(*first.HeardSeconds * float64(time.Second)))
	}
	if h.name == "" && first != nil {
		h.name = HostOf(first.From)
	}
	return h
}

// HostOf is the host of an address.
func HostOf(address string) string {
	if i := strings.LastIndexByte(address, ':'); i > 0 && !strings.HasPrefix(address, "unix:") {
		return strings.Trim(address[:i], "[]")
	}
	return address
}

func (h *lostHost) String() string {
	who := "the host of " + h.ranks
	if h.name != "" {
		who = "host " + h.name
	}
	return fmt.Sprintf("%s is silent since %s: %s lost with it", who, h.since.Format(time.TimeOnly), h.ranks)
}

// others says what is heard of the other hosts. Their ranks end when they are told of the loss, if they cannot do without the others.
func (h *lostHost) others() string {
	if h.ended == 0 {
		return counted(h.peers, "rank is heard on other hosts", "ranks are heard on other hosts")
	}
	return fmt.Sprintf("%s, of which %d %s ended since", counted(h.peers+h.ended, "rank was heard on other hosts", "ranks were heard on other hosts"), h.ended, verb(h.ended, "has", "have"))
}

// told says whether the rank ended because its launcher told it to: that is no failure of its own (D-RC-3).
func (f *Failure) told() bool { return strings.Contains(f.Evidence, detect.ToldToEnd) }

// lines are what is known of how a rank ended, below the verdict.
func (f *Failure) lines() []HangLine {
	var lines []HangLine
	add := func(word, text string) { lines = append(lines, HangLine{word, text}) }
	if how, ok := strings.CutPrefix(f.Evidence, exitedWords); ok && !strings.HasPrefix(how, raisedWords) {
		if _, detail, ok := strings.Cut(how, "; "); ok {
			add("memory", detail)
		}
	}
	if f.twice() && f.Evidence != "" {
		add("process", f.Evidence)
	}
	if h := f.host; h != nil {
		seen := fmt.Sprintf("last heard at %s", h.since.Format("15:04:05.000"))
		if h.why != "" {
			seen += ", " + h.why
		}
		add("host", seen+"; "+h.others())
	}
	if grade := f.grade(); grade != "" {
		add("grade", fmt.Sprintf("%s: %s", grade, f.source()))
	}
	return lines
}

// grade says how well it is known how a rank was lost; empty: nothing was seen of it.
func (f *Failure) grade() Grade {
	switch {
	case f.twice():
		return Sure
	case f.Cause != serry.ErrTaskDead.Error() || f.Evidence == "":
		return ""
	case strings.Contains(f.Evidence, maybeWords):
		return Likely
	case f.follows():
		return Possible
	}
	return Sure
}

// follows says whether the failure is one that follows from another, which has not been seen (D-RC-5).
func (f *Failure) follows() bool {
	_, how, raised := strings.Cut(f.Evidence, raisedWords)
	return raised && BrokenByPeer(how)
}

// source says what a verdict about the end of a rank rests on.
func (f *Failure) source() string {
	switch {
	case f.follows():
		return "first seen: it lost a connection to another rank, of which nothing else is known"
	case strings.Contains(f.Evidence, maybeWords):
		return "a process of its machine was killed for memory meanwhile"
	case strings.HasPrefix(f.Evidence, exitedWords):
		return "the kernel says how its process ended"
	case strings.HasPrefix(f.Evidence, raisedWords):
		return "it has printed the exception and wants to leave"
	case f.twice():
		return "the service has heard of both"
	case f.host != nil:
		return "nothing comes from its host, and its connections do not answer"
	}
	return "the service has lost its connection"
}
