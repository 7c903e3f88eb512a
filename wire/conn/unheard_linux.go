package conn

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// GiveUpUnheard says how long the other host may take to acknowledge bytes before the connection breaks, where the
// system has such a timeout. Without it a host that is gone shows only after a quarter of an hour.
func (c *Conn) GiveUpUnheard(after time.Duration) {
	tcp, ok := c.Conn.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(after.Milliseconds()))
	})
}
