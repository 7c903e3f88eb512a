package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/wire"
)

// findTasks turns what a user calls tasks, a number or job/number, into their names. A name of no task is a
// mistake, not an empty answer: a script that waits for a task to fail would wait for ever.
func findTasks(tasks []wire.TaskStatus, typed []string) ([]string, error) {
	var names []string
	for _, word := range typed {
		i := slices.IndexFunc(tasks, func(t wire.TaskStatus) bool {
			return t.Task == word || diagnose.RankOf(t.Task, oneJob(tasks)) == word
		})
		if i < 0 {
			return nil, hinted{fmt.Errorf("no rank %s", word), "the job has " + spoken(tasks)}
		}
		names = append(names, tasks[i].Task)
	}
	return names, nil
}

// oneJob says whether all tasks are of one job, so that their numbers tell them apart.
func oneJob(tasks []wire.TaskStatus) bool {
	if len(tasks) == 0 {
		return true
	}
	// They are sorted by job.
	first, _, _ := strings.Cut(tasks[0].Task, "/")
	last, _, _ := strings.Cut(tasks[len(tasks)-1].Task, "/")
	return first == last
}

// spoken names all tasks of a job: ranks 0-3, or ranks ps/0-1 worker/0-3.
func spoken(tasks []wire.TaskStatus) string {
	var names []string
	for _, t := range tasks {
		names = append(names, t.Task)
	}
	noun := "ranks "
	if len(names) == 1 {
		noun = "rank "
	}
	text := diagnose.TaskRanges(names)
	if oneJob(tasks) {
		_, text, _ = strings.Cut(text, "/")
	}
	return noun + text
}
