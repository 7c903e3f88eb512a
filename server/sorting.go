package server

import (
	"crypto/tls"
	"io"
	"net"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/serry-dev/serry/wire/stream"
)

// sorting are the credentials of a server that tells connections of our own stream from HTTP/2, by what
// TLS agreed on or else by the first byte, and takes them away from grpc-go.
type sorting struct {
	credentials.TransportCredentials
	transport *grpcTransport
	streams   func(nc net.Conn, read []byte)
}

// firstByte is how long a connection may take to say something.
const firstByte = 20 * time.Second

// ServerHandshake implements [credentials.TransportCredentials].
func (s sorting) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	nc, info, err := s.TransportCredentials.ServerHandshake(c)
	if err != nil {
		return nc, info, err
	}
	if secure, ok := info.(credentials.TLSInfo); ok {
		if secure.State.NegotiatedProtocol != stream.Protocol {
			return nc, info, nil
		}
		return s.take(stated{nc, secure.State}, nil)
	}
	var first [1]byte
	nc.SetReadDeadline(time.Now().Add(firstByte))
	if _, err := io.ReadFull(nc, first[:]); err != nil {
		return nil, nil, err
	}
	nc.SetReadDeadline(time.Time{})
	if first[0] == stream.Preface[0] {
		return s.take(nc, first[:])
	}
	return &prefixed{Conn: nc, first: first[:]}, info, nil
}

func (s sorting) take(nc net.Conn, read []byte) (net.Conn, credentials.AuthInfo, error) {
	nc.SetDeadline(time.Time{})
	s.transport.others.Go(func() { s.streams(nc, read) })
	return nil, nil, credentials.ErrConnDispatched
}

// Clone implements [credentials.TransportCredentials].
func (s sorting) Clone() credentials.TransportCredentials {
	return sorting{s.TransportCredentials.Clone(), s.transport, s.streams}
}

// stated is a connection whose certificate can be seen, which grpc-go hides.
type stated struct {
	net.Conn
	state tls.ConnectionState
}

// ConnectionState is that of the TLS connection.
func (s stated) ConnectionState() tls.ConnectionState { return s.state }

// prefixed is a connection of which the first bytes have been read.
type prefixed struct {
	net.Conn
	first []byte // owned by the reader
}

// Read implements [net.Conn].
func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.first) == 0 {
		return p.Conn.Read(b)
	}
	n := copy(b, p.first)
	p.first = p.first[n:]
	return n, nil
}
