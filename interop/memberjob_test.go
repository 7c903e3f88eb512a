package interop

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
	member "github.com/serry-dev/serry/client"
)

// A mixedJob is a job of jax processes and of Go members, which live in this process.
type mixedJob struct {
	t       *testing.T
	venv    venv // of its jax processes
	size    int
	members []*member.Member // sorted by task
	jax     []*client        // with testdata/member.py in them, sorted by task
}

// devicesEach is how many devices every task of a mixed job has.
const devicesEach = 2

// joinMixed starts a job in which goTasks are Go members and all others are jax.
func joinMixed(t *testing.T, addr string, v venv, size int, goTasks ...int) *mixedJob {
	t.Helper()
	j := &mixedJob{t: t, venv: v, size: size}
	for i := range size {
		if !slices.Contains(goTasks, i) {
			j.jax = append(j.jax, startMember(t, addr, v, size, i))
		}
	}
	j.members = together(t, goTasks, func(ctx context.Context, i int) (*member.Member, error) {
		return member.Join(ctx, member.Config{Address: addr, Task: worker(i)})
	})
	for _, m := range j.members {
		t.Cleanup(func() { m.Close() })
	}
	for _, c := range j.jax {
		c.end().value(nil)
	}
	return j
}

// serveStock starts the service that comes with jaxlib, with names and numbers as options, and returns
// when it listens.
func serveStock(t *testing.T, v venv, tasks int, options ...any) *server {
	t.Helper()
	args := []string{v.python(t), "testdata/service.py", fmt.Sprint(tasks)}
	for _, o := range options {
		args = append(args, fmt.Sprint(o))
	}
	p := start(t, string(v)+" service", environment(), args...)
	return &server{process: p, addr: lastField(p.line())}
}

// startMember starts testdata/member.py, which answers once when it has joined.
func startMember(t *testing.T, addr string, v venv, size, task int) *client {
	t.Helper()
	return startMemberWithin(t, addr, v, size, task, patience)
}

// startMemberWithin is startMember with another patience of jax, and more environment.
func startMemberWithin(t *testing.T, addr string, v venv, size, task int, limit time.Duration, env ...string) *client {
	t.Helper()
	env = append(env, "JAX_COORDINATOR_ADDRESS="+addr, "JAX_COORDINATOR_BIND_ADDRESS=127.0.0.1:0",
		fmt.Sprint("XLA_FLAGS=--xla_force_host_platform_device_count=", devicesEach))
	return &client{start(t, fmt.Sprintf("%s process %d", v, task), environment(env...),
		v.python(t), "testdata/member.py", fmt.Sprint(size), fmt.Sprint(task), fmt.Sprint(int(limit.Seconds())))}
}

// worker is a task of a mixed job.
func worker(i int) serry.TaskID { return serry.TaskID{Job: "worker", Index: i} }

// lastField is where a first line says that it serves.
func lastField(line string) string { return line[strings.LastIndexByte(line, ' ')+1:] }

// together does the same for each of a list at once, within patience, and returns what comes out, in
// the order of the list. An error fails the test.
func together[A, B any](t *testing.T, list []A, do func(ctx context.Context, a A) (B, error)) []B {
	t.Helper()
	return begin(t, list, do)()
}

// begin is together in two parts: it returns at once, and what it returns waits.
func begin[A, B any](t *testing.T, list []A, do func(ctx context.Context, a A) (B, error)) (wait func() []B) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	out, errs := make([]B, len(list)), make([]error, len(list))
	done := make(chan int, len(list))
	for i, a := range list {
		go func() {
			defer func() { done <- i }()
			out[i], errs[i] = do(ctx, a)
		}()
	}
	return func() []B {
		t.Helper()
		defer cancel()
		for range list {
			<-done
		}
		for i, err := range errs {
			if err != nil {
				t.Fatalf("%v: %v", list[i], err)
			}
		}
		return out
	}
}

