package collective_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
)

var (
	threeByOne  = collective.Table{{33}, {44}, {55}}
	threeByTwo  = collective.Table{{33, 34}, {44, 45}, {55, 56}}
	threeByFour = collective.Table{{33, 34, 35, 36}, {44, 45, 46, 47}, {55, 56, 57, 58}}
)

func TestReplicaGroups(t *testing.T) {
	clause.Cite(t, "CL-GRP-2", "CL-GRP-3", "CLT-GRP-3", "CLT-GRP-4", "CLT-GRP-5", "CLT-GRP-6", "CLT-GRP-7", "CLT-GRP-8", "CLT-GRP-9")
	type ids = [][]int
	type list = []serry.DeviceID
	for _, row := range []struct {
		name   string
		table  collective.Table
		mode   collective.GroupMode
		groups ids
		want   []list
		flat   ids // or nil: not looked at
	}{
		{"all replicas", threeByOne, collective.CrossReplica, nil, []list{{33, 44, 55}}, ids{{0, 1, 2}}},
		{"all replicas of each partition", threeByTwo, collective.CrossReplica, nil, []list{{33, 44, 55}, {34, 45, 56}}, ids{{0, 2, 4}, {1, 3, 5}}},
		{"some replicas", threeByOne, collective.CrossReplica, ids{{0}, {1, 2}}, []list{{33}, {44, 55}}, nil},
		{"some replicas of each partition", threeByTwo, collective.CrossReplica, ids{{0}, {1, 2}}, []list{{33}, {34}, {44, 55}, {45, 56}}, nil},
		{"partitions of each replica", threeByFour, collective.CrossPartition, ids{{0, 1}, {2, 3}},
			[]list{{33, 34}, {44, 45}, {55, 56}, {35, 36}, {46, 47}, {57, 58}}, nil},
		{"whole replicas", threeByTwo, collective.CrossReplicaAndPartition, ids{{0}, {1, 2}}, []list{{33, 34}, {44, 45, 55, 56}}, nil},
		{"everything", threeByTwo, collective.CrossReplicaAndPartition, nil, []list{{33, 34, 44, 45, 55, 56}}, nil},
		{"flattened", threeByTwo, collective.FlattenedID, ids{{0}, {1, 2}, {3, 4, 5}}, []list{{33}, {34, 44}, {45, 55, 56}}, ids{{0}, {1, 2}, {3, 4, 5}}},
	} {
		g := collective.ReplicaGroups{Mode: row.mode, Groups: row.groups}
		got, err := g.Devices(row.table)
		if err != nil || !reflect.DeepEqual(got, row.want) {
			t.Errorf("%s: Devices() = %v, %v; want %v", row.name, got, err, row.want)
		}
		if flat, err := g.Flatten(row.table); row.flat != nil && (err != nil || !reflect.DeepEqual(flat, row.flat)) {
			t.Errorf("%s: Flatten() = %v, %v; want %v", row.name, flat, err, row.flat)
		}
		for _, group := range row.want {
			for _, d := range group {
				if of, err := g.Of(row.table, d); err != nil || !slices.Equal(of, group) {
					t.Errorf("%s: Of(%d) = %v, %v; want %v", row.name, d, of, err, group)
				}
			}
		}
	}
}

