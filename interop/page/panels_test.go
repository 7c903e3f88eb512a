package page_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/web"
	"github.com/serry-dev/serry/wire"
)

const stageWriteToken = "stage-write-token-0123456789"

// panelCases are those of the panels at the foot of the page (testdata/panels.mjs).
var panelCases = []struct {
	name    string
	clauses []string
}{
	{"keys and their values", []string{"D-WEB-2", "D-WEB-12", "D-WEB-18", "TD-WEB-1"}},
	{"the log of a rank", []string{"D-WEB-2", "D-WEB-12", "TD-WEB-1"}},
	{"barriers with their arrivals", []string{"D-WEB-2", "D-WEB-12", "TD-WEB-1"}},
	{"collectives, transfers, preemption and attempts", []string{"D-WEB-2", "TD-WEB-1"}},
	{"a part of the timeline", []string{"D-WEB-1", "D-WEB-2", "TD-WEB-1"}},
	{"text of a job is text in the panels", []string{"D-WEB-17", "TD-WEB-6"}},
	{"changes of the job", []string{"D-WEB-14", "TD-WEB-6"}},
	{"keyboard to the panels", []string{"D-WEB-20", "TD-WEB-7"}},
}

// A stagedStore is what a staged job has beside its status.
type stagedStore struct {
	mu struct {
		sync.Mutex
		keys  map[string]string
		lines []wire.LogLine // of rank 3
		acts  []string       // that the page has asked for
		bad   bool           // texts are hostile
		ranks int
	}
}

// play fills the store for a scene.
func (s *stagedStore) play(scene string, ranks int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.ranks, s.mu.bad = ranks, strings.HasPrefix(scene, "hostile")
	s.mu.keys = map[string]string{"ckpt/dir": "/data/ckpt/100\nsecond line", "ckpt/step": "100", "wandb_token": "hunter2", "blob": "\x00\x01\xff" + strings.Repeat("x", 40), "hidden/a": "behind a pattern"}
	for i := range 40 {
		s.mu.keys[fmt.Sprintf("cpu:gloo/%d", i)] = strings.Repeat("a", i)
	}
	s.mu.lines = nil
	for i := range 30 {
		s.line(fmt.Sprintf("step %d loss 2.%02d", 18204+i, 99-i), "stdout")
	}
	s.line("Traceback (most recent call last):", "stderr")
	s.line("\x1b[31mValueError\x1b[0m: bad sample 17", "stderr")
	if s.mu.bad {
		s.mu.keys[hostile] = hostile
		s.line(hostile, "stdout")
	}
}

// line adds a line. It needs mu.
func (s *stagedStore) line(text, stream string) {
	n := uint64(len(s.mu.lines) + 1)
	s.mu.lines = append(s.mu.lines, wire.LogLine{Number: n, Time: time.Now(), Stream: stream, Text: text, Attempt: 2, Life: 1})
}

// say lets rank 3 write a line.
func (s *stagedStore) say(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line(text, "stdout")
}

func (s *stagedStore) acts() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.acts)
}

// Sizes implements [web.Keys].
func (s *stagedStore) Sizes(_ context.Context, dir string) ([]coord.KeySize, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []coord.KeySize{}
	for key, value := range s.mu.keys {
		if dir == "" || strings.HasPrefix(key, dir+"/") {
			all = append(all, coord.KeySize{Key: key, Size: int64(len(value))})
		}
	}
	slices.SortFunc(all, func(a, b coord.KeySize) int { return strings.Compare(a.Key, b.Key) })
	return all, nil
}

// Value implements [web.Keys].
func (s *stagedStore) Value(_ context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, ok := s.mu.keys[key]
	if !ok {
		return nil, &serry.KeyError{Key: key, Err: serry.ErrNotFound}
	}
	return []byte(value), nil
}

// Logs implements [web.Processes].
func (s *stagedStore) Logs(_ context.Context, task serry.TaskID, q wire.LogQuery) (*wire.LogTail, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if task.Index != 3 {
		return nil, nil
	}
	tail := &wire.LogTail{Version: wire.LogTailVersion, First: 1, Last: uint64(len(s.mu.lines)), Lines: []wire.LogLine{}}
	for _, l := range s.mu.lines {
		if l.Number > q.After && (q.Before == 0 || l.Number < q.Before) {
			tail.Lines = append(tail.Lines, l)
		}
	}
	return tail, nil
}

