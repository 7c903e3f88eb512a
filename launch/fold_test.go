package launch

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// A farHost is a launcher that is not the first, without the network: what it tells goes straight to the meeting.
type farHost struct {
	folder folder
	hand   *distant
	due    time.Time // of the next line; zero: there is none
	rows   int       // messages that it has sent
}

// A gathering is a meeting of hosts without a network, and counts what they send.
type gathering struct {
	cfg      Config
	meeting  *meeting
	hosts    []*farHost
	messages int
	bytes    int // of messages, as they are stored
}

func newGathering(cfg Config) *gathering {
	g := &gathering{cfg: cfg, meeting: &meeting{events: newQueue[any](meetingBacklog)}}
	g.meeting.mu.here = make(map[int]*distant)
	g.meeting.mu.unfolder = unfolder{make(map[string][]byte), make(map[string][]heldTask), make(map[string]tellOrder)}
	for node := 1; node < cfg.Nodes; node++ {
		d := &distant{node: node, host: fmt.Sprint("node-", node), orders: newQueue[order](ordersAhead), ran: make(map[int]ranTask)}
		g.meeting.mu.here[node] = d
		g.hosts = append(g.hosts, &farHost{hand: d})
	}
	return g
}

func (g *gathering) send(t *testing.T, h *farHost, msg message) {
	t.Helper()
	text, err := json.Marshal(msg)
	if err != nil {
		t.Fatal(err)
	}
	h.rows++
	g.messages++
	g.bytes += len(text)
	var read message
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	if err := g.meeting.folded(h.hand, read, g.cfg); err != nil {
		t.Fatal(err)
	}
}

// round has hosts send what is due, and answer what they are asked.
func (g *gathering) round(t *testing.T) {
	t.Helper()
	for _, h := range g.hosts {
		if !h.due.IsZero() && !time.Now().Before(h.due) {
			h.due = time.Time{}
			if line := h.folder.line(); line != "" {
				g.send(t, h, message{Folded: line})
			}
		}
		for len(h.hand.orders.mu.all) > 0 {
			o, _ := h.hand.orders.next(nil)
			for _, digest := range o.Tell {
				g.send(t, h, message{Detail: h.folder.kept[digest]})
			}
		}
	}
}

func (h *farHost) changes(ev classed) {
	if h.folder.add(ev) {
		h.due = time.Now().Add(foldAfter)
	}
}

// told are the classes that have reached the job since it was asked last.
func (g *gathering) told() (all []classed) {
	for len(g.meeting.events.mu.all) > 0 {
		ev, _ := g.meeting.events.next(nil)
		all = append(all, ev.(classed))
	}
	return all
}

// A line of few bytes tells all that a host has seen, process and program included. It does not matter which launcher was asked what a
// digest means.
func TestFoldedClasses(t *testing.T) {
	clause.Cite(t, "D-EV-6")
	synctest.Test(t, func(t *testing.T) {
		g := newGathering(Config{Tasks: 4, Nodes: 3, Command: itself}.withDefaults())
		does := func(task, life int, class diagnose.Class, age time.Duration) classed {
			return classed{
				lifetime: lifetime{task, 1, life}, PID: 1000 + task, Age: age, Program: diagnose.Program{Name: "train.py", Sum: "77"},
				Condition: diagnose.Condition{Class: class, At: "load (train.py:9)", Since: 77 * time.Second, Phase: "save", Until: 99 * time.Second}, Left: 20 * time.Second,
			}
		}
		for task := 4; task < 12; task++ {
			g.hosts[task/4-1].changes(does(task, 1, diagnose.ClassStatic, 2*time.Duration(task)*time.Second))
		}
		time.Sleep(foldAfter)
		g.round(t)
		g.round(t)
		got := g.told()
		if len(got) != 8 || g.messages != 4 {
			t.Fatalf("%d classes by %d messages; want 8 by 2 lines and 2 details", len(got), g.messages)
		}
		for _, ev := range got {
			want := does(ev.Task, 1, diagnose.ClassStatic, 2*time.Duration(ev.Task)*time.Second+foldAfter)
			want.Host, want.from, want.Left = fmt.Sprint("node-", ev.Task/4), ev.from, want.Left-time.Second
			want.Condition.Since, want.Condition.Until = 0, 0
			if d := cmp.Diff(fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", ev)); d != "" {
				t.Errorf("rank %d: %s", ev.Task, d)
			}
		}
		// A change is told in a line; one of another life has its process, too. What the next change undoes is not told.
		sent := g.bytes
		g.hosts[0].changes(does(5, 1, diagnose.ClassMoving, 0))
		g.hosts[0].changes(does(5, 1, diagnose.ClassStatic, 0))
		g.hosts[0].changes(does(6, 2, diagnose.ClassStatic, 0))
		g.hosts[0].changes(does(7, 1, diagnose.ClassStatic, 0))
		g.hosts[0].folder.drop(7)
		time.Sleep(foldAfter)
		g.round(t)
		g.round(t)
		if got := g.told(); len(got) != 2 || got[0].Condition.Class != diagnose.ClassStatic || got[1].Life != 2 || got[1].PID != 1006 {
			t.Errorf("classes %+v; want those of ranks 5 and 6", got)
		}
		if n := g.bytes - sent; n > 400 {
			t.Errorf("%d bytes for two changes", n)
		}
		// A launcher that is lost before it has said what its digest means is asked no more: another one is.
		for _, h := range g.hosts {
			h.changes(classed{lifetime: lifetime{4 * h.hand.node, 1, 1}, Condition: diagnose.Condition{Class: diagnose.ClassBlocked}})
			h.due = time.Now()
		}
		for _, h := range g.hosts {
			g.send(t, h, message{Folded: h.folder.line()})
		}
		delete(g.meeting.mu.here, 1)
		g.meeting.forget(g.hosts[0].hand)
		g.hosts[0].hand.orders.next(nil)
		g.round(t)
		if got := g.told(); len(got) != 1 || got[0].Task != 8 || got[0].Condition.Class != diagnose.ClassBlocked {
			t.Errorf("classes %+v; want that of rank 8", got)
		}
	})
}

