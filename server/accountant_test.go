package server_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/server"

	"github.com/serry-dev/serry/wire/xlapb"
)

// meetings lets tasks meet at barriers. Each works for a second between two of them, and one for a quarter longer.
func meetings(t *testing.T, tasks []*task, slow, from, to int) {
	t.Helper()
	for step := from; step < to; step++ {
		var ends []<-chan error
		for i, k := range tasks {
			work := time.Second + time.Duration(i)*time.Millisecond
			if i == slow {
				work = 1250 * time.Millisecond
			}
			ends = append(ends, async(func() error {
				<-time.After(work)
				return k.barrier(t.Context(), fmt.Sprintf("step-%d", step), 0)
			}))
		}
		for _, end := range ends {
			if err := <-end; err != nil {
				t.Fatal(err)
			}
		}
	}
}

// put stores a value under a key, over the one that it has.
func (k *task) put(t *testing.T, key, value string) {
	t.Helper()
	_, err := k.InsertKeyValue(t.Context(), &xlapb.InsertKeyValueRequest{
		Incarnations: k.who(), Kv: &xlapb.KeyValueEntry{Key: key, Value: []byte(value)}, AllowOverwrite: true,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// metricsOf are the lines of the metrics page that begin so.
func metricsOf(s *server.Server, begins ...string) (lines []string) {
	page := httptest.NewRecorder()
	promhttp.HandlerFor(s.Metrics(), promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.SplitSeq(page.Body.String(), "\n") {
		for _, b := range begins {
			if strings.HasPrefix(line, b) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// A task that works a quarter longer than the others is found by when tasks come to barriers, and by nothing else.
func TestStragglerAtBarriers(t *testing.T) {
	lab.Clause(t, "D-GP-3", "D-GP-4", "D-GP-6", "D-GP-9", "TD-GP-4")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(4)
		cfg.Cluster.HeartbeatTimeout = time.Hour
		l := lab.Serve(t, cfg)
		tasks := fleet(t, l, 4, 100)
		meetings(t, tasks, -1, 0, 32)
		if got := statusOf(t, l.Server).Stragglers; len(got) != 0 {
			t.Errorf("stragglers of a healthy job: %+v; want none", got)
		}
		meetings(t, tasks, 3, 32, 64)
		st := statusOf(t, l.Server)
		if len(st.Stragglers) != 1 || st.Stragglers[0].Task != "worker/3" || st.Stragglers[0].Class != "step-#" || st.Stragglers[0].Slower < 0.2 || st.Stragglers[0].Slower > 0.3 {
			t.Errorf("stragglers = %+v; want worker/3 alone, a quarter slower", st.Stragglers)
		}
		if st.Goodput != nil || st.Steps != nil {
			t.Errorf("goodput = %+v, steps %v; want none without steps", st.Goodput, st.Steps)
		}
		got := metricsOf(l.Server, "serry_straggler", "serry_barrier_last_arrival_lag_seconds_count", "serry_productive", "serry_lost_seconds")
		if len(got) != 2 || got[0] != `serry_barrier_last_arrival_lag_seconds_count{class="step-#"} 64` || !strings.HasPrefix(got[1], `serry_straggler{rank="3"} 0.`) {
			t.Errorf("metrics = %q", got)
		}
	})
}

// Steps that a task reports make up the goodput; a failure and what follows count as lost.
func TestGoodputBySteps(t *testing.T) {
	lab.Clause(t, "D-GP-1", "D-GP-2", "D-GP-7", "D-GP-8", "D-GP-9", "TD-GP-1", "TD-GP-4")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(2)
		cfg.Cluster.HeartbeatTimeout = time.Hour
		l := lab.Serve(t, cfg)
		tasks := fleet(t, l, 2, 100)
		<-time.After(10 * time.Second)
		tasks[0].put(t, "serry/step/0", "0")
		for n := range 90 {
			<-time.After(time.Second)
			tasks[0].put(t, "serry/step/0", fmt.Sprint(n+1))
			if n == 10 {
				tasks[0].put(t, "serry/step/0", "garbage")
				tasks[0].put(t, "serry/step/7", "1")
				tasks[0].put(t, "serry/step/x", "1")
			}
		}
		tasks[1].put(t, "serry/step/worker/1", "88")
		tasks[0].put(t, "serry/step/0", "90 checkpoint")
		<-time.After(20 * time.Second)
		tasks[0].put(t, "serry/step/0", "90")
		st := statusOf(t, l.Server)
		if g := st.Goodput; g == nil || g.ProductiveSeconds != 90 || g.LostSeconds["start"] != 10 || g.LostSeconds["checkpoint"] != 20 || g.WallSeconds != 120 || g.Step != 90 {
			t.Errorf("goodput = %+v; want 90 of 120 s", g)
		}
		if len(st.Steps) != 2 || st.Steps[0] != 90 || st.Steps[1] != 88 {
			t.Errorf("steps = %v; want 90 and 88", st.Steps)
		}
		<-time.After(5 * time.Second)
		l.Server.Lost(serry.TaskID{Job: "worker", Index: 1}, "host silent")
		synctest.Wait()
		<-time.After(7 * time.Second)
		want := []string{
			`serry_lost_seconds_total{cause="checkpoint"} 20`, `serry_lost_seconds_total{cause="detect"} 5`, `serry_lost_seconds_total{cause="restart"} 7`,
			`serry_lost_seconds_total{cause="start"} 10`, `serry_productive_seconds_total 90`,
		}
		if got := metricsOf(l.Server, "serry_lost_seconds", "serry_productive"); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("metrics = %q; want %q", got, want)
		}
		if next := l.Server.Account().Goodput(time.Now()); next.Productive != 90*time.Second || next.Step != 90 {
			t.Errorf("the account for the next attempt = %+v", next)
		}
	})
}

// At ten thousand tasks the page has no more rows than at ten, and a client that makes up names cannot change that.
func TestPaceMetricsAreBounded(t *testing.T) {
	lab.Clause(t, "D-GP-9", "TD-GP-4")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(2)
		cfg.Cluster.HeartbeatTimeout = time.Hour
		l := lab.Serve(t, cfg)
		tasks := fleet(t, l, 2, 100)
		ids := []string{strings.Repeat("x", 250) + "a", strings.Repeat("x", 250) + "b"} // the same, as far as a label goes
		for i := range 200 {
			ids = append(ids, strings.Repeat("x", i+1))
		}
		for _, id := range ids {
			end := async(func() error { return tasks[0].barrier(t.Context(), id, 0) })
			if err := tasks[1].barrier(t.Context(), id, 0); err != nil {
				t.Fatal(err)
			}
			if err := <-end; err != nil {
				t.Fatal(err)
			}
		}
		if got := metricsOf(l.Server, "serry_barrier_last_arrival_lag_seconds_count"); len(got) != 64 {
			t.Errorf("%d classes on the page; want 64", len(got))
		}
	})
}

