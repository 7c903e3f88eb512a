package front

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain checks that nothing is left running when all servers have been closed.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
