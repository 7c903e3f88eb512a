package conn_test

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/serry-dev/serry/wire/conn"
)

// The system says that there is something to read when so many bytes have come, or the connection has ended.
func TestWakeAfter(t *testing.T) {
	a, b := sockets(t)
	c := conn.New(b)
	c.WakeAfter(10)
	a.Write(make([]byte, 9))
	for queued(t, b) < 9 {
	}
	if readable(t, b) {
		t.Error("9 bytes of 10 wake a reader")
	}
	a.Write(make([]byte, 1))
	for queued(t, b) < 10 {
	}
	if !readable(t, b) {
		t.Error("10 bytes of 10 do not wake a reader")
	}
	c.WakeAfter(100)
	a.Close()
	if n, err := c.Read(make([]byte, 100)); n != 10 || err != nil {
		t.Errorf("Read() before the end = %d, %v; want 10 bytes", n, err)
	}
	if n, err := c.Read(make([]byte, 100)); err == nil {
		t.Errorf("Read() after the end = %d bytes", n)
	}
}

// queued is how many bytes have come that were not read.
func queued(t *testing.T, c net.Conn) (n int) {
	t.Helper()
	onSocket(t, c, func(fd int) (err error) { n, err = unix.IoctlGetInt(fd, unix.TIOCINQ); return err })
	return n
}

// readable says whether the system would wake a reader.
func readable(t *testing.T, c net.Conn) (yes bool) {
	t.Helper()
	onSocket(t, c, func(fd int) error {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		yes = n == 1
		return err
	})
	return yes
}

func onSocket(t *testing.T, c net.Conn, do func(fd int) error) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = do(int(fd)) }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
}