// each is together for all Go members of the job, where only the error counts.
func (j *mixedJob) each(do func(ctx context.Context, m *member.Member) error) (wait func()) {
	j.t.Helper()
	all := begin(j.t, j.members, func(ctx context.Context, m *member.Member) (struct{}, error) {
		return struct{}{}, do(ctx, m)
	})
	return func() { j.t.Helper(); all() }
}

// tasks are all tasks of the job.
func (j *mixedJob) tasks() (ids []int, tasks []serry.TaskID) {
	for i := range j.size {
		ids, tasks = append(ids, i), append(tasks, worker(i))
	}
	return ids, tasks
}

// meet takes all tasks through one use of a barrier.
func (j *mixedJob) meet(id string) {
	j.t.Helper()
	passed := j.each(func(ctx context.Context, m *member.Member) error {
		return m.Barrier(ctx, id, serry.BarrierOptions{})
	})
	barrier(id, j.jax...)
	passed()
}

// shareKeys has every task write a key that every other reads.
func (j *mixedJob) shareKeys() {
	j.t.Helper()
	for _, m := range j.members {
		if err := m.KV().Put(j.t.Context(), "from/"+strconv.Itoa(m.Task().Index), []byte("hello")); err != nil {
			j.t.Fatalf("%v: Put() = %v", m.Task(), err)
		}
	}
	for i, c := range j.jax {
		c.call("key_value_set", fmt.Sprint("from/jax", i), "hello").value(nil)
	}
	for _, c := range j.jax {
		if got := c.dir("from"); len(got) != j.size {
			j.t.Errorf("%s: key_value_dir_get(from) = %v; want %d keys", c.name, got, j.size)
		}
	}
	for _, m := range j.members {
		entries, err := m.KV().List(j.t.Context(), "from")
		if err != nil || len(entries) != j.size {
			j.t.Errorf("%v: List(from) = %v, %v; want %d keys", m.Task(), entries, err, j.size)
		}
	}
}

// agree asks all tasks at once who is alive: all must say the same, and name the lives of the Go
// members.
func (j *mixedJob) agree() {
	j.t.Helper()
	ids, tasks := j.tasks()
	answers := begin(j.t, j.members, func(ctx context.Context, m *member.Member) (serry.Agreement, error) {
		return m.Agree(ctx, nil, tasks...)
	})
	for _, c := range j.jax {
		c.begin("get_live_nodes", ids)
	}
	var want map[string]uint64
	for i, c := range j.jax {
		var got map[string]uint64
		c.end().value(&got)
		if i == 0 {
			want = got
		}
		if diff := cmp.Diff(want, got); diff != "" || len(got) != j.size {
			j.t.Errorf("%s: get_live_nodes = %v; want all %d, as others see them\n%s", c.name, got, j.size, diff)
		}
	}
	for i, a := range answers() {
		got, m := make(map[string]uint64), j.members[i]
		for task, life := range a.Alive {
			got[strconv.Itoa(task.Index)] = uint64(life)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			j.t.Errorf("%v: Agree() differs from get_live_nodes (-want +got)\n%s", m.Task(), diff)
		}
		if life := got[strconv.Itoa(m.Task().Index)]; life != uint64(m.Incarnation()) {
			j.t.Errorf("%v: Agree() has life %d of it; want %d", m.Task(), life, m.Incarnation())
		}
	}
}

// isGo says whether a task is one of the Go members.
func (j *mixedJob) isGo(task int) bool {
	return slices.ContainsFunc(j.members, func(m *member.Member) bool { return m.Task().Index == task })
}

// leave ends the job: the Go members leave and the jax processes end, which waits for each other.
func (j *mixedJob) leave() {
	j.t.Helper()
	left := j.each(func(ctx context.Context, m *member.Member) error { return m.Leave(ctx) })
	all := make(group, len(j.jax))
	for i, c := range j.jax {
		all[i] = c.process
	}
	all.leaves()
	left()
}
