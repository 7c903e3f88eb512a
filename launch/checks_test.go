package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// An intruder is a process that has joined the meeting of two hosts as the launcher of a spare host, and writes
// whatever it likes.
type intruder struct {
	t     *testing.T
	keys  *client.KV
	life  serry.Incarnation // of the launcher of node 1
	notes *noteRecord
	jobs  []*Job
	sky   *sky
	leave func() error // closes its connection, which would be dialled again for as long as the intruder is there
}

// intrude starts a job of a task on each of two hosts and lets an intruder in. Both tasks run.
func intrude(t *testing.T) *intruder {
	t.Helper()
	s := newSky()
	s.script = until
	in := &intruder{t: t, notes: new(noteRecord), sky: s}
	for node, h := range []*skyHost{s.host("a"), s.host("b")} {
		j, err := start(Config{NoStacks: true, Command: itself, Tasks: 1, Nodes: 2, Spares: 1, Node: node, Coordinator: "first:1", Display: in.notes}, h)
		if err != nil {
			t.Fatal(err)
		}
		in.jobs = append(in.jobs, j)
	}
	time.Sleep(time.Minute)
	a, err := joinMeeting(t.Context(), s.host("c").connect, "first:1", client.Config{Task: Config{Command: itself}.launcher(2), Incarnation: 5, HeartbeatTimeout: launcherBeat})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	in.keys, in.leave = a.KV(), a.Close
	var h hello
	if b, err := in.keys.Get(t.Context(), "hello/1"); err != nil || json.Unmarshal(b, &h) != nil {
		t.Fatalf("hello of node 1: %v", err)
	}
	in.life = h.Incarnation
	return in
}

// write stores a value, and waits until launchers have read it.
func (in *intruder) write(key, text string) {
	in.t.Helper()
	if err := in.keys.Put(in.t.Context(), key, []byte(text)); err != nil {
		in.t.Fatal(err)
	}
	synctest.Wait()
}

// order and message are the next keys of the queues to and from node 1, after n values.
func (in *intruder) order(n int) string   { return queueKey("to", 1, in.life, n) }
func (in *intruder) message(n int) string { return queueKey("from", 1, in.life, n) }

// end has both tasks end well, and says what the launchers report.
func (in *intruder) end() {
	in.t.Helper()
	for _, p := range in.sky.processes() {
		p.end(Cause{}, byItself)
	}
	for node, j := range in.jobs {
		if r := j.Wait(); !r.Well() || r.Tasks != 2 {
			in.t.Errorf("node %d: Wait() = %+v; want two tasks that ended well", node, r)
		}
	}
	in.leave()
	in.sky.done.Wait()
}

// A noteRecord keeps notes.
type noteRecord struct {
	noDisplay
	mu    sync.Mutex
	texts []string
}

func (r *noteRecord) Note(n Note) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts = append(r.texts, n.Text)
}

func (r *noteRecord) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.texts)
}

// count is how many notes have these words.
func (r *noteRecord) count(words string) (n int) {
	for _, text := range r.all() {
		if strings.Contains(text, words) {
			n++
		}
	}
	return n
}

