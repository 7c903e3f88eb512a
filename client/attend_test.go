package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
)

// ask has the service ask its members.
func (f *fleet) ask(q wire.Inquiry) wire.Gathered {
	f.t.Helper()
	reply, st, err := f.Line(f.t, client.DialOptions{}).Call(f.t.Context(), wire.GatherMethod, q.Bytes())
	if err != nil || !st.OK() {
		f.t.Fatalf("Gather = %v, %v", st, err)
	}
	g, err := wire.ReadGathered(reply)
	if err != nil {
		f.t.Fatalf("Gather = %v", err)
	}
	return g
}

// Members answer what they know, and those that do not are named.
func TestMembersAnswer(t *testing.T) {
	lab.Clause(t, "D-ST-12")
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, client.Serry, cluster(4))
		tasks := f.join(4)
		for i, k := range tasks[:3] {
			k.Answer("shards", func(ctx context.Context, argument string, most int) []byte {
				if i == 2 {
					<-ctx.Done() // it hangs
				}
				return fmt.Appendf(nil, "%s of %d", argument, i)
			})
		}
		began := time.Now()
		g := f.ask(wire.Inquiry{Kind: "shards", Argument: "state", Wait: time.Second})
		if took := time.Since(began); took != time.Second {
			t.Errorf("Gather took %v; want the second that members have", took)
		}
		var got []string
		for _, p := range g.Parts {
			got = append(got, fmt.Sprintf("%v: %s", p.Tasks, p.Body))
		}
		slices.Sort(got)
		want := []string{"[worker/0]: state of 0", "[worker/1]: state of 1"}
		if !slices.Equal(got, want) || g.Asked != 4 || !slices.Equal(g.Silent, []string{"worker/2"}) {
			t.Errorf("Gather = %q, %+v; want %q and worker/2 silent", got, g, want)
		}
		// One of them alone, which is asked by its number. It answers two questions at a time.
		if g := f.ask(wire.Inquiry{Kind: "shards", Tasks: workers(1), Wait: time.Second}); g.Asked != 1 || len(g.Parts) != 1 || g.Missing != 0 {
			t.Errorf("Gather of worker/1 = %+v", g)
		}
		all(t, "Leave()", tasks, leave)
	})
}

// A Go program says where its goroutines are, and goes on.
func TestMembersTellTheirStacks(t *testing.T) {
	lab.Clause(t, "D-ST-12", "TD-ST-7")
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, client.Serry, cluster(1))
		f.join(1)
		for _, argument := range []string{"", wire.AllThreads} {
			g := f.ask(wire.Inquiry{Kind: wire.StacksEvidence, Argument: argument})
			var stacks []wire.ThreadStack
			if len(g.Parts) != 1 || json.Unmarshal(g.Parts[0].Body, &stacks) != nil {
				t.Fatalf("Gather = %+v", g)
			}
			found := slices.ContainsFunc(stacks, func(s wire.ThreadStack) bool {
				return s.Doing != "" && slices.ContainsFunc(s.Frames, func(f wire.StackFrame) bool {
					return strings.HasPrefix(f.Function, "testing.") && strings.HasSuffix(f.File, "/testing.go") && f.Line > 0
				})
			})
			if !found || argument == "" && len(stacks) != 1 || argument != "" && len(stacks) < 3 {
				t.Errorf("stacks with %q: %d, %+v", argument, len(stacks), stacks)
			}
		}
	})
}

// A countedLine counts the bytes of answers.
type countedLine struct {
	client.Transport
	bytes *atomic.Int64
}

func (l countedLine) Call(ctx context.Context, path string, body []byte) ([]byte, rpc.Status, error) {
	if path == wire.AnswerMethod {
		l.bytes.Add(int64(len(body)))
	}
	return l.Transport.Call(ctx, path, body)
}

// Of 10,000 ranks on 1,250 hosts with three stacks, three stacks are sent.
func TestManyHostsAnswer(t *testing.T) {
	lab.Clause(t, "D-ST-15", "D-ST-16", "TD-ST-8")
	synctest.Test(t, func(t *testing.T) {
		const hosts, ranks = 1250, 8
		f := newFleet(t, client.Serry, loose(1))
		stack := func(place string) []byte { return []byte(place + strings.Repeat(" < frame (train.py:10)", 200)) }
		var sent atomic.Int64
		for i := range hosts {
			line := countedLine{f.Line(t, client.DialOptions{}), &sent}
			answer := func(context.Context, client.Question) []client.Finding {
				var tasks []serry.TaskID
				for rank := range ranks {
					tasks = append(tasks, worker(ranks*i+rank))
				}
				switch i {
				case 700: // one rank is elsewhere
					return []client.Finding{{Tasks: tasks[1:], Body: stack("all-reduce")}, {Tasks: tasks[:1], Body: stack("load")}}
				case 5, 6:
					return []client.Finding{{Tasks: tasks, Body: stack("save")}}
				}
				return []client.Finding{{Tasks: tasks, Body: stack("all-reduce")}}
			}
			go client.Attend(t.Context(), line, client.Attendant{Name: fmt.Sprintf("node-%d", i), Answer: answer})
		}
		synctest.Wait()
		began := time.Now()
		g := f.ask(wire.Inquiry{Kind: wire.StacksEvidence, Fold: true, Wait: 2 * time.Second})
		got := make(map[string]int)
		for _, p := range g.Parts {
			place, _, _ := strings.Cut(string(p.Body), " ")
			got[place] += len(p.Tasks)
		}
		if len(g.Parts) != 3 || got["all-reduce"] != 9983 || got["save"] != 16 || got["load"] != 1 || g.Missing != 0 || g.Asked != hosts {
			t.Errorf("Gather has %d parts, %v, %d of %d silent; want 3 parts of 10000 ranks", len(g.Parts), got, g.Missing, g.Asked)
		}
		if n := sent.Load(); n > 64<<10 {
			t.Errorf("hosts have sent %d bytes; want 64 KiB at most", n)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("Gather took %v of virtual time; want 2 s at most", took)
		}
	})
}
