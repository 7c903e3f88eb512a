package client_test

import (
	"context"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
)

func TestUnacknowledgedBytesBreakAConnection(t *testing.T) {
	lab.Clause(t, "T-AG-46")
	_, address := serveTCP(t, loose(1))
	conns := make(chan net.Conn, 1)
	line, err := client.Dial(address, client.DialOptions{Connect: func(ctx context.Context, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			conns <- c
		}
		return c, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer line.Close()
	m, err := client.Join(t.Context(), client.Config{Transport: line, Task: worker(0)})
	if err != nil {
		t.Fatalf("Join() = %v", err)
	}
	defer m.Close()
	raw, err := (<-conns).(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		if ms, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT); err != nil || ms != 20_000 {
			t.Errorf("TCP_USER_TIMEOUT is %d ms, %v; want 20 s", ms, err)
		}
	})
}
