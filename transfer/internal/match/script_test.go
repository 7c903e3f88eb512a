package match_test

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/serry-dev/serry/transfer/internal/match"
)

// TestScripts plays the transcripts in testdata: what happens to two machines, a and b, and what they want done.
//
//	# TR-MAT-2: the comment names the clauses that the block shows.
//	new
//	a send 7 bytes=10
//	b receive 7 bytes=10
//	----
//	0s a: tells offer #1 (7: 0 -> 1) u8 ready
//	...
//
// Messages arrive at once. Bytes move at once, unless a line says "slow"; then "moves" moves some. Time passes by "after".
// The lines are the cases of [script.line].
//
// Refresh with go test ./transfer/internal/match -rewrite, then read the diff against the specification.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			s := &script{}
			datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
				s.t = t
				s.out.Reset()
				for line := range strings.Lines(td.FullCmd() + "\n" + td.Input) {
					if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
						s.line(line, words)
					}
				}
				return s.out.String()
			})
		})
	}
}

// A script is two machines, the messages between them, and the bytes that their engines move.
type script struct {
	t    *testing.T
	out  strings.Builder
	now  match.Time
	ends map[string]*actor
	wire []func() // messages under way
	next match.Ref
	slow bool // bytes move when the script says so
}

// An actor is one of the two processes.
type actor struct {
	*match.Machine
	name, peer string
	mute       bool // what it says is lost
	refs       map[string]match.Ref
	names      map[match.Ref]string
	ids        map[match.Ref]match.ID
	moving     map[match.Ref]match.Ranges // of sends: what has to leave
	expecting  map[match.Number]match.Ref
	copying    map[match.Ref]match.Ranges // of receives: what is to be read from the memory of the sender
	numbers    map[match.Ref]match.Number
}

func (s *script) line(line string, words []string) {
	s.t.Helper()
	switch words[0] {
	case "new": // two machines in contact
		s.new(words[1:])
	case "slow":
		s.slow = true
	case "after":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			s.t.Fatal(err)
		}
		s.pass(s.now + d)
	case "cut", "join": // both hear of it at once
		for _, name := range []string{"a", "b"} {
			a := s.ends[name]
			if words[0] == "join" {
				a.Up(s.now)
			} else {
				clear(a.moving)
				clear(a.expecting)
				clear(a.copying)
				a.Down(s.now)
			}
			s.perform(a)
		}
	case "a", "b":
		s.act(s.ends[words[0]], line, words[1], words[2:])
	default:
		s.t.Fatalf("what is %q?", line)
	}
	s.settle()
}

func (s *script) new(args []string) {
	c := match.Config{}
	for _, a := range args {
		name, value, _ := strings.Cut(a, "=")
		n, _ := strconv.Atoi(value)
		switch name {
		case "offers":
			c.Offers = n
		case "window":
			c.Window = n
		case "live":
			c.Live = n
		case "carry":
			c.Carry = int64(n)
		}
	}
	s.now, s.slow, s.next, s.wire = 0, false, 0, nil
	s.ends = make(map[string]*actor)
	for i, name := range []string{"a", "b"} {
		c.Odd, c.Peer = i == 0, []string{"b", "a"}[i]
		s.ends[name] = &actor{
			Machine: match.New(c), name: name, peer: c.Peer, refs: make(map[string]match.Ref), names: make(map[match.Ref]string),
			ids: make(map[match.Ref]match.ID), moving: make(map[match.Ref]match.Ranges), expecting: make(map[match.Number]match.Ref),
			copying: make(map[match.Ref]match.Ranges),
			numbers: make(map[match.Ref]match.Number),
		}
		s.ends[name].Up(0)
	}
}

