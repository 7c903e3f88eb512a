package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/bench/internal/sheet"
	"github.com/serry-dev/serry/internal/lab"
)

// The ranks of serry are measured without any peer, and the table has a line for each size.
func TestQuick(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds serry, and takes seconds")
	}
	binary, err := proc.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	args := []string{"-ranks", "2", "-sizes", "8,100000", "-few", "100000", "-rounds", "1", "-peers", "", "-serry", binary}
	if err := run(t.Context(), args, &out, io.Discard); err != nil && !errors.Is(err, errMissed) { // a test says nothing of speed
		t.Fatalf("run(%v) = %v", args, err)
	}
	for want, times := range map[string]int{"allreduce": 6, "alltoall": 9, "gather": 9, "sendrecv": 3, "barrier": 3, "broadcast": 6, pings: 1, apart: 6, together: 6, recorded: 4, unrecorded: 2} {
		if n := strings.Count(out.String(), want); n != times {
			t.Errorf("%d lines of %s; want %d, over links and through memory of both kinds, in\n%s", n, want, times, out.String())
		}
	}
}

func TestRows(t *testing.T) {
	lab.Clause(t, "CL-FIG-1")
	r := row{Op: "allreduce", Ranks: 2, Bytes: 8, times: map[string][]float64{
		ourName: {10, 20, 10}, glooName: {30, 30, 30},
	}}.judged()
	if r.Times[glooName] != 3 || r.Kept != sheet.Kept(true) {
		t.Errorf("judged() = %+v; want 3 times as fast as gloo, and the bar kept", r)
	}
	r.times[glooName] = []float64{15, 15, 15}
	if r = r.judged(); r.Kept != sheet.Kept(false) || !errors.Is(missed([]row{r}), errMissed) {
		t.Errorf("judged() = %+v; want the bar missed", r)
	}
}

// The greatest term of a bound binds, and is named.
func TestLimits(t *testing.T) {
	lab.Clause(t, "CL-LIM-1")
	m := &machine{ranks: 4, line: 1, word: 20, perSent: 2, perLone: 1.5, perSum: 1, copies: map[int64]float64{8: 0.5, 1000: 900}}
	for _, c := range []struct {
		over, op string
		bytes    int64
		want     limit
	}{
		{overMemory, "allreduce", 8, limit{6, bySums}},
		{overMemory, "allreduce", 1000, limit{900, byMemory}},
		{overMemory, "reducescatter", 1000, limit{750, bySums}},
		{overMemory, "gather", 1000, limit{225, byMemory}},
		{overMemory, "barrier", 0, limit{1, byLatency}},
		{overLinks, "allreduce", 8, limit{24, byLinks}},
		{overLinks, "allgather", 8, limit{20, byLatency}},
		{overLinks, "sendrecv", 1000, limit{3000, byLinks}},
		{overLinks, "raggedalltoall", 1000, limit{1800, byLinks}},
		{overLinks, together, 1000, limit{6000, byLinks}},
		{overLinks, pings, 1000, limit{20, byLatency}},
	} {
		if got := m.limit(c.over, c.op, c.bytes); got != c.want {
			t.Errorf("limit(%s, %s, %d) = %v; want %v", c.over, c.op, c.bytes, got, c.want)
		}
	}
}

// The recorder is judged by the median of what each turn with it took more than the one beside it.
func TestJudgeRecords(t *testing.T) {
	lab.Clause(t, "CL-FLR-1")
	side := func(bytes int64, times ...float64) row {
		return row{Ranks: 2, Bytes: bytes, times: map[string][]float64{ourName: times}}
	}
	for _, c := range []struct {
		name          string
		with, without row
		kept          bool
	}{
		{"40 ns more", side(8, 2.04, 9, 3.04), side(8, 2, 3, 3), true},
		{"60 ns more", side(8, 2.06, 1, 3.06), side(8, 2, 0.9, 3), false},
		{"1% more", side(64<<10, 10.1, 20.2, 90), side(64<<10, 10, 20, 30), true},
		{"3% more", side(64<<10, 10.3, 20.6, 10), side(64<<10, 10, 20, 30), false},
	} {
		rows := judgeRecords(c.with, c.without)
		if rows[0].Kept != sheet.Kept(c.kept) || rows[1].Bar != "" {
			t.Errorf("%s: judgeRecords() = %+v; want kept: %v", c.name, rows, c.kept)
		}
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-ranks", "0"}, {"-ops", "sort"}, {"-sizes", "many"}, {"-rounds", "0"}, {"-settle", "-1s"}, {"-peers", "nccl"}, {"-over", "air"}, {"x"}} {
		if _, err := parse(args, io.Discard); !errors.Is(err, sheet.ErrUsage) {
			t.Errorf("parse(%v) = %v; want ErrUsage", args, err)
		}
	}
}

// TestMain lets the test binary be a rank.
func TestMain(m *testing.M) { rankOr(m.Run) }
