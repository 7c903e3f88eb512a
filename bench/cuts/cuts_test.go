package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
)

// TestMain lets this binary be the receiver as well.
func TestMain(m *testing.M) {
	farOr(func() { os.Exit(m.Run()) })
}

// A few cuts and two kills go through everything.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	var out bytes.Buffer
	err := run(t.Context(), []string{"-cuts", "2", "-kills", "2", "-size", "50000000", "-dead", "300ms", "-gap", "20ms"}, &out, io.Discard)
	if err != nil && strings.Contains(err.Error(), "needs root and iproute2") && os.Getenv("CI") != "true" {
		t.Skipf("SKIPPED, NOTHING TESTED: scripts/iproute2.sh installs what is missing, if it is that: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0 corrupt, 0 lost, 0 stuck", "2 cuts", "1 receivers and 1 senders killed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
}
