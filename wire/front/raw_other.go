//go:build !unix

package front

import "net"

// A rawConn exists on Unix systems only; elsewhere connections are read and written by their methods.
type rawConn struct{}

func newRawConn(net.Conn) *rawConn { return nil }

func (*rawConn) read(size, keep int) ([]byte, error) { panic("front: no raw connections here") }
func (*rawConn) try([]byte) (int, error)             { panic("front: no raw connections here") }
func (*rawConn) wait([]byte) (int, error)            { panic("front: no raw connections here") }

func temporary(err error) bool {
	ne, ok := err.(interface{ Temporary() bool })
	return ok && ne.Temporary()
}

func defaultMaxConns() int { return 10_000 }
