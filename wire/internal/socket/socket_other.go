//go:build !unix

package socket

import "net"

// A Conn is a [Partial] here; all other connections are read and written by their methods.
type Conn struct{ partial Partial }

// New returns nil if nc is not a [Partial]; its methods must be used then.
func New(nc net.Conn) *Conn {
	if p, ok := nc.(Partial); ok {
		return &Conn{p}
	}
	return nil
}

// Read waits for bytes and returns them in a buffer of that size, after keep free ones. The caller
// recycles it.
func (r *Conn) Read(size, keep int) ([]byte, error) { return readPlain(r.partial, size, keep) }

// Try writes what the connection takes at once.
func (r *Conn) Try(p []byte) (int, error) { return r.partial.Try(p) }

// Wait writes what the connection takes, once it takes something.
func (r *Conn) Wait(p []byte) (int, error) { return r.partial.Wait(p) }