// act lets something happen to one of the two.
func (s *script) act(a *actor, line, verb string, args []string) {
	s.t.Helper()
	_, quoted, _ := strings.Cut(line, `"`)
	quoted, _, _ = strings.Cut(quoted, `"`)
	if verb == "send" || verb == "receive" {
		s.post(a, verb, args)
		s.perform(a)
		return
	}
	var ref match.Ref
	if len(args) >= 2 {
		ref = a.refs[args[0]+" "+args[1]]
	}
	switch verb {
	case "ready": // memory of an operation can be used
		a.Ready(s.now, ref)
	case "early": // the data of a send will be there soon
		a.Early(s.now, ref)
	case "fail": // it never can
		a.Fail(s.now, ref, match.Verdict{Code: match.Internal, Text: quoted})
	case "cancel":
		a.Cancel(s.now, ref, match.Verdict{Code: match.Cancelled, Text: quoted})
	case "moves": // some bytes of a send leave, and arrive unless they are lost
		s.moves(a, ref, args[2], len(args) > 3)
	case "refuse": // it was asked for a send that it does not post
		id := match.ID{Dst: 1}
		id.Key, _ = strconv.ParseUint(args[0], 10, 64)
		if a.Used(id) {
			fmt.Fprintf(&s.out, "%v %s: was used before\n", s.now, a.name)
			break
		}
		a.Refuse(s.now, id, match.Verdict{Code: match.Denied, Text: quoted})
	case "copies": // a receive reads all bytes from the memory of the sender
		for _, r := range a.copying[ref] {
			a.Arrived(s.now, ref, r)
		}
		delete(a.copying, ref)
	case "unreadable": // it cannot
		delete(a.copying, ref)
		a.Unreadable(s.now, ref)
	case "place": // the peer can read the data of a send now
		a.Place(s.now, ref, match.Place{Arena: 9, Offset: 64})
	case "mute", "speak": // what it says is lost from now on, or not any more
		a.mute = verb == "mute"
	case "lose": // it hears that the life of the other is over
		clear(a.moving)
		clear(a.expecting)
		a.Lose(s.now, match.Verdict{Code: match.Unavailable, Text: quoted})
	case "waits":
		for _, w := range a.Waits() {
			fmt.Fprintf(&s.out, "%s %s waits for %s\n", a.name, a.names[w.Ref], w.For)
		}
	case "gets": // a message that no honest peer would send
		s.inject(a, args)
	default:
		s.t.Fatalf("what is %q?", line)
	}
	s.perform(a)
}

func (s *script) post(a *actor, verb string, args []string) {
	s.next++
	o := match.Op{
		Ref: s.next, Send: verb == "send", Shape: match.Shape{Bytes: 10, Digest: 1, Text: "u8"}, Deadline: match.Never, Ready: true,
	}
	namespace, key, ok := strings.Cut(args[0], "/")
	if !ok {
		namespace, key = "0", args[0]
	}
	o.ID.Namespace, _ = strconv.ParseUint(namespace, 10, 64)
	o.ID.Key, _ = strconv.ParseUint(key, 10, 64)
	if (a.name == "a") == o.Send {
		o.ID.Dst = 1
	} else {
		o.ID.Src = 1
	}
	for _, arg := range args[1:] {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "bytes":
			o.Shape.Bytes, _ = strconv.ParseInt(value, 10, 64)
		case "type":
			o.Shape.Text, o.Shape.Digest = value, uint64(len(value))
		case "later":
			o.Ready = false
		case "placed":
			o.Place = match.Place{Arena: 9, Offset: 64}
		case "carried":
			o.Carried = true
		case "within":
			d, _ := time.ParseDuration(value)
			o.Deadline = s.now + d
		}
	}
	if err := a.Post(s.now, o); err != nil {
		fmt.Fprintf(&s.out, "%v %s: refused: %v\n", s.now, a.name, err)
		return
	}
	name := verb + " " + args[0]
	a.refs[name], a.names[o.Ref], a.ids[o.Ref] = o.Ref, name, o.ID
}

// inject delivers "done 7 2 cancelled" or "accept 7 1 0-5": kind, key, number and the rest.
func (s *script) inject(a *actor, args []string) {
	m := match.Message{}
	m.ID.Key, _ = strconv.ParseUint(args[1], 10, 64)
	m.ID.Dst = 1
	n, _ := strconv.ParseUint(args[2], 10, 64)
	m.Number = match.Number(n)
	switch args[0] {
	case "offer":
		m.Kind, m.Shape, m.Ready = match.Offer, match.Shape{Bytes: 10, Digest: 1, Text: "u8"}, true
		if len(args) > 3 { // so many bytes of data
			n, _ := strconv.Atoi(args[3])
			m.Carried, m.Data = true, make([]byte, n)
		}
	case "accept":
		m.Kind = match.Accept
		for _, text := range args[3:] {
			from, to, _ := strings.Cut(text, "..")
			var r match.Range
			r.From, _ = strconv.ParseInt(from, 10, 64)
			r.To, _ = strconv.ParseInt(to, 10, 64)
			m.Missing = append(m.Missing, r)
		}
	case "done":
		m.Kind = match.Done
	}
	a.Receive(s.now, m)
}

