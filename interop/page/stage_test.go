package page_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/preempt"
	"github.com/serry-dev/serry/web"
	"github.com/serry-dev/serry/wire"
)

const stageToken = "stage-token-0123456789"

// A stage has jobs that the driver of the browser asks for.
type stage struct {
	t    *testing.T
	jobs []*staged
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t}
	t.Cleanup(func() {
		for _, j := range s.jobs {
			j.kill()
		}
	})
	return s
}

// An order is what the driver wants.
type order struct {
	Do    string // new, scene, shuffle, kill, back, mute, unmute, streams, say or acts
	Job   int
	Scene string
	Ranks int
	Seed  uint64
}

// ServeHTTP implements [http.Handler]. The driver sends one order at a time.
func (s *stage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if o.Do == "new" {
		o.Job = len(s.jobs)
		s.jobs = append(s.jobs, newStaged(s.t))
	}
	j := s.jobs[o.Job]
	answer := map[string]any{"job": o.Job, "url": "http://" + j.address + "/", "token": stageToken, "write": stageWriteToken}
	switch o.Do {
	case "new", "scene":
		j.play(o.Scene, o.Ranks)
	case "shuffle":
		answer["states"] = j.shuffle(o.Seed)
	case "kill":
		j.kill()
	case "back":
		j.serve()
	case "mute", "unmute":
		j.mute.Store(o.Do == "mute")
	case "say":
		j.store.say(o.Scene)
	case "acts":
		answer["acts"] = j.store.acts()
	case "streams":
		answer["streams"] = j.streams.Load()
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// A staged job is one that is made up, with a real page.
type staged struct {
	t       *testing.T
	address string
	streams atomic.Int64 // that are open
	mute    atomic.Bool  // nothing leaves its host
	page    *web.Server
	http    *http.Server
	store   stagedStore

	mu struct {
		sync.Mutex
		evidence diagnose.Evidence
		began    time.Time
	}
}

func newStaged(t *testing.T) *staged {
	j := &staged{t: t, address: "127.0.0.1:0"}
	j.mu.began = time.Now().Add(-192 * time.Minute)
	j.serve()
	return j
}

// serve serves the page, at the same address as before.
func (j *staged) serve() {
	var err error
	if j.page, err = web.New(web.Config{
		Source: j, Token: stageToken, Panels: web.Panels{Keys: &j.store, Processes: &j.store, Acts: &j.store},
		WriteToken: stageWriteToken, Hide: []string{"hidden/*"},
	}); err != nil {
		j.t.Error(err)
		return
	}
	l, err := net.Listen("tcp", j.address)
	if err != nil {
		j.t.Error(err)
		return
	}
	j.address = l.Addr().String()
	page := j.page
	j.http = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/stream") {
			j.streams.Add(1)
			defer j.streams.Add(-1)
		}
		page.ServeHTTP(w, r)
	})}
	go func(h *http.Server) { _ = h.Serve(muteListener{l, &j.mute}) }(j.http) // it ends when it is closed
}

func (j *staged) kill() {
	_ = j.http.Close()
	j.page.Close()
}

// Look implements [web.Source].
func (j *staged) Look(context.Context) (diagnose.Evidence, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.mu.evidence
	e.Status.Clock = time.Now().UTC()
	return e, nil
}

// Stacks implements [web.Source].
func (j *staged) Stacks(context.Context, []string) (web.Stacks, error) {
	frames := []diagnose.Frame{{Function: "load_batch", File: "/src/train.py", Line: 10}, {Function: "train_step", File: "/src/train.py", Line: 19}}
	if j.store.hostile() {
		return web.Stacks{Version: 1, Groups: []diagnose.StackGroup{{Tasks: []string{hostile + "/3"}, Frames: []diagnose.Frame{{Function: hostile, File: hostile, Line: 1}}, Doing: []string{hostile}}}, Elsewhere: []string{hostile + "/0"}}, nil
	}
	return web.Stacks{Version: 1, Groups: []diagnose.StackGroup{{Tasks: []string{"worker/3"}, Frames: frames, Doing: []string{"asleep (nanosleep)"}}, {Tasks: []string{"worker/0", "worker/1", "worker/2"}, Frames: frames[1:], Doing: []string{"waiting"}}}, Elsewhere: []string{}}, nil
}

