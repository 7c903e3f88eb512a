package server_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/server"
)

// dialects are the services by the first letter of a client's name.
var dialects = map[byte]string{'n': "xla.coordination.CoordinationService", 'o': "tensorflow.CoordinationService"}

// A step is one call, or another thing that a client does.
type step struct {
	client  string // its dialect and a number; each has a connection of its own
	method  string // empty: the client's connection breaks
	request string // in text form, with $S for the incarnation of the service
	after   time.Duration
	within  time.Duration // the client's deadline; zero: none
	gzip    bool
	broken  bool // the request does not decode
}

// everyCall makes each call of both dialects at least once, good ones and bad ones, calls that wait and
// calls that are given up. Two tasks speak the newer dialect and one the older.
var everyCall = []step{
	{client: "n0", method: "Heartbeat", request: `incarnations{task_incarnation:100 service_incarnation:$S} incarnation:100`},
	{client: "n0", method: "RegisterTask", request: `incarnation:100`},
	{client: "n1", method: "RegisterTask", request: `incarnation:101 source_task_id:1`, gzip: true},
	{client: "n9", method: "RegisterTask", request: `incarnation:109 source_task_id:9`},
	{client: "o2", method: "RegisterTask", request: `incarnation:102 source_task{job_name:"worker" task_id:2}`},
	{client: "n0", method: "Heartbeat", request: `incarnations{task_incarnation:100 service_incarnation:$S} incarnation:100`},
	{client: "n0", method: "Heartbeat", request: `incarnations{task_incarnation:100 service_incarnation:5} incarnation:100`},
	{client: "o2", method: "Heartbeat", request: `incarnation:102 source_task{job_name:"worker" task_id:2}`},
	{client: "n0", method: "PollForError", request: `incarnations{task_incarnation:100 service_incarnation:$S}`},
	{client: "o2", method: "PollForError", request: `source_task{job_name:"worker" task_id:2}`},
	{client: "n0", method: "WatchTasks", request: `incarnations{task_incarnation:100 service_incarnation:$S} version_number:-1`},
	{client: "o2", method: "GetTaskState", request: `source_task{job_name:"worker" task_id:1}`},
	{client: "o2", method: "GetJobState", request: `job_name:"worker"`},
	{client: "o2", method: "GetJobState", request: `job_name:"unknown"`},
	{client: "o2", method: "WatchJobState", request: `job_name:"worker"`},

	{client: "n0", method: "GetKeyValue", request: `incarnations{task_incarnation:100 service_incarnation:$S} key:"dir/a"`},
	{client: "n0", method: "GetKeyValue", request: `incarnations{task_incarnation:100 service_incarnation:$S} key:"never"`, within: time.Second},
	{client: "n1", method: "InsertKeyValue", request: `incarnations{task_incarnation:101 service_incarnation:$S} kv{key:"dir/a" value:"1"}`},
	{client: "n1", method: "InsertKeyValue", request: `incarnations{task_incarnation:101 service_incarnation:$S} kv{key:"dir/a" value:"2"}`, gzip: true},
	{client: "o2", method: "InsertKeyValue", request: `kv{key:"dir/b" value:"a value of the other dialect, \n, \377 and more"}`},
	{client: "o2", method: "InsertKeyValue", request: `kv{key:"dir/b" value:"3"} allow_overwrite:true`},
	{client: "n0", method: "TryGetKeyValue", request: `incarnations{task_incarnation:100 service_incarnation:$S} key:"dir/b"`},
	{client: "n0", method: "TryGetKeyValue", request: `incarnations{task_incarnation:100 service_incarnation:$S} key:"none, with ünïcode and 100 %"`},
	{client: "o2", method: "TryGetKeyValue", request: `key:"none"`},
	{client: "o2", method: "GetKeyValue", request: `key:"later"`},
	{client: "n0", method: "IncrementKeyValue", request: `incarnations{task_incarnation:100 service_incarnation:$S} key:"count" increment:3`},
	{client: "o2", method: "IncrementKeyValue", request: `key:"count" increment:4`},
	{client: "n0", method: "IncrementKeyValue", request: `incarnations{task_incarnation:100 service_incarnation:$S} key:"dir/b" increment:1`},
	{client: "n0", method: "InsertKeyValue", request: `incarnations{task_incarnation:100 service_incarnation:$S} kv{key:"later" value:"$LARGE"}`},
	{client: "n0", method: "GetKeyValueDir", request: `incarnations{task_incarnation:100 service_incarnation:$S} directory_key:"dir"`},
	{client: "o2", method: "GetKeyValueDir", request: `directory_key:"dir"`},
	{client: "n0", method: "DeleteKeyValue", request: `incarnations{task_incarnation:100 service_incarnation:$S} key:"dir" is_directory:true`},
	{client: "o2", method: "DeleteKeyValue", request: `key:"count"`},
	{client: "o2", method: "GetKeyValueDir", request: `directory_key:"dir"`},

	{client: "n0", method: "Barrier", request: `incarnations{task_incarnation:100 service_incarnation:$S} barrier_id:"all" barrier_timeout_in_ms:60000`},
	{client: "n1", method: "Barrier", request: `incarnations{task_incarnation:101 service_incarnation:$S} barrier_id:"all" barrier_timeout_in_ms:60000 source_task_id:1`},
	{client: "o2", method: "Barrier", request: `barrier_id:"all" barrier_timeout_in_ms:60000 source_task{job_name:"worker" task_id:2}`},
	{client: "n0", method: "Barrier", request: `incarnations{task_incarnation:100 service_incarnation:$S} barrier_id:"two" barrier_timeout_in_ms:60000 task_ids:0 task_ids:1`},
	{client: "n1", method: "Barrier", request: `incarnations{task_incarnation:101 service_incarnation:$S} barrier_id:"two" barrier_timeout_in_ms:60000 source_task_id:1 task_ids:1`},
	{client: "o2", method: "Barrier", request: `barrier_id:"late" barrier_timeout_in_ms:1000 source_task{job_name:"worker" task_id:2}`},
	{client: "n0", method: "Barrier", request: `incarnations{task_incarnation:100 service_incarnation:$S} barrier_id:"late" barrier_timeout_in_ms:1000`},
	{client: "n0", method: "Barrier", request: `incarnations{task_incarnation:100 service_incarnation:$S} barrier_id:"given up" barrier_timeout_in_ms:60000`, within: time.Second, after: 2 * time.Second},
	{client: "n1", method: "CancelBarrier", request: `incarnations{task_incarnation:101 service_incarnation:$S} barrier_id:"given up" source_task_id:1`, after: 2 * time.Second},
	{client: "n0", method: "Barrier", request: `incarnations{task_incarnation:100 service_incarnation:$S} barrier_id:"cancelled" barrier_timeout_in_ms:60000`},
	{client: "o2", method: "CancelBarrier", request: `barrier_id:"cancelled" source_task{job_name:"worker" task_id:2}`},
	{client: "n0", method: "GetAliveTasks", request: `incarnations{task_incarnation:100 service_incarnation:$S} task_ids:0 task_ids:1`},
	{client: "n1", method: "GetAliveTasks", request: `incarnations{task_incarnation:101 service_incarnation:$S} requesting_task_id:1 task_ids:0 task_ids:1`},
	{client: "o2", method: "GetAliveTasks", request: `requesting_task{job_name:"worker" task_id:2} tasks{job_name:"worker" task_id:2}`},

	{client: "n0", method: "NoSuchMethod"},
	{client: "o2", method: "NoSuchMethod"},
	{client: "n0", method: "InsertKeyValue", broken: true},
	{client: "o2", method: "Barrier", broken: true},
	{client: "n0", method: "InsertKeyValue", request: `kv{key:"too large" value:"$LARGE$LARGE$LARGE"}`},

	{client: "n1", method: "PollForError", request: `incarnations{task_incarnation:101 service_incarnation:$S} source_task_id:1`},
	{client: "n1"}, // it dies: the polls of the others end
	{client: "n0", method: "Barrier", request: `incarnations{task_incarnation:100 service_incarnation:$S} barrier_id:"failed" barrier_timeout_in_ms:60000`, after: time.Second},
	{client: "n0", method: "Heartbeat", request: `incarnations{task_incarnation:100 service_incarnation:$S} incarnation:100`},
	{client: "n0", method: "Heartbeat", request: `incarnations{task_incarnation:99 service_incarnation:$S} incarnation:99`},
	{client: "o2", method: "ReportErrorToService", request: `error_code:13 error_message:"it broke" error_origin{job_name:"worker" task_id:2}`},
	{client: "n0", method: "ReportErrorToService", request: `incarnations{task_incarnation:100 service_incarnation:$S} error_code:13 error_message:"it broke"`},
	{client: "o2", method: "ReportErrorToTask", request: `error_code:13 error_message:"it broke"`},
	{client: "o2", method: "WaitForAllTasks", request: `source_task{job_name:"worker" task_id:2}`},
	{client: "o2", method: "ResetTask", request: `source_task{job_name:"worker" task_id:2}`},
	{client: "n0", method: "ShutdownTask", request: `incarnations{task_incarnation:100 service_incarnation:$S}`},
	{client: "o2", method: "ShutdownTask", request: `source_task{job_name:"worker" task_id:2}`},
	{client: "n0", method: "GetKeyValue", request: `key:"waits until the service stops"`},
}

