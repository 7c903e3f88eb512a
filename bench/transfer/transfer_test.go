package main

import (
	"bytes"
	"io"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/serry-dev/serry/bench/internal/sheet"
)

// TestMain lets this binary be the far process as well.
func TestMain(m *testing.M) {
	farOr(func() { os.Exit(m.Run()) })
}

// A tiny run goes through all peers but those in Python.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	err := run(t.Context(), []string{"-rounds", "1", "-for", "1ms", "-size", "5000000", "-trips", "10", "-group", "20"}, &out, io.Discard)
	if err != nil && !strings.Contains(err.Error(), "bars missed") {
		t.Fatal(err)
	}
	for _, row := range []string{rawStream + ", 256 KiB", rawTrip, plainCopy, ours + " ", ourSmall, ourGroup, besideUrgent, besideBulk} {
		if !strings.Contains(out.String(), row) {
			t.Errorf("no row %q in\n%s", row, &out)
		}
	}
}

func TestJudge(t *testing.T) {
	lines := judge(section{"4 connections", 4, overTCP}, []*peer{
		{name: rawStream + ", 256 KiB writes", unit: "GB/s", rounds: []float64{2, 4, 3}},
		{name: rawStream + ", 1024 KiB writes", unit: "GB/s", rounds: []float64{1, 9, 1}},
		{name: ours, unit: "GB/s", rounds: []float64{1.9, 3.7, 2.7}},
		{name: rawTrip, unit: "us", rounds: []float64{10, 10, 10}},
		{name: ourSmall, unit: "us", rounds: []float64{31, 31, 31}},
		{name: ourGroup, unit: "us", rounds: []float64{100, 100, 100}},
		{name: jaxGroup, unit: "us", rounds: []float64{499, 499, 499}},
		{name: jaxPull, unit: "GB/s", rounds: []float64{0.5, 0.5, 0.5}},
		{name: jaxBest, unit: "GB/s", rounds: []float64{3, 3, 3}},
		{name: goFromJAX, unit: "GB/s", rounds: []float64{3.1, 3.1, 3.1}},
		{name: goToJAX, unit: "GB/s", rounds: []float64{2.9, 2.9, 2.9}},
		{name: mooncakeRead, unit: "GB/s", rounds: []float64{1, 1, 1}},
		{name: nixlRead, unit: "GB/s", rounds: []float64{1, 4, 4}},
	})
	for _, l := range lines {
		want, judged := map[string]bool{ours: true, ourSmall: false, ourGroup: false, jaxPull: true, jaxBest: false, goFromJAX: true, goToJAX: false, mooncakeRead: true, nixlRead: false}[l.Cell.Peer]
		if judged && l.Cell.Kept != sheet.Kept(want) {
			t.Errorf("%s: %v %s %s; want %s", l.Cell.Peer, l.Cell, l.Cell.Bar, l.Cell.Kept, sheet.Kept(want))
		}
		if l.Cell.Peer == ours && math.Abs(l.Cell.Ratio-0.925) > 0.001 {
			t.Errorf("ratio = %v; want that to the best sockets", l.Cell.Ratio)
		}
	}
	if err := missed(lines); err == nil || !strings.Contains(err.Error(), jaxBest) {
		t.Errorf("missed() = %v; want the bars that were", err)
	}
}
