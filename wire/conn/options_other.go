//go:build !linux

package conn

import "time"

// GiveUpUnheard does nothing where the system has no such timeout.
func (*Conn) GiveUpUnheard(time.Duration) {}

// WakeAfter does nothing where the system wakes a reader for every byte.
func (*Conn) WakeAfter(int) {}
