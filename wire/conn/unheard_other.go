//go:build !linux

package conn

import "net"

// giveUpUnheard does nothing where the system has no such timeout.
func giveUpUnheard(net.Conn) {}
