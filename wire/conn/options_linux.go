package conn

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// GiveUpUnheard says how long the other host may take to acknowledge bytes before the connection breaks, where the
// system has such a timeout. Without it a host that is gone shows only after a quarter of an hour.
func (c *Conn) GiveUpUnheard(after time.Duration) {
	c.setOption(unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(after.Milliseconds()))
}

// WakeAfter says how many bytes have to come before a goroutine in Read wakes, where the system can wait for more than
// one. So many bytes must be on their way. The end of the connection and a deadline wake the goroutine as ever. It is not
// for TLS, which takes some of the bytes for itself.
func (c *Conn) WakeAfter(n int) { c.setOption(unix.SOL_SOCKET, unix.SO_RCVLOWAT, n) }

// setOption sets an option that a connection can do without: where the system refuses it, nothing is said.
func (c *Conn) setOption(level, name, value int) {
	tcp, ok := c.Conn.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), level, name, value) })
}
