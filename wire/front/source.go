package front

import (
	"net"

	"github.com/serry-dev/serry/wire/internal/socket"
)

// A source gives the reader its waves.
type source struct{ socket.Source }

func newSource(nc net.Conn, raw *socket.Conn) source { return source{socket.NewSource(nc, raw)} }

func (s *source) next() ([]byte, error) { return s.Next() }
func (s *source) carried() int          { return len(s.Rest()) }
func (s *source) keep(rest []byte)      { s.Keep(rest) }
func (s *source) done()                 { s.Done() }
