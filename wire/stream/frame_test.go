package stream

import (
	"bytes"
	stdcmp "cmp"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/conn"
	"github.com/serry-dev/serry/wire/rpc"
)

// A tray is a taker that keeps the frames it gets.
type tray struct {
	frames []taken
	no     bool // admits nothing
}

func (r *tray) admit(frameType, []byte, int) (bool, error) { return !r.no, nil }
func (r *tray) served()                                    {}
func (r *tray) frame(t frameType, fields, body []byte, _ bool) error {
	r.frames = append(r.frames, taken{t, string(fields), string(body)})
	return nil
}

// A taken is a frame that was taken.
type taken struct {
	Type         frameType
	Fields, Body string
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

// bothRooms takes the frames of either direction.
func bothRooms(t frameType) room { return stdcmp.Or(hostRoom(t), serverRoom(t)) }

// samples is one frame of each type.
func samples() []byte {
	life := Life{serry.TaskID{Job: "worker", Index: 3}, 9}
	var b []byte
	b = appendHello(b, hello{speech{Version{1, 4}, 6}, 7, Relay, 21, 3})
	b = appendOpen(b, 8)
	c := Call{Conn: 8, ID: 1, Number: 2, Watermark: 1, Stamp: Stamp{life, 5}, Method: "/a/b", Body: []byte("body")}
	b = appendWholeCall(b, &c)
	b = appendCancel(b, cancelled{8, 1})
	b = appendShut(b, shut{8, NotReading})
	b = appendBeat(b, beat{4, []Life{life}, []mark{{8, 6}}})
	b = appendExit(b, exit{life, "signal 9"})
	b = appendFollow(b, []Life{life, life})
	b = appendClosure(b, Closure{life, NotReading, true})
	b = appendBare(b, frameSynced)
	b = appendBare(b, frameBye)
	b = appendWelcome(b, welcome{speech{Version{1, 4}, 6}, 3, 77, 21})
	b = appendRedirect(b, redirect{"host:1"})
	b = appendRefusal(b, refusal{Version{2, 1}, "no"})
	r := Reply{Conn: 8, Call: 1, Term: 3, Status: rpc.Status{Code: codes.Aborted, Message: "no", Details: []byte{1}}}
	b = appendWholeReply(b, &r)
	r = Reply{Conn: 8, Call: 2, Body: []byte("yes")}
	b = appendWholeReply(b, &r)
	b = appendAck(b, ack{4, 3})
	b = appendStanding(b, Standing{life, serry.Failed, 77, []byte("why")})
	return appendEpoch(b, 78)
}

// appendWholeCall and appendWholeReply write frames with their bodies.
func appendWholeCall(b []byte, c *Call) []byte {
	b = appendCall(b, c, bulkOf(c.Body))
	return appendLarge(b, c.Body)
}

func appendWholeReply(b []byte, r *Reply) []byte {
	b = appendReply(b, r, bulkOf(r.Body))
	return appendLarge(b, r.Body)
}

// appendLarge adds a body that is not part of what was written before.
func appendLarge(b, body []byte) []byte {
	if bulkOf(body).large() {
		b = append(b, body...)
	}
	return b
}

// reread reads a frame and writes it again.
func reread(frame taken) ([]byte, error) {
	f, job := fields{b: []byte(frame.Fields)}, ""
	var b []byte
	switch frame.Type {
	case frameCall:
		c, method := readCall(&f, &job)
		c.Method, c.Body = string(method), []byte(frame.Body)
		b = appendWholeCall(nil, &c)
	case frameReply:
		r := readReply(&f)
		r.Body = []byte(frame.Body)
		b = appendWholeReply(nil, &r)
	case frameRefusal:
		b = appendRefusal(nil, readRefusal(&f))
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
	case frameClosed:
		b = appendClosure(nil, readClosure(&f, &job))
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
		b = appendBare(nil, frame.Type)
	}
	return b, f.err()
}

func TestFramesAreReadAsWritten(t *testing.T) {
	want := samples()
	r := new(tray)
	if err := cutAll(append([]byte(Preface), want...), 1<<20, &cutter{taker: r, room: bothRooms}); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for _, f := range r.frames {
		b, err := reread(f)
		if err != nil {
			t.Errorf("frame %d: %v", f.Type, err)
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
	stream = appendWholeCall(stream, &big)
	stream = append(stream, samples()...)
	var want []taken
	for _, size := range []int{len(stream), 1, 7, 4096, 65536} {
		r := new(tray)
		if err := cutAll(stream, size, &cutter{taker: r, room: bothRooms}); err != nil {
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
	if err := cutAll(stream, 4096, &cutter{taker: r, room: bothRooms}); err != nil || len(r.frames) != len(want)-1 {
		t.Errorf("with the large frame skipped: %d frames, %v; want %d", len(r.frames), err, len(want)-1)
	}
	if err := cutAll(stream[:len(stream)-1], 4096, &cutter{taker: new(tray), room: bothRooms}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut short: %v; want %v", err, io.ErrUnexpectedEOF)
	}
}

// TestClaimedLength shows that memory goes to bytes that have come, not to those that are announced.
func TestClaimedLength(t *testing.T) {
	c := &cutter{taker: new(tray), room: bothRooms, budget: conn.NewBudget(1 << 30)}
	call := appendCall([]byte(Preface), &Call{}, bulk{length: 1 << 30})
	if _, err := c.cut(append(call, make([]byte, maxHead)...)); err != nil {
		t.Fatal(err)
	}
	if cap(c.big) > stepBytes {
		t.Errorf("a frame that claims 1 GiB got %d bytes before they came", cap(c.big))
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(samples(), uint8(5))
	big := Call{Method: "/a/b", Body: make([]byte, 70_000)}
	f.Add(appendWholeCall(nil, &big), uint8(255))
	f.Add(speechOf(Version{major, minor + 1}).appendOptional(nil), uint8(0))
	f.Fuzz(func(t *testing.T, b []byte, piece uint8) {
		r := new(tray)
		err := cutAll(append([]byte(Preface), b...), 1<<30, &cutter{taker: r, room: bothRooms})
		again := new(tray)
		errAgain := cutAll(append([]byte(Preface), b...), 1+int(piece)*16, &cutter{taker: again, room: bothRooms, budget: conn.NewBudget(1 << 20)})
		if !cmp.Equal(r.frames, again.frames) || (err == nil) != (errAgain == nil) {
			t.Errorf("%d frames, %v in one piece; %d frames, %v in several", len(r.frames), err, len(again.frames), errAgain)
		}
		for _, frame := range r.frames {
			once, err := reread(frame)
			if err != nil {
				continue
			}
			second := new(tray)
			if err := cutAll(append([]byte(Preface), once...), len(once)+len(Preface), &cutter{taker: second, room: bothRooms}); err != nil {
				t.Fatalf("frame %d, written again: %v", frame.Type, err)
			}
			twice, err := reread(second.frames[0])
			if err != nil || !bytes.Equal(once, twice) {
				t.Errorf("frame %d: %x, then %x, %v", frame.Type, once, twice, err)
			}
		}
	})
}

type rpcID = rpc.CallID
