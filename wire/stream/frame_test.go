package stream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/rpc"
)

// A tray is a taker that keeps the frames it gets.
type tray struct {
	frames []string
	no     bool // admits nothing
}

func (r *tray) admit(frameType, []byte, int) (bool, error) { return !r.no, nil }
func (r *tray) wave()                                      {}
func (r *tray) frame(t frameType, b []byte, _ bool) error {
	r.frames = append(r.frames, string(append([]byte{byte(t)}, b...)))
	return nil
}

// cutAll hands b to a cutter in pieces of a size, as a pipe does.
func cutAll(b []byte, size int, c *cutter) error {
	var rest []byte
	for len(b) > 0 {
		n := min(size, len(b))
		wave := append(bytes.Clone(rest), b[:n]...)
		b = b[n:]
		left, err := c.cut(wave)
		if err != nil {
			return err
		}
		rest = bytes.Clone(left)
	}
	if err := c.ended(io.EOF, len(rest)); err != io.EOF {
		return err
	}
	return nil
}

func bothLimits(t frameType) int { return max(hostLimit(t), serverLimit(t)) }

// samples is one frame of each type.
func samples() []byte {
	life := Life{serry.TaskID{Job: "worker", Index: 3}, 9}
	var b []byte
	b = appendHello(b, hello{7, Relay, 3})
	b = appendOpen(b, 8)
	c := Call{Conn: 8, ID: 1, Number: 2, Watermark: 1, Stamp: Stamp{life, 5}, Method: "/a/b", Body: []byte("body")}
	b = append(appendCall(b, &c), c.Body...)
	b = appendCancel(b, cancelled{8, 1})
	b = appendShut(b, shut{8, NotReading})
	b = appendBeat(b, beat{4, []Life{life}, []mark{{8, 6}}})
	b = appendExit(b, exit{life, "signal 9"})
	b = appendFollow(b, []Life{life, life})
	b = appendBare(b, frameSynced)
	b = appendBare(b, frameBye)
	b = appendWelcome(b, welcome{3, 77})
	b = appendRedirect(b, redirect{"host:1", 4})
	r := Reply{Conn: 8, Call: 1, Term: 3, Status: rpc.Status{Code: codes.Aborted, Message: "no", Details: []byte{1}}}
	b = appendReply(b, &r)
	r = Reply{Conn: 8, Call: 2, Body: []byte("yes")}
	b = append(appendReply(b, &r), r.Body...)
	b = appendAck(b, ack{4, 3})
	b = appendStanding(b, Standing{life, serry.Failed, 77, []byte("why")})
	return appendEpoch(b, 78)
}

// reread reads a frame and writes it again.
func reread(t frameType, payload []byte) ([]byte, error) {
	f, job := fields{b: payload}, ""
	var b []byte
	switch t {
	case frameCall:
		c, method := readCall(&f, &job)
		if f.bad {
			return nil, errFrame
		}
		c.Method, c.Body = string(method), f.b
		return append(appendCall(nil, &c), c.Body...), nil
	case frameReply:
		r := readReply(&f)
		if f.bad {
			return nil, errFrame
		}
		r.Body = f.b
		return append(appendReply(nil, &r), r.Body...), nil
	case frameHello:
		b = appendHello(nil, readHello(&f))
	case frameOpen:
		b = appendOpen(nil, ConnID(f.id()))
	case frameCancel:
		b = appendCancel(nil, readCancel(&f))
	case frameShut:
		b = appendShut(nil, readShut(&f))
	case frameBeat:
		b = appendBeat(nil, readBeat(&f, &job))
	case frameExited:
		b = appendExit(nil, readExit(&f, &job))
	case frameFollow:
		b = appendFollow(nil, readLives(&f, &job))
	case frameWelcome:
		b = appendWelcome(nil, readWelcome(&f))
	case frameRedirect:
		b = appendRedirect(nil, readRedirect(&f))
	case frameAck:
		b = appendAck(nil, readAck(&f))
	case frameStanding:
		b = appendStanding(nil, readStanding(&f, &job))
	case frameEpoch:
		b = appendEpoch(nil, serry.Incarnation(f.id()))
	default:
		b = appendBare(nil, t)
	}
	return b, f.all()
}

