package coord_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
)

// TestScripts runs the transcripts of testdata. A block is a row of commands and what clients hear:
//
//	# C-BAR-13: the comment names the clauses that the block shows.
//	new tasks=2 connected
//	barrier 0 b
//	barrier 1 b
//	----
//	#1 barrier 0 b: held
//	#1 barrier 0 b: OK counter=0
//	#2 barrier 1 b: OK counter=0
//
// Each call is sent as a message of a dialect and its reply is read from the bytes of one, so that a
// line shows what a client sees. All scripts run in both dialects; names of tasks in texts are
// brought to one form. A call that a dialect does not have is sent in the other. The command words
// are those of requests in speech_test.go, and of control below.
//
// Refresh with go test ./coord -rewrite, then read the diff against the specification.
func TestScripts(t *testing.T) {
	for _, d := range []wire.Dialect{wire.XLA, wire.TF} {
		t.Run(d.String(), func(t *testing.T) {
			files, err := filepath.Glob("testdata/*.txt")
			if err != nil || len(files) == 0 {
				t.Fatalf("no scripts: %v", err)
			}
			for _, path := range files {
				t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) { runScript(t, d, path) })
			}
		})
	}
}

func runScript(t *testing.T, d wire.Dialect, path string) *script {
	t.Helper()
	s := &script{dialect: d}
	datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
		if td.Rewrite && d != wire.XLA {
			return td.Expected // one dialect writes; the next plain run compares the other
		}
		return s.block(t, td)
	})
	s.replay(t)
	return s
}

// A script is a machine and the clients that talk to it.
type script struct {
	t       *testing.T
	out     strings.Builder
	dialect wire.Dialect

	m        *coord.Machine
	cfg      coord.Config
	codec    *wire.Codec
	now      coord.Time
	history  []step
	journals []*keeper // of the machine, one that begins at each step
	written  []*keeper // of every machine of the script, from its first step on

	dialectNow wire.Dialect // unless new said otherwise, dialect
	names      bool         // show the names of jobs as the wire has them
	notes      bool
	clients    map[serry.TaskID]client
	service    serry.Incarnation // of the present epoch
	next       serry.Incarnation // for the next one
	req        coord.Req
	open       map[coord.Req]pending
	table      map[serry.TaskID]coord.Changed // what was published of each task
	version    int64                          // that a watch showed last
	revision   int64                          // that a watch of keys showed last
}

// A client is what a task, or its connection, remembers of its registration.
type client struct{ inc, service serry.Incarnation }

// A pending call waits for its reply.
type pending struct {
	label string
	cmd   command
	shape wire.Shape
	own   coord.Event // of a call in our own dialect, or nil
}

// A step is kept to be played again.
type step struct {
	at      coord.Time
	ev      coord.Event
	effects []coord.Effect
}

func (s *script) block(t *testing.T, td *datadriven.TestData) string {
	t.Helper()
	s.t = t
	s.out.Reset()
	for line := range strings.Lines(td.FullCmd() + "\n" + td.Input) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		c, err := parse(line)
		if err != nil {
			t.Fatalf("%s: %s: %v", td.Pos, line, err)
		}
		s.command(c)
	}
	return s.out.String()
}

// command runs one line: control of the machine, or calls of one or several tasks.
func (s *script) command(c command) {
	s.t.Helper()
	if s.control(c) {
		return
	}
	if row := regexp.MustCompile(`^(\d+)\.\.(\d+)$`).FindStringSubmatch(c.word(0)); row != nil { // 0..2: one call of each
		for i := number[int](s.t, row[1]); i <= number[int](s.t, row[2]); i++ {
			each := c
			each.words = slices.Concat([]string{strconv.Itoa(i)}, c.words[1:])
			s.call(each)
		}
		return
	}
	s.call(c)
}