// perform does what a machine wants.
func (s *script) perform(a *actor) {
	for _, action := range a.Take() {
		fmt.Fprintf(&s.out, "%v %s: ", s.now, a.name)
		switch x := action.(type) {
		case *match.Tell:
			lost := ""
			if x.Carry {
				x.Message.Data = make([]byte, x.Message.Shape.Bytes)
			}
			if a.mute {
				lost = ", which is lost"
			} else {
				s.wire = append(s.wire, func() {
					other := s.ends[a.peer]
					other.Receive(s.now, x.Message)
					s.perform(other)
				})
			}
			fmt.Fprintf(&s.out, "tells %v%s\n", x.Message, lost)
		case match.Move:
			fmt.Fprintf(&s.out, "moves %v of %s\n", x.Ranges, a.names[x.Ref])
			a.moving[x.Ref], a.numbers[x.Ref] = x.Ranges, x.Number
		case match.Expect:
			where := ""
			if x.Place.Known() {
				where = fmt.Sprintf(" at %d of arena %d", x.Place.Offset, x.Place.Arena)
				a.copying[x.Ref] = x.Ranges
			}
			fmt.Fprintf(&s.out, "expects %v of %s%s\n", x.Ranges, a.names[x.Ref], where)
			a.expecting[x.Number] = x.Ref
			a.Started(s.now, x.Ref)
		case match.Take:
			fmt.Fprintf(&s.out, "takes %d bytes for %s\n", len(x.Data), a.names[x.Ref])
		case match.Stop:
			fmt.Fprintf(&s.out, "stops %s\n", a.names[x.Ref])
			s.stop(a, x.Ref)
		case match.End:
			held := ""
			if x.Held {
				held = ", and its memory is held"
			}
			fmt.Fprintf(&s.out, "ends %s: %v%s\n", a.names[x.Ref], x.Verdict, held)
		case match.Release:
			fmt.Fprintf(&s.out, "releases %s\n", a.names[x.Ref])
		case match.Correct:
			fmt.Fprintf(&s.out, "corrects %s: %v\n", a.names[x.Ref], x.Verdict)
		}
	}
}

func (s *script) stop(a *actor, ref match.Ref) {
	delete(a.moving, ref)
	delete(a.copying, ref)
	for n, r := range a.expecting {
		if r == ref {
			delete(a.expecting, n)
		}
	}
	s.wire = append(s.wire, func() {
		a.Stopped(s.now, ref, false)
		s.perform(a)
	})
}

// moves lets n bytes of a send leave, in order; "all" are all.
func (s *script) moves(a *actor, ref match.Ref, n string, lost bool) {
	left, other := a.moving[ref], s.ends[a.peer]
	count, err := strconv.ParseInt(n, 10, 64)
	if err != nil {
		count = left.Bytes()
	}
	for count > 0 && len(left) > 0 {
		r := match.Range{From: left[0].From, To: min(left[0].To, left[0].From+count)}
		count -= r.To - r.From
		if left[0].From = r.To; left[0].From == left[0].To {
			left = left[1:]
		}
		if to, ok := other.expecting[a.numbers[ref]]; ok && !lost {
			other.Arrived(s.now, to, r)
			s.perform(other)
		}
	}
	if a.moving[ref] = left; len(left) == 0 {
		delete(a.moving, ref)
		a.Sent(s.now, ref)
		s.perform(a)
	}
}

// settle delivers messages and moves bytes until nothing happens.
func (s *script) settle() {
	for len(s.wire) > 0 || !s.slow && s.movesAll() {
		if len(s.wire) > 0 {
			first := s.wire[0]
			s.wire = s.wire[1:]
			first()
		}
	}
}

// movesAll moves the bytes of one send, if there is one.
func (s *script) movesAll() bool {
	for _, name := range []string{"a", "b"} {
		for ref := match.Ref(1); ref <= s.next; ref++ {
			if _, ok := s.ends[name].moving[ref]; ok {
				s.moves(s.ends[name], ref, "all", false)
				return true
			}
		}
	}
	return false
}

// pass lets time pass.
func (s *script) pass(until match.Time) {
	for {
		a, b := s.ends["a"], s.ends["b"]
		at := min(a.Deadline(), b.Deadline())
		if at > until {
			s.now = until
			return
		}
		s.now = max(s.now, at)
		for _, x := range []*actor{a, b} {
			x.Advance(s.now)
			s.perform(x)
		}
		s.settle()
	}
}
