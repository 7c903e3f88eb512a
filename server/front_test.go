package server_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/xlapb"
)

// A task whose connection the transport closed because it reads nothing is lost, poll or not, and that
// is what the others hear.
func TestNotReading(t *testing.T) {
	lab.Clause(t, "F-35", "FR-2")
	synctest.Test(t, func(t *testing.T) {
		s := start(t, cluster(2))
		var conns [2]*fakeConn
		for i := range conns {
			conns[i] = dialFake(t, s)
			conns[i].send(t, xlapb.CoordinationService_RegisterTask_FullMethodName,
				&xlapb.RegisterTaskRequest{SourceTaskId: int32(i), Incarnation: uint64(7 + i)})
		}
		synctest.Wait()
		who := &xlapb.Incarnations{TaskIncarnation: 7, ServiceIncarnation: uint64(s.View().Service)}
		poll := conns[0].send(t, xlapb.CoordinationService_PollForError_FullMethodName, &xlapb.PollForErrorRequest{Incarnations: who})
		s.Handler().Close(conns[1], rpc.ErrNotReading)
		time.Sleep(time.Second) // the grace for coming back
		if got := conns[0].code(t, "the error poll", poll); got != codes.Unavailable {
			t.Errorf("PollForError() = %v; want %v", got, codes.Unavailable)
		}
		if r, _ := conns[0].reply(poll); !strings.Contains(r.status.Message, "task 1: does not read") {
			t.Errorf("PollForError() = %q; want that task 1 does not read", r.status.Message)
		}
	})
}

func TestFrontMetrics(t *testing.T) {
	lab.Clause(t, "F-42")
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, cluster(3))
		tasks := fleet(t, l, 3, 100)
		poll := tasks[0].poll(t.Context())
		for name, want := range map[string]float64{
			`serry_front_accepted_total`:       3,
			`serry_front_calls_open`:           1,
			`serry_front_partial_writes_total`: 0,
		} {
			if got := metric(t, l.Server, name); got != want {
				t.Errorf("%s = %v; want %v", name, got, want)
			}
		}
		for _, name := range []string{"read_bytes", "written_bytes", "flushes"} {
			if got := metric(t, l.Server, "serry_front_"+name+"_total"); got == 0 {
				t.Errorf("serry_front_%s_total = 0; want more", name)
			}
		}
		tasks[1].Cut()
		<-poll
	})
}
