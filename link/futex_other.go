//go:build !linux

package link

import (
	"sync/atomic"
	"time"
)

// Other systems have no memory that NewSegment could share, so these are never called.

func futexWait(*atomic.Uint32, uint32, time.Duration) {}

func yieldThread() {}

func futexWake(*atomic.Uint32) {}
