package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire/tfpb"
	"github.com/serry-dev/serry/wire/xlapb"
)

// TestRecord makes the recordings anew, where SERRY_RECORD asks for it.
func TestRecord(t *testing.T) {
	if os.Getenv("SERRY_RECORD") == "" {
		t.Skip("SERRY_RECORD is not set: the recordings on file are good")
	}
	for _, name := range []string{"jax-new", "jax-0.9.2", "jax-0.8.2"} {
		t.Run(name, func(t *testing.T) {
			r := newRecorder(t, coord.Job{Name: "jax_worker", Tasks: 2})
			r.tasks(t, name, func(task int) []string {
				return []string{"testdata/task.py", r.addr, fmt.Sprint(task)}
			})
		})
	}
	t.Run("tf", func(t *testing.T) {
		r := newRecorder(t, coord.Job{Name: "worker", Tasks: 2})
		workers := unused(t, 2)
		r.tasks(t, "tf", func(task int) []string {
			return []string{"testdata/worker.py", r.addr, workers, fmt.Sprint(task)}
		})
	})
	t.Run("grpcio", func(t *testing.T) {
		r := newRecorder(t, coord.Job{Name: "worker", Tasks: 1})
		text, err := json.Marshal(steps())
		if err != nil {
			t.Fatal(err)
		}
		if err := python(t.Context(), "grpcio", text, "testdata/calls.py", r.addr); err != nil {
			t.Fatal(err)
		}
		r.save(t, "grpcio")
	})
	t.Run("grpc-go", func(t *testing.T) {
		r := newRecorder(t, coord.Job{Name: "worker", Tasks: 1})
		r.grpcGo(t)
		r.save(t, "grpc-go")
	})
}

// tasks runs a program as both tasks of a job and saves what they sent.
func (r *recorder) tasks(t *testing.T, venv string, args func(task int) []string) {
	t.Helper()
	var both errgroup.Group
	for task := range 2 {
		both.Go(func() error { return python(t.Context(), venv, nil, args(task)...) })
	}
	if err := both.Wait(); err != nil {
		t.Fatal(err)
	}
	r.save(t, venv)
}

// python runs a program in one of the environments.
func python(ctx context.Context, venv string, stdin []byte, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join("../../.cache/venv", venv, "bin/python"), args...)
	cmd.Env = append(os.Environ(), "JAX_PLATFORMS=cpu", "TF_CPP_MIN_LOG_LEVEL=1")
	cmd.Stdin = bytes.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", args, err, out)
	}
	return nil
}

// unused are addresses nobody listens on at present.
func unused(t *testing.T, n int) string {
	t.Helper()
	addrs := make([]string, n)
	for i := range addrs {
		l := listen(t)
		defer l.Close()
		addrs[i] = l.Addr().String()
	}
	return strings.Join(addrs, ",")
}

// A step is a call of a client that says what it is told to.
type step struct {
	Method string
	Body   []byte
	Gzip   bool
	Within int // milliseconds until the deadline; 0: none
	GiveUp int // milliseconds until the call is withdrawn; 0: never
}

const (
	newDialect = "/xla.coordination.CoordinationService/"
	oldDialect = "/tensorflow.CoordinationService/"
)

