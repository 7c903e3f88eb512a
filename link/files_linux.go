package link

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/serry-dev/serry/wire/conn"
)

// writeFile writes bytes with a file beside them, which the other process gets as a file of its own.
func writeFile(c *conn.Conn, b []byte, file *os.File) error {
	u, ok := c.Conn.(*net.UnixConn)
	if !ok {
		return ErrNoLending
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var n int
	failed := raw.Control(func(fd uintptr) { n, _, err = u.WriteMsgUnix(b, unix.UnixRights(int(fd)), nil) })
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return errors.Join(failed, err)
}

// readFile reads as many bytes as b has, with the one file beside them.
func readFile(c *conn.Conn, b []byte) (file *os.File, err error) {
	u, ok := c.Conn.(*net.UnixConn)
	if !ok {
		return nil, ErrNoLending
	}
	var fds []int
	for have := 0; have < len(b) && err == nil; {
		var n int
		var came []int
		n, came, err = readRights(u, b[have:])
		fds = append(fds, came...)
		have += n
	}
	if err == nil && len(fds) == 1 {
		return os.NewFile(uintptr(fds[0]), "segment"), nil
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	if err == nil {
		err = fmt.Errorf("%d files with a segment, want one", len(fds))
	}
	return nil, err
}

// readRights reads once, and returns the files that came with the bytes. It has room for two files, because the caller refuses
// a peer that sends more than one. The kernel closes the files that find no room.
func readRights(u *net.UnixConn, b []byte) (n int, fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(2*4))
	n, oobn, flags, _, err := u.ReadMsgUnix(b, oob)
	if err == nil && n == 0 {
		err = io.ErrUnexpectedEOF
	}
	messages, wrong := unix.ParseSocketControlMessage(oob[:oobn])
	if wrong != nil {
		return n, nil, errors.Join(err, wrong)
	}
	for _, m := range messages {
		if rights, wrong := unix.ParseUnixRights(&m); wrong == nil {
			fds = append(fds, rights...)
		}
	}
	if err == nil && flags&unix.MSG_CTRUNC != 0 {
		err = errors.New("too many files with a segment")
	}
	return n, fds, err
}
