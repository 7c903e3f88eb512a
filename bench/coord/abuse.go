package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/serry-dev/serry/bench/internal/load"
	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/internal/pause"
)

// abused measures what clients that mean harm, or only too much, cost a server: memory at its peak,
// and processor time. The cluster has one task, which is there and well all the time.
func (b *bench) abused(ctx context.Context, s *subject) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	for _, a := range []abuse{
		{"announcement", announcedMemory, metrics, announce},
		{"bomb", bombMemory, bombCPU, func(ctx context.Context, addr string) error { return bomb(ctx, addr, b.plan.bomb) }},
		{"rapid reset", resetMemory, resetCPU, b.flood(rapidReset)},
		{"CONTINUATION", metrics, continuationCPU, b.flood(continuation)},
		{"PING", metrics, pingCPU, b.flood(func(p *pest, _ int) error { return p.WritePing(false, [8]byte{}) })},
		{"SETTINGS", metrics, settingsCPU, b.flood(func(p *pest, _ int) error { return p.WriteSettings() })},
		{"empty DATA", metrics, emptyDataCPU, b.flood(emptyData)},
		// The last, because what a process has held it does not give back at once.
		{"value", largeValueMemory, metrics, func(ctx context.Context, addr string) error { return largeValue(ctx, addr, b.plan.value) }},
	} {
		if err := s.suffer(ctx, a); err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		if _, _, err := s.All(ctx, load.Heartbeat, s.Heartbeats()); err != nil {
			return fmt.Errorf("heartbeat of another client after %s: %w", a.name, err)
		}
	}
	return nil
}

// An abuse is something done to a server, and the rows for what that costs.
type abuse struct {
	name        string
	memory, cpu metric
	do          func(ctx context.Context, addr string) error
}

func (s *subject) suffer(ctx context.Context, a abuse) error {
	if err := forgetPeak(s.PID); err != nil {
		return err
	}
	before, _, err := proc.Memory(s.PID)
	if err != nil {
		return err
	}
	spent, err := s.spent(func() error { return a.do(ctx, s.addr) })
	if err != nil {
		return err
	}
	_, peak, err := proc.Memory(s.PID)
	s.add(a.memory, mib(max(0, peak-before)))
	s.add(a.cpu, ms(spent))
	return err
}

// forgetPeak lets the peak of a process's memory be that of now.
func forgetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// largeValue sets a key to a value of many bytes, and deletes it.
func largeValue(ctx context.Context, addr string, size int) error {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}), grpc.MaxCallSendMsgSize(1<<31-1)))
	if err != nil {
		return err
	}
	defer conn.Close()
	entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "large")
	entry = protowire.AppendVarint(protowire.AppendTag(entry, 2, protowire.BytesType), uint64(size))
	request := protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.BytesType), uint64(len(entry)+size))
	request = append(append(make([]byte, 0, len(request)+len(entry)+size), request...), entry...)
	request = request[:cap(request)]
	return conn.Invoke(ctx, load.InsertKey, &request, new([]byte))
}

// rawCodec passes messages as they are.
type rawCodec struct{}

func (rawCodec) Name() string                    { return "proto" }
func (rawCodec) Marshal(v any) ([]byte, error)   { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(b []byte, v any) error { *v.(*[]byte) = b; return nil }

// A pest is a client that sends what it likes.
type pest struct {
	*http2.Framer
	nc    net.Conn
	out   bytes.Buffer
	block bytes.Buffer
	enc   *hpack.Encoder

	answer chan string   // status of the first reply
	ended  chan struct{} // closed when the server has closed the connection
}

func newPest(ctx context.Context, addr string) (*pest, error) {
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	p := &pest{nc: nc, answer: make(chan string, 1), ended: make(chan struct{})}
	p.Framer = http2.NewFramer(&p.out, nil)
	p.AllowIllegalWrites = true
	p.enc = hpack.NewEncoder(&p.block)
	p.out.WriteString(http2.ClientPreface)
	if err := p.WriteSettings(); err != nil {
		return nil, err
	}
	go p.read()
	return p, p.flush()
}

// read takes what the server says until it closes the connection.
func (p *pest) read() {
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

func (p *pest) close() {
	p.nc.Close()
	<-p.ended
}

func (p *pest) flush() error {
	_, err := p.out.WriteTo(p.nc)
	return err
}

// call writes the headers of a call.
func (p *pest) call(stream uint32, encoding string) error {
	p.block.Reset()
	for _, f := range []string{":method POST", ":scheme http", ":path " + load.Barrier, ":authority pest",
		"te trailers", "content-type application/grpc", "grpc-encoding " + encoding} {
		name, value, _ := strings.Cut(f, " ")
		p.enc.WriteField(hpack.HeaderField{Name: name, Value: value}) // to memory
	}
	return p.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: p.block.Bytes(), EndHeaders: true})
}

