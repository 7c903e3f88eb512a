package main

import (
	"bytes"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMain lets this binary be the far process as well.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == farCommand {
		main()
		return
	}
	os.Exit(m.Run())
}

// A tiny run goes through all peers.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	err := run(t.Context(), []string{"-rounds", "1", "-for", "1ms", "-size", "100000", "-trips", "10", "-lanes", "2", "-buffers", "4194304"}, &out, io.Discard)
	if err != nil && !strings.Contains(err.Error(), "bars missed") {
		t.Fatal(err)
	}
	for _, row := range []string{rawStream + ", 256 KiB", rawStream + ", 4096 KiB", fixedStream, ourPlain + " ", ourSums, rawTrip, ourTrip} {
		if !strings.Contains(out.String(), row) {
			t.Errorf("no row %q in\n%s", row, &out)
		}
	}
}

func TestJudge(t *testing.T) {
	round := func(v ...float64) (all []figure) {
		for _, v := range v {
			all = append(all, figure{value: v, cpu: 0.4})
		}
		return all
	}
	lines := judge(plan{}, 2, []*peer{
		{name: rawStream + ", 256 KiB writes", rounds: round(1, 9, 1)},
		{name: rawStream + ", 1024 KiB writes", rounds: round(2, 4, 3)},
		{name: ourPlain, rounds: round(1.9, 3.9, 2.9)},
		{name: ourSums, rounds: round(1.7, 3.5, 2.6)},
		{name: rawTrip, latent: true, rounds: round(10, 20, 30)},
		{name: ourTrip, latent: true, rounds: round(13, 26, 60)},
	})
	got := map[string]line{}
	for _, l := range lines {
		got[l.Cell.Peer] = l
	}
	for name, want := range map[string]struct {
		ratio float64
		kept  string
	}{ourPlain: {0.967, "ok"}, ourSums: {0.867, "MISS"}, ourTrip: {1.3, "ok"}, rawTrip: {1, ""}} {
		if l := got[name]; math.Abs(l.Cell.Ratio-want.ratio) > 0.001 || l.Cell.Kept != want.kept {
			t.Errorf("%s: ratio %.3f %s; want %.3f %s", name, l.Cell.Ratio, l.Cell.Kept, want.ratio, want.kept)
		}
	}
	if err := missed(lines); err == nil || !strings.Contains(err.Error(), ourSums) {
		t.Errorf("missed() = %v; want %s", err, ourSums)
	}
}

func TestReadIperf(t *testing.T) {
	value, n, spent, err := readIperf([]byte(`{"end":{"sum_received":{"bytes":4000000000,"seconds":2},"cpu_utilization_percent":{"host_total":60,"remote_total":40}}}`))
	if err != nil || value != 2 || n != 4_000_000_000 || spent != 2*time.Second {
		t.Errorf("readIperf() = %v GB/s, %d bytes, %v, %v; want 2, 4000000000, 2s", value, n, spent, err)
	}
	for _, bad := range []string{"", "{}", "iperf3: error"} {
		if _, _, _, err := readIperf([]byte(bad)); err == nil {
			t.Errorf("readIperf(%q) succeeded; want an error", bad)
		}
	}
}
