package stream

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/rpc"
)

// A tape is a connection that says what is on it and then ends. What is said to it is forgotten.
type tape struct{ *bytes.Reader }

func (tape) Write(p []byte) (int, error)      { return len(p), nil }
func (tape) Close() error                     { return nil }
func (tape) LocalAddr() net.Addr              { return &net.UnixAddr{} }
func (tape) RemoteAddr() net.Addr             { return &net.UnixAddr{} }
func (tape) SetDeadline(time.Time) error      { return nil }
func (tape) SetReadDeadline(time.Time) error  { return nil }
func (tape) SetWriteDeadline(time.Time) error { return nil }

// An idler is a Handler that answers every other call.
type idler struct{}

func (idler) Quiet(*Session, time.Duration) {}
func (idler) Open(*Conn)                    {}
func (idler) Call(c *Conn, call *Call) {
	if call.ID%2 == 0 {
		c.Reply(call.ID, call.Body, rpc.Status{})
	}
}
func (idler) Served(*Session)                     {}
func (idler) Cancel(*Conn, rpc.CallID)            {}
func (idler) Shut(*Conn, Ending)                  {}
func (idler) Heard(*Session, []serry.Life)        {}
func (idler) Follow(*Session, []serry.Life)       {}
func (idler) Delivered(ConnID, uint64)            {}
func (idler) Exited(*Session, serry.Life, string) {}
func (idler) Online(*Session)                     {}
func (idler) Closed(*Session, Closure)            {}
func (idler) Offline(*Session)                    {}
func (idler) Bye(*Session)                        {}
func (idler) Silent([]*Session)                   {}

// FuzzServe hands a server whatever comes to mind, twice, so that the second connection resumes what
// the first began.
func FuzzServe(f *testing.F) {
	good := appendFrame([]byte(Preface), &hello{support: supportOf(Speaks()), session: 7, kind: Relay})
	good = appendFrame(good, &open{8})
	for id := range 4 {
		c := Call{Conn: 8, ID: rpc.CallID(id), Number: uint64(id), Method: "/a/b", Body: []byte("body")}
		good = appendWholeCall(good, &c)
	}
	good = appendFrame(good, &cancelled{8, 1})
	good = appendFrame(good, &beat{seq: 1, heard: []serry.Life{{}}, watermarks: []watermark{{8, 2}}})
	good = appendFrame(good, bare(frameSynced))
	good = appendFrame(good, &shut{8, Closed})
	f.Add(good, []byte(Preface))
	f.Add(good[:len(good)-7], append(appendFrame([]byte(Preface), &hello{support: supportOf(Speaks()), session: 7, kind: Relay}), appendFrame(nil, bare(frameBye))...))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		s := NewServer(ServerConfig{
			Handler: idler{}, Methods: rpc.Methods{"/a/b": {MaxRequestBytes: 1 << 10}}, Term: 1,
			Service: func() serry.Incarnation { return 7 },
		})
		defer s.Shutdown(t.Context())
		for _, b := range [][]byte{first, second} {
			if err := s.Serve(tape{bytes.NewReader(b)}); err == nil {
				t.Error("Serve() = nil; want why it ended")
			}
		}
	})
}