// control runs commands that are not calls of clients.
func (s *script) control(c command) bool {
	switch c.name {
	case "new":
		s.begin(c)
	case "tick": // lets some time pass
		s.now += coord.Time(duration(s.t, c.word(0)))
		s.step(coord.Tick{})
	case "at": // the clock says
		s.now = coord.Time(duration(s.t, c.word(0)))
		s.step(coord.Tick{})
	case "abort": // nobody waits for a call any more
		req := number[coord.Req](s.t, strings.TrimPrefix(c.word(0), "#"))
		delete(s.open, req)
		s.step(coord.Cancel{Req: req})
	case "lost":
		s.step(coord.Lost{Tasks: s.losses(c)})
	case "departed":
		s.step(coord.Departed{Tasks: s.departures(c)})
	case "exited":
		s.step(coord.Exited{Tasks: s.departures(c)})
	case "ack":
		s.step(coord.Acknowledge{
			Requester: number[uint64](s.t, c.word(0)),
			Watermark: option(s.t, c, "watermark", uint64(0)),
			Farewell:  c.has("farewell"),
		})
	case "epoch":
		s.next += 100
		s.step(coord.OpenEpoch{Service: s.next, Jobs: s.jobs(c)})
	case "stop":
		s.step(coord.Stop{})
	case "resume":
		clear(s.open)
		s.step(coord.Resume{})
	case "restart":
		s.restart()
	case "deadline":
		at, ok := s.m.Deadline()
		if !ok {
			s.print("no deadline")
		} else {
			s.print("deadline %v", time.Duration(at))
		}
	case "view":
		s.print("%s", showView(s.m.View()))
	default:
		return false
	}
	return true
}

// call sends a request as its client would, and shows what comes of it.
func (s *script) call(c command) {
	s.t.Helper()
	s.req++
	p := pending{label: fmt.Sprintf("#%d %s", s.req, c), cmd: c}
	who := s.caller(c)
	d := s.dialectNow
	if c.has("dialect") {
		d = map[string]wire.Dialect{"N": wire.XLA, "O": wire.TF}[c.option("dialect")]
	}
	p.own = s.ownCall(c, who)
	path, body := s.request(d, p, who)
	origin := wire.Origin{Req: s.req, Next: s.next + 100, Identify: func(serry.TaskID) (own, service serry.Incarnation) {
		return who.inc, who.service
	}}
	ev, shape, err := s.codec.Decode(path, body, origin)
	p.shape = shape
	if err != nil {
		st := shape.Refuse(err)
		s.print("%s: %s", p.label, s.status(shape.Dialect, st))
		return
	}
	s.open[s.req] = p
	s.step(identified(s.t, ev, c))
	if _, waits := s.open[s.req]; waits {
		s.print("%s: held", p.label)
	}
}

// identified adds a request id to a call, which only our own stream carries.
func identified(t *testing.T, ev coord.Event, c command) coord.Event {
	v := reflect.New(reflect.TypeOf(ev)).Elem()
	v.Set(reflect.ValueOf(ev))
	if requester, n, ok := strings.Cut(c.option("id"), "/"); ok {
		id := coord.RequestID{
			Requester: number[uint64](t, requester),
			Number:    number[uint64](t, n),
			Watermark: option(t, c, "watermark", uint64(0)),
		}
		v.FieldByName("Call").FieldByName("ID").Set(reflect.ValueOf(id))
	}
	return v.Interface().(coord.Event)
}

// step gives the machine an event, shows its effects, and checks what must hold after any step.
func (s *script) step(ev coord.Event) {
	s.t.Helper()
	effects := slices.Clone(s.m.Step(s.now, ev))
	s.history = append(s.history, step{s.now, ev, effects})
	if record, ok := s.m.Journaled(); ok {
		for _, j := range s.journals {
			j.append(s.m.Now(), record)
		}
		s.journals = append(s.journals, &keeper{snapshot: s.m.Snapshot(nil)})
	}
	for _, e := range effects {
		switch e := e.(type) {
		case coord.Reply:
			s.reply(e)
		case coord.Opened:
			s.publish(e)
			if e.Epoch > 1 {
				s.print("epoch %d opened, service %d", e.Epoch, e.Service)
			}
		case coord.Note:
			if s.notes {
				s.print("note: %s", showNote(e))
			}
		default:
			s.publish(e)
		}
	}
	s.check(ev)
}

// publish draws the tables of the owner.
func (s *script) publish(e coord.Effect) {
	switch e := e.(type) {
	case coord.Changed:
		s.table[e.Task] = e
	case coord.Opened:
		clear(s.table)
		s.service, s.next, s.codec = e.Service, max(s.next, e.Service), wire.NewCodec(e.Jobs)
	}
}

