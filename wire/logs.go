package wire

import "time"

// LogsEvidence asks what a task has written last. The launcher of its host answers: it keeps the last lines of each of its
// tasks. The argument is a [LogQuery] as JSON, the question names one task, and the one part of the answer is a [LogTail].
const LogsEvidence = "logs"

// LogTailVersion is the version of [LogTail]. It changes when a field changes its meaning or goes.
const LogTailVersion = 1

// A LogQuery says which lines are wanted: the newest ones, up to Tail, of those that it allows.
type LogQuery struct {
	Tail   int    `json:"tail"`
	After  uint64 `json:"after,omitempty"`  // lines with greater numbers
	Before uint64 `json:"before,omitempty"` // lines with smaller numbers; 0: all
}

// A LogTail is some of the lines that are kept of a task.
type LogTail struct {
	Version int       `json:"version"`
	First   uint64    `json:"first"` // number of the oldest line that is kept; 0: none is
	Last    uint64    `json:"last"`  // of the newest
	Lines   []LogLine `json:"lines"` // the oldest first
}

// A LogLine is a line that a task has written.
type LogLine struct {
	Number  uint64    `json:"number"` // from 1, over all lives of the task on its host
	Time    time.Time `json:"time"`   // on the wall of its host, when it was read
	Stream  string    `json:"stream"` // stdout or stderr
	Text    string    `json:"text"`
	Attempt int       `json:"attempt"`
	Life    int       `json:"life"` // of the task, in the attempt
}
