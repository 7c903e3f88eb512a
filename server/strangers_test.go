package server_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/test/bufconn"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/wire/mtls"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
	"github.com/serry-dev/serry/wire/xlapb"
)

// issuer makes an authority. The function that it returns issues certificates with URI names.
func issuer(t *testing.T) func(name string, uris ...string) *mtls.Identity {
	t.Helper()
	dir := t.TempDir()
	ca, err := mtls.NewAuthority(dir, "lab", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return func(name string, uris ...string) *mtls.Identity {
		t.Helper()
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
}

// A host whose certificate names no task says by its stream that a process has ended, and calls as a live task. None
// of it changes anything. The same words with a certificate of the task end it.
func TestHostThatNamesNoTask(t *testing.T) {
	lab.Clause(t, "SEC-31", "SECT-9", "SECT-20", "A-TLS-10")
	synctest.Test(t, func(t *testing.T) {
		issue := issuer(t)
		cfg := cluster(1)
		cfg.TLS, cfg.TaskURI = issue("server").Server(), "spiffe://lab/{job}/{task}"
		s := start(t, cfg)
		l := bufconn.Listen(1 << 16)
		go s.Serve(l)
		hostOf := func(id *mtls.Identity) *host {
			h := &host{t: t, replies: make(map[rpc.CallID]stream.Reply)}
			h.Host = stream.NewHost(stream.HostConfig{
				Addresses: []string{"lab"}, Kind: stream.Relay, Sink: h, TLS: id.Client("lab"),
				Dial: func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) },
			})
			t.Cleanup(func() { h.Close(context.Background()) })
			return h
		}
		own := issue("own", "spiffe://lab/worker/0")
		mine := hostOf(own)
		mine.register(0)
		time.Sleep(time.Second)
		life := serry.Life{Task: serry.TaskID{Job: "worker"}, Incarnation: incarnation(0)}
		stranger := hostOf(issue("none"))
		stranger.Open(1)
		for name, call := range map[string]rpc.CallID{
			"RegisterTask": stranger.send(stream.Call{Conn: 1, Number: 1, Method: xlapb.CoordinationService_RegisterTask_FullMethodName}, &xlapb.RegisterTaskRequest{Incarnation: 8}),
			"ReportError":  stranger.send(stream.Call{Conn: 1, Number: 2, Method: xlapb.CoordinationService_ReportErrorToService_FullMethodName}, &xlapb.ReportErrorToServiceRequest{ErrorCode: 2}),
			"DeleteKey":    stranger.send(stream.Call{Conn: 1, Number: 3, Method: xlapb.CoordinationService_DeleteKeyValue_FullMethodName}, &xlapb.DeleteKeyValueRequest{Key: ""}),
		} {
			time.Sleep(time.Second)
			if code := stranger.reply(call).Status.Code; code != codes.PermissionDenied {
				t.Errorf("%s by a stream of a stranger = %v; want PermissionDenied", name, code)
			}
		}
		for _, own := range []serry.Incarnation{0, life.Incarnation} {
			stranger.Exited(serry.Life{Task: life.Task, Incarnation: own}, "signal 9")
		}
		time.Sleep(time.Second)
		if v := s.View(); v.Failure != nil || v.Tasks[0].State != serry.Connected || v.Tasks[0].Incarnation != life.Incarnation {
			t.Errorf("failure %v, task %+v after words of a stranger; want it connected as before", v.Failure, v.Tasks[0])
		}
		mine.Exited(life, "signal 9")
		time.Sleep(time.Second)
		if got := s.View().Tasks[0].State; got == serry.Connected {
			t.Errorf("the task is %v after the word of its own host; want it lost", got)
		}
	})
}
