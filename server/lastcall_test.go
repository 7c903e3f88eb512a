package server_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/xlapb"
)

// statusOf asks for the status with all tasks, as serry why does.
func statusOf(t *testing.T, s *server.Server) wire.Status {
	t.Helper()
	c := dialFake(t, s)
	path, body, err := wire.StatusQuery{Tasks: true, Calls: true}.Request()
	if err != nil {
		t.Fatal(err)
	}
	call := c.sendBytes(path, body)
	synctest.Wait()
	r, _ := c.reply(call)
	st, err := wire.ReadStatus(r.body)
	if err != nil {
		t.Fatalf("status: %v, %v", r.status, err)
	}
	return st
}

// The last call of each task is known, also where the call does not name its task, and whether it still waits. What
// clients send by themselves does not count.
func TestLastCalls(t *testing.T) {
	lab.Clause(t, "D-CLI-1")
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, cluster(4))
		tasks := fleet(t, l, 4, 100)
		ctx := t.Context()
		<-time.After(time.Second)
		if err := tasks[0].insert(ctx, "a/0"); err != nil {
			t.Fatal(err)
		}
		get := async(func() error {
			_, err := tasks[1].GetKeyValue(ctx, &xlapb.GetKeyValueRequest{Incarnations: tasks[1].who(), Key: strings.Repeat("k", 1000)})
			return err
		})
		bar := async(func() error { return tasks[2].barrier(ctx, "b", 0) })
		synctest.Wait()
		<-time.After(2 * time.Second)
		tasks[0].beating(ctx)
		tasks[3].poll(ctx)
		var got []string
		for _, k := range statusOf(t, l.Server).Tasks {
			got = append(got, fmt.Sprintf("%s %d %.0fs waits %v", k.LastCall, len(k.LastOf), k.CallSeconds, k.CallWaits))
		}
		want := []string{"InsertKeyValue 3 2s waits false", "GetKeyValue 200 2s waits true", "Barrier 1 2s waits true", "RegisterTask 0 3s waits false"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		pending(t, "GetKeyValue", get)
		pending(t, "Barrier", bar)
	})
}

// A status says how long barriers of the same kind usually take.
func TestUsualTimes(t *testing.T) {
	lab.Clause(t, "D-HG-4")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(2)
		cfg.Cluster.HeartbeatTimeout = time.Hour
		l := lab.Serve(t, cfg)
		tasks := fleet(t, l, 2, 100)
		for step, wait := range []int{3, 50, 3, 4, 1} {
			id := fmt.Sprintf("step-%d", step)
			end := async(func() error { return tasks[0].barrier(t.Context(), id, 0) })
			<-time.After(time.Duration(wait) * time.Second)
			if err := tasks[1].barrier(t.Context(), id, 0); err != nil {
				t.Fatal(err)
			}
			if err := <-end; err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range []string{"step-100", "another"} {
			async(func() error { return tasks[0].barrier(t.Context(), id, 0) })
		}
		synctest.Wait()
		got := make(map[string]float64)
		for _, b := range statusOf(t, l.Server).Barriers {
			got[b.ID] = b.UsualSeconds
		}
		if diff := cmp.Diff(map[string]float64{"step-100": 3, "another": 0}, got); diff != "" {
			t.Error(diff)
		}
	})
}

// The last writer of a folder is told while a task waits for a key there, and of no other folder.
func TestLastWriters(t *testing.T) {
	lab.Clause(t, "D-EV-4")
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, cluster(3))
		tasks := fleet(t, l, 3, 100)
		ctx := t.Context()
		for _, key := range []string{"data/a", "other/a", "plain"} {
			for _, writer := range []int{0, 2} { // rank 2 is the last
				if err := tasks[writer].insert(ctx, key+strings.Repeat("x", writer)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := statusOf(t, l.Server).Writers; len(got) > 0 {
			t.Errorf("Writers = %v while no task waits; want none", got)
		}
		get := async(func() error {
			_, err := tasks[1].GetKeyValue(ctx, &xlapb.GetKeyValueRequest{Incarnations: tasks[1].who(), Key: "data/b"})
			return err
		})
		synctest.Wait()
		st := statusOf(t, l.Server)
		if diff := cmp.Diff(map[string]string{"data": st.Tasks[2].Task}, st.Writers); diff != "" {
			t.Errorf("Writers (-want +got):\n%s", diff)
		}
		pending(t, "GetKeyValue", get)
	})
}
