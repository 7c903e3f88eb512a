//go:build !linux

package link

import "net"

// retransmits is not known here.
func retransmits(net.Conn) uint64 { return 0 }
