package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/pystack"
	"github.com/serry-dev/serry/wire"
)

// farPatience is how long launchers have to answer (D-ST-16).
const farPatience = 2 * time.Second

// readFar asks the service about ranks that are not on this host, and about those here that are no Python: a Go program
// says itself where it is. silent names launchers that have not answered, in words that end a sentence.
func (c *stacksCommand) readFar(ctx context.Context, r *remote, here []rankReading, elsewhere []string) (far []rankReading, silent string) {
	names := slices.Clone(elsewhere)
	for _, reading := range here {
		if reading.err != nil {
			names = append(names, reading.Task)
		}
	}
	var tasks []serry.TaskID
	for _, name := range names {
		if t, err := serry.ParseTaskID(name); err == nil {
			tasks = append(tasks, t)
		}
	}
	if r == nil || len(tasks) == 0 {
		return nil, ""
	}
	q := wire.Inquiry{Kind: wire.StacksEvidence, Tasks: tasks, Fold: !c.threads, Wait: farPatience}
	if c.threads {
		q.Argument = wire.AllThreads
	}
	g, err := r.gather(ctx, q)
	if err != nil {
		return nil, fmt.Sprintf(" (%s)", printable(err.Error()))
	}
	return farReadings(g, tasks), silentText(g)
}

// silentText names the processes that have not answered.
func silentText(g wire.Gathered) string {
	if g.Missing == 0 {
		return ""
	}
	names := strings.Join(g.Silent, ", ")
	if more := g.Missing - len(g.Silent); more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return "; no answer within " + farPatience.String() + " from " + names
}

// farReadings are the answers about some tasks. A task may have two: one of its launcher, and one of itself. The one with
// frames counts.
func farReadings(g wire.Gathered, wanted []serry.TaskID) (far []rankReading) {
	best := make(map[serry.TaskID]rankReading)
	for _, part := range g.Parts {
		reading := farReading(part.Body)
		for _, t := range part.Tasks {
			if had, ok := best[t]; !ok || had.err != nil && reading.err == nil {
				reading.Task = t.String()
				best[t] = reading
			}
		}
	}
	for _, t := range wanted {
		if reading, ok := best[t]; ok {
			far = append(far, reading)
		}
	}
	return far
}

// farReading reads the body of an answer. What it has of texts is data of other processes, and printed as such.
func farReading(body []byte) rankReading {
	var threads []wire.ThreadStack
	if err := json.Unmarshal(body, &threads); err != nil || len(threads) == 0 {
		text := "its stack did not arrive"
		return rankReading{Stacks: pystack.Stacks{Threads: []pystack.Thread{}}, Error: text, err: refusal(text), far: true}
	}
	reading := rankReading{Error: threads[0].Error, err: refusal(threads[0].Error), far: true}
	for i, t := range threads {
		thread := pystack.Thread{ID: i, Name: t.Name, State: pystack.State(t.Doing), Deeper: t.Deeper, Frames: []pystack.Frame{}}
		for _, f := range t.Frames {
			thread.Frames = append(thread.Frames, pystack.Frame(f))
		}
		if i > 0 {
			thread.Unread = t.Error
		}
		reading.Threads = append(reading.Threads, thread)
	}
	return reading
}

// joinFar puts the readings of this host and the others together, by number, and says of which ranks nothing is known.
func joinFar(here []rankReading, elsewhere []string, far []rankReading) (all []rankReading, unknown []string) {
	all = slices.Clone(here)
	for _, r := range far {
		i := slices.IndexFunc(all, func(h rankReading) bool { return h.Task == r.Task })
		switch {
		case i < 0:
			all = append(all, r)
		case r.err == nil:
			all[i] = r
		}
	}
	slices.SortStableFunc(all, func(a, b rankReading) int {
		x, _ := serry.ParseTaskID(a.Task) // zero for what is no task
		y, _ := serry.ParseTaskID(b.Task)
		return cmp.Or(x.Compare(y), strings.Compare(a.Task, b.Task))
	})
	for _, name := range elsewhere {
		if !slices.ContainsFunc(far, func(r rankReading) bool { return r.Task == name }) {
			unknown = append(unknown, name)
		}
	}
	return all, unknown
}