// Values that make no sense are dropped with a note. They start and signal no process, no launcher ends, and
// the queues that they were written into go on.
func TestNonsenseAtTheMeeting(t *testing.T) {
	clause.Cite(t, "SEC-61", "SECT-16")
	seat := func(change string) string {
		fields := map[string]int{"Task": 1, "Tasks": 2, "Local": 0, "Locals": 1, "Node": 1, "Nodes": 2, "Attempt": 1, "Life": 2}
		if name, value, ok := strings.Cut(change, "="); ok {
			n, _ := strconv.Atoi(value)
			fields[name] = n
		}
		b, _ := json.Marshal(map[string]any{"Start": fields, "Address": "first:1001", "Secret": make([]byte, 32)})
		return string(b)
	}
	synctest.Test(t, func(t *testing.T) {
		in := intrude(t)
		for _, c := range []struct{ what, key, value string }{
			{"hello of no node", "hello/-1", `{"Tasks":1,"Nodes":2}`},
			{"hello of a far node", "hello/1000000000", `{"Tasks":1,"Nodes":2}`},
			{"hello of the first node", "hello/0", `{"Tasks":1,"Nodes":2}`},
			{"a second way to write a node", "hello/+1", `{"Tasks":1,"Nodes":2}`},
			{"hello below a folder", "hello/x/1", `{"Tasks":1,"Nodes":2}`},
			{"hello of escapes", "hello/2", `{"Tasks":1,"Nodes":2,"Incarnation":5,"Host":"\u001b]0;x\u0007"}`},
			{"hello that cannot be read", "hello/1", `{"Tasks":`},
			{"death of no task", in.message(0), `{"Died":{"Task":-1,"Attempt":1,"Life":1,"Cause":{"code":1}}}`},
			{"death of a far task", in.message(0), `{"Died":{"Task":1000000000,"Attempt":1,"Life":1,"Cause":{"code":1}}}`},
			{"a class of no task", in.message(0), `{"Classed":{"Task":-1,"Attempt":1,"Life":1,"Condition":{"class":"static"}}}`},
			{"a class from the future", in.message(0), `{"Classed":{"Task":1,"Attempt":1,"Life":1,"Age":-5}}`},
			{"death beside far tasks", in.message(0), `{"Died":{"Task":1,"Attempt":1,"Life":1,"Cause":{"code":1},"Also":[99999]}}`},
			{"a code that is none", in.message(0), `{"Died":{"Task":1,"Attempt":1,"Life":1,"Cause":{"code":256}}}`},
			{"death of another host's task", in.message(0), `{"Died":{"Task":1,"Attempt":1,"Life":1,"After":-5,"Cause":{"code":1}}}`},
			{"a far task has left", in.message(0), `{"Left":{"Task":99999,"Attempt":1,"Life":1}}`},
			{"a host that ends by a far signal", in.message(0), `{"Retiring":63}`},
			{"a message that cannot be read", in.message(0), `{"Died": "x`},
			{"no locals", in.order(1), seat("Locals=0")},
			{"a far task", in.order(1), seat("Task=1000000000")},
			{"a far node", in.order(1), seat("Node=-1")},
			{"a task that runs", in.order(1), seat("")},
			{"a short secret", in.order(1), strings.Replace(seat(""), `"Secret":"AAAA`, `"Secret":"`, 1)},
			{"another coordinator", in.order(1), strings.Replace(seat("Life=2"), "first:1001", "elsewhere:1001", 1)},
			{"a signal that is not passed on", in.order(1), `{"Signal":63}`},
			{"a negative signal", in.order(1), `{"Signal":-9}`},
			{"an end without a signal", in.order(1), `{"End":true}`},
			{"a report without tasks", in.order(1), `{"Over":{"Tasks":2,"Later":[null]}}`},
			{"a report with a far task", in.order(1), `{"Over":{"Tasks":2,"First":{"Task":77,"Attempt":1,"Life":1}}}`},
			{"an order that cannot be read", in.order(1), `[]`},
		} {
			in.write(c.key, c.value)
			if n := len(in.sky.processes()); n != 2 {
				t.Fatalf("%s: %d processes were started; want 2", c.what, n)
			}
			for _, p := range in.sky.processes() {
				if p.mu.Lock(); len(p.mu.told) > 0 || p.mu.ended {
					t.Errorf("%s: the task of %s got %v, ended %v; want neither", c.what, p.host.name, p.mu.told, p.mu.ended)
				}
				p.mu.Unlock()
			}
			time.Sleep(time.Minute) // notes are seldom
		}
		for range 10_000 {
			in.write(in.order(1), seat(""))
		}
		if n := in.notes.count("was dropped: makes no sense"); n < 20 || n > 40 {
			t.Errorf("%d notes about what was dropped; want one for each kind of value\n%s", n, strings.Join(in.notes.all(), "\n"))
		}
		in.end()
	})
}

// A launcher that was started for another job says hello again and again. The notes about it are few.
func TestFewNotesOfOtherJobs(t *testing.T) {
	clause.Cite(t, "SEC-61", "SEC-103")
	synctest.Test(t, func(t *testing.T) {
		in := intrude(t)
		for i := range 1000 {
			in.write("hello/2", fmt.Sprintf(`{"Tasks":7,"Nodes":2,"Incarnation":%d,"Host":"%d"}`, i, i))
		}
		if n := in.notes.count("is not let in"); n == 0 || n > 5 {
			t.Errorf("%d notes about a launcher that is not let in; want a few", n)
		}
		in.end()
	})
}

// A value that another process has written at a place of a queue does not cost the queue a value: the writer waits
// until the reader has dropped it.
func TestPlaceInAQueueIsTaken(t *testing.T) {
	clause.Cite(t, "SEC-61")
	synctest.Test(t, func(t *testing.T) {
		in := intrude(t)
		in.write("queue/0", "[]")
		stored := make(chan error, 1)
		go func() { stored <- enqueue(t.Context(), in.keys, "queue/0", order{Signal: syscall.SIGTERM}) }()
		time.Sleep(time.Second)
		var o order
		if err := take(t.Context(), in.keys, "queue/0", &o); !errors.Is(err, errNonsense) {
			t.Errorf("take() = %v; want what the other process has written", err)
		}
		if err := take(t.Context(), in.keys, "queue/0", &o); err != nil || o.Signal != syscall.SIGTERM {
			t.Errorf("take() = %+v, %v; want the order after it", o, err)
		}
		if err := <-stored; err != nil {
			t.Errorf("enqueue() = %v", err)
		}
		in.end()
	})
}

