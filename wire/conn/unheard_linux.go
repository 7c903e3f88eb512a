package conn

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// unheardTimeout is how long the other host may take to acknowledge bytes before the connection breaks.
const unheardTimeout = 20 * time.Second

// giveUpUnheard sets that timeout, where there is one. Without it a host that is gone shows only
// after a quarter of an hour.
func giveUpUnheard(nc net.Conn) {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unheardTimeout.Milliseconds()))
	})
}
