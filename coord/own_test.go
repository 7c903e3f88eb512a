package coord_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
)

// ownCall builds a call that only serry's own clients can make, or nil:
//
//	swap KEY OLD NEW           "-" stands for an absent key
//	keys DIR after=3           a watch of keys; last stands for the revision shown last
//	ls DIR                     keys with the sizes of their values
//	suspect TASK PEER EVIDENCE hard life=11
//	alive TASK tasks=.. word=w
//
// These are sent in our own dialect, in every run.
func (s *script) ownCall(c command, w speaker) coord.Event {
	s.t.Helper()
	call := coord.Call{Req: s.req, Service: w.service, Task: w.task, Incarnation: w.inc}
	switch {
	case c.name == "swap":
		swap := coord.SwapKeyValue{Call: call, Key: c.word(0), Old: []byte(c.word(1)), New: []byte(c.word(2))}
		if c.word(1) == "-" {
			swap.Old = nil
		}
		return swap
	case c.name == "keys":
		after := s.revision
		if c.option("after") != "last" {
			after = option(s.t, c, "after", int64(-1))
		}
		return coord.WatchKeys{Call: call, Dir: c.word(0), After: after}
	case c.name == "ls":
		return coord.ListKeys{Call: call, Dir: c.word(0)}
	case c.name == "suspect":
		peer := s.task(c.word(1))
		life := option(s.t, c, "life", s.clients[peer].inc)
		return coord.Suspect{Call: call, Peer: serry.Life{Task: peer, Incarnation: life}, Hard: c.has("hard"), Evidence: c.word(2)}
	case c.name == "alive" && c.has("word"):
		return coord.GetAliveTasks{Call: call, Tasks: s.tasks(c.option("tasks")), Word: []byte(c.option("word"))}
	}
	return nil
}

// ownReply shows what our own client hears. Its errors come back as they were.
func (s *script) ownReply(p pending, r coord.Reply) string {
	s.t.Helper()
	body, st := p.shape.Encode(r)
	if !st.OK() {
		return s.status(p.shape.Dialect, st)
	}
	result, err := wire.Serry.Result(p.own, body)
	if err != nil {
		if !errors.Is(err, errors.Unwrap(r.Err)) && !errors.Is(err, r.Err) {
			s.t.Errorf("%s: the error came back as %#v; want %#v", p.label, err, r.Err)
		}
		return fmt.Sprintf("error %q", err)
	}
	switch result := result.(type) {
	case coord.Changes:
		s.revision = result.Revision
		shown := []string{"OK"}
		if result.Reset {
			shown = append(shown, "anew")
		}
		for _, c := range result.Changes {
			if c.Deleted {
				shown = append(shown, c.Key+" deleted")
			} else {
				shown = append(shown, fmt.Sprintf("%s=%q", c.Key, c.Value))
			}
		}
		return strings.Join(shown, " ")
	case coord.Sizes:
		shown := []string{"OK"}
		for _, k := range result.Keys {
			shown = append(shown, fmt.Sprintf("%s:%d", k.Key, k.Size))
		}
		return strings.Join(shown, " ")
	case *coord.Alive:
		return fmt.Sprintf("OK %v %v %q", result.Tasks, result.Incarnations, result.Words)
	}
	return "OK"
}