// A second SIGTERM ends a launcher within the grace, though another host takes orders and never answers.
func TestSecondSignalEndsALauncher(t *testing.T) {
	clause.Cite(t, "SEC-61")
	synctest.Test(t, func(t *testing.T) {
		s := newSky()
		s.script = until
		const grace = 7 * time.Second
		j, err := start(Config{Command: itself, Tasks: 1, Nodes: 2, Coordinator: "first:1", Grace: grace}, s.host("a"))
		if err != nil {
			t.Fatal(err)
		}
		a, err := joinMeeting(t.Context(), s.host("b").connect, "first:1", client.Config{Task: Config{Command: itself}.launcher(1), Incarnation: 5, HeartbeatTimeout: launcherBeat})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		if err := put(t.Context(), a.KV(), "hello/1", hello{Incarnation: 5, Tasks: 1, Nodes: 2}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		j.Signal(syscall.SIGTERM)
		time.Sleep(time.Hour)
		if !a.alive(t.Context()) {
			t.Error("the other launcher was let go; want the job to wait for its task after one signal")
		}
		second := time.Now()
		j.Signal(syscall.SIGTERM)
		if r := j.Wait(); r.Interrupted != syscall.SIGTERM || time.Since(second) > grace {
			t.Errorf("Wait() = %+v %v after the second signal; want the end within %v", r, time.Since(second), grace)
		}
		a.Close() // it would dial again while the world ends
		s.done.Wait()
	})
}

// alive says whether the meeting answers.
func (a *attendant) alive(ctx context.Context) bool {
	_, err := a.Tasks(ctx)
	return err == nil
}

// The hello of a launcher that is here does not start it anew, whoever writes it again.
func TestHelloTwice(t *testing.T) {
	clause.Cite(t, "SEC-61")
	synctest.Test(t, func(t *testing.T) {
		in := intrude(t)
		b, err := in.keys.Get(t.Context(), "hello/1")
		if err != nil {
			t.Fatal(err)
		}
		in.write("hello/1", string(b))
		if n := in.notes.count("node 1 is gone"); n != 0 {
			t.Errorf("node 1 is called gone %d times; want never", n)
		}
		in.end()
	})
}

// Launchers meet at the address that they were told, and at no other one of the host.
func TestMeetingListensAtItsAddress(t *testing.T) {
	clause.Cite(t, "SEC-61")
	for _, c := range []struct{ address, want, text string }{
		{"127.0.0.1:0", "127.0.0.1", "every process of this host"},
		{"localhost:0", "127.0.0.1", "every process of this host"},
		{"192.0.2.7:0", "::", "port"},            // not one of this host
		{"no-such-host.invalid:0", "::", "port"}, // only others know it
	} {
		l, err := listenAt(c.address)
		if err != nil {
			t.Fatalf("listenAt(%q) = %v", c.address, err)
		}
		if got := l.Addr().(*net.TCPAddr).IP.String(); got != c.want {
			t.Errorf("listenAt(%q) is at %s; want %s", c.address, got, c.want)
		}
		if text := trustText(l.Addr()); !strings.Contains(text, c.text) || !strings.Contains(text, "plain text") {
			t.Errorf("%q is told of by %q; want %q in it", c.address, text, c.text)
		}
		l.Close()
	}
	if text := trustText(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 9}); !strings.Contains(text, "10.0.0.7:9 in plain text: whatever reaches this address") {
		t.Errorf("text %q; want what is trusted", text)
	}
}

// Texts of other hosts have limits.
func TestLongTexts(t *testing.T) {
	clause.Cite(t, "SEC-61", "D-EV-2")
	long := strings.Repeat("é", mostTextBytes)
	m := message{Left: &left{lifetime: lifetime{0, 1, 1}, Last: slices.Repeat([]string{long}, 1000), Err: long}}
	if err := m.check(Config{Tasks: 1}); err != nil {
		t.Fatal(err)
	}
	if len(m.Left.Last) != tailLines || len(m.Left.Last[0]) > mostTextBytes+3 || len(m.Left.Err) > mostTextBytes+3 {
		t.Errorf("%d lines of %d bytes and an error of %d; want them cut", len(m.Left.Last), len(m.Left.Last[0]), len(m.Left.Err))
	}
	c := classed{lifetime: lifetime{0, 1, 1}, Host: long}
	c.Condition = diagnose.Condition{Class: diagnose.Class(long), At: long, Doing: long, Wait: long, File: long, Phase: long}
	c.Program = diagnose.Program{Name: long, Sum: long, Ranks: long, By: long}
	if err := c.check(Config{Tasks: 1}); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(c)
	if err != nil || strings.Count(string(text), "...") != 11 || len(text) > 11*(mostTextBytes+100) {
		t.Errorf("a class of %d bytes, %v; want each of its 11 texts cut", len(text), err)
	}
}
