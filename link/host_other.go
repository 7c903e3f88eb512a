//go:build !linux

package link

import (
	"errors"
	"net"
)

// hostSockets: sockets that have a name and no file are a thing of Linux. Processes of a host use TCP.
const hostSockets = false

func userOf(*net.UnixConn) (int, error) { return 0, errors.ErrUnsupported }

// exits watches nothing: a process that ends is noticed by its connections.
type exits struct{}

func (*exits) add(*Link, net.Conn) {}
func (*exits) remove(*Link)        {}
func (*exits) close()              {}
