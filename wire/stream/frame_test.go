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

// A tray is a frameHandler that keeps the frames it gets.
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

// cutAll hands b to a frameReader in pieces of a size, as a pipe does.
func cutAll(b []byte, size int, c *frameReader) error {
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

// bothLimits takes the frames of either direction.
func bothLimits(t frameType) frameLimit { return stdcmp.Or(hostLimits(t), serverLimits(t)) }

// samples is one frame of each type.
func samples() []byte {
	life := serry.Life{Task: serry.TaskID{Job: "worker", Index: 3}, Incarnation: 9}
	var b []byte
	b = appendFrame(b, &hello{support{Version{1, 4}, 6}, 7, Relay, 21, 3})
	b = appendFrame(b, &open{8})
	c := Call{Conn: 8, ID: 1, Number: 2, Watermark: 1, Stamp: Stamp{life, 5}, Method: "/a/b", Body: []byte("body")}
	b = appendWholeCall(b, &c)
	b = appendFrame(b, &cancelled{8, 1})
	b = appendFrame(b, &shut{8, NotReading})
	b = appendFrame(b, &beat{4, []serry.Life{life}, []watermark{{8, 6}}})
	b = appendFrame(b, &exit{life, "signal 9"})
	b = appendFrame(b, &follow{[]serry.Life{life, life}})
	b = appendFrame(b, &Closure{life, NotReading, true})
	b = appendFrame(b, bare(frameSynced))
	b = appendFrame(b, bare(frameBye))
	b = appendFrame(b, &welcome{support{Version{1, 4}, 6}, 3, 77, 21})
	b = appendFrame(b, &redirect{"host:1"})
	b = appendFrame(b, &refusal{Version{2, 1}, "no"})
	r := Reply{Conn: 8, Call: 1, Term: 3, Status: rpc.Status{Code: codes.Aborted, Message: "no", Details: []byte{1}}}
	b = appendWholeReply(b, &r)
	r = Reply{Conn: 8, Call: 2, Body: []byte("yes")}
	b = appendWholeReply(b, &r)
	b = appendFrame(b, &ack{4, 3})
	b = appendFrame(b, &Standing{life, serry.Failed, 77, []byte("why")})
	return appendFrame(b, &epoch{78})
}

// appendWholeCall and appendWholeReply write frames with their bodies.
func appendWholeCall(b []byte, c *Call) []byte {
	b = appendCall(b, c, bodyInfoOf(c.Body))
	return appendLarge(b, c.Body)
}

func appendWholeReply(b []byte, r *Reply) []byte {
	b = appendReply(b, r, bodyInfoOf(r.Body))
	return appendLarge(b, r.Body)
}

// appendLarge adds a body that is not part of what was written before.
func appendLarge(b, body []byte) []byte {
	if bodyInfoOf(body).large() {
		b = append(b, body...)
	}
	return b
}

// reread reads a frame and writes it again.
func reread(t taken) ([]byte, error) {
	var c codec
	c.read([]byte(t.Fields))
	switch t.Type {
	case frameCall:
		k, method := readCall(&c)
		k.Method, k.Body = string(method), []byte(t.Body)
		return appendWholeCall(nil, &k), c.err()
	case frameReply:
		var r Reply
		r.fields(&c)
		r.Body = []byte(t.Body)
		return appendWholeReply(nil, &r), c.err()
	}
	for _, f := range []frame{
		new(hello), new(open), new(cancelled), new(shut), new(beat), new(exit), new(Closure), new(follow),
		new(welcome), new(redirect), new(refusal), new(ack), new(Standing), new(epoch),
	} {
		if f.frameType() == t.Type {
			f.fields(&c)
			return appendFrame(nil, f), c.err()
		}
	}
	return appendFrame(nil, bare(t.Type)), nil
}

func TestFramesAreReadAsWritten(t *testing.T) {
	want := samples()
	r := new(tray)
	if err := cutAll(append([]byte(Preface), want...), 1<<20, &frameReader{handler: r, limit: bothLimits}); err != nil {
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
		if err := cutAll(stream, size, &frameReader{handler: r, limit: bothLimits}); err != nil {
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
	if err := cutAll(stream, 4096, &frameReader{handler: r, limit: bothLimits}); err != nil || len(r.frames) != len(want)-1 {
		t.Errorf("with the large frame skipped: %d frames, %v; want %d", len(r.frames), err, len(want)-1)
	}
	if err := cutAll(stream[:len(stream)-1], 4096, &frameReader{handler: new(tray), limit: bothLimits}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut short: %v; want %v", err, io.ErrUnexpectedEOF)
	}
}

// TestClaimedLength shows that memory goes to bytes that have come, not to those that are announced.
func TestClaimedLength(t *testing.T) {
	c := &frameReader{handler: new(tray), limit: bothLimits, budget: conn.NewBudget(1 << 30)}
	call := appendCall([]byte(Preface), &Call{}, bodyInfo{length: 1 << 30})
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
	f.Add(supportOf(Version{major, minor + 1}).appendOptional(nil), uint8(0))
	f.Fuzz(func(t *testing.T, b []byte, piece uint8) {
		r := new(tray)
		err := cutAll(append([]byte(Preface), b...), 1<<30, &frameReader{handler: r, limit: bothLimits})
		again := new(tray)
		errAgain := cutAll(append([]byte(Preface), b...), 1+int(piece)*16, &frameReader{handler: again, limit: bothLimits, budget: conn.NewBudget(1 << 20)})
		if !cmp.Equal(r.frames, again.frames) || (err == nil) != (errAgain == nil) {
			t.Errorf("%d frames, %v in one piece; %d frames, %v in several", len(r.frames), err, len(again.frames), errAgain)
		}
		for _, frame := range r.frames {
			once, err := reread(frame)
			if err != nil {
				continue
			}
			second := new(tray)
			if err := cutAll(append([]byte(Preface), once...), len(once)+len(Preface), &frameReader{handler: second, limit: bothLimits}); err != nil {
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
