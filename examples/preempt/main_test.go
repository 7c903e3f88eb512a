package main

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
)

// TestMain lets the workers of the example be this program, too.
func TestMain(m *testing.M) {
	if _, _, err := client.ConfigFromEnv(); err == nil {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestReceipts runs the example: all four workers have saved, at one step.
func TestReceipts(t *testing.T) {
	lab.Clause(t, "A-PRE-9", "A-PRE-14")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	if err := run(ctx, &out); err != nil {
		t.Fatalf("run() = %v\n%s", err, out.Bytes())
	}
	receipts := regexp.MustCompile(`(?m)^(\S+) saved at step (\d+)$`).FindAllStringSubmatch(out.String(), -1)
	if len(receipts) != workers {
		t.Fatalf("run() printed\n%s\nwant %d receipts", out.Bytes(), workers)
	}
	for _, r := range receipts {
		if r[2] != receipts[0][2] {
			t.Errorf("%s saved at step %s, %s at %s; want one step", r[1], r[2], receipts[0][1], receipts[0][2])
		}
	}
}
