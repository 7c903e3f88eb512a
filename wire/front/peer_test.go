package front

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry/wire/internal/h2"
)

// A peer is a client that says exactly what a test wants. It writes through fr to out, so several
// frames go out together with flush.
type peer struct {
	t    testing.TB
	nc   net.Conn
	fr   *http2.Framer
	out  bytes.Buffer
	enc  *hpack.Encoder
	head bytes.Buffer
}

// connect shakes hands with a server. settings go with the preface.
func connect(t testing.TB, d func() (net.Conn, error), settings ...http2.Setting) *peer {
	t.Helper()
	p := bare(t, d)
	p.greet(settings...)
	p.flush()
	return p
}

// bare connects without a handshake.
func bare(t testing.TB, d func() (net.Conn, error)) *peer {
	t.Helper()
	nc, err := d()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	p := newPeer(t)
	p.nc = nc
	p.fr = http2.NewFramer(&p.out, nc)
	p.fr.AllowIllegalWrites = true
	p.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.fr.SetMaxReadFrameSize(1 << 20)
	return p
}

// newPeer returns a peer without a connection, which only collects what it writes.
func newPeer(t testing.TB) *peer {
	p := &peer{t: t}
	p.enc = hpack.NewEncoder(&p.head)
	p.fr = http2.NewFramer(&p.out, nil)
	p.fr.AllowIllegalWrites = true
	return p
}

func dialTCP(addr string) func() (net.Conn, error) {
	return func() (net.Conn, error) { return net.Dial("tcp", addr) }
}

func (p *peer) greet(settings ...http2.Setting) {
	p.out.WriteString(http2.ClientPreface)
	p.fr.WriteSettings(settings...)
}

func (p *peer) flush() {
	p.t.Helper()
	if _, err := p.out.WriteTo(p.nc); err != nil {
		p.t.Fatalf("peer: %v", err)
	}
}

// block encodes the headers of a call, then the extra fields in pairs. An extra field replaces the
// usual one of its name; a value of "-" leaves it out.
func (p *peer) block(method string, extra ...string) []byte {
	fields := [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "serry"},
		{"te", "trailers"}, {"content-type", "application/grpc"},
	}
extra:
	for i := 0; i < len(extra); i += 2 {
		for j := range fields {
			if fields[j][0] == extra[i] {
				fields[j][1] = extra[i+1]
				continue extra
			}
		}
		fields = append(fields, [2]string{extra[i], extra[i+1]})
	}
	p.head.Reset()
	for _, f := range fields {
		if f[1] != "-" {
			p.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
	}
	return bytes.Clone(p.head.Bytes())
}

// headers begins a call.
func (p *peer) headers(stream uint32, method string, extra ...string) {
	p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: p.block(method, extra...), EndHeaders: true})
}

// call writes a whole call.
func (p *peer) call(stream uint32, method string, body []byte, extra ...string) {
	p.headers(stream, method, extra...)
	p.fr.WriteData(stream, true, message(0, body))
}

// message prefixes a body.
func message(flag byte, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flag}, uint32(len(body))), body...)
}

func zip(body []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(body)
	w.Close()
	return b.Bytes()
}

// An answer is how a stream ended.
type answer struct {
	http    string
	code    codes.Code
	message string
	body    string
	fields  string // grpc-accept-encoding and details, if any
	reset   http2.ErrCode
	end     error // of the connection, or nil
}

func (a answer) String() string {
	if a.end != nil {
		return fmt.Sprintf("connection ended: %v", a.end)
	}
	if a.http == "" {
		return fmt.Sprintf("reset: %v", a.reset)
	}
	if a.http != "200" {
		return "http " + a.http
	}
	return fmt.Sprintf("%v %q %q%s", a.code, a.message, a.body, a.fields)
}

// read returns the next frame other than SETTINGS, PING and WINDOW_UPDATE, or the error that ended
// the connection; GOAWAY with an error is one.
func (p *peer) read() (http2.Frame, error) {
	for {
		f, err := p.fr.ReadFrame()
		if err != nil {
			return nil, err
		}
		switch f := f.(type) {
		case *http2.SettingsFrame, *http2.PingFrame, *http2.WindowUpdateFrame:
		case *http2.GoAwayFrame:
			if f.ErrCode != http2.ErrCodeNo {
				return nil, goAway{f.ErrCode, string(f.DebugData())}
			}
		default:
			return f, nil
		}
	}
}

// A goAway is the error of a GOAWAY frame.
type goAway struct {
	code   http2.ErrCode
	reason string
}

func (g goAway) Error() string { return fmt.Sprintf("GOAWAY %v: %s", g.code, g.reason) }

// answers reads until n streams have ended.
func (p *peer) answers(n int) map[uint32]answer {
	got, done := make(map[uint32]answer), make(map[uint32]answer)
	for len(done) < n {
		f, err := p.read()
		if err != nil {
			done[0] = answer{end: err}
			return done
		}
		id := f.Header().StreamID
		a, ends := got[id], false
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			a.headers(f)
			ends = f.StreamEnded()
		case *http2.DataFrame:
			a.body += string(f.Data())
			ends = f.StreamEnded()
		case *http2.RSTStreamFrame:
			if _, ok := done[id]; ok {
				continue
			}
			a.reset, a.http, ends = f.ErrCode, "", true
		}
		got[id] = a
		if ends {
			if a.http == "200" && len(a.body) >= h2.PrefixBytes {
				a.body = a.body[h2.PrefixBytes:]
			}
			done[id] = a
		}
	}
	return done
}

// answer reads until the stream has ended.
func (p *peer) answer(stream uint32) answer {
	all := p.answers(1)
	if a, ok := all[stream]; ok {
		return a
	}
	if a, ok := all[0]; ok {
		return a
	}
	return answer{end: fmt.Errorf("another stream ended: %v", all)}
}

func (a *answer) headers(f *http2.MetaHeadersFrame) {
	for _, h := range f.Fields {
		switch h.Name {
		case ":status":
			a.http = h.Value
		case "grpc-status":
			n, _ := strconv.Atoi(h.Value)
			a.code = codes.Code(n)
		case "grpc-message":
			a.message = h.Value
		case "grpc-accept-encoding", "grpc-status-details-bin":
			a.fields += " " + h.Name + "=" + h.Value
		}
	}
}

// closed reads until the connection ends and returns the reason given.
func (p *peer) closed() error {
	for {
		if _, err := p.read(); err != nil {
			if _, ok := errors.AsType[goAway](err); !ok {
				err = io.EOF
			}
			return err
		}
	}
}