const hostile = `<img src=x onerror="globalThis.harmed=1">` + "\x1b[31m\u202e"

// play makes the job one of a scene.
func (j *staged) play(scene string, ranks int) {
	j.store.play(scene, ranks)
	j.mu.Lock()
	defer j.mu.Unlock()
	up := time.Since(j.mu.began).Seconds()
	s := wire.Status{
		Version: wire.StatusVersion, Epoch: 2, Service: 7, UpSeconds: up, Size: ranks, Jobs: []wire.JobStatus{{Name: "worker", Tasks: ranks}}, Counts: map[string]int{wire.StateConnected: ranks},
		Barriers: []wire.BarrierStatus{}, Keys: 214, StoreBytes: 18 << 10,
		Notes:   []wire.NoteStatus{{Number: 1, AtSeconds: up - 600, What: "all tasks registered", Count: ranks, Of: ranks}},
		Goodput: &wire.GoodputStatus{WallSeconds: up, ProductiveSeconds: up * 0.93, LostSeconds: map[string]float64{"start": up * 0.04, "checkpoint": up * 0.02, "restart": up * 0.01}, Step: 18234},
	}
	heard := 0.4
	for i := range ranks {
		s.Tasks = append(s.Tasks, wire.TaskStatus{Task: fmt.Sprintf("worker/%d", i), State: wire.StateConnected, Incarnation: uint64(1000 + i), ForSeconds: 600, HeardSeconds: &heard, From: fmt.Sprintf("10.0.%d.%d:4711", i/8/250, 1+i/8%250), LastCall: "Barrier", LastOf: "step-18234", CallSeconds: 0.2})
		s.Steps = append(s.Steps, 18234)
	}
	var hang *diagnose.HangReport
	var saves preempt.Records
	note := func(ago float64, n wire.NoteStatus) {
		n.Number, n.AtSeconds = uint64(len(s.Notes)+1), up-ago
		s.Notes = append(s.Notes, n)
	}
	wait := func(seconds float64) {
		s.Barriers = []wire.BarrierStatus{{ID: "save-100", Counter: 1, Arrived: ranks - 1, Members: ranks, First: "worker/0", Missing: []string{"worker/3"}, ForSeconds: seconds, UsualSeconds: 0.5}}
		s.Steps[3], s.Waiting = 18233, ranks-1
		for i := range s.Tasks {
			if i != 3 {
				s.Tasks[i].LastOf, s.Tasks[i].CallSeconds, s.Tasks[i].CallWaits = "save-100", seconds, true
			}
		}
	}
	switch scene {
	case "missing":
		wait(3)
	case "stuck":
		wait(161)
		now := time.Now()
		hang = &diagnose.HangReport{Version: diagnose.HangReportVersion, Begun: now.Add(-time.Hour), Hang: &diagnose.Hang{
			Kind: diagnose.HangStill, Stage: diagnose.Stuck, Grade: diagnose.Sure, Since: time.Hour - 161*time.Second, Stalled: time.Hour - 156*time.Second,
			Ranks: []diagnose.RankEvidence{{Rank: 3, PID: 2077, Host: "node-b", Condition: diagnose.Condition{Class: "static", At: "load_batch (train.py:10)"}}},
			Waits: []diagnose.HangWait{{Barrier: "save-100", Ranks: []int{0, 1, 2}, Count: ranks - 1}},
		}}
	case "failed":
		s.Tasks[3].State, s.Tasks[3].Cause, s.Tasks[3].Error = wire.StateFailed, "task is dead", "task worker/3: task is dead: process exited: signal 9"
		s.Counts = map[string]int{wire.StateConnected: ranks - 1, wire.StateFailed: 1}
		note(12, wire.NoteStatus{What: "task failed", Task: "worker/3", Cause: "task is dead", Evidence: "process exited: signal 9", Error: "task is dead"})
		s.First = &s.Notes[len(s.Notes)-1]
	case "restarted":
		now := time.Now()
		hang = &diagnose.HangReport{Version: diagnose.HangReportVersion, Begun: now, Attempts: []diagnose.Attempt{
			{Number: 1, Began: now.Add(-time.Hour), Ended: now.Add(-time.Minute), Failed: true, Rank: 3, How: "signal 9 (KILL)", Last: []string{"step 17", hostile}},
			{Number: 2, Began: now.Add(-time.Minute), Left: 2},
		}}
		at := now.Add(-30 * time.Second)
		saves = preempt.Records{
			Notices:  []preempt.Announcement{{Task: "worker/2", Source: "signal terminated", Deadline: at.Add(time.Minute), Time: at, Round: 1}},
			Receipts: []preempt.Receipt{{Task: "worker/0", Step: 18235, Round: 1, TookSeconds: 2.5}, {Task: "worker/1", Step: 18235, Round: 1}, {Task: "worker/2", Step: 18235, Round: 1}},
		}
	case "failover":
		s.Leader, s.Term = "10.0.0.2:8476", 2
		s.Takeover = &wire.Takeover{From: "10.0.0.1:8476", At: time.Now().Add(-20 * time.Second), TookSeconds: 0.4}
	case "hostile names":
		wait(41)
		s.Jobs[0].Name = hostile
		for i := range s.Tasks {
			s.Tasks[i].Task = fmt.Sprintf("%s/%d", hostile, i)
		}
		s.Jobs = append(s.Jobs, wire.JobStatus{Name: "evaluator"})
		s.Barriers[0].Missing = []string{hostile + "/3"}
	case "hostile":
		wait(41)
		s.Barriers[0].ID = hostile
		s.Tasks[3].From = hostile
		s.Tasks[3].LastOf = hostile
		note(5, wire.NoteStatus{What: hostile, Barrier: hostile, Error: hostile})
	}
	j.mu.evidence = diagnose.Evidence{Status: s, Hang: hang, Saves: saves}
}

