package front

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry/wire/conn"
)

// Stats is what a server has done so far, and holds now.
type Stats struct {
	Conns         int // open now
	Waiting       int // calls open now
	Accepted      uint64
	BytesRead     uint64
	BytesWritten  uint64
	Flushes       uint64 // writes of replies that had gathered
	PartialWrites uint64 // of them, those that the socket did not take whole
	Calls         []CallCount
	Refused       map[string]uint64 // by the limit that was met
	Errors        map[string]uint64 // breaches of HTTP/2, by the name of the error code
}

// A CallCount is how many calls of a method ended with a code. Method is "unknown" for all paths
// that are not served.
type CallCount struct {
	Method string
	Code   codes.Code
	Count  uint64
}

// Stats returns the present figures.
func (s *Server) Stats() Stats {
	st := Stats{
		BytesRead:     s.count.read.Load(),
		BytesWritten:  s.count.Written.Load(),
		Flushes:       s.count.Flushes.Load(),
		PartialWrites: s.count.Partial.Load(),
		Refused:       make(map[string]uint64),
		Errors:        make(map[string]uint64),
	}
	accepted := s.acceptor.Stats()
	st.Conns, st.Accepted = accepted.Conns, accepted.Accepted
	for limit, n := range map[string]uint64{"connections": accepted.Full, "handshakes": accepted.Handshakes} {
		if n > 0 {
			st.Refused[limit] = n
		}
	}
	s.mu.Lock()
	conns := slices.Collect(maps.Values(s.mu.conns))
	s.mu.Unlock()
	for _, c := range conns {
		c.mu.Lock()
		st.Waiting += len(c.mu.open)
		c.mu.Unlock()
	}
	for _, m := range s.byIndex {
		for code := range m.calls {
			if n := m.calls[code].Load(); n > 0 {
				st.Calls = append(st.Calls, CallCount{m.path, codes.Code(code), n})
			}
		}
	}
	slices.SortFunc(st.Calls, func(a, b CallCount) int {
		return cmp.Or(cmp.Compare(a.Method, b.Method), cmp.Compare(a.Code, b.Code))
	})
	for i := range s.count.refused {
		if n := s.count.refused[i].Load(); n > 0 {
			st.Refused[refusalNames[i]] = n
		}
	}
	for code := range s.count.errors {
		if n := s.count.errors[code].Load(); n > 0 {
			st.Errors[http2.ErrCode(code).String()] = n
		}
	}
	return st
}

// counters are the figures behind Stats.
type counters struct {
	conn.Totals
	read    atomic.Uint64
	refused [refusals]atomic.Uint64
	errors  [http2.ErrCodeHTTP11Required + 1]atomic.Uint64
}

// protocol counts an error of HTTP/2.
func (c *counters) protocol(code http2.ErrCode) {
	if int(code) < len(c.errors) {
		c.errors[code].Add(1)
	}
}

// A method is a method that is served.
type method struct {
	path  string
	limit int64 // bytes of a request
	index uint16
	calls [codes.Unauthenticated + 1]atomic.Uint64 // by code
}
