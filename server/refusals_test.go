package server_test

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/mtls"
	"github.com/serry-dev/serry/wire/xlapb"
)

// A record is what a server logged.
type record struct {
	mu sync.Mutex
	bytes.Buffer
}

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Buffer.Write(b)
}

// count says how many lines have all of the words.
func (r *record) count(words ...string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for line := range strings.Lines(r.String()) {
		found := true
		for _, w := range words {
			found = found && strings.Contains(line, w)
		}
		if found {
			n++
		}
	}
	return n
}

func TestRefusedHandshakesAreLogged(t *testing.T) {
	lab.Clause(t, "A-TLS-7", "T-TLS-22")
	synctest.Test(t, func(t *testing.T) {
		ofServer, ofClient := identities(t)
		log := new(record)
		cfg := cluster(1)
		cfg.TLS, cfg.Log = ofServer.Server(), slog.New(slog.NewTextHandler(log, nil))
		s := start(t, cfg)
		l := bufconn.Listen(1 << 16)
		go s.Serve(l)

		wantCode(t, "RegisterTask without TLS", registerBy(t, l, insecure.NewCredentials()), codes.Unavailable)
		bare := ofClient.Client("lab")
		bare.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tls.Certificate{}, nil }
		for range 5 {
			wantCode(t, "RegisterTask without a certificate", registerBy(t, l, credentials.NewTLS(bare)), codes.Unavailable)
		}
		synctest.Wait()
		if log.count("peer=", "not look like a TLS handshake") == 0 {
			t.Errorf("the log does not say why a plain client was refused:\n%s", log)
		}
		if log.count("peer=", "provide a certificate") == 0 {
			t.Errorf("the log does not say why a client without a certificate was refused:\n%s", log)
		}
		if n := log.count("connection refused", "provide a certificate"); n != 1 {
			t.Errorf("the same refusal is logged %d times; want once", n)
		}
	})
}

// A process that is turned away is told of, with its address: in the log and in the history.
func TestRefusedCallsAreNoted(t *testing.T) {
	lab.Clause(t, "C-REG-3", "C-REG-14", "C-INC-3")
	synctest.Test(t, func(t *testing.T) {
		log := new(record)
		cfg := cluster(2)
		cfg.Cluster.Recoverable = true
		cfg.Log = slog.New(slog.NewTextHandler(log, nil))
		l := lab.Serve(t, cfg)
		tasks := fleet(t, l, 2, 100)

		foreign := &task{N: l.N(t), id: 7, own: 300}
		wantCode(t, "RegisterTask(7) of 2", foreign.register(t.Context()), codes.InvalidArgument)
		newer := &task{N: l.N(t), id: 1, own: 201}
		wantCode(t, "RegisterTask(1) of a restarted process", newer.register(t.Context()), codes.OK)
		wantCode(t, "RegisterTask(1) of the process before it", tasks[1].register(t.Context()), codes.Aborted)
		tasks[0].service++
		wantCode(t, "Barrier of another attempt", tasks[0].barrier(t.Context(), "b", 0), codes.Internal)
		synctest.Wait()

		for _, words := range [][]string{
			{`msg="registration refused"`, "task=worker/7", "incarnation=300", "peer=", `err="unknown task"`},
			{`msg="registration refused"`, "task=worker/1", "incarnation=101", "peer=", `err="incarnation was replaced by a newer one"`},
			{`msg="call refused"`, "task=worker/0", "peer=", `err="wrong service incarnation`},
		} {
			if n := log.count(words...); n != 1 {
				t.Errorf("%d lines of the log have %q; want 1:\n%s", n, words, log)
			}
		}
		if notes := refusedNotes(t, l); len(notes) != 3 || notes[0].From == "" || notes[0].Task != "worker/7" || notes[0].Cause != "unknown task" {
			t.Errorf("refusals in the history: %+v; want 3, the first of worker/7 with its address", notes)
		}
	})
}

// refusedNotes are the refusals in the history.
func refusedNotes(t *testing.T, l *lab.Lab) []wire.NoteStatus {
	t.Helper()
	return slices.DeleteFunc(notesAfter(t, l, 0), func(n wire.NoteStatus) bool { return n.From == "" })
}

// A second process with the number of a task fails the task. The failure is the first note, and the refusal, which
// says where that process is, comes after it.
func TestSecondProcessIsNotedAfterTheFailure(t *testing.T) {
	lab.Clause(t, "C-REG-14")
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, cluster(2))
		fleet(t, l, 2, 100)
		seen := notesAfter(t, l, 0)
		second := &task{N: l.N(t), id: 1, own: 201}
		wantCode(t, "RegisterTask(1) of a second process", second.register(t.Context()), codes.Aborted)
		notes := notesAfter(t, l, seen[len(seen)-1].Number)
		last := notes[len(notes)-1]
		if notes[0].What != "task failed" || last.What != "registration refused" || last.From == "" || last.Incarnation != 201 {
			t.Errorf("notes of a second process: %+v; want a failure first, and last a refusal with its address", notes)
		}
	})
}