// restart lets another machine take over from a snapshot. What the first one did since its start is
// played again by the script's end, without the restart, and must be the same.
func (s *script) restart() {
	s.t.Helper()
	m, err := coord.Restore(s.cfg, s.m.Snapshot(nil), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	clear(s.open)
	s.m = m
	for _, e := range m.Present() {
		s.publish(e)
	}
	s.step(coord.Resume{})
}

// check looks at what must hold after any step: deadlines lie ahead, and the table that heartbeats are
// answered from (C-HB-8) says the same as the machine.
func (s *script) check(ev coord.Event) {
	s.t.Helper()
	v := s.m.View()
	if at, ok := s.m.Deadline(); ok && at < v.Now {
		s.t.Fatalf("%T: Deadline() = %v; want it not before the present %v", ev, time.Duration(at), time.Duration(v.Now))
	}
	for _, t := range v.Tasks {
		row := s.table[t.Task]
		if row.State != t.State || row.Incarnation != t.Incarnation {
			s.t.Fatalf("%T: %v was published as %v/%d; want %v/%d", ev, t.Task, row.State, row.Incarnation, t.State, t.Incarnation)
		}
	}
}

func (s *script) reply(r coord.Reply) {
	s.t.Helper()
	p, ok := s.open[r.Req]
	if !ok {
		s.t.Fatalf("a reply to #%d, which nobody waits for: %+v", r.Req, r)
	}
	delete(s.open, r.Req)
	if p.own != nil {
		s.print("%s: %s", p.label, s.ownReply(p, r))
		return
	}
	body, st := p.shape.Encode(r)
	text := s.status(p.shape.Dialect, st)
	if st.OK() {
		text = strings.TrimSpace("OK " + s.result(p, body))
	}
	s.print("%s: %s", p.label, text)
	if reg, ok := r.Result.(coord.Registered); ok && p.cmd.name == "register" {
		id := s.task(p.cmd.word(0))
		s.clients[id] = client{inc: s.incarnation(p.cmd, id), service: reg.Service}
	}
}

// replay plays the history on a second machine, which must do the same, and what was journaled on many
// more, each from the snapshot after another record, which must come to the same end.
func (s *script) replay(t *testing.T) {
	t.Helper()
	if s.m == nil {
		return
	}
	twin := coord.New(s.cfg)
	for i, h := range s.history {
		if diff := gocmp.Diff(h.effects, slices.Clone(twin.Step(h.at, h.ev)), sentinels()); diff != "" {
			t.Errorf("step %d, %T, did something else when played again:\n%s", i, h.ev, diff)
			return
		}
	}
	want := s.m.Snapshot(nil)
	if got := twin.Snapshot(nil); !bytes.Equal(got, want) {
		t.Errorf("Snapshot() has %d other bytes when all is played again; want %d", len(got), len(want))
	}
	for i, j := range s.journals {
		heir, err := j.replay(s.cfg)
		if err != nil {
			t.Fatalf("the journal from record %d on cannot be replayed: %v", i, err)
		}
		if got := heir.Snapshot(nil); !bytes.Equal(got, want) {
			t.Errorf("Snapshot() has %d other bytes when the journal is played again from record %d on; want %d", len(got), i, len(want))
		}
	}
}

// sentinels lets plain errors be compared by identity.
func sentinels() gocmp.Option {
	plain := reflect.TypeOf(errors.New(""))
	isPlain := func(a, b error) bool { return reflect.TypeOf(a) == plain || reflect.TypeOf(b) == plain }
	return gocmp.Options{
		gocmp.FilterValues(isPlain, gocmp.Comparer(func(a, b error) bool { return a == b })),
		gocmp.Comparer(func(a, b []byte) bool { return string(a) == string(b) }),
	}
}

func (s *script) print(format string, args ...any) {
	fmt.Fprintln(&s.out, shorten(fmt.Sprintf(format, args...)))
}

// incarnation is that of a registration or of a verdict from outside.
func (s *script) incarnation(c command, id serry.TaskID) serry.Incarnation {
	return option(s.t, c, "inc", cmp.Or(s.clients[id].inc, s.born(id)))
}

func (s *script) departures(c command) []serry.Life {
	var gone []serry.Life
	for _, id := range s.tasks(strings.Join(c.words, ",")) {
		gone = append(gone, serry.Life{Task: id, Incarnation: s.incarnation(c, id)})
	}
	return gone
}

func (s *script) losses(c command) []coord.Loss {
	var losses []coord.Loss
	for _, w := range c.words {
		task, evidence, _ := strings.Cut(w, ": ")
		id := s.task(task)
		losses = append(losses, coord.Loss{Life: serry.Life{Task: id, Incarnation: s.incarnation(c, id)}, Evidence: evidence})
	}
	return losses
}
