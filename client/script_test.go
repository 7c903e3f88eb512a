package client_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/tfpb"
)

// scripted is the incarnation of the services of scripts.
const scripted serry.Incarnation = 77

// A script is a Transport without a service behind it: it answers as the test says, in the dialect
// that it is asked in.
type script struct {
	codec *wire.Codec
	says  func(ctx context.Context, ev coord.Event) answer // with a nil answer the call gets a plain one

	mu struct {
		sync.Mutex
		seen []coord.Event
		at   []time.Time
	}
}

// An answer is how a call ends: one of its fields is set.
type answer struct {
	result coord.Result
	err    error       // of the service
	status *rpc.Status // as it stands on the wire
	lost   error       // the call or its answer
	body   []byte      // a reply as it stands on the wire
}

func newScript(says func(ctx context.Context, ev coord.Event) answer) *script {
	return &script{codec: wire.NewCodec([]coord.Job{{Name: "worker", Tasks: 8}}), says: says}
}

func (s *script) Call(ctx context.Context, path string, body []byte) ([]byte, rpc.Status, error) {
	ev, shape, err := s.codec.Decode(path, body, wire.Origin{Req: 1})
	if err != nil {
		return nil, shape.Refuse(err), nil
	}
	s.mu.Lock()
	s.mu.seen = append(s.mu.seen, ev)
	s.mu.at = append(s.mu.at, time.Now())
	s.mu.Unlock()
	var a answer
	if s.says != nil {
		a = s.says(ctx, ev)
	}
	switch {
	case ctx.Err() != nil:
		return nil, rpc.Status{}, context.Cause(ctx)
	case a.lost != nil:
		return nil, rpc.Status{}, a.lost
	case a.status != nil:
		return nil, *a.status, nil
	case a.body != nil:
		return a.body, rpc.Status{}, nil
	case a.err == nil && a.result == nil:
		a = plain(ctx, ev)
	}
	reply, st := shape.Encode(coord.Reply{Req: 1, Result: a.result, Err: a.err})
	return reply, st, context.Cause(ctx)
}

func (s *script) Close() error { return nil }

// plain is what a service without anything special to say answers.
func plain(ctx context.Context, ev coord.Event) answer {
	switch ev := ev.(type) {
	case coord.RegisterTask, coord.Heartbeat:
		return answer{result: coord.Registered{Service: scripted}}
	case coord.PollForError:
		<-ctx.Done()
	case coord.Barrier:
		return answer{result: coord.Passed{Counter: ev.Counter}}
	}
	return answer{result: coord.Done{}}
}

// forever is the answer to a call that is never answered.
func forever(ctx context.Context) answer {
	<-ctx.Done()
	return answer{lost: context.Cause(ctx)}
}

// seen returns the calls of one kind, in the order in which they came.
func seen[E coord.Event](s *script) []E {
	s.mu.Lock()
	defer s.mu.Unlock()
	var es []E
	for _, ev := range s.mu.seen {
		if e, ok := ev.(E); ok {
			es = append(es, e)
		}
	}
	return es
}

// when returns at which times calls of one kind came.
func when[E coord.Event](s *script) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var at []time.Time
	for i, ev := range s.mu.seen {
		if _, ok := ev.(E); ok {
			at = append(at, s.mu.at[i])
		}
	}
	return at
}

// scriptConfig is how members join that meet a script.
func scriptConfig(d client.Dialect, s *script) client.Config {
	return client.Config{
		Dialect: d, Transport: s, Task: worker(0),
		RegisterTimeout: 3 * time.Second, ErrorGrace: time.Millisecond, HeartbeatTimeout: heartbeat, ShutdownTimeout: heartbeat,
	}
}

// play joins with a script as the service.
func play(t *testing.T, d client.Dialect, says func(ctx context.Context, ev coord.Event) answer) (*task, *script) {
	t.Helper()
	s := newScript(says)
	k := &task{cfg: scriptConfig(d, s)}
	k.Member, k.err = client.Join(t.Context(), k.cfg)
	if k.err != nil {
		t.Fatalf("Join() = %v", k.err)
	}
	t.Cleanup(func() { k.Close() })
	return k, s
}

// refusal is a status that the service itself says.
func refusal(code codes.Code) *rpc.Status {
	details, err := proto.Marshal(&tfpb.GrpcPayloadContainer{Payloads: map[string][]byte{lab.ServicePayload: nil}})
	if err != nil {
		panic(err)
	}
	return &rpc.Status{Code: code, Message: "as the script says", Details: details}
}

// errCut is what a call ends with whose connection breaks.
var errCut = errors.New("connection reset by peer")
