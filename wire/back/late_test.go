package back

import (
	"net"
	"testing"
)

// TestFlushAfterClose shows that a Flush which comes too late starts nothing that Close does not wait for.
func TestFlushAfterClose(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	c := New(near, "serry", Options{})
	c.Close()
	c.Flush() // the preface has never left
	if c.mu.Err() == nil {
		t.Error("the connection is closed, and may still start goroutines")
	}
}