const (
	shuffledNotes = 10 // events of a shuffle
	keptNotes     = 200
)

// shuffle gives a tenth of the ranks other states, lets some things happen and some ranks wait, and returns the marks that all have then.
func (j *staged) shuffle(seed uint64) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	random := rand.New(rand.NewPCG(seed, 1))
	s := &j.mu.evidence.Status
	s.Tasks = slices.Clone(s.Tasks)
	for range len(s.Tasks) / 10 {
		s.Tasks[random.IntN(len(s.Tasks))].State = []string{wire.StateConnected, wire.StateFailed, wire.StateAbsent, wire.StateRegistering, wire.StateLeft}[random.IntN(5)]
	}
	up := time.Since(j.mu.began).Seconds()
	last := s.Notes[len(s.Notes)-1].Number
	for i := range shuffledNotes {
		s.Notes = append(slices.Clip(s.Notes), wire.NoteStatus{Number: last + 1 + uint64(i), AtSeconds: up, What: "task connected", Task: s.Tasks[random.IntN(len(s.Tasks))].Task})
	}
	s.Notes = s.Notes[max(0, len(s.Notes)-keptNotes):]
	come := random.IntN(len(s.Tasks))
	s.Barriers = []wire.BarrierStatus{
		{ID: fmt.Sprintf("step-%d", seed), Counter: 1, Arrived: come, Members: len(s.Tasks), First: "worker/0", Missing: []string{"worker/3"}, ForSeconds: 0.3, UsualSeconds: 0.5},
		{ID: "save-100", Counter: 1, Arrived: len(s.Tasks) - 1, Members: len(s.Tasks), First: "worker/0", Missing: []string{"worker/3"}, ForSeconds: 3 + float64(seed)/2, UsualSeconds: 0.5},
	}
	var marks strings.Builder
	for _, m := range diagnose.MarkRanks(*s, j.mu.evidence.Hang) {
		marks.WriteByte(byte(m.Mark))
	}
	return marks.String()
}
