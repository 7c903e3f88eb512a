package stream

import (
	"encoding/binary"
	"errors"
	"math"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire/conn"
	"github.com/serry-dev/serry/wire/rpc"
)

// A frameType says what a frame is.
type frameType uint8

const (
	// From host to server.
	frameHello  frameType = 1
	frameOpen   frameType = 2
	frameCall   frameType = 3
	frameCancel frameType = 4
	frameShut   frameType = 5
	frameBeat   frameType = 6
	frameExited frameType = 7
	frameSynced frameType = 8
	frameBye    frameType = 9
	frameFollow frameType = 10

	// From server to host.
	frameWelcome  frameType = 16
	frameRedirect frameType = 17
	frameReply    frameType = 18
	frameAck      frameType = 19
	frameStanding frameType = 20
	frameEpoch    frameType = 21
	frameRefusal  frameType = 22

	// From here on types are optional: an end that does not know one skips the frame.
	frameOptional frameType = 128

	// From host to server, since version 1.1.
	frameClosed frameType = 128
)

// Lengths of frames, in bytes.
const (
	maxHead   = 32 << 10                 // of the fields of a call or a reply
	maxPlain  = 256 << 10                // of the fields of any other frame
	maxBody   = math.MaxInt32 - maxPlain // of a call or a reply; with its fields it fits into any int
	maxListed = 2000                     // lives, or watermarks, in one beat
	maxWord   = 1 << 10                  // a method, an address, a cause
	maxName   = coord.MaxNameBytes       // of a job
)

// The frames that are no calls or replies.
type (
	hello struct {
		speech
		session uint64
		kind    Kind
		store   serry.StoreID // of the leader that was last followed, or 0
		term    uint64        // the highest that the host has seen of that store
	}
	cancelled struct {
		conn ConnID
		call rpc.CallID
	}
	shut struct {
		conn ConnID
		how  Ending
	}
	beat struct {
		seq   uint64
		heard []Life
		marks []mark
	}
	exit struct {
		life  Life
		cause string
	}
	welcome struct {
		speech
		term    uint64
		service serry.Incarnation
		store   serry.StoreID
	}
	redirect struct{ address string } // of the leader; empty: not known
	refusal  struct {
		version Version // of the server
		why     string
	}
	ack struct{ seq, term uint64 }
)

// A mark says up to where the results of a requester are delivered.
type mark struct {
	requester ConnID
	watermark uint64
}

// errFrame says that a frame is not in order.
var errFrame = errors.New("stream: malformed frame")

// Broken says whether a connection has ended because of a frame that no peer in order sends: malformed,
// damaged, or out of turn. Over a network that keeps the bytes of a connection as they are, such a frame
// is a mistake of one of the ends.
func Broken(err error) bool {
	return errors.Is(err, errFrame) || errors.Is(err, errDamaged) || errors.Is(err, errOrder) || errors.Is(err, conn.ErrWriters)
}

func appendID(b []byte, id uint64) []byte { return binary.LittleEndian.AppendUint64(b, id) }

func appendString[S string | []byte](b []byte, s S) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendLife(b []byte, l Life) []byte {
	b = appendString(b, l.Task.Job)
	b = binary.AppendVarint(b, int64(l.Task.Index))
	return appendID(b, uint64(l.Incarnation))
}

// appendCall writes a call, but not a large body; body describes it.
func appendCall(b []byte, c *Call, body bulk) []byte {
	start := len(b)
	b = begin(b, frameCall)
	b = appendID(b, uint64(c.Conn))
	b = binary.AppendUvarint(b, uint64(c.ID))
	b = binary.AppendUvarint(b, c.Number)
	b = binary.AppendUvarint(b, c.Watermark)
	b = appendLife(b, c.Stamp.Life)
	b = appendID(b, uint64(c.Stamp.Service))
	b = appendString(b, c.Method)
	return endWith(b, start, c.Body, body)
}

// appendReply writes a reply, but not a large body; body describes it.
func appendReply(b []byte, r *Reply, body bulk) []byte {
	start := len(b)
	b = begin(b, frameReply)
	b = appendID(b, uint64(r.Conn))
	b = binary.AppendUvarint(b, uint64(r.Call))
	b = binary.AppendUvarint(b, r.Term)
	b = binary.AppendUvarint(b, uint64(r.Status.Code))
	b = appendString(b, r.Status.Message)
	b = appendString(b, r.Status.Details)
	return endWith(b, start, r.Body, body)
}