// TestCallsEndAsWithGRPC makes every call by package front and by grpc-go and compares how they end:
// code, text, payloads and reply.
func TestCallsEndAsWithGRPC(t *testing.T) {
	lab.Clause(t, "F-51")
	byFront := play(t, lab.Serve)
	if len(byFront) < len(everyCall) {
		t.Errorf("%d lines for %d steps:\n%s", len(byFront), len(everyCall), strings.Join(byFront, "\n"))
	}
	if diff := gocmp.Diff(play(t, lab.ServeOracle), byFront); diff != "" {
		t.Errorf("calls end otherwise (-grpc +front):\n%s", diff)
	}
}

// play makes every call and returns what happened, in order.
func play(t *testing.T, serve func(testing.TB, server.Config) *lab.Lab) (lines []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(3)
		cfg.Cluster.Service = 0x5e44
		cfg.Cluster.HeartbeatTimeout = time.Hour
		cfg.Cluster.Limits = coord.Limits{ValueBytes: 1 << 20}
		c := &comparison{t: t, lab: serve(t, cfg), links: make(map[string]*lab.Link)}
		for i, s := range everyCall {
			time.Sleep(s.after)
			c.take(i, s)
			synctest.Wait()
			lines = append(lines, c.ended()...)
		}
		lines = append(lines, "the service stops")
		c.lab.Stop(t.Context())
		c.calls.Wait()
		lines = append(lines, c.ended()...)
	})
	return lines
}

