package main

import (
	"strings"
	"testing"
)

func TestMeet(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatalf("run() = %v", err)
	}
	const want = `step 0: all here, the neighbour of worker/0 is at 10.0.0.1:9000
step 1: all here, the neighbour of worker/0 is at 10.0.0.1:9000
step 2: all here, the neighbour of worker/0 is at 10.0.0.1:9000
`
	if got := out.String(); got != want {
		t.Errorf("run() wrote\n%s; want\n%s", got, want)
	}
}
