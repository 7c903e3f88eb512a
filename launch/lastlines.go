package launch

import (
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/wire"
)

// Bounds of the output that a launcher keeps in memory, for the page and for commands on other hosts (D-WEB-2). Config.LogDir keeps all
// of the output.
const (
	keptLines    = 1000
	keptBytes    = 128 << 10 // of text, for each task
	keptLineSize = 4 << 10
	mostTail     = 500 // lines of one answer
)

// lastLines are the last lines that the tasks of a host have written, over all their lives. The lines of a task stay when it ends or is
// started again, because the last lines before a failure usually say why it failed.
type lastLines struct {
	mu struct {
		sync.Mutex
		of map[int]*taskLines
	}
}

// taskLines are the last lines of one task.
type taskLines struct {
	lines []wire.LogLine // the oldest first
	bytes int
	last  uint64 // number of the newest
}

var streamNames = [...]string{Stdout: "stdout", Stderr: "stderr"}

// add appends a line that a task wrote in one of its lives, and drops the oldest lines of the task that are over the bounds.
func (l *lastLines) add(s seat, stream Stream, text []byte, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.of == nil {
		l.mu.of = make(map[int]*taskLines)
	}
	t := l.mu.of[s.Task]
	if t == nil {
		t = new(taskLines)
		l.mu.of[s.Task] = t
	}
	t.last++
	line := wire.LogLine{
		Number: t.last, Time: now.UTC(), Stream: streamNames[stream], Text: string(text[:min(len(text), keptLineSize)]),
		Attempt: s.Attempt, Life: s.Life,
	}
	t.lines, t.bytes = append(t.lines, line), t.bytes+len(line.Text)
	drop := 0
	for len(t.lines)-drop > keptLines || t.bytes > keptBytes {
		t.bytes -= len(t.lines[drop].Text)
		drop++
	}
	t.lines = t.lines[drop:]
}

// tail returns the lines of a task that a query asks for, as the JSON of a [wire.LogTail]. Lines that would make the body larger than room
// bytes are left out, the oldest first. ok is false if the task has written nothing on this host.
func (l *lastLines) tail(task int, q wire.LogQuery, room int) (body []byte, ok bool) {
	l.mu.Lock()
	t := l.mu.of[task]
	if t == nil {
		l.mu.Unlock()
		return nil, false
	}
	all, doc := slices.Clone(t.lines), wire.LogTail{Version: wire.LogTailVersion, Last: t.last, Lines: []wire.LogLine{}}
	l.mu.Unlock()
	if len(all) > 0 {
		doc.First = all[0].Number
	}
	all = slices.DeleteFunc(all, func(n wire.LogLine) bool { return n.Number <= q.After || q.Before > 0 && n.Number >= q.Before })
	all = all[max(0, len(all)-min(max(q.Tail, 0), mostTail)):]
	for {
		doc.Lines = all
		body, err := json.Marshal(doc)
		if err != nil {
			return nil, false
		}
		if len(body) <= room || len(all) == 0 {
			return body, true
		}
		all = all[(len(all)+1)/2:] // the caller can ask for the rest with a smaller Before
	}
}

// answerLogs answers a question about the last lines of one task. A question about several tasks gets no answer, because an answer has
// room for the lines of one.
func (c *crew) answerLogs(q client.Question) []client.Finding {
	var query wire.LogQuery
	if json.Unmarshal([]byte(q.Argument), &query) != nil || len(q.Tasks) != 1 || q.Tasks[0] != worker(q.Tasks[0].Index) {
		return nil
	}
	body, ok := c.lines.tail(q.Tasks[0].Index, query, q.MaxBytes)
	if !ok {
		return nil
	}
	return []client.Finding{{Tasks: q.Tasks, Body: body}}
}