// Clients that try again for ever, each time as another process, add a few notes a minute, and push out nothing.
func TestRefusedCallsAreFewNotes(t *testing.T) {
	lab.Clause(t, "C-REG-3")
	synctest.Test(t, func(t *testing.T) {
		log := new(record)
		cfg := cluster(1)
		cfg.Log = slog.New(slog.NewTextHandler(log, nil))
		l := lab.Serve(t, cfg)
		k := fleet(t, l, 1, 100)[0]
		k.beating(t.Context())
		foreign := &task{N: l.N(t), id: 7}
		for i := range 130 { // over 130 s
			foreign.own = uint64(300 + i)
			wantCode(t, "RegisterTask(7) of 1", foreign.register(t.Context()), codes.InvalidArgument)
			time.Sleep(time.Second)
		}
		if n, noted := log.count("registration refused"), len(refusedNotes(t, l)); n != 3 || noted != 3 {
			t.Errorf("a process that tried for 130 s is logged %d times and noted %d times; want 3, once a minute", n, noted)
		}
		for i := range 1000 { // and one that invents numbers
			foreign.id = int32(10 + i)
			wantCode(t, "RegisterTask(10...) of 1", foreign.register(t.Context()), codes.InvalidArgument)
		}
		if n := log.count("registration refused"); n > 3+16 {
			t.Errorf("1,000 processes are %d lines; want 16 at most", n-3)
		}
		if notes := notesAfter(t, l, 0); notes[0].What != "epoch opened" && notes[0].What != "task connected" {
			t.Errorf("the oldest note is %+v; want that of the beginning", notes[0])
		}
	})
}

func TestCertificateNamesTask(t *testing.T) {
	lab.Clause(t, "A-TLS-10", "T-TLS-23")
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		ca, err := mtls.NewAuthority(dir, "lab", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		load := func(name string, uris ...string) *mtls.Identity {
			if err := ca.Issue(dir, mtls.Subject{Name: name, Hosts: []string{"lab"}, URIs: uris, Life: time.Hour}); err != nil {
				t.Fatal(err)
			}
			id, err := mtls.Load(mtls.Files{
				Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+"-key.pem"), CA: filepath.Join(dir, "ca.pem"),
			})
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		cfg := cluster(1)
		log := new(record)
		cfg.TLS, cfg.TaskURI, cfg.Log = load("server").Server(), "spiffe://lab/{job}/{task}", slog.New(slog.NewTextHandler(log, nil))
		s := start(t, cfg)
		l := bufconn.Listen(1 << 16)
		go s.Serve(l)

		other, none := load("other", "spiffe://lab/worker/1"), load("none")
		own := load("own", "spiffe://lab/worker/7", "spiffe://lab/worker/0")
		wantCode(t, "RegisterTask with the certificate of another task", registerBy(t, l, credentials.NewTLS(other.Client("lab"))), codes.PermissionDenied)
		wantCode(t, "RegisterTask with a certificate of nobody", registerBy(t, l, credentials.NewTLS(none.Client("lab"))), codes.PermissionDenied)
		wantCode(t, "RegisterTask with its own certificate", registerBy(t, l, credentials.NewTLS(own.Client("lab"))), codes.OK)
		synctest.Wait()
		if n := log.count(`msg="registration refused"`, "task=worker/0", "peer=", "certificate does not name task worker/0"); n != 1 {
			t.Errorf("%d lines of the log tell of the registrations that were refused; want 1, for both:\n%s", n, log)
		}
		told := slices.DeleteFunc(notesOf(t, s, 0), func(n wire.NoteStatus) bool { return n.From == "" })
		if len(told) != 1 || told[0].Task != "worker/0" || !strings.Contains(told[0].Cause, "certificate does not name task worker/0") {
			t.Errorf("refusals in the history: %+v; want one of worker/0, for its certificate", told)
		}
	})
}

