package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The whole comparison runs, tiny and without its peer, and fills every row.
func TestQuick(t *testing.T) {
	var out, progress bytes.Buffer
	if err := run(t.Context(), []string{"-quick", "-no-stock", "-json"}, &out, &progress); err != nil {
		t.Fatalf("run() = %v; progress:\n%s", err, progress.String())
	}
	var got struct{ Rows []row }
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, r := range got.Rows {
		seen[r.Name] = true
		for _, c := range r.Cells {
			if len(c.Rounds) != 1 || c.Median < 0 || c.Median == 0 && r.Group != groupAbuse {
				t.Errorf("%s, %s: %v; want one figure above 0", r.Name, c.Peer, c.Rounds)
			}
		}
	}
	for m := range metrics {
		if d := m.define(); !seen[d.label] && m != callsRefused && d.group != groupReal { // that one needs jaxlib
			t.Errorf("no row %q", d.label)
		}
	}
}

func TestRows(t *testing.T) {
	peers := []peer{{name: stockName}, {name: "bin/old", ours: true}, {name: "bin/new", ours: true}}
	s := newRecord()
	add := func(m metric, tasks int, byPeer ...[]float64) {
		for i, values := range byPeer {
			for _, v := range values {
				s.add(peers[i].name, m, tasks, v)
			}
		}
	}
	add(arrivalCPU, 512, []float64{80, 120, 100}, []float64{90, 130, 100}, []float64{40, 41})
	add(arrivalCPU, 64, []float64{100}, []float64{500}, []float64{500})
	add(barrierTime, 512, []float64{30}, []float64{20}, []float64{21})
	add(resident, 512, []float64{130}, []float64{61}, []float64{29})
	add(hostsBarrier, 10_000, nil, []float64{900}, []float64{1100})
	add(callsRefused, 512, []float64{0}, []float64{0}, []float64{0})
	add(callsRefused, 2048, []float64{0, 0, 7}, []float64{0}, []float64{0})

	var table strings.Builder
	if err := printTable(&table, s.rows(peers), peers); err != nil {
		t.Fatal(err)
	}
	want := `
measure                               tasks  unit  stock         bin/old       ratio  bar           bin/new           ratio  bar
resident memory, connected            512    MiB   130 (130-130) 61.0 (61.0-61.0) 0.47 <= 30.0 MISS 29.0 (29.0-29.0)  0.22   <= 30.0 ok
barrier, first arrival to last reply  512    ms    30.0 (30.0-30.0) 20.0 (20.0-20.0) 0.67 <= 1.00x ok  21.0 (21.0-21.0)  0.70  <= 1.00x ok
server CPU per arrival                64     us    100 (100-100) 500 (500-500) 5.00                 500 (500-500)     5.00
server CPU per arrival                512    us    100 (80.0-120) 100 (90.0-130) 1.00 <= 0.33x MISS 40.5 (40.0-41.0)  0.41   <= 0.33x MISS
calls refused in bursts and sent again 2048  calls 0.00 (0.00-7.00) 0.00 (0.00-0.00) -              0.00 (0.00-0.00)  -
many tasks a connection: barrier      10000  ms    -             900 (900-900) -      <= 1000 ok    1100 (1100-1100)  -      <= 1000 MISS
`
	if diff := cmp.Diff(words(want), words(table.String())); diff != "" {
		t.Errorf("table differs (-want +got):\n%s", diff)
	}
}

// words takes a table apart, so that its alignment does not count.
func words(table string) (lines [][]string) {
	for line := range strings.Lines(strings.TrimSpace(table)) {
		lines = append(lines, strings.Fields(line))
	}
	return lines
}

func TestFlags(t *testing.T) {
	o, err := parse([]string{"-n", "2048,8", "-only", "keys,alive", "-rounds", "7"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if got := o.plan.clusters(); !slices.Equal(got, []int{2048}) {
		t.Errorf("clusters() = %v; want [2048]: keys at the largest, live sets where they usually are", got)
	}
	if o.plan.rounds != 7 {
		t.Errorf("rounds %d; want 7", o.plan.rounds)
	}
	for _, bad := range [][]string{
		{"-n", "0"}, {"-n", "many"}, {"-only", "nothing"}, {"-rounds", "-1"}, {"-cpus", "0"},
		{"stray"}, {"-unknown"},
	} {
		if _, err := parse(bad, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("parse(%q): %v; want a usage error", bad, err)
		}
	}
	if _, err := parse([]string{"-h"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("parse(-h): %v; want help", err)
	}
}

func TestPeerThatDoesNotStart(t *testing.T) {
	if _, err := stock("/no/such/python"); err == nil || !strings.Contains(err.Error(), "venvs.sh") {
		t.Errorf("stock(): %v; want a hint how to install it", err)
	}
	p := peer{name: "lame", command: func(layout) []string {
		return []string{"/bin/sh", "-c", "echo no module of that name >&2; exit 3"}
	}}
	if _, err := p.start(t.Context(), layout{tasks: 4, conns: 4}); err == nil || !strings.Contains(err.Error(), "no module of that name") {
		t.Errorf("start(): %v; want what the peer said", err)
	}
}