// What keeps ranks waiting is shown while it lasts, and counts once, however often it is told; so does the first failure of an
// epoch, and not those that follow from it.
func TestVerdictMetrics(t *testing.T) {
	lab.Clause(t, "D-GP-9", "TD-GP-4")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(3)
		cfg.Cluster.HeartbeatTimeout = time.Hour
		l := lab.Serve(t, cfg)
		tasks := fleet(t, l, 3, 100)
		shows := func(want ...string) {
			t.Helper()
			if got := metricsOf(l.Server, "serry_hang_stage", "serry_verdicts_total"); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("metrics = %q; want %q", got, want)
			}
		}
		told := func(hang string) { tasks[0].put(t, "serry/diagnose/hang", `{"version":1,"hang":`+hang+`}`) }
		shows("serry_hang_stage 0")
		told(`{"kind":"still","stage":"late","grade":"likely","since":60000000000}`)
		shows("serry_hang_stage 1")
		told(`{"kind":"still","stage":"stalled","grade":"likely","since":60000000000}`)
		shows("serry_hang_stage 2", `serry_verdicts_total{grade="likely",kind="still"} 1`)
		told(`{"kind":"still","stage":"stuck","grade":"likely","since":61000000000}`)
		shows("serry_hang_stage 3", `serry_verdicts_total{grade="likely",kind="still"} 1`)
		told(`null`)
		told(`{"kind":"still","stage":"stalled","grade":"likely","since":900000000000}`)
		shows("serry_hang_stage 2", `serry_verdicts_total{grade="likely",kind="still"} 2`)

		// What a task makes up adds no row.
		told(`{"kind":"made up","stage":"stuck","grade":"sure"}`)
		told(`{"kind":"still","stage":"stuck","grade":"made up"}`)
		tasks[0].put(t, "serry/diagnose/hang", "nonsense")
		shows("serry_hang_stage 2", `serry_verdicts_total{grade="likely",kind="still"} 2`)

		for _, task := range []int{2, 1} {
			l.Server.Lost(serry.TaskID{Job: "worker", Index: task}, "host silent")
			synctest.Wait()
		}
		shows("serry_hang_stage 2", `serry_verdicts_total{grade="likely",kind="still"} 2`, `serry_verdicts_total{grade="sure",kind="failed"} 1`)
	})
}
