package client_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/goodput"
	"github.com/serry-dev/serry/internal/lab"
)

// A member reports its steps, not more than one a second, and always where a phase begins and ends.
func TestStep(t *testing.T) {
	lab.Clause(t, "D-GP-1", "D-GP-2", "TD-GP-1")
	synctest.Test(t, func(t *testing.T) {
		k := alone(t, client.Serry)
		report := func(err error, want string) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			entries, err := k.KV().List(t.Context(), "serry/step")
			if err != nil || len(entries) != 1 || string(entries[0].Value) != want {
				t.Errorf("%v, %v are stored; want %q", entries, err, want)
			}
		}
		report(k.Step(t.Context(), 1), "1")
		report(k.Step(t.Context(), 2), "1")
		<-time.After(time.Second)
		report(k.Step(t.Context(), 3), "3")
		report(k.Phase(t.Context(), 3, "checkpoint"), "3 checkpoint")
		report(k.Step(t.Context(), 3), "3")
		for _, err := range []error{k.Step(t.Context(), -1), k.Phase(t.Context(), 4, "Two words")} {
			if !errors.Is(err, goodput.ErrStep) {
				t.Errorf("a report that is none = %v; want %v", err, goodput.ErrStep)
			}
		}
	})
}
