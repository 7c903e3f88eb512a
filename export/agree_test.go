package export_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/export"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/mesh/form"
	"github.com/serry-dev/serry/server"
)

// boundTo is one program, bound to devices in the given order.
func boundTo(t *testing.T, devices ...int) *export.Bound {
	t.Helper()
	m := &export.Manifest{
		Format: export.Format, Function: "step", NumDevices: len(devices),
		Program: export.Program{MIME: export.MIMEStableHLO, SHA256: "aa"},
		Meshes:  []export.Mesh{{ID: "m0", Axes: form.Axes{Names: []string{"data"}, Sizes: []int{len(devices)}}}},
		Shardings: []export.Sharding{
			{ID: "s0", Mesh: "m0", Spec: []form.Dim{{"data"}}},
		},
		Inputs: []export.Value{{Name: "x", DType: "f32", Shape: []export.Size{"66"}, Sharding: "s0"}},
	}
	list := make([]mesh.Device, len(devices))
	for i, id := range devices {
		list[i] = mesh.Device{ID: serry.DeviceID(id), Task: serry.TaskIndex(id), Slice: mesh.NoSlice}
	}
	on, err := mesh.New(list, mesh.Axis{Name: "data", Size: len(list)})
	if err != nil {
		t.Fatal(err)
	}
	b, err := export.Bind(m, []export.Supplied{{Mesh: on}}, export.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAgree(t *testing.T) {
	lab.Clause(t, "TC-EXP-18", "P-EXP-6")
	for name, c := range map[string]struct {
		bound []*export.Bound
		want  bool
	}{
		"same":        {[]*export.Bound{boundTo(t, 0, 1, 2), boundTo(t, 0, 1, 2), boundTo(t, 0, 1, 2)}, true},
		"other order": {[]*export.Bound{boundTo(t, 0, 1, 2), boundTo(t, 0, 1, 2), boundTo(t, 2, 1, 0)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for i, err := range agree(t, c.bound) {
					if c.want {
						if err != nil {
							t.Errorf("task %d: Agree() = %v; want nil", i, err)
						}
						continue
					}
					other, ok := errors.AsType[*export.DisagreeError](err)
					if !ok || !errors.Is(err, export.ErrDisagree) || other.First.What != "mesh m0" {
						t.Errorf("task %d: Agree() = %v; want a DisagreeError about mesh m0", i, err)
					} else if other.Task.Index == i {
						t.Errorf("task %d: Agree() names %v; want another task", i, other.Task)
					}
				}
			})
		})
	}
}

// dyingKeys are the keys of a task that dies when it is about to write what it bound.
type dyingKeys struct {
	*client.KV
	die func()
}

func (k dyingKeys) Put(ctx context.Context, key string, value []byte) error {
	if strings.Contains(key, "/facts/") {
		k.die()
		return errors.New("the task died")
	}
	return k.KV.Put(ctx, key, value)
}

// A task that dies once the digests differ never writes what it bound. The others
// still say that the tasks disagree, because that may be why it died.
func TestAgreeOutlivesADeath(t *testing.T) {
	lab.Clause(t, "P-EXP-6")
	synctest.Test(t, func(t *testing.T) {
		members := join(t, job(2))
		var tasks errgroup.Group
		tasks.Go(func() error {
			_ = export.Agree(t.Context(), members[1], dyingKeys{members[1].KV(), func() { members[1].Close() }}, "step", boundTo(t, 1, 0))
			return nil
		})
		err := export.Agree(t.Context(), members[0], members[0].KV(), "step", boundTo(t, 0, 1))
		_ = tasks.Wait()
		if !errors.Is(err, export.ErrDisagree) {
			t.Errorf("Agree() = %v; want ErrDisagree", err)
		}
	})
}

// The keys of two programs must not mix, whatever their names are.
func TestAgreeKeepsProgramsApart(t *testing.T) {
	lab.Clause(t, "P-EXP-6")
	synctest.Test(t, func(t *testing.T) {
		me := join(t, job(1))[0]
		for name, b := range map[string]*export.Bound{"step/digest": boundTo(t, 0, 1), "step": boundTo(t, 1, 0), "a/../b": boundTo(t, 0)} {
			if err := export.Agree(t.Context(), me, me.KV(), name, b); err != nil {
				t.Errorf("Agree(%q) = %v; want nil", name, err)
			}
		}
	})
}

// Without a digest of the program, equal shardings do not mean that the tasks run the same program.
func TestAgreeNeedsTheDigestOfTheProgram(t *testing.T) {
	lab.Clause(t, "P-EXP-6")
	synctest.Test(t, func(t *testing.T) {
		b := boundTo(t, 0)
		b.Manifest.Program.SHA256 = ""
		if err := agree(t, []*export.Bound{b})[0]; !errors.Is(err, export.ErrBinding) {
			t.Errorf("Agree(a program without a digest) = %v; want ErrBinding", err)
		}
	})
}

// agree lets every task of a job check its bound program.
func agree(t *testing.T, bound []*export.Bound) []error {
	t.Helper()
	members := join(t, job(len(bound)))
	var tasks errgroup.Group
	out := make([]error, len(bound))
	for i, m := range members {
		tasks.Go(func() error {
			out[i] = export.Agree(t.Context(), m, m.KV(), "step", bound[i])
			return nil
		})
	}
	_ = tasks.Wait() // its errors are in out
	return slices.Clone(out)
}

func job(tasks int) coord.Config {
	return coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: tasks}}, HeartbeatTimeout: time.Hour}
}

// join starts a cluster and all tasks of its job.
func join(t *testing.T, cluster coord.Config) []*client.Member {
	t.Helper()
	l := lab.Serve(t, server.Config{Cluster: cluster})
	members := make([]*client.Member, cluster.Jobs[0].Tasks)
	for i := range members {
		m, err := client.Join(t.Context(), client.Config{
			Transport: l.Line(t, client.DialOptions{}), Task: serry.TaskID{Job: "worker", Index: i}, HeartbeatTimeout: time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		members[i] = m
	}
	return members
}
