package history_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/lab/history"
)

// The histories of the specification. A line is a process: S start, c call, r reply, X failure.
func TestLiveHistories(t *testing.T) {
	lab.Clause(t, "TC-LIVE-01", "TC-LIVE-02", "TC-LIVE-03", "TC-LIVE-04", "TC-LIVE-05", "TC-LIVE-06", "TC-LIVE-07",
		"TC-LIVE-08", "TC-LIVE-09", "C-LIVE-7")
	for _, test := range []struct {
		name    string
		history []string
		valid   bool
	}{
		{"01 all are alive", []string{"S25 c50 r250{0,1,2}", "S25 c50 r250{0,1,2}", "S25 c50 r250{0,1,2}"}, true},
		{"02 one was dead before", []string{"S25 c50 r250{0,1}", "S25 c50 r250{0,1}", "X25"}, true},
		{"03 one dies in its call", []string{"S25 c50 r250{0}", "S25 c50 X150"}, true},
		{"04 and counts as alive", []string{"S25 c50 r250{0,1}", "S25 c50 X150"}, true},
		{"05 a failure moves later", []string{"S175 c200 r250{0,1}", "S25 c50 X100"}, true},
		{"06 a failure moves earlier", []string{"S25 c100 r200{0}", "S25 c50 X250"}, true},
		{"07 but not past a start", []string{"S175 c200 r250{0,1}", "S25 c50 X100 S175"}, false},
		{"08 several of both", []string{"S25 c40 r150{0} c175 r275{0,2}", "S50 c65 X125 S150 c165 X290", "S100 c115 X150"}, true},
		{"09 dead and then alive", []string{"S165 c180 r275{0,2}", "S25 c40 r125{1} X140", "S25 c40 X275"}, false},
		{"one starts meanwhile", []string{"S1 c2 r9{0}", "S4 c5"}, true},
		{"one that lives all the time is left out", []string{"S3 c4 r9{0}", "S1 c2 r10{0,1}"}, false},
		{"one has not called", []string{"S1 c2 r9{0,1}", "S1"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := parseHistory(t, test.history).Check()
			if (err == nil) != test.valid {
				t.Errorf("Check() = %v; want valid: %v", err, test.valid)
			}
		})
	}
}

// Whatever tasks do, what the machine answers them can be true.
func TestMachineTellsTrueLiveSets(t *testing.T) {
	lab.Clause(t, "C-LIVE-7", "C-ALIVE-2")
	rapid.Check(t, func(rt *rapid.T) {
		w := newLiveWorld(3)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			w.act(rapid.IntRange(0, 3).Draw(rt, "act"), rapid.IntRange(0, 2).Draw(rt, "process"))
		}
		if err := w.history.Check(); err != nil {
			rt.Fatal(err)
		}
	})
}

// A liveWorld is a machine with processes that come, ask, and die.
type liveWorld struct {
	machine *coord.Machine
	history history.LiveHistory
	tasks   []serry.TaskID
	lives   []serry.Incarnation // by process; 0: it is dead
	known   []serry.Incarnation // the last that the machine knows of
	asking  []coord.Req         // by process; 0: it is not inside a call
	at      int                 // also the last request
}

func newLiveWorld(n int) *liveWorld {
	w := &liveWorld{
		machine: coord.New(coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: n}}, Service: 1, Recoverable: true}),
		history: make(history.LiveHistory, n),
		lives:   make([]serry.Incarnation, n),
		known:   make([]serry.Incarnation, n),
		asking:  make([]coord.Req, n),
	}
	for i := range n {
		w.tasks = append(w.tasks, serry.TaskID{Job: "worker", Index: i})
	}
	return w
}

// act does one thing with one process, if it can be done: start it, have it call, kill it, or let the
// machine find out that it is dead.
func (w *liveWorld) act(what, p int) {
	call := coord.Call{Req: coord.Req(w.at + 1), Task: w.tasks[p], Incarnation: w.lives[p]}
	switch {
	case what == 0 && w.lives[p] == 0:
		w.note(p, history.LiveStart, nil)
		w.lives[p] = serry.Incarnation(w.at)
		w.known[p], call.Incarnation = w.lives[p], w.lives[p]
		w.step(coord.RegisterTask{Call: call})
	case what == 1 && w.lives[p] != 0 && w.asking[p] == 0:
		w.note(p, history.LiveCall, nil)
		w.asking[p] = call.Req
		w.step(coord.GetAliveTasks{Call: call, Tasks: w.tasks})
	case what == 2 && w.lives[p] != 0:
		w.note(p, history.LiveFail, nil)
		w.lives[p], w.asking[p] = 0, 0
	case what == 3 && w.lives[p] == 0 && w.known[p] != 0:
		w.step(coord.Lost{Tasks: []coord.Loss{{Life: serry.Life{Task: w.tasks[p], Incarnation: w.known[p]}}}})
	}
}

// step gives the machine an event and notes the replies to those who still wait for one.
func (w *liveWorld) step(ev coord.Event) {
	for _, e := range w.machine.Step(0, ev) {
		r, ok := e.(coord.Reply)
		if !ok {
			continue
		}
		alive, ok := r.Result.(*coord.Alive)
		if p := slices.Index(w.asking, r.Req); ok && p >= 0 {
			var set []int
			for _, t := range alive.Tasks {
				set = append(set, t.Index)
			}
			w.note(p, history.LiveReply, set)
			w.asking[p] = 0
		}
	}
}

func (w *liveWorld) note(p int, kind history.LiveKind, set []int) {
	w.at++
	w.history[p] = append(w.history[p], history.LiveEvent{At: w.at, Kind: kind, Set: set})
}

// parseHistory reads lines like "S25 c50 r250{0,1}".
func parseHistory(t *testing.T, lines []string) history.LiveHistory {
	t.Helper()
	kinds := map[byte]history.LiveKind{'S': history.LiveStart, 'c': history.LiveCall, 'r': history.LiveReply, 'X': history.LiveFail}
	h := make(history.LiveHistory, len(lines))
	for p, line := range lines {
		for word := range strings.FieldsSeq(line) {
			at, list, _ := strings.Cut(strings.TrimSuffix(word[1:], "}"), "{")
			e := history.LiveEvent{Kind: kinds[word[0]]}
			numbers := append([]string{at}, strings.FieldsFunc(list, func(r rune) bool { return r == ',' })...)
			for i, text := range numbers {
				n, err := strconv.Atoi(text)
				if err != nil || e.Kind == 0 {
					t.Fatalf("word %q: %v", word, err)
				}
				if i == 0 {
					e.At = n
				} else {
					e.Set = append(e.Set, n)
				}
			}
			h[p] = append(h[p], e)
		}
	}
	return h
}
