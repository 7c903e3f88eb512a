//go:build !amd64

package pystack

// oldCalls are none: this processor has the newer ones alone.
var oldCalls map[int]string