// steps are calls of all sorts, one after the other, by the only task of a job.
func steps() []step {
	const own = 7
	inc := &xlapb.Incarnations{TaskIncarnation: own, ServiceIncarnation: service}
	set := func(key string, value []byte) proto.Message {
		return &xlapb.InsertKeyValueRequest{Incarnations: inc, Kv: &xlapb.KeyValueEntry{Key: key, Value: value}}
	}
	get := func(key string) proto.Message { return &xlapb.GetKeyValueRequest{Incarnations: inc, Key: key} }
	tryGet := func(key string) proto.Message { return &xlapb.TryGetKeyValueRequest{Incarnations: inc, Key: key} }
	dir := func(key string) proto.Message {
		return &xlapb.GetKeyValueDirRequest{Incarnations: inc, DirectoryKey: key}
	}
	barrier := func(id string) proto.Message {
		return &xlapb.BarrierRequest{Incarnations: inc, BarrierId: id, BarrierTimeoutInMs: 100}
	}
	of := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			panic(err) // every one of them is well formed
		}
		return b
	}
	return []step{
		{Method: newDialect + "Heartbeat", Body: of(&xlapb.HeartbeatRequest{Incarnations: inc, Incarnation: own})},
		{Method: newDialect + "RegisterTask", Body: of(&xlapb.RegisterTaskRequest{Incarnation: own})},
		{Method: newDialect + "Heartbeat", Body: of(&xlapb.HeartbeatRequest{Incarnations: inc, Incarnation: own})},
		{Method: newDialect + "InsertKeyValue", Body: of(set("dir/plain", []byte("plain")))},
		{Method: newDialect + "InsertKeyValue", Body: of(set("dir/zipped", bytes.Repeat([]byte("zipped "), 10_000))), Gzip: true},
		{Method: newDialect + "InsertKeyValue", Body: of(set("dir/plain", []byte("again")))},
		{Method: newDialect + "TryGetKeyValue", Body: of(tryGet("dir/plain"))},
		{Method: newDialect + "TryGetKeyValue", Body: of(tryGet("nowhere")), Gzip: true},
		{Method: newDialect + "GetKeyValue", Body: of(get("dir/zipped"))},
		{Method: newDialect + "GetKeyValue", Body: of(get("nowhere")), Within: 150},
		{Method: newDialect + "GetKeyValue", Body: of(get("nowhere")), GiveUp: 150},
		{Method: newDialect + "GetKeyValueDir", Body: of(dir("dir"))},
		{Method: newDialect + "Barrier", Body: of(barrier("alone"))},
		{Method: newDialect + "Barrier", Body: of(barrier(strings.Repeat("long", 1000)))},
		{Method: newDialect + "NoSuchMethod"},
		{Method: "/no.such.Service/Method"},
		{Method: newDialect + "Barrier", Body: []byte{0xff}},
		{Method: oldDialect + "Heartbeat", Body: of(&tfpb.HeartbeatRequest{SourceTask: &tfpb.CoordinatedTask{JobName: "other", TaskId: 3}})},
		{Method: oldDialect + "InsertKeyValue", Body: of(&tfpb.InsertKeyValueRequest{Kv: &tfpb.KeyValueEntry{Key: "old", Value: []byte("dialect")}})},
		{Method: oldDialect + "TryGetKeyValue", Body: of(&tfpb.TryGetKeyValueRequest{Key: "old"})},
		{Method: newDialect + "ShutdownTask", Body: of(&xlapb.ShutdownTaskRequest{Incarnations: inc})},
	}
}

// grpcGo makes the steps with grpc-go. How they end is what the replay tells.
func (r *recorder) grpcGo(t *testing.T) {
	t.Helper()
	conn, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, s := range steps() {
		ctx, cancel := context.WithCancel(t.Context())
		if s.Within > 0 {
			ctx, cancel = context.WithTimeout(t.Context(), time.Duration(s.Within)*time.Millisecond)
		}
		if s.GiveUp > 0 {
			time.AfterFunc(time.Duration(s.GiveUp)*time.Millisecond, cancel)
		}
		var options []grpc.CallOption
		if s.Gzip {
			options = append(options, grpc.UseCompressor(gzip.Name))
		}
		conn.Invoke(ctx, s.Method, &s.Body, new([]byte), options...)
		cancel()
	}
}

// rawCodec passes messages as they are.
type rawCodec struct{}

func (rawCodec) Name() string                    { return "proto" }
func (rawCodec) Marshal(v any) ([]byte, error)   { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(b []byte, v any) error { *v.(*[]byte) = bytes.Clone(b); return nil }
