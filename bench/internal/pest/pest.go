// Package pest is a client of HTTP/2 that sends what it likes: frames without end, messages that expand to
// gigabytes, calls that it takes back at once. Benchmarks use it to see what such a client costs a server.
package pest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/serry-dev/serry/internal/pause"
)

// patience bounds the wait for an answer.
const patience = 2 * time.Minute

// A Pest is one connection. What its methods write goes to memory until Flush.
type Pest struct {
	*http2.Framer
	nc    net.Conn
	out   bytes.Buffer
	block bytes.Buffer
	enc   *hpack.Encoder

	answer chan string   // status of the first reply
	ended  chan struct{} // closed when the server has closed the connection
}

// A Host is where pests come from, the last part of the address 127.0.1.N. A server treats the newcomers of each address
// apart (SEC-100), so pests on the host of the server come from an address of their own. 0 is any address.
type Host byte

// Dial connects to an address of this host.
func (h Host) Dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	if h != 0 {
		d.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(h))}
	}
	return d.DialContext(ctx, "tcp", addr)
}

// New connects, and sends the preface of HTTP/2.
func (h Host) New(ctx context.Context, addr string) (*Pest, error) {
	nc, err := h.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	p := &Pest{nc: nc, answer: make(chan string, 1), ended: make(chan struct{})}
	p.Framer = http2.NewFramer(&p.out, nil)
	p.AllowIllegalWrites = true
	p.enc = hpack.NewEncoder(&p.block)
	p.out.WriteString(http2.ClientPreface)
	if err := p.WriteSettings(); err != nil {
		return nil, err
	}
	go p.read()
	return p, p.Flush()
}

// read takes what the server says until it closes the connection.
func (p *Pest) read() {
	defer close(p.ended)
	fr := http2.NewFramer(io.Discard, p.nc)
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		f, err := fr.ReadFrame()
		if _, ok := errors.AsType[http2.StreamError](err); err != nil && !ok {
			return
		}
		if f, ok := f.(*http2.MetaHeadersFrame); ok {
			for _, h := range f.Fields {
				if h.Name == "grpc-status" && len(p.answer) == 0 {
					p.answer <- h.Value
				}
			}
		}
	}
}

// Close ends the connection.
func (p *Pest) Close() {
	p.nc.Close()
	<-p.ended
}

// Flush sends what was written.
func (p *Pest) Flush() error {
	_, err := p.out.WriteTo(p.nc)
	return err
}

// Ended is closed when the server has closed the connection.
func (p *Pest) Ended() <-chan struct{} { return p.ended }

// Call writes the headers of a call to a method.
func (p *Pest) Call(stream uint32, method, encoding string) error {
	p.block.Reset()
	for _, f := range []string{":method POST", ":scheme http", ":path " + method, ":authority pest",
		"te trailers", "content-type application/grpc", "grpc-encoding " + encoding} {
		name, value, _ := strings.Cut(f, " ")
		p.enc.WriteField(hpack.HeaderField{Name: name, Value: value}) // to memory
	}
	return p.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: p.block.Bytes(), EndHeaders: true})
}

// Announce begins a message of 2 GiB and leaves it at ten bytes.
func (h Host) Announce(ctx context.Context, addr, method string) error {
	p, err := h.New(ctx, addr)
	if err != nil {
		return err
	}
	defer p.Close()
	prefix := binary.BigEndian.AppendUint32([]byte{0}, 1<<31-1)
	err = errors.Join(p.Call(1, method, "identity"), p.WriteData(1, false, prefix), p.WriteData(1, false, make([]byte, 10)), p.Flush())
	if err != nil {
		return err
	}
	return pause.For(ctx, 100*time.Millisecond)
}

// Packed is a message of a few megabytes that expands to size bytes.
func Packed(size int64) ([]byte, error) {
	const member = 64 << 20
	var one bytes.Buffer
	w := gzip.NewWriter(&one)
	if _, err := w.Write(make([]byte, member)); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return bytes.Repeat(one.Bytes(), int(size/member)), nil
}

// Bomb sends a packed message, which the server has to refuse.
func (h Host) Bomb(ctx context.Context, addr, method string, body []byte) error {
	p, err := h.New(ctx, addr)
	if err != nil {
		return err
	}
	defer p.Close()
	err = errors.Join(p.Call(1, method, "gzip"), p.WriteData(1, false, binary.BigEndian.AppendUint32([]byte{1}, uint32(len(body)))))
	// The window is opened again as bytes arrive, so that a client that sends no faster need not look.
	for ; err == nil && len(body) > 0; body = body[min(len(body), 8<<10):] {
		err = errors.Join(p.WriteData(1, len(body) <= 8<<10, body[:min(len(body), 8<<10)]), p.Flush())
		if len(body)%(256<<10) < 8<<10 {
			err = errors.Join(err, pause.For(ctx, 5*time.Millisecond))
		}
	}
	if err != nil {
		return err
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case got := <-p.answer:
		if got != exhausted {
			return fmt.Errorf("answered with status %s; want %s", got, exhausted)
		}
		return nil
	case <-p.ended:
		return errors.New("the server closed the connection; want an answer")
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return errors.New("no answer")
	}
}

const exhausted = "8" // RESOURCE_EXHAUSTED, as it travels

// A Frame writes the frame of a flood that has this number, counted from 0.
type Frame func(p *Pest, method string, i int) error

// Flood sends count frames, or as many as come before the server closes the connection.
func (h Host) Flood(ctx context.Context, addr, method string, count int, frame Frame) error {
	p, err := h.New(ctx, addr)
	if err != nil {
		return err
	}
	defer p.Close()
	for i := range count {
		if err := frame(p, method, i); err != nil {
			return err
		}
		if p.out.Len() > 16<<10 && (ctx.Err() != nil || p.Flush() != nil) {
			break // the server has had enough
		}
	}
	select {
	case <-p.ended:
	case <-ctx.Done():
	case <-time.After(time.Second): // it takes what it is given
	}
	return ctx.Err()
}

// RapidReset opens a call and takes it back.
func RapidReset(p *Pest, method string, i int) error {
	stream := uint32(2*i + 1)
	return errors.Join(p.Call(stream, method, "identity"), p.WriteRSTStream(stream, http2.ErrCodeCancel))
}

// Continuation goes on with headers that never end.
func Continuation(p *Pest, _ string, i int) error {
	if i == 0 {
		return p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x83}})
	}
	return p.WriteContinuation(1, false, nil)
}

// EmptyData goes on with a message, without a byte of it.
func EmptyData(p *Pest, method string, i int) error {
	if i == 0 {
		return p.Call(1, method, "identity")
	}
	return p.WriteData(1, false, nil)
}

// Ping asks for an answer to each frame.
func Ping(p *Pest, _ string, _ int) error { return p.WritePing(false, [8]byte{}) }

// Settings asks for an acknowledgement of each frame.
func Settings(p *Pest, _ string, _ int) error { return p.WriteSettings() }
