//go:build !linux

package server

import "runtime/debug"

// memory is how much memory this process may use, as far as GOMEMLIMIT says.
func memory() int64 { return debug.SetMemoryLimit(-1) }
