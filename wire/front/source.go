package front

import (
	"io"
	"net"

	"github.com/serry-dev/serry/wire/internal/socket"
)

// A source gives the reader its waves: what one read brought, after what the last one left over.
type source struct {
	plain net.Conn // read by its method if raw is nil
	raw   *socket.Conn

	wave []byte // in use by the reader, or nil
	rest []byte // of the last wave
	bulk bool   // the last read would have filled a small buffer
}

// next waits for bytes. The wave is valid until done.
func (s *source) next() ([]byte, error) {
	size := smallBuffer
	if s.bulk || len(s.rest) > smallBuffer/2 {
		size = largeBuffer
	}
	var err error
	if s.raw != nil {
		s.wave, err = s.raw.Read(size, len(s.rest))
	} else {
		s.wave, err = s.read(size)
	}
	if err != nil {
		return nil, err
	}
	s.bulk = len(s.wave) >= smallBuffer
	copy(s.wave, s.rest)
	return s.wave, nil
}

// read waits for bytes by the method of the connection, which holds the buffer meanwhile.
func (s *source) read(size int) ([]byte, error) {
	buf := grow(nil, size)[:size]
	n, err := s.plain.Read(buf[len(s.rest):])
	if n > 0 {
		return buf[:len(s.rest)+n], nil
	}
	recycle(buf)
	if err == nil {
		err = io.ErrNoProgress
	}
	return nil, err
}

// carried is how many bytes of the wave came with an earlier read.
func (s *source) carried() int { return len(s.rest) }

// keep copies the unused end of the wave for the next one.
func (s *source) keep(rest []byte) { s.rest = append([]byte(nil), rest...) }

// done gives the buffer of the wave back.
func (s *source) done() {
	recycle(s.wave)
	s.wave = nil
}