// announce begins a message of 2 GiB and leaves it at ten bytes.
func announce(ctx context.Context, addr string) error {
	p, err := newPest(ctx, addr)
	if err != nil {
		return err
	}
	defer p.close()
	prefix := binary.BigEndian.AppendUint32([]byte{0}, 1<<31-1)
	err = errors.Join(p.call(1, "identity"), p.WriteData(1, false, prefix), p.WriteData(1, false, make([]byte, 10)), p.flush())
	if err != nil {
		return err
	}
	return pause.For(ctx, 100*time.Millisecond)
}

// bomb sends a message of a few megabytes that expands to size bytes.
func bomb(ctx context.Context, addr string, size int64) error {
	const member = 64 << 20
	var one bytes.Buffer
	w := gzip.NewWriter(&one)
	if _, err := w.Write(make([]byte, member)); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	body := bytes.Repeat(one.Bytes(), int(size/member))
	p, err := newPest(ctx, addr)
	if err != nil {
		return err
	}
	defer p.close()
	err = errors.Join(p.call(1, "gzip"), p.WriteData(1, false, binary.BigEndian.AppendUint32([]byte{1}, uint32(len(body)))))
	// The window is opened again as bytes arrive, so that a client that sends no faster need not look.
	for ; err == nil && len(body) > 0; body = body[min(len(body), 8<<10):] {
		err = errors.Join(p.WriteData(1, len(body) <= 8<<10, body[:min(len(body), 8<<10)]), p.flush())
		if len(body)%(256<<10) < 8<<10 {
			err = errors.Join(err, pause.For(ctx, 5*time.Millisecond))
		}
	}
	if err != nil {
		return err
	}
	select {
	case got := <-p.answer:
		if got != exhausted {
			return fmt.Errorf("answered with status %s; want %s", got, exhausted)
		}
		return nil
	case <-p.ended:
		return errors.New("the server closed the connection; want an answer")
	case <-time.After(load.Patience):
		return errors.New("no answer")
	}
}

const exhausted = "8" // RESOURCE_EXHAUSTED, as it travels

// flood sends frames, so many as the plan says, or until the server closes the connection.
func (b *bench) flood(frame func(p *pest, i int) error) func(context.Context, string) error {
	return func(ctx context.Context, addr string) error {
		p, err := newPest(ctx, addr)
		if err != nil {
			return err
		}
		defer p.close()
		for i := range b.plan.flood {
			if err := frame(p, i); err != nil {
				return err
			}
			if p.out.Len() > 16<<10 && p.flush() != nil {
				break // the server has had enough
			}
		}
		select {
		case <-p.ended:
		case <-time.After(time.Second): // it takes what it is given
		}
		return ctx.Err()
	}
}

func rapidReset(p *pest, i int) error {
	stream := uint32(2*i + 1)
	return errors.Join(p.call(stream, "identity"), p.WriteRSTStream(stream, http2.ErrCodeCancel))
}

func continuation(p *pest, i int) error {
	if i == 0 {
		return p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x83}})
	}
	return p.WriteContinuation(1, false, nil)
}

func emptyData(p *pest, i int) error {
	if i == 0 {
		return p.call(1, "identity")
	}
	return p.WriteData(1, false, nil)
}
