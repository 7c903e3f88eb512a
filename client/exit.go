package client

import (
	"context"
	"errors"
	"os"
)

// ExitOnFault ends the process with this code when the member is lost, as stock clients do: for programs
// that have no better idea. Leave, Fail and Close do not count as a loss.
func ExitOnFault(m *Member, code int) {
	context.AfterFunc(m.Context(), func() {
		var f *Fault
		if errors.As(m.Err(), &f) && f.Kind == FaultLocal {
			return
		}
		os.Exit(code)
	})
}
