package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/serry-dev/serry/bench/internal/sheet"
	"github.com/serry-dev/serry/client"
)

func TestTable(t *testing.T) {
	peers := []*peer{{name: stockName}, {name: "ours"}}
	s := newRecord()
	for _, call := range calls {
		for _, crowd := range crowds {
			for round := range 3 {
				s.add(rowKey{call, crowd}, stockName, figures{perSecond: 100, cpu: float64(90 + round)})
				s.add(rowKey{call, crowd}, "ours", figures{perSecond: 250, cpu: 20})
			}
		}
	}
	var out strings.Builder
	if err := s.print(&out, peers); err != nil {
		t.Errorf("print() = %v; want all rows above the bar", err)
	}
	for _, want := range []string{"2.50x", "91.0 (90.0-92.0)", "4.55x", ">= 3x ok"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, out.String())
		}
	}
	s.add(rowKey{"put", 1}, "ours", figures{perSecond: 1, cpu: 100})
	s.add(rowKey{"put", 1}, "ours", figures{perSecond: 1, cpu: 100})
	s.add(rowKey{"put", 1}, "ours", figures{perSecond: 1, cpu: 100})
	if err := s.print(&out, peers); err == nil || !strings.Contains(out.String(), "MISS") {
		t.Errorf("print() = %v; want a row below the bar", err)
	}
}

func TestCallers(t *testing.T) {
	store := client.NewMemory()
	defer store.Close()
	for i := range 16 { // a turn of a millisecond may end before each caller has set its own
		if err := store.KV().Put(t.Context(), fmt.Sprintf("bench/value/%d", i), []byte("1")); err != nil {
			t.Fatal(err)
		}
	}
	for _, call := range calls {
		for _, crowd := range crowds {
			if n, took, err := callAll(t.Context(), store.KV(), call, crowd, time.Millisecond); err != nil || n < 1 || took <= 0 {
				t.Errorf("callAll(%s, %d) = %d calls in %v, %v; want some", call, crowd, n, took, err)
			}
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"-rounds", "0"}, {"-turn", "-1s"}, {"more"}, {"-unknown"}} {
		var out strings.Builder
		if err := run(t.Context(), args, &out, &out); err != sheet.ErrUsage {
			t.Errorf("run(%q) = %v; want %v", args, err, sheet.ErrUsage)
		}
	}
}
