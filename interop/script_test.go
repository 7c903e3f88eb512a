package interop

import (
	"context"
	"fmt"
	"net"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// A script stands in for the server and answers one stock client as a test
// dictates, in both dialects alike: it knows methods by their last name and
// the few bodies it sends are the same in both.
type script struct {
	addr string

	grpc    *grpc.Server
	serving chan struct{} // closed when grpc.Serve returned
	calls   chan string   // method of every call, when it comes
	ended   chan string   // and when its answer is on the way

	mu struct {
		sync.Mutex
		answers map[string][]answer // by method; the last one stands for all further calls
	}
}

// An answer is how one call ends.
type answer struct {
	code    codes.Code
	message string
	details []byte // value of grpc-status-details-bin, or nil
	body    []byte // with code OK
	held    bool   // never answered
}

// incarnation is the service incarnation of every script unless a test says
// otherwise.
const incarnation = 0x0102030405060708

// registered is the body of a good answer to RegisterTask and Heartbeat.
func registered(service uint64) answer {
	return answer{body: protowire.AppendFixed64(protowire.AppendTag(nil, 1, protowire.Fixed64Type), service)}
}

// refused is an error without payloads.
func refused(code codes.Code) answer {
	return answer{code: code, message: "as scripted"}
}

// with adds payloads to an answer, in the form the reference uses.
func (a answer) with(payloads ...[]byte) answer {
	for _, p := range payloads {
		a.details = append(a.details, p...)
	}
	return a
}

// payload is one entry of the container of payloads.
func payload(name string, value []byte) []byte {
	entry := protowire.AppendTag(nil, 1, protowire.BytesType)
	entry = protowire.AppendString(entry, "type.googleapis.com/tensorflow."+name)
	entry = protowire.AppendTag(entry, 2, protowire.BytesType)
	entry = protowire.AppendBytes(entry, value)
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), entry)
}

// p0 marks an error as one of the coordination service.
func p0() []byte { return payload("CoordinationServiceError", nil) }

// pm says that the service is another one than the caller registered with.
func pm() []byte {
	return payload("ServiceMismatchError", registered(incarnation+1).body)
}

// newScript starts a script that answers like a healthy server of one task.
func newScript(t *testing.T) *script {
	t.Helper()
	for range 100 {
		if l, err := net.Listen("tcp", unusedAddress(t)); err == nil { // else a test of another process has the port now
			return serveScript(t, l)
		}
	}
	t.Fatal("no port is free")
	return nil
}

func newScriptOn(t *testing.T, addr string) *script {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return serveScript(t, l)
}

func serveScript(t *testing.T, l net.Listener) *script {
	s := &script{addr: l.Addr().String(), serving: make(chan struct{}), calls: make(chan string, 1024), ended: make(chan string, 1024)}
	s.mu.answers = map[string][]answer{
		"RegisterTask": {registered(incarnation)},
		"Heartbeat":    {registered(incarnation)},
		"PollForError": {{held: true}},
	}
	s.grpc = grpc.NewServer(
		grpc.UnknownServiceHandler(s.answer),
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.StatsHandler(endings(s.ended)),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Millisecond, PermitWithoutStream: true}),
	)
	go func() {
		defer close(s.serving)
		s.grpc.Serve(l)
	}()
	t.Cleanup(s.stop)
	return s
}

// stop cuts every connection and stops listening.
func (s *script) stop() {
	s.grpc.Stop()
	<-s.serving
}

// on sets the answers to a method, in order.
func (s *script) on(method string, answers ...answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.answers[method] = answers
}

// next takes the answer to the next call of a method; OK and empty if none
// was set.
func (s *script) next(method string) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	answers := s.mu.answers[method]
	if len(answers) == 0 {
		return answer{}
	}
	if len(answers) > 1 {
		s.mu.answers[method] = answers[1:]
	}
	return answers[0]
}

// await returns when a method was called n times more.
func (s *script) await(t *testing.T, method string, n int) {
	t.Helper()
	await(t, s.calls, slices.Repeat([]string{method}, n)...)
}

// settle returns when c has read the answers to a call of each of the methods. Answers
// keep their order on a connection, so any later one will do for a sign.
func (s *script) settle(c *client, methods ...string) {
	c.t.Helper()
	await(c.t, s.ended, methods...)
	c.call("key_value_delete", "nothing").value(nil)
}

func await(t *testing.T, came <-chan string, missing ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(missing) > 0 {
		select {
		case m := <-came:
			if i := slices.Index(missing, m); i >= 0 {
				missing = slices.Delete(missing, i, i+1)
			}
		case <-ctx.Done():
			t.Fatalf("script: calls of %q missing", missing)
		}
	}
}

// drain counts the calls of a method so far.
func (s *script) drain(method string) (n int) {
	for {
		select {
		case called := <-s.calls:
			if called == method {
				n++
			}
		default:
			return n
		}
	}
}

// answer handles every call of the script.
func (s *script) answer(_ any, stream grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(stream)
	method := path.Base(full)
	var request []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	a := s.next(method)
	offer(s.calls, method)
	switch {
	case a.held:
		<-stream.Context().Done()
		return context.Cause(stream.Context())
	case a.code == codes.OK:
		return stream.SendMsg(&a.body)
	}
	if a.details != nil {
		stream.SetTrailer(metadata.Pairs("grpc-status-details-bin", string(a.details)))
	}
	return status.Error(a.code, a.message)
}

// offer sends to a channel that may be full because nobody counts.
func offer(to chan<- string, method string) {
	select {
	case to <- method:
	default:
	}
}

// endings tells a channel of every call that has ended.
type endings chan string

type methodKey struct{}

func (endings) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, methodKey{}, path.Base(info.FullMethodName))
}

func (e endings) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.End); ok {
		offer(e, ctx.Value(methodKey{}).(string))
	}
}

func (endings) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (endings) HandleConn(context.Context, stats.ConnStats)                       {}

// rawCodec leaves bodies as they are. Naming gzip links it in, which every jax
// client asks for.
type rawCodec struct{}

func (rawCodec) Name() string { return "raw over " + gzip.Name }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("raw codec: %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("raw codec: %T", v)
	}
	*b = data.Materialize()
	return nil
}
