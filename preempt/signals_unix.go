//go:build unix

package preempt

import (
	"os"
	"syscall"
)

// defaultSignals is what schedulers send.
var defaultSignals = []os.Signal{syscall.SIGTERM}
