package launch

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire"
)

// asked is what a crew says to a question about the lines of tasks.
func asked(t *testing.T, c *crew, argument string, room int, tasks ...serry.TaskID) (tail wire.LogTail, ok bool) {
	t.Helper()
	found := c.answer(t.Context(), client.Question{Kind: wire.LogsEvidence, Argument: argument, Tasks: tasks, MaxBytes: room})
	if len(found) == 0 {
		return tail, false
	}
	if err := json.Unmarshal(found[0].Body, &tail); err != nil || len(found) != 1 || len(found[0].Body) > room {
		t.Fatalf("answer() = %d findings, %d bytes, %v; want one within %d", len(found), len(found[0].Body), err, room)
	}
	return tail, true
}

// A launcher tells the last lines of a task over all its lives: the newest ones that fit into the room of the question.
func TestLastLines(t *testing.T) {
	clause.Cite(t, "D-WEB-2")
	f := newFeed(noDisplay{})
	defer f.close(nil)
	c := new(crew)
	for life := 1; life <= 2; life++ {
		o := newOutput(3, f)
		o.kept, o.seat = &c.lines, seat{Task: 3, Attempt: 1, Life: life}
		o.copy(Stderr, text{strings.NewReader(fmt.Sprintf("life %d begins\nand ends\n", life))})
	}
	tail, ok := asked(t, c, `{"tail":3}`, 1<<16, worker(3))
	if !ok || tail.First != 1 || tail.Last != 4 || len(tail.Lines) != 3 || tail.Lines[0].Text != "and ends" || tail.Lines[0].Life != 1 || tail.Lines[2].Life != 2 || tail.Lines[2].Stream != "stderr" {
		t.Errorf("the last 3 lines = %+v; want those of both lives", tail)
	}
	if tail, _ := asked(t, c, `{"tail":10,"before":3}`, 1<<16, worker(3)); len(tail.Lines) != 2 || tail.Lines[1].Number != 2 {
		t.Errorf("lines before 3 = %+v; want 1 and 2", tail.Lines)
	}
	if tail, _ := asked(t, c, `{"tail":10,"after":3}`, 1<<16, worker(3)); len(tail.Lines) != 1 || tail.Lines[0].Text != "and ends" {
		t.Errorf("lines after 3 = %+v; want 4", tail.Lines)
	}
	if tail, _ := asked(t, c, `{"tail":10}`, 300, worker(3)); len(tail.Lines) == 0 || len(tail.Lines) > 2 || tail.Lines[len(tail.Lines)-1].Number != 4 {
		t.Errorf("lines in 300 bytes = %+v; want the newest that fit", tail.Lines)
	}
	for argument, tasks := range map[string][]serry.TaskID{
		`{"tail":10}`: {worker(4)}, `{"tail":9}`: {worker(3), worker(4)}, `{"tail":8}`: nil, `tail`: {worker(3)}, `{"tail":7}`: {{Job: "other", Index: 3}},
	} {
		if tail, ok := asked(t, c, argument, 1<<16, tasks...); ok {
			t.Errorf("answer(%s, %v) = %+v; want none", argument, tasks, tail)
		}
	}
	if tail, ok := asked(t, c, `{"tail":-1}`, 1<<16, worker(3)); !ok || len(tail.Lines) != 0 {
		t.Errorf("a tail of -1 = %+v; want no line", tail)
	}
}

// However much a task writes, little of it is kept.
func TestLastLinesAreBounded(t *testing.T) {
	clause.Cite(t, "D-WEB-2")
	var few, long lastLines
	for range 3 * keptLines {
		few.add(seat{Task: 1}, Stdout, []byte("x"), time.Now())
		long.add(seat{Task: 1}, Stdout, []byte(strings.Repeat("x", 2*keptLineSize)), time.Now())
	}
	if n := len(few.mu.of[1].lines); n != keptLines {
		t.Errorf("%d short lines are kept; want %d", n, keptLines)
	}
	kept := long.mu.of[1]
	if n := len(kept.lines); n != keptBytes/keptLineSize || kept.bytes != keptBytes || kept.last != 3*keptLines {
		t.Errorf("%d long lines of %d bytes are kept; want %d", n, kept.bytes, keptBytes/keptLineSize)
	}
}

// The service of an attempt is told which attempts there were before it, and which rank ended each.
func TestAttemptsAreTold(t *testing.T) {
	clause.Cite(t, "D-WEB-2")
	synctest.Test(t, func(t *testing.T) {
		s := new(scene)
		var read *diagnose.HangReport
		works := func(p *actorProcess) {
			task, attempt, _ := p.seat()
			if attempt == 1 && task == 1 {
				p.end(Cause{Code: 7}, byItself)
				return
			}
			standsIn(20*time.Second, "", 0)(p)
			if attempt == 2 && task == 0 {
				s.service.mu.Lock()
				defer s.service.mu.Unlock()
				read, _ = diagnose.ReadHang(s.service.published)
			}
		}
		if r := s.play(t, Config{Restart: RestartAll, MaxRestarts: 3}, works, works); !r.Well() {
			t.Errorf("Wait() = %+v; want success", r)
		}
		if read == nil || read.Hang != nil || len(read.Attempts) != 2 {
			t.Fatalf("published %+v; want two attempts and no hang", read)
		}
		first, second := read.Attempts[0], read.Attempts[1]
		if !first.Failed || first.Rank != 1 || first.How != "exit code 7" || first.Ended.IsZero() || second.Number != 2 || second.Failed || second.Left != 2 || !second.Ended.IsZero() {
			t.Errorf("attempts %+v and %+v; want rank 1 with exit code 7, then one that runs with 2 restarts left", first, second)
		}
	})
}