// A launcher that tells nonsense costs the first one little, and the others are heard.
func TestDetailsHaveLimits(t *testing.T) {
	clause.Cite(t, "SEC-61")
	g := newGathering(Config{Tasks: 2, Nodes: 3, Command: itself}.withDefaults())
	hostile, other := g.hosts[0], g.hosts[1]
	for i := range 3 * mostKnown {
		g.send(t, hostile, message{Folded: fmt.Sprintf("2:0 1 x%d", i)})
		g.send(t, hostile, message{Detail: fmt.Sprintf(`{"class":"moving","at":"%d"}`, i)}) // it was not asked for that
	}
	u := &g.meeting.mu.unfolder
	if len(u.held) > mostKnown || len(u.asked) > mostKnown || len(u.known) > 0 {
		t.Errorf("%d digests are held, %d asked for and %d known; want %d, %d and 0 at most", len(u.held), len(u.asked), len(u.known), mostKnown, mostKnown)
	}
	long := message{Detail: strings.Repeat("x", mostDetailBytes+1)}
	if err := g.meeting.folded(hostile.hand, long, g.cfg); err == nil {
		t.Error("a detail that is too long was taken")
	}
	delete(g.meeting.mu.here, hostile.hand.node)
	g.meeting.forget(hostile.hand)
	if len(u.held) > 0 || len(u.asked) > 0 {
		t.Errorf("%d digests of a launcher that is lost are held, %d asked for; want none", len(u.held), len(u.asked))
	}
	other.folder.add(classed{lifetime: lifetime{4, 1, 1}, Condition: diagnose.Condition{Class: diagnose.ClassMoving}})
	g.send(t, other, message{Folded: other.folder.line()})
	g.round(t)
	if got := g.told(); len(got) != 1 || got[0].Task != 4 {
		t.Errorf("classes %+v; want that of rank 4", got)
	}
}

// What no launcher writes is refused.
func TestNonsenseOfRanks(t *testing.T) {
	clause.Cite(t, "SEC-61")
	cfg := Config{Tasks: 4, Nodes: 2, Command: itself}.withDefaults()
	for _, line := range []string{"", ":", "0:;", "1 1 x", "-1:1 1 x", "8:0 1 x", "7:1 1 x", "x:1 1 x", "0:1", "0:1 2", "0:8 1 x", "0:1-9 1 x", "0:1 -1 x", "0:1 99999999999 x", "0:x 1 y", "0:1/0.1 1 x",
		"0:1/1 1 x", "0:1/2.x 1 x", "0:1 1 x y", "0:1 1 x y 5,6", "0:1 1 x y -5", "0:1 1 x y z", "0:1 1 " + strings.Repeat("x", 99), "0:1 1 x " + strings.Repeat("x", 99) + " 5", "0:" + strings.Repeat("1 1 x;", 9) + "1 1 x"} {
		if all, err := readFolds(line, cfg); err == nil {
			t.Errorf("readFolds(%q) = %+v; want an error", line, all)
		}
	}
}

