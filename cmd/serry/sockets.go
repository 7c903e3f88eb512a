package main

import (
	"context"
	"net"

	"github.com/spf13/pflag"
)

// sockets is the flag --socket-bytes, which no help shows: tests of back-pressure make the buffers of
// sockets so small that every write is a partial one. Zero leaves them as they are.
type sockets struct{ bytes int }

const socketFlag = "socket-bytes"

func (s *sockets) define(f *pflag.FlagSet) {
	f.IntVar(&s.bytes, socketFlag, 0, "`bytes` of the kernel's buffers of every connection; for tests")
	if err := f.MarkHidden(socketFlag); err != nil {
		panic(err) // the flag has just been defined
	}
}

// listener gives the connections that l takes such buffers.
func (s *sockets) listener(l net.Listener) net.Listener {
	if s.bytes == 0 {
		return l
	}
	return narrowListener{l, s.bytes}
}

// dial makes connections with such buffers; it is nil where the default will do.
func (s *sockets) dial() func(ctx context.Context, address string) (net.Conn, error) {
	if s.bytes == 0 {
		return nil
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return narrow(c, s.bytes)
	}
}

type narrowListener struct {
	net.Listener
	bytes int
}

// Accept implements net.Listener. The reader of a connection finds out if it has ended meanwhile.
func (l narrowListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		_, _ = narrow(c, l.bytes)
	}
	return c, err
}

// narrow gives a connection small buffers. The kernel doubles the number, and has a least size.
func narrow(c net.Conn, bytes int) (net.Conn, error) {
	b, ok := c.(interface {
		SetReadBuffer(bytes int) error
		SetWriteBuffer(bytes int) error
	})
	if !ok {
		return c, nil
	}
	err := b.SetReadBuffer(bytes)
	if err == nil {
		err = b.SetWriteBuffer(bytes)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}
