package socket

import "net"

// A Source gives a reader its waves: what one read brought, after what the last one left over.
type Source struct {
	plain net.Conn // read by its method if raw is nil
	raw   *Conn

	wave []byte // in use by the reader, or nil
	rest []byte // of the last wave
	bulk bool   // the last read would have filled a small buffer
}

// NewSource reads from nc. raw is what [New] made of it, or nil.
func NewSource(nc net.Conn, raw *Conn) Source { return Source{plain: nc, raw: raw} }

// Next waits for bytes. The wave is valid until Done.
func (s *Source) Next() ([]byte, error) {
	size := Small
	if s.bulk || len(s.rest) > Small/2 {
		size = max(Large, len(s.rest)+Small)
	}
	var err error
	if s.raw != nil {
		s.wave, err = s.raw.Read(size, len(s.rest))
	} else {
		s.wave, err = readPlain(s.plain, size, len(s.rest))
	}
	if err != nil {
		return nil, err
	}
	s.bulk = len(s.wave) >= Small
	copy(s.wave, s.rest)
	return s.wave, nil
}

// Rest is what the last wave left over, with which the next one begins.
func (s *Source) Rest() []byte { return s.rest }

// Keep copies the unused end of the wave for the next one.
func (s *Source) Keep(rest []byte) { s.rest = append([]byte(nil), rest...) }

// Done gives the buffer of the wave back.
func (s *Source) Done() {
	Recycle(s.wave)
	s.wave = nil
}
