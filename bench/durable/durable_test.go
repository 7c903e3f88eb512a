package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"
)

// The members of a test are processes of its own binary.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == memberCommand {
		main()
		return
	}
	os.Exit(m.Run())
}

// The whole comparison runs, tiny and without the stock service, and fills every cell that it should.
func TestQuick(t *testing.T) {
	var out, progress bytes.Buffer
	args := []string{"-no-stock", "-n", "4", "-writers", "2", "-rounds", "1", "-waves", "2", "-puts", "50ms", "-json"}
	if err := run(t.Context(), args, &out, &progress); err != nil {
		t.Fatalf("run() = %v; progress:\n%s", err, progress.String())
	}
	var got struct{ Rows []row }
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != int(metrics) {
		t.Fatalf("%d rows; want %d", len(got.Rows), metrics)
	}
	for m, r := range got.Rows {
		for _, c := range r.Cells {
			want := c.Peer != handName || metric(m) == putRate || metric(m) == putCPU
			if (len(c.Rounds) == 1 && c.Median > 0) != want {
				t.Errorf("%s, %s: %v; want a figure: %v", r.Name, c.Peer, c.Rounds, want)
			}
		}
	}
}

func TestRows(t *testing.T) {
	peers := []peer{{name: stockName}, {name: "file", store: inFile}, {name: "etcd x3", store: inEtcd}, {name: handName}}
	s := newRecord()
	for name, values := range map[string][]float64{stockName: {20, 40, 30}, "file": {30}, "etcd x3": {38, 37}} {
		for _, v := range values {
			s.add(name, barrierTime, v)
		}
	}
	for name, v := range map[string]float64{stockName: 20_000, "file": 30_000, "etcd x3": 13_200, handName: 4000} {
		s.add(name, putRate, v)
	}
	var table strings.Builder
	if err := printTable(&table, s.rows(options{tasks: barTasks, writers: barWriters}, peers), peers); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(table.String()), " ")
	for _, want := range []string{
		"ms 30.0 (20.0-40.0) 30.0 (30.0-30.0) 1.00 <= 1.25x stock ok 37.5 (37.0-38.0) 1.25 <= 1.25x stock ok -",
		"1.50 7.5x by hand, >= 3.5x ok 13200 (13200-13200) 0.66 3.3x by hand, >= 3.5x MISS 4000 (4000-4000)",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("table:\n%s\nwant %q", table.String(), want)
		}
	}
	for _, r := range s.rows(options{tasks: 8, writers: 2}, peers) {
		for _, c := range r.Cells {
			if c.Bar != "" {
				t.Errorf("%s, %s at another size: bar %q; want none", r.Name, c.Peer, c.Bar)
			}
		}
	}
}

func TestFlags(t *testing.T) {
	for _, bad := range [][]string{{"-n", "0"}, {"-writers", "0"}, {"-n", "4", "-writers", "5"}, {"-rounds", "0"}, {"-puts", "0s"}, {"-only", "tape"}, {"stray"}, {"-unknown"}} {
		if _, err := parse(bad, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("parse(%q): %v; want a usage error", bad, err)
		}
	}
	if _, err := parse([]string{"-h"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("parse(-h): %v; want help", err)
	}
	if _, err := (options{python: "/no/such/python"}).peers(); err == nil || !strings.Contains(err.Error(), "venvs.sh") {
		t.Errorf("peers() without jaxlib: %v; want a hint how to install it", err)
	}
}