func TestReplicaGroupsAreChecked(t *testing.T) {
	clause.Cite(t, "CL-GRP-3", "CL-GRP-4", "CL-GRP-5", "CLT-GRP-9")
	type ids = [][]int
	for _, row := range []struct {
		name   string
		mode   collective.GroupMode
		groups ids
		uneven bool
		wrong  string // or empty
	}{
		{"even", collective.CrossPartition, ids{{0}, {1}}, false, ""},
		{"none", collective.CrossReplica, nil, false, ""},
		{"uneven where it may be", collective.CrossReplica, ids{{0}, {1, 2}}, true, ""},
		{"uneven", collective.CrossReplica, ids{{0}, {1, 2}}, false, "1 and 2"},
		{"none, flattened", collective.FlattenedID, nil, true, "needs"},
		{"empty group", collective.CrossReplica, ids{{0, 1, 2}, {}}, true, "empty"},
		{"twice", collective.CrossReplica, ids{{0, 1}, {1, 2}}, true, "id 1"},
		{"missing", collective.CrossReplica, ids{{0, 1}}, true, "have 2"},
		{"too great", collective.CrossPartition, ids{{0, 1, 2}}, true, "id 2"},
		{"negative", collective.FlattenedID, ids{{0, 1, 2, 3, 4, -1}}, true, "id -1"},
		{"unknown mode", 9, ids{{0}}, true, "mode 9"},
	} {
		err := collective.ReplicaGroups{Mode: row.mode, Groups: row.groups}.Check(threeByTwo, row.uneven)
		if row.wrong == "" && err != nil || row.wrong != "" && (!errors.Is(err, collective.ErrInvalid) || !strings.Contains(err.Error(), row.wrong)) {
			t.Errorf("%s: Check() = %v; want %q", row.name, err, row.wrong)
		}
	}
	for _, table := range []collective.Table{nil, {{}}, {{1, 2}, {3}}} {
		if _, err := (collective.ReplicaGroups{}).Devices(table); !errors.Is(err, collective.ErrInvalid) {
			t.Errorf("Devices() of table %v = %v; want ErrInvalid", table, err)
		}
	}
	g := collective.ReplicaGroups{Groups: ids{{0, 1}}}
	for _, d := range []serry.DeviceID{55, 99} {
		if _, err := g.Of(threeByOne, d); !errors.Is(err, collective.ErrFault) || !strings.Contains(err.Error(), "doesn't appear in replica groups") {
			t.Errorf("Of(%d) = %v; want that it is in no group", d, err)
		}
	}
}

func TestGroupModes(t *testing.T) {
	clause.Cite(t, "CL-GRP-2", "CLT-GRP-2")
	for m := collective.CrossReplica; m <= collective.FlattenedID; m++ {
		if back, err := collective.ParseGroupMode(m.String()); err != nil || back != m {
			t.Errorf("ParseGroupMode(%q) = %v, %v", m, back, err)
		}
	}
	if _, err := collective.ParseGroupMode("cross"); !errors.Is(err, collective.ErrInvalid) {
		t.Errorf("ParseGroupMode(%q) = %v; want ErrInvalid", "cross", err)
	}
}

// An operation whose groups have one device each is a copy: no other process is asked, nor has to exist.
func TestDegenerateGroups(t *testing.T) {
	clause.Cite(t, "CL-GRP-6", "CL-OP-3", "CLT-OP-9", "CL-KEY-11")
	table := collective.Table{{0}, {1}, {2}}
	for _, row := range []struct {
		table  collective.Table
		groups collective.ReplicaGroups
		want   bool
	}{
		{table, collective.ReplicaGroups{Groups: [][]int{{0}, {1}, {2}}}, true},
		{table, collective.ReplicaGroups{Mode: collective.CrossPartition}, true},
		{collective.Table{{5}}, collective.ReplicaGroups{}, true},
		{table, collective.ReplicaGroups{}, false},
		{table, collective.ReplicaGroups{Groups: [][]int{{0}, {1, 2}}}, false},
	} {
		if got, err := row.groups.Degenerate(row.table); err != nil || got != row.want {
			t.Errorf("Degenerate(%v) of %v = %v, %v; want %v", row.table, row.groups, got, err, row.want)
		}
	}
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(life(1, 11)) // tasks 0 and 2 do not exist
		group, err := collective.ReplicaGroups{Groups: [][]int{{0}, {1}, {2}}}.Of(table, 1)
		if err != nil {
			t.Fatal(err)
		}
		c, err := p.Clique(t.Context(), group, collective.CliqueOptions{})
		if err != nil {
			t.Fatalf("Clique(%v) = %v", group, err)
		}
		works(t, []*collective.Comm{c}, 1000)
		if n := len(p.net.Links()); n != 0 {
			t.Errorf("an operation of one device made %d links", n)
		}
	})
}
