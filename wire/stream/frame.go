package stream

import (
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

// A frame is what an end sends in one piece.
type frame interface {
	frameType() frameType

	// fields names the fields in the order in which they are sent: a codec writes or reads them.
	fields(c *codec)
}

// The frames that are no calls or replies, and not exported.
type (
	hello struct {
		support
		session uint64
		kind    Kind
		store   serry.StoreID // of the leader that was last followed, or 0
		term    uint64        // the highest that the host has seen of that store
	}
	open      struct{ conn ConnID }
	cancelled struct {
		conn ConnID
		call rpc.CallID
	}
	shut struct {
		conn ConnID
		how  Ending
	}
	beat struct {
		seq        uint64
		heard      []serry.Life
		watermarks []watermark
	}
	exit struct {
		life  serry.Life
		cause string
	}
	follow  struct{ lives []serry.Life }
	bare    frameType // has no fields
	welcome struct {
		support
		term    uint64
		service serry.Incarnation
		store   serry.StoreID
	}
	redirect struct{ address string } // of the leader; empty: not known
	refusal  struct {
		version Version // of the server
		why     string
	}
	ack   struct{ seq, term uint64 }
	epoch struct{ service serry.Incarnation }
)

// A watermark says up to which number the results of a requester are delivered.
type watermark struct {
	requester ConnID
	number    uint64
}

// errFrame says that a frame is malformed.
var errFrame = errors.New("stream: malformed frame")

// Broken says whether a connection has ended because of a frame that no correct peer sends: malformed,
// damaged, or out of turn. On a network that delivers the bytes of a connection unchanged, such a frame
// shows a mistake of one of the ends.
func Broken(err error) bool {
	return errors.Is(err, errFrame) || errors.Is(err, errDamaged) || errors.Is(err, errOrder) || errors.Is(err, conn.ErrWriters)
}

func (*hello) frameType() frameType     { return frameHello }
func (*open) frameType() frameType      { return frameOpen }
func (*cancelled) frameType() frameType { return frameCancel }
func (*shut) frameType() frameType      { return frameShut }
func (*beat) frameType() frameType      { return frameBeat }
func (*exit) frameType() frameType      { return frameExited }
func (*Closure) frameType() frameType   { return frameClosed }
func (*follow) frameType() frameType    { return frameFollow }
func (b bare) frameType() frameType     { return frameType(b) }
func (*welcome) frameType() frameType   { return frameWelcome }
func (*redirect) frameType() frameType  { return frameRedirect }
func (*refusal) frameType() frameType   { return frameRefusal }
func (*ack) frameType() frameType       { return frameAck }
func (*Standing) frameType() frameType  { return frameStanding }
func (*epoch) frameType() frameType     { return frameEpoch }

func (h *hello) fields(c *codec) {
	h.support.fields(c)
	id(c, &h.session)
	octet(c, &h.kind)
	id(c, &h.store)
	number(c, &h.term)
	h.later(c)
}

func (o *open) fields(c *codec) { id(c, &o.conn) }

func (k *cancelled) fields(c *codec) {
	id(c, &k.conn)
	number(c, &k.call)
}

func (s *shut) fields(c *codec) {
	id(c, &s.conn)
	octet(c, &s.how)
}

func (t *beat) fields(c *codec) {
	number(c, &t.seq)
	list(c, &t.heard, (*codec).life)
	list(c, &t.watermarks, func(c *codec, w *watermark) {
		id(c, &w.requester)
		number(c, &w.number)
	})
}

func (e *exit) fields(c *codec) {
	c.life(&e.life)
	c.text(&e.cause, maxWord)
}

func (l *Closure) fields(c *codec) {
	c.life(&l.Life)
	octet(c, &l.How)
	var resumes byte
	if l.Resumes {
		resumes = 1
	}
	octet(c, &resumes)
	l.Resumes = resumes != 0
}

func (f *follow) fields(c *codec) { list(c, &f.lives, (*codec).life) }

func (bare) fields(*codec) {}

func (w *welcome) fields(c *codec) {
	w.support.fields(c)
	number(c, &w.term)
	id(c, &w.service)
	id(c, &w.store)
	w.later(c)
}

func (r *redirect) fields(c *codec) { c.text(&r.address, maxWord) }

func (r *refusal) fields(c *codec) {
	r.version.fields(c)
	c.text(&r.why, maxWord)
}

func (a *ack) fields(c *codec) {
	number(c, &a.seq)
	number(c, &a.term)
}

func (s *Standing) fields(c *codec) {
	c.life(&s.Life)
	state := uint8(s.State)
	octet(c, &state)
	s.State = serry.TaskState(state)
	id(c, &s.Service)
	c.bytes(&s.Error, maxPlain)
}

func (e *epoch) fields(c *codec) { id(c, &e.service) }

// fields of a call are these, and then the method, which a reader does not copy.
func (k *Call) fields(c *codec) {
	id(c, &k.Conn)
	number(c, &k.ID)
	number(c, &k.Number)
	number(c, &k.Watermark)
	c.life(&k.Stamp.Life)
	id(c, &k.Stamp.Service)
}

func (r *Reply) fields(c *codec) {
	id(c, &r.Conn)
	number(c, &r.Call)
	number(c, &r.Term)
	code := uint64(r.Status.Code)
	if number(c, &code); code > uint64(codes.Unauthenticated) {
		code = uint64(codes.Unknown) // of a newer server
	}
	r.Status.Code = codes.Code(code)
	c.text(&r.Status.Message, maxHead)
	c.bytes(&r.Status.Details, maxHead)
}

// appendFrame writes a frame without a body.
func appendFrame(b []byte, f frame) []byte {
	start := len(b)
	c := codec{b: begin(b, f.frameType())}
	f.fields(&c)
	return end(c.b, start, nil, bodyInfo{})
}

// appendCall writes a call, but not a large body; body describes it.
func appendCall(b []byte, k *Call, body bodyInfo) []byte {
	start := len(b)
	c := codec{b: begin(b, frameCall)}
	k.fields(&c)
	c.text(&k.Method, maxWord)
	return end(c.b, start, k.Body, body)
}

// readCall reads the fields of a call. The method is a part of the frame.
func readCall(c *codec) (k Call, method []byte) {
	k.fields(c)
	return k, c.view(maxWord)
}

// appendReply writes a reply, but not a large body; body describes it.
func appendReply(b []byte, r *Reply, body bodyInfo) []byte {
	start := len(b)
	c := codec{b: begin(b, frameReply)}
	r.fields(&c)
	return end(c.b, start, r.Body, body)
}
