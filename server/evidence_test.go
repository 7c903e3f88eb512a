package server_test

import (
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
)

// askable starts a server, and connections to it.
func askable(t *testing.T, conns int) (s *server.Server, all []*fakeConn) {
	t.Helper()
	s, err := server.New(cluster(4))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for range conns {
		all = append(all, dialFake(t, s))
	}
	return s, all
}

func (c *fakeConn) attend(id uint64, name string) rpc.CallID {
	return c.sendBytes(wire.AttendMethod, wire.Attendance{ID: id, Name: name}.Bytes())
}

// question is the reply to an attendance.
func (c *fakeConn) question(t *testing.T, call rpc.CallID) wire.Question {
	t.Helper()
	r, ok := c.reply(call)
	q, err := wire.ReadQuestion(r.body)
	if !ok || !r.status.OK() || err != nil {
		t.Fatalf("attend #%d = %+v, %v; want a question", call, r, err)
	}
	return q
}

func (c *fakeConn) gathered(t *testing.T, call rpc.CallID) wire.Gathered {
	t.Helper()
	r, ok := c.reply(call)
	g, err := wire.ReadGathered(r.body)
	if !ok || !r.status.OK() || err != nil {
		t.Fatalf("gather #%d = %+v, %v; want what was gathered", call, r, err)
	}
	return g
}

func gather(c *fakeConn, q wire.Inquiry) rpc.CallID { return c.sendBytes(wire.GatherMethod, q.Bytes()) }

func tasksOf(first, n int) (list []serry.TaskID) {
	for i := range n {
		list = append(list, serry.TaskID{Job: "worker", Index: first + i})
	}
	return list
}

// A host that does not answer is named when its time is over, and what the others have said is there.
func TestGatherNamesTheSilent(t *testing.T) {
	clause.Cite(t, "D-ST-12", "D-ST-16", "TD-ST-9")
	synctest.Test(t, func(t *testing.T) {
		_, c := askable(t, 3)
		first, second := c[0].attend(1, "node-a"), c[1].attend(2, "node-b")
		call := gather(c[2], wire.Inquiry{Kind: "stacks", Fold: true, Wait: 2 * time.Second})
		q := c[0].question(t, first)
		if q.Kind != "stacks" || q.Ticket == 0 || q.Ticket == c[1].question(t, second).Ticket {
			t.Fatalf("questions %+v and %+v", q, c[1].question(t, second))
		}
		c[0].sendBytes(wire.AnswerMethod, wire.Answer{Ticket: q.Ticket, Parts: []wire.Part{{Tasks: tasksOf(0, 2), Body: []byte("here")}}}.Bytes())
		time.Sleep(2*time.Second - 1)
		synctest.Wait()
		if r, ok := c[2].reply(call); ok {
			t.Fatalf("gather answers %+v before the time of the others is over", r)
		}
		time.Sleep(1)
		synctest.Wait()
		g := c[2].gathered(t, call)
		if g.Asked != 2 || g.Missing != 1 || !slices.Equal(g.Silent, []string{"node-b"}) || len(g.Parts) != 1 || string(g.Parts[0].Body) != "here" || len(g.Parts[0].Tasks) != 2 {
			t.Errorf("gathered %+v", g)
		}
		// Its answer comes too late, and twice.
		for range 2 {
			late := c[1].sendBytes(wire.AnswerMethod, wire.Answer{Ticket: c[1].question(t, second).Ticket, Parts: []wire.Part{{Body: []byte("late")}}}.Bytes())
			if r, ok := c[1].reply(late); !ok || !r.status.OK() {
				t.Errorf("a late answer = %+v", r)
			}
		}
	})
}

// The launcher of one host has all lines of a task. Its answer may be as large as an answer can be, however many hosts there are.
func TestGatherLogsOfManyHosts(t *testing.T) {
	clause.Cite(t, "D-WEB-2", "D-ST-15")
	synctest.Test(t, func(t *testing.T) {
		const perConn = 8
		_, c := askable(t, 1+2*wire.MaxGatheredBytes/wire.MaxAnswerBytes/perConn)
		var first rpc.CallID
		for i := range c[1:] {
			for n := range perConn {
				if call := c[i].attend(uint64(i*perConn+n+1), "node"); i == 0 && n == 0 {
					first = call
				}
			}
		}
		gather(c[len(c)-1], wire.Inquiry{Kind: wire.LogsEvidence, Tasks: tasksOf(3, 1), Wait: 2 * time.Second})
		if q := c[0].question(t, first); q.MaxBytes != wire.MaxAnswerBytes {
			t.Errorf("a launcher has %d bytes for the lines of a rank; want %d", q.MaxBytes, wire.MaxAnswerBytes)
		}
		time.Sleep(3 * time.Second) // the inquiry is over
	})
}