// A comparison is a server and the clients that take the steps.
type comparison struct {
	t     *testing.T
	lab   *lab.Lab
	links map[string]*lab.Link // by client
	calls sync.WaitGroup

	mu struct {
		sync.Mutex
		ends []end // that have not been told
	}
}

// An end is how the call of a step ended.
type end struct {
	step int
	text string
}

// take begins a step.
func (c *comparison) take(i int, s step) {
	k := c.links[s.client]
	if k == nil {
		k = c.lab.Dial(c.t)
		c.links[s.client] = k
	}
	if s.method == "" {
		k.Close()
		return
	}
	path, request, reply := s.messages(c.t)
	var options []grpc.CallOption
	if s.gzip {
		options = append(options, grpc.UseCompressor(gzip.Name))
	}
	ctx, cancel := c.t.Context(), context.CancelFunc(func() {})
	if s.within > 0 {
		ctx, cancel = context.WithTimeout(ctx, s.within)
	}
	c.calls.Go(func() {
		defer cancel()
		err := k.Conn.Invoke(ctx, path, request, reply, options...)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.mu.ends = append(c.mu.ends, end{i, fmt.Sprintf("%d: %s %s: %s", i, s.client, s.method, s.outcome(reply, err))})
	})
}

// messages makes the request, and room for the reply.
func (s step) messages(t *testing.T) (path string, request, reply proto.Message) {
	t.Helper()
	service := dialects[s.client[0]]
	path = "/" + service + "/" + s.method
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		t.Fatal(err)
	}
	method := d.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(s.method))
	if method == nil || s.broken {
		request = new(emptypb.Empty)
		request.ProtoReflect().SetUnknown([]byte{0x0a, 0xff})
		return path, request, new(emptypb.Empty)
	}
	request, reply = newMessage(t, method.Input()), newMessage(t, method.Output())
	text := strings.NewReplacer("$S", fmt.Sprint(0x5e44), "$LARGE", strings.Repeat("large ", 1<<16)).Replace(s.request)
	if err := prototext.Unmarshal([]byte(text), request); err != nil {
		t.Fatalf("%s: %v", s.method, err)
	}
	return path, request, reply
}

func newMessage(t *testing.T, d protoreflect.MessageDescriptor) proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return kind.New().Interface()
}

// outcome tells how a call ended. The text of a client's own deadline may be the client's or the server's,
// whichever is first.
func (s step) outcome(reply proto.Message, err error) string {
	if e, ok := err.(*lab.Error); ok {
		if s.within > 0 {
			return e.Code.String()
		}
		return fmt.Sprintf("%v %q, details %q", e.Code, e.Message, e.Details)
	}
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("OK %q", prototext.MarshalOptions{Multiline: false}.Format(reply))
}

// ended tells which calls have ended since it was asked last, in the order in which they began: calls
// that end by one event end at one time.
func (c *comparison) ended() (lines []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.SortFunc(c.mu.ends, func(a, b end) int { return cmp.Compare(a.step, b.step) })
	for _, e := range c.mu.ends {
		lines = append(lines, e.text)
	}
	c.mu.ends = nil
	return lines
}