func TestFramesAreReadAsWritten(t *testing.T) {
	want := samples()
	r := new(tray)
	if err := cutAll(append([]byte(Preface), want...), 1<<20, &cutter{taker: r, limit: bothLimits}); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for _, f := range r.frames {
		b, err := reread(frameType(f[0]), []byte(f[1:]))
		if err != nil {
			t.Errorf("frame %d: %v", f[0], err)
		}
		got = append(got, b...)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("frames (-written +read and written):\n%s", diff)
	}
}

// TestPieces shows that it does not matter how the bytes come.
func TestPieces(t *testing.T) {
	big := Call{Conn: 1, ID: 2, Method: "/a/b", Body: bytes.Repeat([]byte("0123456789"), 20_000)}
	stream := append([]byte(Preface), samples()...)
	stream = append(appendCall(stream, &big), big.Body...)
	stream = append(stream, samples()...)
	var want []string
	for _, size := range []int{len(stream), 1, 7, 4096, 65536} {
		r := new(tray)
		if err := cutAll(stream, size, &cutter{taker: r, limit: bothLimits}); err != nil {
			t.Fatalf("in pieces of %d: %v", size, err)
		}
		if want == nil {
			want = r.frames
		}
		if !cmp.Equal(want, r.frames) {
			t.Errorf("in pieces of %d: %d frames, not the same as in one piece", size, len(r.frames))
		}
	}
	r := &tray{no: true}
	if err := cutAll(stream, 4096, &cutter{taker: r, limit: bothLimits}); err != nil || len(r.frames) != len(want)-1 {
		t.Errorf("with the large frame skipped: %d frames, %v; want %d", len(r.frames), err, len(want)-1)
	}
	if err := cutAll(stream[:len(stream)-1], 4096, &cutter{taker: new(tray), limit: bothLimits}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut short: %v; want %v", err, io.ErrUnexpectedEOF)
	}
}

// TestClaimedLength shows that memory goes to bytes that have come, not to those that are announced.
func TestClaimedLength(t *testing.T) {
	c := &cutter{taker: new(tray), limit: bothLimits, budget: newBudget(1 << 30)}
	head := binary.LittleEndian.AppendUint32([]byte(Preface), 1<<30)
	head = append(head, byte(frameCall))
	if _, err := c.cut(append(head, make([]byte, maxHead)...)); err != nil {
		t.Fatal(err)
	}
	if cap(c.big) > stepBytes {
		t.Errorf("a frame that claims 1 GiB got %d bytes before they came", cap(c.big))
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(samples(), uint8(5))
	big := Call{Method: "/a/b", Body: make([]byte, 70_000)}
	f.Add(append(appendCall(nil, &big), big.Body...), uint8(255))
	f.Fuzz(func(t *testing.T, b []byte, piece uint8) {
		r := new(tray)
		err := cutAll(append([]byte(Preface), b...), 1<<30, &cutter{taker: r, limit: bothLimits})
		again := new(tray)
		errAgain := cutAll(append([]byte(Preface), b...), 1+int(piece)*16, &cutter{taker: again, limit: bothLimits, budget: newBudget(1 << 20)})
		if !cmp.Equal(r.frames, again.frames) || (err == nil) != (errAgain == nil) {
			t.Errorf("%d frames, %v in one piece; %d frames, %v in several", len(r.frames), err, len(again.frames), errAgain)
		}
		for _, frame := range r.frames {
			once, err := reread(frameType(frame[0]), []byte(frame[1:]))
			if err != nil {
				continue
			}
			twice, err := reread(frameType(frame[0]), once[headBytes:])
			if err != nil || !bytes.Equal(once, twice) {
				t.Errorf("frame %d: %x, then %x, %v", frame[0], once, twice, err)
			}
		}
	})
}

type rpcID = rpc.CallID