// Equal answers of many hosts are sent once, and asked of another host where the first is gone.
func TestGatherFolds(t *testing.T) {
	clause.Cite(t, "D-ST-15")
	synctest.Test(t, func(t *testing.T) {
		const hosts = 20
		_, c := askable(t, hosts+1)
		call := make([]rpc.CallID, hosts)
		for i := range hosts {
			call[i] = c[i].attend(uint64(i+1), "node")
		}
		asked := gather(c[hosts], wire.Inquiry{Kind: "stacks", Fold: true, Wait: 2 * time.Second})
		body := [][]byte{[]byte("waits"), []byte("alone")}
		for i := range hosts {
			q := c[i].question(t, call[i])
			if !q.DigestsOnly {
				t.Fatalf("host %d is asked %+v; want digests alone", i, q)
			}
			call[i] = c[i].attend(uint64(i+1), "node") // before the answer
			p := wire.Part{Tasks: tasksOf(i, 1), Digest: wire.DigestOf(body[max(0, i-hosts+2)])}
			c[i].sendBytes(wire.AnswerMethod, wire.Answer{Ticket: q.Ticket, Parts: []wire.Part{p}}.Bytes())
		}
		var second []int
		for i := range hosts {
			if _, ok := c[i].reply(call[i]); ok {
				second = append(second, i)
				q := c[i].question(t, call[i])
				if len(q.Digests) != 1 {
					t.Fatalf("host %d is asked for %+v; want one body", i, q)
				}
				b := body[slices.IndexFunc(body, func(b []byte) bool { return wire.DigestOf(b) == q.Digests[0] })]
				c[i].sendBytes(wire.AnswerMethod, wire.Answer{Ticket: q.Ticket, Parts: []wire.Part{{Body: b}}}.Bytes())
			}
		}
		if !slices.Equal(second, []int{0, hosts - 1}) {
			t.Errorf("hosts %v are asked for bodies; want the first that has each", second)
		}
		g := c[hosts].gathered(t, asked)
		if g.Missing != 0 || len(g.Parts) != 2 || len(g.Parts[0].Tasks) != hosts-1 || string(g.Parts[0].Body) != "waits" || string(g.Parts[1].Body) != "alone" {
			t.Errorf("gathered %+v", g)
		}
	})
}

// Everything has a limit and an end.
func TestGatherLimits(t *testing.T) {
	clause.Cite(t, "D-ST-12")
	synctest.Test(t, func(t *testing.T) {
		s, c := askable(t, 3)
		if g := c[0].gathered(t, gather(c[0], wire.Inquiry{Kind: "stacks"})); g.Asked != 0 {
			t.Errorf("with no attendants: gathered %+v", g)
		}
		for i := range 12 {
			last := c[2].attend(uint64(100+i), "flood")
			if r, ok := c[2].reply(last); i >= 8 && (!ok || r.status.Code != codes.ResourceExhausted) {
				t.Errorf("attendant %d of a connection = %+v; want a limit", i+1, r.status)
			}
		}
		c[2].handler.Close(c[2], net.ErrClosed)
		waits := c[1].attend(1, "node-a")
		open := []rpc.CallID{gather(c[0], wire.Inquiry{Kind: "a"})}
		// An attendant that comes back is asked by the next inquiry, also by one that is open.
		c[1].question(t, waits)
		c[1].attend(1, "node-a")
		for range 16 - len(open) {
			open = append(open, gather(c[0], wire.Inquiry{Kind: "b"}))
			c[1].attend(1, "node-a")
		}
		refused := gather(c[0], wire.Inquiry{Kind: "c"})
		if r, _ := c[0].reply(refused); r.status.Code != codes.ResourceExhausted {
			t.Errorf("inquiry 17 = %+v; want a limit", r.status)
		}
		c[0].handler.Cancel(c[0], open[3])
		if r, ok := c[0].reply(gather(c[0], wire.Inquiry{Kind: "d"})); ok {
			t.Errorf("the inquiry after one that was given up = %+v; want it to wait", r.status)
		}
		again := c[1].attend(1, "node-a")
		for _, bad := range []string{wire.AttendMethod, wire.AnswerMethod, wire.GatherMethod} {
			if r, _ := c[0].reply(c[0].sendBytes(bad, []byte{0xff})); r.status.Code != codes.InvalidArgument {
				t.Errorf("%s with nonsense = %+v; want invalid", bad, r.status)
			}
		}
		s.Close()
		if r, ok := c[0].reply(open[1]); !ok || r.status.OK() {
			t.Errorf("an inquiry at the end of the server = %+v, %v; want an error", r.status, ok)
		}
		if r, ok := c[1].reply(again); !ok || r.status.OK() {
			t.Errorf("an attendant at the end of the server = %+v, %v; want an error", r.status, ok)
		}
	})
}