// A hang of 10,000 ranks on 1,250 hosts, in virtual time. While all is well nothing is sent; when it hangs, at three places of the
// program, there is a verdict soon, and what hosts have sent for it is little.
func TestHangOfManyRanks(t *testing.T) {
	clause.Cite(t, "D-EV-6", "D-HG-6", "TD-EV-3", "TD-ST-8")
	const (
		perHost, hosts = 8, 1250
		quiet, hangs   = 20 * time.Second, 60 * time.Second // since the job began
		culprit        = 4711
	)
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Tasks: perHost, Nodes: hosts + 1, Command: itself}.withDefaults()
		g := newGathering(cfg)
		begun := time.Now()
		windows := make([]diagnose.Window, perHost*hosts)
		last := make([]diagnose.Condition, len(windows))
		sample := func(task, tick int, now time.Duration) diagnose.Sample {
			s := diagnose.Sample{At: now, State: "running", CPU: now}
			frame := diagnose.Frame{Function: "train_step", File: "train.py", Line: 20 + task%2} // two places on each host
			if now >= hangs {
				s.State, s.CPU, s.Wait = "asleep", hangs, "Gloo all-reduce"
				if task == culprit {
					s.Wait, frame = "", diagnose.Frame{Function: "load_batch", File: "train.py", Line: 10}
				}
			} else {
				frame = diagnose.Frame{Function: fmt.Sprint("layer", tick), File: "train.py", Line: 5}
			}
			if (tick+task)%deepEvery == 0 {
				s.Stack = &diagnose.Stack{Doing: "asleep (futex)", Frames: []diagnose.Frame{frame}}
			}
			return s
		}
		ranks := make([]diagnose.RankEvidence, len(windows))
		for i := range ranks {
			ranks[i].Rank = i
		}
		var watch diagnose.Watch
		var verdict *diagnose.Hang
		var at time.Duration
		settled, sent := 0, 0
		for tick := 1; verdict == nil && tick < 120; tick++ {
			time.Sleep(time.Second / 2)
			g.round(t)
			time.Sleep(time.Second / 2)
			now := time.Since(begun)
			if now == quiet {
				settled = g.messages
			}
			if now == hangs {
				if g.messages != settled {
					t.Errorf("%d messages while nothing changed; want none", g.messages-settled)
				}
				sent = g.bytes
			}
			for task := range windows {
				windows[task].Add(sample(task, tick, now))
				c := windows[task].Condition()
				if c.Same(last[task]) {
					continue
				}
				last[task] = c
				// The first launcher has ranks of its own; those of this test are on the hosts after it.
				g.hosts[task/perHost].changes(classed{lifetime: lifetime{task, 1, 1}, PID: 100 + task%perHost, Condition: c, Age: now - c.Since, Program: diagnose.Program{Name: "train.py", Sum: "77"}})
			}
			g.round(t)
			for _, ev := range g.told() {
				r := diagnose.RankEvidence{Rank: ev.Task, PID: ev.PID, Host: ev.Host, Condition: ev.Condition}
				r.Since = now - ev.Age
				ranks[ev.Task] = r
			}
			_, notes := watch.Step(now, diagnose.HangEvidence{Size: len(ranks), Ranks: ranks})
			if len(notes) > 0 {
				verdict, at = notes[0].Hang, now
			}
		}
		if verdict == nil {
			t.Fatalf("no verdict after %d messages", g.messages)
		}
		text := verdict.Text(at, begun)
		const want = "rank 4711 is stalled since "
		const waits = "; ranks 0-4710,4712-9999 wait for it in Gloo all-reduce"
		if !strings.HasPrefix(text, want) || !strings.HasSuffix(text, waits) {
			t.Errorf("verdict %q; want %q ... %q", text, want, waits)
		}
		if late := at - verdict.Stalled; late > 5*time.Second {
			t.Errorf("the verdict is there %v after the stage begins; want 5s at most", late)
		}
		if n := g.bytes - sent; n > 64<<10 {
			t.Errorf("%d bytes upstream for the hang; want 64 KiB at most", n)
		}
		report, err := json.Marshal(diagnose.HangReport{Version: diagnose.HangReportVersion, Begun: begun, Hang: verdict})
		if err != nil || len(report) > 4<<10 {
			t.Errorf("a report of %d bytes, %v; want 4 KiB at most", len(report), err)
		}
		t.Logf("%d bytes in %d messages at the start; %d bytes in %d messages for the hang, and a report of %d bytes; the verdict %v after the hang, %v after the stage",
			sent, settled, g.bytes-sent, g.messages-settled, len(report), at-hangs, at-verdict.Stalled)
	})
}

// Whatever comes as what ranks do is read or refused, and names ranks of the job alone.
func FuzzFolds(f *testing.F) {
	clause.Cite(f, "SEC-61")
	cfg := Config{Tasks: 4, Nodes: 3, Command: itself}.withDefaults()
	for _, line := range []string{"4:0-3 40 abcdefgh", "8:0,2/2.1 40 abcdefgh hgfedcba 100,101;1,3 5 x", "0:11 4294967295 x", ":", "0:0-99999999999999999999 1 x"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		all, err := readFolds(line, cfg)
		if err != nil {
			return
		}
		for _, o := range all {
			if len(o.ranks) == 0 || o.ranks[0] < 0 || o.ranks[len(o.ranks)-1] >= cfg.total() || o.attempt < 1 || o.life < 1 || o.age < 0 || o.program != "" && len(o.pids) != len(o.ranks) {
				t.Errorf("readFolds(%q) = %+v", line, o)
			}
		}
	})
}