func appendHello(b []byte, h hello) []byte {
	start := len(b)
	b = appendSpeech(begin(b, frameHello), h.speech)
	b = appendID(b, h.session)
	b = append(b, byte(h.kind))
	b = appendID(b, uint64(h.store))
	b = binary.AppendUvarint(b, h.term)
	return end(h.appendLater(b), start)
}

func appendOpen(b []byte, c ConnID) []byte {
	start := len(b)
	return end(appendID(begin(b, frameOpen), uint64(c)), start)
}

func appendCancel(b []byte, c cancelled) []byte {
	start := len(b)
	b = appendID(begin(b, frameCancel), uint64(c.conn))
	return end(binary.AppendUvarint(b, uint64(c.call)), start)
}

func appendShut(b []byte, s shut) []byte {
	start := len(b)
	b = appendID(begin(b, frameShut), uint64(s.conn))
	return end(append(b, byte(s.how)), start)
}

func appendBeat(b []byte, t beat) []byte {
	start := len(b)
	b = binary.AppendUvarint(begin(b, frameBeat), t.seq)
	b = binary.AppendUvarint(b, uint64(len(t.heard)))
	for _, l := range t.heard {
		b = appendLife(b, l)
	}
	b = binary.AppendUvarint(b, uint64(len(t.marks)))
	for _, m := range t.marks {
		b = binary.AppendUvarint(appendID(b, uint64(m.requester)), m.watermark)
	}
	return end(b, start)
}

func appendExit(b []byte, e exit) []byte {
	start := len(b)
	b = appendLife(begin(b, frameExited), e.life)
	return end(appendString(b, e.cause), start)
}

func appendClosure(b []byte, c Closure) []byte {
	start := len(b)
	b = append(appendLife(begin(b, frameClosed), c.Life), byte(c.How), 0)
	if c.Resumes {
		b[len(b)-1] = 1
	}
	return end(b, start)
}

func appendFollow(b []byte, lives []Life) []byte {
	start := len(b)
	b = binary.AppendUvarint(begin(b, frameFollow), uint64(len(lives)))
	for _, l := range lives {
		b = appendLife(b, l)
	}
	return end(b, start)
}

// appendBare writes a frame without fields.
func appendBare(b []byte, t frameType) []byte { return end(begin(b, t), len(b)) }

func appendWelcome(b []byte, w welcome) []byte {
	start := len(b)
	b = appendSpeech(begin(b, frameWelcome), w.speech)
	b = binary.AppendUvarint(b, w.term)
	b = appendID(b, uint64(w.service))
	b = appendID(b, uint64(w.store))
	return end(w.appendLater(b), start)
}

func appendRedirect(b []byte, r redirect) []byte {
	start := len(b)
	return end(appendString(begin(b, frameRedirect), r.address), start)
}

func appendRefusal(b []byte, r refusal) []byte {
	start := len(b)
	b = appendVersion(begin(b, frameRefusal), r.version)
	return end(appendString(b, r.why), start)
}

func appendAck(b []byte, a ack) []byte {
	start := len(b)
	b = binary.AppendUvarint(begin(b, frameAck), a.seq)
	return end(binary.AppendUvarint(b, a.term), start)
}

func appendStanding(b []byte, s Standing) []byte {
	start := len(b)
	b = appendLife(begin(b, frameStanding), s.Life)
	b = append(b, byte(s.State))
	b = appendID(b, uint64(s.Service))
	return end(appendString(b, s.Error), start)
}

func appendEpoch(b []byte, service serry.Incarnation) []byte {
	start := len(b)
	return end(appendID(begin(b, frameEpoch), uint64(service)), start)
}

// fields reads the fields of a frame one after the other. After the first that is not in order, all
// are zero and bad is set.
type fields struct {
	b   []byte
	bad bool
}

func (f *fields) fail() {
	f.b, f.bad = nil, true
}

func (f *fields) byte() byte {
	if len(f.b) < 1 {
		f.fail()
		return 0
	}
	v := f.b[0]
	f.b = f.b[1:]
	return v
}

func (f *fields) id() uint64 {
	if len(f.b) < 8 {
		f.fail()
		return 0
	}
	v := binary.LittleEndian.Uint64(f.b)
	f.b = f.b[8:]
	return v
}

