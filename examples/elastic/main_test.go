package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestElastic(t *testing.T) {
	var out, want strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatalf("run() = %v", err)
	}
	// Between its return and the step before which all wait for it, the mortal one may join any step.
	for step := range steps {
		n := members
		if step >= dyingStep && step < backStep {
			n--
		}
		fmt.Fprintf(&want, "step %d: %d members, %d pieces each\n", step, n, batch/n)
	}
	got, wanted := strings.Split(out.String(), "\n"), strings.Split(want.String(), "\n")
	if len(got) != len(wanted) {
		t.Fatalf("run() wrote\n%s; want\n%s", &out, &want)
	}
	for i := range got {
		if got[i] != wanted[i] && (i < dyingStep || i >= backStep) {
			t.Errorf("step %d is %q; want %q", i, got[i], wanted[i])
		}
	}
}