// A certificate of the authority that names no task changes nothing and learns no value, by any call; that of a task
// reads and writes keys, and that of an operator may end the leadership. What is refused changes nothing.
func TestCertificateThatNamesNoTask(t *testing.T) {
	lab.Clause(t, "SEC-31", "SEC-32", "SECT-9", "SECT-20", "A-TLS-10")
	synctest.Test(t, func(t *testing.T) {
		load := issuer(t)
		cfg := cluster(2)
		cfg.Cluster.RegisterBarrier, cfg.Stoppable = false, true
		cfg.TLS, cfg.TaskURI = load("server").Server(), "spiffe://lab/{job}/{task}"
		s := start(t, cfg)
		l := bufconn.Listen(1 << 16)
		go s.Serve(l)
		call := func(id *mtls.Identity, method string, request proto.Message) codes.Code {
			t.Helper()
			conn := dialBy(t, l, credentials.NewTLS(id.Client("lab")))
			defer conn.Close()
			return status.Code(conn.Invoke(t.Context(), method, request, new(emptypb.Empty)))
		}
		own, other, none, operator := load("own", "spiffe://lab/worker/0"), load("other", "spiffe://lab/worker/1"), load("none"), load("operator", "spiffe://lab/worker/operator")
		if code := call(own, xlapb.CoordinationService_RegisterTask_FullMethodName, &xlapb.RegisterTaskRequest{Incarnation: 7}); code != codes.OK {
			t.Fatalf("RegisterTask() = %v", code)
		}
		kv := &xlapb.KeyValueEntry{Key: "k", Value: []byte("v")}
		acts := map[string]proto.Message{
			xlapb.CoordinationService_RegisterTask_FullMethodName:         &xlapb.RegisterTaskRequest{Incarnation: 8},
			xlapb.CoordinationService_Heartbeat_FullMethodName:            &xlapb.HeartbeatRequest{Incarnation: 7},
			xlapb.CoordinationService_PollForError_FullMethodName:         &xlapb.PollForErrorRequest{},
			xlapb.CoordinationService_ShutdownTask_FullMethodName:         &xlapb.ShutdownTaskRequest{},
			xlapb.CoordinationService_ReportErrorToService_FullMethodName: &xlapb.ReportErrorToServiceRequest{ErrorCode: 2},
			xlapb.CoordinationService_Barrier_FullMethodName:              &xlapb.BarrierRequest{BarrierId: "b"},
			xlapb.CoordinationService_CancelBarrier_FullMethodName:        &xlapb.CancelBarrierRequest{BarrierId: "b"},
			xlapb.CoordinationService_GetAliveTasks_FullMethodName:        &xlapb.GetAliveTasksRequest{},
		}
		keys := map[string]proto.Message{
			xlapb.CoordinationService_InsertKeyValue_FullMethodName: &xlapb.InsertKeyValueRequest{Kv: kv, AllowOverwrite: true},
			xlapb.CoordinationService_TryGetKeyValue_FullMethodName: &xlapb.TryGetKeyValueRequest{Key: "k"},
			xlapb.CoordinationService_GetKeyValueDir_FullMethodName: &xlapb.GetKeyValueDirRequest{DirectoryKey: ""},
			xlapb.CoordinationService_DeleteKeyValue_FullMethodName: &xlapb.DeleteKeyValueRequest{Key: "k"},
		}
		for method, request := range acts {
			for name, id := range map[string]*mtls.Identity{"none": none, "other": other, "operator": operator} {
				if code := call(id, method, request); code != codes.PermissionDenied {
					t.Errorf("%s as task 0 with certificate %s = %v; want PermissionDenied", method, name, code)
				}
			}
		}
		for method, request := range keys {
			if code := call(none, method, request); code != codes.PermissionDenied {
				t.Errorf("%s with a certificate that names no task = %v; want PermissionDenied", method, code)
			}
		}
		for name, id := range map[string]*mtls.Identity{"task": other, "operator": operator} {
			if code := call(id, xlapb.CoordinationService_InsertKeyValue_FullMethodName, keys[xlapb.CoordinationService_InsertKeyValue_FullMethodName]); code != codes.OK {
				t.Errorf("InsertKeyValue with the certificate of a %s = %v; want OK", name, code)
			}
		}
		if v := s.View(); v.Failure != nil || v.Keys != 1 {
			t.Errorf("failure %v, %d keys after calls that were refused; want none, and one key", v.Failure, v.Keys)
		}
		lead := func(id *mtls.Identity, r wire.LeadRequest) codes.Code {
			t.Helper()
			conn := dialBy(t, l, credentials.NewTLS(id.Client("lab")))
			defer conn.Close()
			var reply []byte
			return status.Code(conn.Invoke(t.Context(), wire.LeadMethod, r.Bytes(), &reply, grpc.ForceCodec(rawCodec{})))
		}
		if code := lead(none, wire.LeadRequest{Stop: true}); code != codes.PermissionDenied {
			t.Errorf("stop with a certificate that names no task = %v; want PermissionDenied", code)
		}
		if code := lead(own, wire.LeadRequest{Handover: true}); code != codes.PermissionDenied {
			t.Errorf("hand-over with the certificate of a task = %v; want PermissionDenied", code)
		}
		if code := lead(none, wire.LeadRequest{}); code != codes.OK {
			t.Errorf("who leads, with any certificate = %v; want OK", code)
		}
		if code := lead(operator, wire.LeadRequest{Stop: true}); code != codes.OK {
			t.Errorf("stop with the certificate of an operator = %v; want OK", code)
		}
	})
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Name() string                  { return "raw" }
func (rawCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (rawCodec) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(b)
	return nil
}

func TestTaskURIWantsCertificates(t *testing.T) {
	lab.Clause(t, "A-TLS-10")
	for name, change := range map[string]func(*server.Config){
		"no TLS":        func(c *server.Config) { c.TLS = nil },
		"no task in it": func(c *server.Config) { c.TaskURI = "spiffe://lab/" },
	} {
		cfg := cluster(1)
		cfg.TLS, cfg.TaskURI = new(tls.Config), "spiffe://lab/{task}"
		if err := cfg.Validate(); err != nil {
			t.Fatalf("Validate() = %v", err)
		}
		change(&cfg)
		if err := cfg.Validate(); err == nil {
			t.Errorf("%s: Validate() = nil; want an error", name)
		}
	}
}
