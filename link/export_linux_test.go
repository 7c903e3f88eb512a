package link

import (
	"context"
	"net"
	"os"
	"slices"
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

// HandOver hands files over to the peer as one that does not keep to the protocol may: with any set, payload and type.
func (l *Link) HandOver(ctx context.Context, set uint64, h Header, payload []byte, files ...*os.File) error {
	addresses, err := l.net.lookup(ctx, l.peer)
	if err != nil {
		return err
	}
	near := addresses[slices.IndexFunc(addresses, isNear)]
	c, err := l.net.dialOne(ctx, near, l.net.hello(l.peer, lendLane, len(l.lanes), set, 0))
	if err != nil {
		return err
	}
	defer c.Close()
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	h.length = uint32(len(payload))
	if _, _, err := c.Conn.(*net.UnixConn).WriteMsgUnix(append(h.append(nil), payload...), unix.UnixRights(fds...), nil); err != nil {
		return err
	}
	c.CloseWrite()
	_, err = readFrame(c, typeLend)
	return err
}

// Set names the connections of the link.
func (l *Link) Set() uint64 { return l.set }

// LendType is the type of frames that hand over segments.
const LendType = typeLend

// MaxLoans is how many segments may wait to be borrowed.
const MaxLoans = maxLoans
