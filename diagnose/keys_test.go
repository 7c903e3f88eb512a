package diagnose

import (
	"strings"
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire"
)

// Which rank is to write a key, and by which rule that is known.
func TestOwners(t *testing.T) {
	clause.Cite(t, "D-EV-4", "TD-EV-2")
	for key, want := range map[string]struct {
		rank int
		rule string
		what string
	}{
		"cpu:local_topology/cpu/1":   {1, ruleTable, "topology"},
		"cuda:local_topology/cuda/3": {3, ruleTable, "topology"},
		"cpu:global_topology/cpu":    {0, ruleTable, "global topology"},
		"cpu:gloo/0,2048/1":          {1, ruleTable, "Gloo address"},
		"cuda:root_process: 2; clique: devices=[0,1]; communication_id=0; incarnations=[1]": {2, ruleTable, "NCCL id"},
		"results/3":                {3, ruleNumber, ""},
		"results/4":                {0, ruleUnknown, ""}, // the job has four ranks
		"cpu:local_topology/cpu/9": {0, ruleUnknown, ""},
		"cuda:root_process: x;":    {0, ruleUnknown, ""},
		"ckpt/dir":                 {0, ruleUnknown, ""},
		"":                         {0, ruleUnknown, ""},
		"-1":                       {0, ruleUnknown, ""},
	} {
		rank, rule, what, ok := ownerOf(key, 4)
		if rank != want.rank || rule != want.rule || what != want.what || ok != (want.rule != ruleUnknown) {
			t.Errorf("ownerOf(%q) = %d, %q, %q, %v; want %+v", key, rank, rule, what, ok, want)
		}
	}
}

// Ranks that wait for keys of each other wait for the one at the end.
func TestKeyWaits(t *testing.T) {
	clause.Cite(t, "D-EV-4", "D-SC-28")
	reads := func(seconds float64, keys ...string) wire.Status {
		s := job(up, up, up, up)
		for i, key := range keys {
			if key != "" {
				s.Tasks[i].LastCall, s.Tasks[i].LastOf, s.Tasks[i].CallWaits, s.Tasks[i].CallSeconds = "GetKeyValue", key, true, seconds
			}
		}
		return s
	}
	written := func(s wire.Status, folder, task string) wire.Status {
		s.Writers = map[string]string{folder: task}
		return s
	}
	const global = "cpu:global_topology/cpu"
	for name, c := range map[string]struct {
		status wire.Status
		want   string
		exit   int
	}{
		"no device on rank 1": {reads(12, "cpu:local_topology/cpu/1", wire.NoticeKey, global, global), "ranks 0,2-3 wait for the topology of rank 1 since 12s", 3},
		"for a moment":        {reads(2, "cpu:local_topology/cpu/1", "", global, global), "nothing is wrong", 0},
		"by its number":       {reads(12, "results/3"), `rank 0 waits for key "results/3" of rank 3 since 12s`, 3},
		"not known of whom":   {reads(12, "ckpt/dir"), "nothing is wrong", 0},
		"its last writer":     {written(reads(12, "ckpt/dir"), "ckpt", "worker/2"), `rank 0 waits for key "ckpt/dir" of rank 2 since 12s`, 3},
		"of another folder":   {written(reads(12, "ckpt/dir"), "ckpt/dir", "worker/2"), "nothing is wrong", 0},
		"its reader wrote":    {written(reads(12, "ckpt/dir"), "ckpt", "worker/0"), "nothing is wrong", 0},
		"for each other":      {reads(12, "results/1", "results/0"), "nothing is wrong", 0},
	} {
		r := Judge(Evidence{Status: c.status})
		if !strings.HasPrefix(r.Verdict, c.want) || r.ExitStatus() != c.exit {
			t.Errorf("%s: Judge() = %q, status %d; want %q, %d", name, r.Verdict, r.ExitStatus(), c.want, c.exit)
		}
	}
}