func (f *fields) uvarint() uint64 {
	v, n := binary.Uvarint(f.b)
	if n <= 0 {
		f.fail()
		return 0
	}
	f.b = f.b[n:]
	return v
}

func (f *fields) varint() int64 {
	v, n := binary.Varint(f.b)
	if n <= 0 {
		f.fail()
		return 0
	}
	f.b = f.b[n:]
	return v
}

// bytes lie in the frame.
func (f *fields) bytes(most int) []byte {
	n := f.uvarint()
	if n > uint64(most) || n > uint64(len(f.b)) {
		f.fail()
		return nil
	}
	v := f.b[:n:n]
	f.b = f.b[n:]
	return v
}

// life reads a life. last saves most of the strings: the job is the same in nearly all frames.
func (f *fields) life(last *string) (l Life) {
	if job := f.bytes(maxName); string(job) != *last {
		*last = string(job)
	}
	index := f.varint()
	if index != int64(int32(index)) {
		f.fail()
	}
	l.Task.Job, l.Task.Index = *last, int(index)
	l.Incarnation = serry.Incarnation(f.id())
	return l
}

// err says whether every field was in order. What is left are fields of a later version: they are
// skipped.
func (f *fields) err() error {
	if f.bad {
		return errFrame
	}
	return nil
}

// readCall reads the fields of a call. The method lies in the frame.
func readCall(f *fields, last *string) (c Call, method []byte) {
	c.Conn = ConnID(f.id())
	c.ID = rpc.CallID(f.uvarint())
	c.Number = f.uvarint()
	c.Watermark = f.uvarint()
	c.Stamp.Life = f.life(last)
	c.Stamp.Service = serry.Incarnation(f.id())
	return c, f.bytes(maxWord)
}

// readReply reads the fields of a reply.
func readReply(f *fields) (r Reply) {
	r.Conn = ConnID(f.id())
	r.Call = rpc.CallID(f.uvarint())
	r.Term = f.uvarint()
	code := f.uvarint()
	if code > uint64(codes.Unauthenticated) {
		code = uint64(codes.Unknown) // of a newer server
	}
	r.Status.Code = codes.Code(code)
	r.Status.Message = string(f.bytes(maxHead))
	if details := f.bytes(maxHead); len(details) > 0 {
		r.Status.Details = append([]byte(nil), details...)
	}
	return r
}

func readHello(f *fields) hello {
	return hello{readSpeech(f), f.id(), Kind(f.byte()), serry.StoreID(f.id()), f.uvarint()}
}

func readCancel(f *fields) cancelled {
	return cancelled{ConnID(f.id()), rpc.CallID(f.uvarint())}
}

func readShut(f *fields) shut { return shut{ConnID(f.id()), Ending(f.byte())} }

func readBeat(f *fields, last *string) (t beat) {
	t.seq = f.uvarint()
	t.heard = readLives(f, last)
	if n := f.uvarint(); n > maxListed {
		f.fail()
	} else if n > 0 {
		for range n {
			t.marks = append(t.marks, mark{ConnID(f.id()), f.uvarint()})
		}
	}
	return t
}

func readLives(f *fields, last *string) (lives []Life) {
	n := f.uvarint()
	if n > maxListed {
		f.fail()
		return nil
	}
	for range n {
		lives = append(lives, f.life(last))
	}
	return lives
}

func readExit(f *fields, last *string) exit {
	return exit{f.life(last), string(f.bytes(maxWord))}
}

func readClosure(f *fields, last *string) Closure {
	return Closure{f.life(last), Ending(f.byte()), f.byte() != 0}
}

func readWelcome(f *fields) welcome {
	return welcome{readSpeech(f), f.uvarint(), serry.Incarnation(f.id()), serry.StoreID(f.id())}
}

func readRedirect(f *fields) redirect { return redirect{string(f.bytes(maxWord))} }

func readRefusal(f *fields) refusal { return refusal{readVersion(f), string(f.bytes(maxWord))} }

func readAck(f *fields) ack { return ack{f.uvarint(), f.uvarint()} }

func readStanding(f *fields, last *string) (s Standing) {
	s.Life = f.life(last)
	s.State = serry.TaskState(f.byte())
	s.Service = serry.Incarnation(f.id())
	if b := f.bytes(maxPlain); len(b) > 0 {
		s.Error = append([]byte(nil), b...)
	}
	return s
}
