//go:build !unix

package conn

import "net"

// open says how to read and write nc.
func open(nc net.Conn) (reader, writer) {
	if p, ok := nc.(Partial); ok {
		return plain{nc}, p
	}
	return plain{nc}, blocking{nc}
}
