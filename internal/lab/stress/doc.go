// Package stress drives every transport over real sockets that are nearly always full: their send buffers
// are as small as the kernel allows, so that writes are partial and roles change hands all the time. Many
// callers share each connection, replies come from many goroutines, and every value is checked.
//
// It has tests only. They take a second for each transport; make stress DURATION=5m takes longer.
package stress
