package front

import (
	"io"
	"net"
)

// A source gives the reader its waves: what one read brought, after what the last one left over.
type source struct {
	plain net.Conn // read by its method if raw is nil
	raw   *rawConn

	wave   []byte // in use by the reader, or nil
	rest   []byte // of the last wave
	small  []byte // buffer for plain, or nil
	filled bool   // the last read filled its buffer
}

// next waits for bytes. The wave is valid until done.
func (s *source) next() ([]byte, error) {
	if s.raw != nil {
		wave, err := s.raw.read(len(s.rest))
		copy(wave, s.rest)
		s.wave = wave
		return wave, err
	}
	buf := s.buffer()
	copy(buf, s.rest)
	n, err := s.plain.Read(buf[len(s.rest):])
	s.filled = n == len(buf)-len(s.rest)
	s.wave = buf[:len(s.rest)+n]
	if n > 0 {
		return s.wave, nil
	}
	s.done()
	if err == nil {
		err = io.ErrNoProgress
	}
	return nil, err
}

// buffer returns the small buffer while that does, for a connection that is read by its method holds
// it while it waits; a large one while much is coming.
func (s *source) buffer() []byte {
	if s.filled || len(s.rest) > smallBuffer/2 {
		return grow(nil, largeBuffer)[:largeBuffer]
	}
	if s.small == nil {
		s.small = make([]byte, 2*smallBuffer)
	}
	return s.small
}

// carried is how many bytes of the wave came with an earlier read.
func (s *source) carried() int { return len(s.rest) }

// keep copies the unused end of the wave for the next one.
func (s *source) keep(rest []byte) {
	if len(rest) == 0 {
		s.rest = nil
		return
	}
	s.rest = append([]byte(nil), rest...)
}

// done gives the buffer of the wave back.
func (s *source) done() {
	recycle(s.wave)
	s.wave = nil
}
