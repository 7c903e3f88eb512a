package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/bench/internal/load"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
)

// certificateRows are what a stranger does whose certificate names no task, where certificates are bound to tasks.
func certificateRows(cutHello string) []row {
	return []row{
		{1, "by HTTP/2", 1, talk(false, impersonate)},
		{2, "by stream", 1, talk(true, impersonate)},
		{8, "hand-over", 1, talk(false, handover)},
		{14, "silent", 2000, linger("")},
		{14, "stopped in a handshake", 2000, linger(cutHello)},
		{14, "idle", 2000, idle},
	}
}

// idle says nothing after the TLS handshake and the greeting of HTTP/2.
func idle(ctx context.Context, s stranger) error {
	nc, err := s.Dial(ctx, s.addr)
	if err != nil {
		return err
	}
	cfg := s.tls.Clone()
	cfg.NextProtos = []string{"h2"}
	secured := tls.Client(nc, cfg)
	if err := secured.HandshakeContext(ctx); err != nil {
		nc.Close()
		return err
	}
	return hold(ctx, secured, greeting)
}

// impersonate acts for each task of the job in turn, in every dialect (rows 1 to 7).
func impersonate(ctx context.Context, s stranger, l load.Line) error {
	all, err := lives(ctx, l)
	if err != nil {
		return err
	}
	for i, life := range all {
		if witness, ok := l.(interface {
			Exited(life serry.Life, cause string)
		}); ok {
			witness.Exited(life, "signal 9")
			witness.Exited(serry.Life{Task: life.Task}, "signal 9")
		}
		if err := s.tryAll(ctx, l, actsFor(life, all[(i+1)%len(all)])); err != nil {
			return err
		}
	}
	return nil
}

// tryAll makes calls that must be refused, in every dialect that has them, and counts how they were answered. A call
// that is refused is answered before one that comes after it and is allowed: one without an answer by then waits, so
// it was let through.
func (s stranger) tryAll(ctx context.Context, l load.Line, acts []coord.Event) error {
	var mu sync.Mutex
	waiting := make(map[string]bool)
	for _, ev := range acts {
		for _, d := range []wire.Dialect{wire.XLA, wire.TF, wire.Serry} {
			method, body, err := d.Request(ev)
			if err != nil {
				continue // the dialect does not have it
			}
			what := fmt.Sprintf("%+v in dialect %v", ev, d)
			mu.Lock()
			waiting[what] = true
			mu.Unlock()
			l.Start(0, method, body, func(_ []byte, st rpc.Status, err error) {
				mu.Lock()
				delete(waiting, what)
				mu.Unlock()
				if err == nil {
					s.judge(what, st)
				}
			})
		}
	}
	if _, err := lives(ctx, l); err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	for what := range waiting {
		s.judge(what+" waits", rpc.Status{})
	}
	return nil
}

// actsFor are the calls of rows 1 to 7 in the place of a live task, against it and another one.
func actsFor(life, other serry.Life) []coord.Event {
	as := coord.Call{Task: life.Task, Incarnation: life.Incarnation}
	anew := coord.Call{Task: life.Task, Incarnation: life.Incarnation + 1}
	const topology = "cpu:global_topology/cpu"
	return []coord.Event{
		coord.RegisterTask{Call: anew}, coord.RegisterTask{Call: as}, coord.ResetTask{Call: as},
		coord.Heartbeat{Call: as}, coord.PollForError{Call: as}, coord.ShutdownTask{Call: as},
		coord.ReportError{Call: as, Code: int(codes.Internal), Text: theirs},
		coord.Suspect{Call: as, Peer: life, Hard: true, Evidence: theirs}, coord.Suspect{Call: as, Peer: other, Hard: true, Evidence: theirs},
		coord.Barrier{Call: as, ID: "step", Timeout: time.Millisecond, Tasks: []serry.TaskID{other.Task}},
		coord.CancelBarrier{Call: as, ID: "step"}, coord.CancelBarrier{Call: as, ID: "step", Counter: 1},
		coord.GetKeyValueDir{}, coord.TryGetKeyValue{Key: topology}, coord.GetKeyValue{Key: topology}, coord.ListKeys{},
		coord.InsertKeyValue{Key: topology, Value: []byte(theirs), Overwrite: true}, coord.IncrementKeyValue{Key: "count", By: 1},
		coord.InsertKeyValue{Call: as, Key: "count", Value: []byte("0"), Overwrite: true},
		coord.DeleteKeyValue{Key: topology}, coord.DeleteKeyValue{Key: ""}, coord.DeleteKeyValue{Call: as, Key: "count"},
	}
}

// judge counts a call that must be refused. One that the server was too busy for counts as neither.
func (v *victim) judge(what string, st rpc.Status) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch st.Code {
	case codes.PermissionDenied:
		v.mu.refused++
	case codes.Unavailable, codes.ResourceExhausted:
	default:
		v.mu.let++
		if v.mu.first == "" {
			v.mu.first = fmt.Sprintf("%s: %v %s", what, st.Code, st.Message)
		}
	}
}

// handovers is how often a stranger asks for a hand-over, and for the end of the service, at one time.
const handovers = 1000

// handover asks for the end of the leadership (row 8).
func handover(ctx context.Context, s stranger, l load.Line) error {
	for i := range handovers {
		_, st, err := ask(ctx, l, wire.LeadMethod, wire.LeadRequest{Handover: i%2 == 0, Stop: i%2 == 1}.Bytes())
		if err != nil {
			return err
		}
		s.judge("hand-over", st)
	}
	return nil
}

// lives are those of all tasks of a service, which tells them to whatever gets in.
func lives(ctx context.Context, l load.Line) ([]serry.Life, error) {
	ev := coord.WatchTasks{Version: -1}
	body, st, err := say(ctx, l, wire.Serry, ev)
	if err != nil {
		return nil, err
	}
	result, err := wire.Serry.Result(ev, body)
	picture, ok := result.(*coord.Picture)
	if err != nil || !ok {
		return nil, fmt.Errorf("who is there: %v, %v, %w", st.Code, result, err)
	}
	var all []serry.Life
	for _, t := range picture.Tasks {
		all = append(all, serry.Life{Task: t.Task, Incarnation: t.Incarnation})
	}
	return all, nil
}