// Barriers implements [web.Processes]. At each of them rank 3 came last.
func (s *stagedStore) Barriers(_ context.Context, number uint64) (wire.BarrierLog, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := wire.BarrierLog{Version: wire.BarrierLogVersion, Jobs: []wire.JobStatus{{Name: "worker", Tasks: s.mu.ranks}}, Barriers: []wire.BarrierRecord{}}
	for n := uint64(12); n > 0; n-- {
		b := wire.BarrierRecord{
			Number: n, ID: fmt.Sprintf("step-%d", 18200+n), Began: time.Unix(1_800_000_000+int64(n), 0), Arrived: s.mu.ranks, Members: s.mu.ranks,
			First: "worker/0", Last: "worker/3", Seconds: 1.25, Lag: 1.1, Missing: []string{},
		}
		if n == 11 {
			b.Error, b.Arrived, b.Missing = "barrier timed out", s.mu.ranks-1, []string{"worker/3"}
		}
		if s.mu.bad {
			b.ID, b.Error, b.Last = hostile, hostile, hostile
		}
		for i := range s.mu.ranks {
			b.Arrivals = append(b.Arrivals, 0.15*float64((i*7)%97)/97)
		}
		b.Arrivals[3] = 1.25
		if number == n {
			log.Barriers = append(log.Barriers, b)
		}
		if b.Arrivals = nil; number == 0 {
			log.Barriers = append(log.Barriers, b)
		}
	}
	return log, nil
}

// Collectives implements [web.Processes].
func (s *stagedStore) Collectives(context.Context) (any, error) {
	op := "allreduce of 16777216 f32 by sum"
	if s.hostile() {
		op = hostile
	}
	record := func(seq int, op, outcome string) string {
		text, _ := json.Marshal(op) // a string
		return fmt.Sprintf(`{"seq":%d,"op":%s,"kind":"x","all":true,"began":"2027-01-15T08:00:%02d.5Z","sent":0,"received":0,"slowest":-1,"waited":0,"outcome":%q}`, seq, text, seq, outcome)
	}
	var before []string // as many as a person does not read at once
	for seq := 1; seq < 40; seq++ {
		before = append(before, record(seq, op, "done"))
	}
	return json.RawMessage(fmt.Sprintf(`{"version":1,"verdict":"ranks 0-2 run operation 41, rank 3 has not begun it","silent":[],"missing":0,"cliques":[{"clique":"data","by":0,"at":"2027-01-15T08:01:00Z","tracks":[
		{"rank":0,"task":"worker/0","skew":0,"within":0,"records":[%s,%s,%s]},{"rank":1,"task":"worker/1","skew":0,"within":0,"records":[%s,%s]},{"rank":3,"task":"worker/3","skew":0,"within":0,"records":[%s]}],
		"divergence":{"seq":41,"ops":[{"op":"broadcast","ranks":[0,1]}],"missing":[3]},"lags":[]}]}`,
		strings.Join(before, ","), record(40, op, "done"), record(41, "broadcast", "running"), record(40, op, "done"), record(41, "broadcast", "running"), record(40, op, "done"))), nil
}

// Transfers implements [web.Processes].
func (s *stagedStore) Transfers(context.Context) (any, error) {
	text := "waits until worker/3 receives"
	if s.hostile() {
		text = hostile
	}
	return map[string]any{"version": 1, "verdict": "1 transfers are under way", "omitted": 0, "silent": []string{}, "missing": 0,
		"transfers": []any{map[string]any{"key": "kv-cache/7", "from": "worker/0", "to": "worker/3", "waitsFor": "worker/3", "text": text, "seconds": 12.5, "bytes": 1 << 20, "done": 1 << 19}}}, nil
}

func (s *stagedStore) hostile() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.bad
}

// Names implements [web.Acts].
func (s *stagedStore) Names() []string {
	return []string{web.ActPut, web.ActDelete, web.ActRestart, web.ActKill, web.ActStop}
}

// Do implements [web.Acts].
func (s *stagedStore) Do(_ context.Context, act web.Act) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := act.Key
	if !act.Task.IsZero() {
		of = act.Task.String()
	}
	s.mu.acts = append(s.mu.acts, strings.TrimSpace(act.Name+" "+of))
	switch act.Name {
	case web.ActPut:
		s.mu.keys[act.Key] = act.Value
	case web.ActDelete:
		delete(s.mu.keys, act.Key)
	case web.ActRestart:
		return "", errors.New("no restarts are left")
	case web.ActKill:
		return "ending the job", nil
	}
	return "", nil
}
