package link

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Unheard is how long the host of the peer may leave bytes unacknowledged, for each lane; 0 means the system's own time.
func (l *Link) Unheard() (all []time.Duration) {
	for _, a := range l.lanes {
		raw, err := a.in.Conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			return nil
		}
		_ = raw.Control(func(fd uintptr) {
			n, _ := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
			all = append(all, time.Duration(n)*time.Millisecond)
		})
	}
	return all
}
