package front

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry/wire/conn"
	"github.com/serry-dev/serry/wire/internal/h2"
	"github.com/serry-dev/serry/wire/rpc"
)

// A request is a call whose request has not ended yet. Owned by the reader, but for the last fields.
type request struct {
	conn     *connection
	stream   uint32
	head     *head
	deadline time.Duration // or noTimeout
	armed    bool          // known to the scanner, hence in conn.mu.open

	received int64 // bytes of DATA, padding aside
	prefix   [h2.PrefixBytes]byte
	length   int64 // of the message, announced
	body     []byte
	raised   bool // the window fits the message

	// Guarded by conn.mu.
	window int64 // what the peer may still send
	want   int64 // window withheld by a budget
	cost   int64 // bytes to reserve for that

	share conn.Share // of the budget: at least the memory of body
}

// A dataFrame is a DATA frame that is being read. Its bytes are taken as they come.
type dataFrame struct {
	active bool
	req    *request // nil: ignored
	fresh  bool     // no byte of it has been taken
	ends   bool
	left   int // payload
	pad    int
}

// A deadline belongs to a call that came with the present chunk.
type deadline struct {
	stream uint32
	when   time.Duration
}

// request returns the unfinished request of a stream, or nil.
func (c *connection) request(stream uint32) *request {
	if r := c.in.current; r != nil && r.stream == stream {
		return r
	}
	return c.in.parked[stream]
}

func (c *connection) newRequest(stream uint32, head *head) *request {
	if c.in.current != nil {
		c.in.parked[c.in.current.stream] = c.in.current
	}
	r := c.in.spare
	if c.in.spare = nil; r == nil {
		r = new(request)
	}
	*r = request{conn: c, stream: stream, head: head, deadline: noTimeout, window: streamWindow}
	r.share = c.budget.Load().Share(r)
	c.in.current = r
	return r
}

// removeRequest forgets r, which is complete or dropped.
func (c *connection) removeRequest(r *request) {
	if c.in.current == r {
		c.in.current = nil
	} else {
		delete(c.in.parked, r.stream)
	}
	if c.in.data.req == r {
		c.in.data.req = nil
	}
	if r.raised || len(r.body) > 0 {
		c.release(r)
	} else { // no budget has seen it
		c.in.spare = r
	}
}

func (c *connection) dropRequest(stream uint32) bool {
	r := c.request(stream)
	if r != nil {
		c.removeRequest(r)
	}
	return r != nil
}

// releaseRequests gives the memory of all unfinished requests back to the budgets.
func (c *connection) releaseRequests() {
	if c.in.current != nil {
		c.removeRequest(c.in.current)
	}
	for _, r := range c.in.parked {
		c.removeRequest(r)
	}
}

// dataStart handles the head of a DATA frame. It returns how many bytes of p it took, or -1 if it
// needs more.
func (c *connection) dataStart(h h2.Head, p []byte) (int, error) {
	d := dataFrame{active: true, fresh: true, ends: h.Flags.Has(http2.FlagDataEndStream), left: h.Length}
	n := 0
	if h.Flags.Has(http2.FlagDataPadded) {
		switch {
		case h.Length == 0:
			return 0, &ConnError{http2.ErrCodeFrameSize, "DATA without its padding"}
		case len(p) == 0:
			return -1, nil
		case int(p[0]) >= h.Length:
			return 0, protocolError("bad padding")
		}
		n, d.pad = 1, int(p[0])
		d.left -= 1 + d.pad
	}
	if h.Stream == 0 || c.idleStream(h.Stream) {
		return 0, protocolError("DATA on an idle stream")
	}
	if err := c.charge(h); err != nil {
		return 0, err
	}
	d.req = c.request(h.Stream)
	c.in.data = d
	if d.req == nil {
		return n, c.strayData(h.Stream)
	}
	return n, c.chargeStream(d.req, int64(h.Length))
}

// charge counts a DATA frame against the window of the connection and against abuse.
func (c *connection) charge(h h2.Head) error {
	n := int64(h.Length)
	if c.in.window -= n; c.in.window < 0 {
		return &ConnError{http2.ErrCodeFlowControl, "window of the connection exceeded"}
	}
	if c.in.used += n; c.in.used >= connWindow/2 {
		c.mu.Lock()
		c.mu.Out = h2.AppendWindowUpdate(c.mu.Out, 0, c.in.used)
		c.mu.Unlock()
		c.in.window += c.in.used
		c.in.used = 0
	}
	if n >= tinyData || h.Flags.Has(http2.FlagDataEndStream) {
		c.in.tiny = 0
	} else if c.in.tiny++; c.in.tiny > maxTinyData {
		return c.overLimit(refusedTinyData, "too many tiny DATA frames")
	}
	return nil
}

// strayData handles DATA for a stream without an unfinished request: late if the server ended the stream,
// else wrong.
func (c *connection) strayData(stream uint32) error {
	if c.in.refusing && stream > c.in.highest || slices.Contains(c.in.endedEarly, stream) {
		return nil
	}
	return c.resetStream(stream, http2.ErrCodeStreamClosed)
}

// chargeStream counts a DATA frame against the window of its stream.
func (c *connection) chargeStream(r *request, n int64) error {
	c.mu.Lock()
	r.window -= n
	over := r.window < 0
	c.mu.Unlock()
	if over {
		return c.resetStream(r.stream, http2.ErrCodeFlowControl)
	}
	return nil
}

// dataBytes takes bytes of the DATA frame that is being read and returns how many.
func (c *connection) dataBytes(p []byte) (int, error) {
	d := &c.in.data
	n := min(len(p), d.left)
	payload := p[:n]
	d.left -= n
	if d.left == 0 {
		pad := min(len(p)-n, d.pad)
		d.pad -= pad
		n += pad
		d.active = d.pad > 0
	}
	r, ends := d.req, d.ends && !d.active
	announced := d.ends // the peer has nothing to say after this frame
	whole := d.fresh && ends && r != nil && r.received == 0
	d.fresh = d.fresh && n == 0
	if r == nil {
		return n, nil
	}
	r.received += int64(len(payload))
	switch {
	case whole:
		return n, c.requestEnds(r, payload)
	case r.head.http != 0 && !ends:
		if r.received > maxIgnoredBody {
			return n, c.answerHTTP(r, announced)
		}
		return n, nil
	case r.head.http != 0:
		return n, c.requestEnds(r, nil)
	}
	if st := r.take(payload); st != nil {
		return n, c.refuse(r, *st, announced)
	}
	if ends {
		return n, c.requestEnds(r, nil)
	}
	c.topUp(r)
	return n, nil
}

// take adds bytes to the message. It returns the status to refuse the call with, or nil.
func (r *request) take(p []byte) *rpc.Status {
	at := r.received - int64(len(p)) // of p in the request
	if at < h2.PrefixBytes {
		n := copy(r.prefix[at:], p)
		p = p[n:]
		if at+int64(n) < h2.PrefixBytes {
			return nil
		}
		if st := r.begin(r.prefix); st != nil {
			return st
		}
	}
	if int64(len(r.body)+len(p)) > r.length {
		return &rpc.Status{Code: codes.Internal, Message: "request is not one message"}
	}
	if len(p) == 0 {
		return nil
	}
	if need := len(r.body) + len(p); need > cap(r.body) {
		room := r.room(need)
		if !r.share.Raise(int64(room)) && !r.slight() {
			r.conn.srv.count.refused[refusedMemory].Add(1)
			return &rpc.Status{Code: codes.ResourceExhausted, Message: "too many bytes of unfinished requests"}
		}
		bigger := make([]byte, len(r.body), room)
		copy(bigger, r.body)
		r.body = bigger
	}
	r.body = append(r.body, p...)
	return nil
}

// slight says whether the message is small and the only one of its connection that has not ended. Such a message is
// taken whatever others hold: a registration must not be refused because it came in two pieces (C-LIM-1).
func (r *request) slight() bool { return r.length <= conn.Small && len(r.conn.in.parked) == 0 }

// room is how much memory to take for a message of which need bytes have come. It follows them, not
// what was announced (F-26), but in halves of that, so that the last step fits.
func (r *request) room(need int) int {
	room := int(r.length)
	for room/2 >= max(need, conn.Small) {
		room /= 2
	}
	return room
}

// begin judges the prefix of the message.
func (r *request) begin(prefix [h2.PrefixBytes]byte) *rpc.Status {
	r.length = int64(binary.BigEndian.Uint32(prefix[1:]))
	switch {
	case prefix[0] > 1:
		return &rpc.Status{Code: codes.Internal, Message: "reserved flags in the message prefix"}
	case r.length > r.head.method.limit:
		return tooLarge(r.head.method.limit)
	case prefix[0] == 1 && !r.head.gzip:
		return &rpc.Status{Code: codes.Unimplemented, Message: "compression other than gzip"}
	}
	return nil
}

func tooLarge(limit int64) *rpc.Status {
	return &rpc.Status{Code: codes.ResourceExhausted, Message: fmt.Sprintf("request message above the limit of %d bytes", limit)}
}

// requestEnds serves the call, or says what is wrong with it. whole is the body of the request if it
// came in one piece, else it has been taken.
func (c *connection) requestEnds(r *request, whole []byte) error {
	if n := r.head.length; n >= 0 && n != r.received {
		return c.resetStream(r.stream, http2.ErrCodeProtocol)
	}
	if r.head.http != 0 {
		return c.answerHTTP(r, true)
	}
	if r.deadline != noTimeout && r.deadline <= c.in.now {
		return c.refuse(r, rpc.Status{Code: codes.DeadlineExceeded, Message: "deadline exceeded"}, true)
	}
	body := r.body
	if len(whole) >= h2.PrefixBytes {
		r.prefix = [h2.PrefixBytes]byte(whole)
		if st := r.begin(r.prefix); st != nil {
			return c.refuse(r, *st, true)
		}
		body = whole[h2.PrefixBytes:]
	}
	if r.received < h2.PrefixBytes || int64(len(body)) != r.length {
		return c.refuse(r, rpc.Status{Code: codes.Internal, Message: "request is not one message"}, true)
	}
	if r.prefix[0] == 0 {
		c.dispatch(r, body)
		return nil
	}
	return c.expand(r, body)
}

// dispatch gives a complete call to the handler.
//
// The deadline of a call whose request came in several chunks is with the scanner already, and may pass
// before the handler has taken the call. A Cancel from the goroutine of the scanner could overtake Serve
// then, and the handler would keep the call for good. So the scanner leaves that Cancel to the reader.
func (c *connection) dispatch(r *request, body []byte) {
	stream, m, timed := r.stream, r.head.method, r.armed
	k := call(m.index)
	c.mu.Lock()
	if timed {
		k |= callTimed | callServing
		if _, ok := c.mu.open[stream]; !ok { // expired a moment ago
			c.mu.Unlock()
			c.removeRequest(r)
			return
		}
	}
	c.mu.open[stream] = k
	c.mu.Unlock()
	c.removeRequest(r)
	c.in.served = true
	c.srv.handler.Serve(c, rpc.CallID(stream), m.path, body)
	if timed {
		c.afterServe(stream)
	}
}

// afterServe lets the scanner cancel a call that the handler has taken, or does so if it is late.
func (c *connection) afterServe(stream uint32) {
	c.mu.Lock()
	if k, ok := c.mu.open[stream]; ok {
		c.mu.open[stream] = k &^ callServing
	}
	late := c.mu.late == stream
	c.mu.late = 0
	c.mu.Unlock()
	if late {
		c.srv.handler.Cancel(c, rpc.CallID(stream))
	}
}

// refuse ends a request with a status. Where the peer has not ended it, the stream is reset after
// that without an error (F-30).
func (c *connection) refuse(r *request, st rpc.Status, ended bool) error {
	stream := r.stream
	k := call(r.head.index())
	gone := false
	c.mu.Lock()
	if r.armed {
		var ok bool
		if k, ok = c.mu.open[stream]; ok {
			c.closeCall(stream, k)
		}
		gone = !ok
	}
	if !gone {
		var extra []byte
		if st.Code == codes.Unimplemented && r.head.method != nil {
			extra = acceptEncoding
		}
		c.sendStatus(stream, k, st, extra)
		if !ended {
			c.mu.Out = h2.AppendReset(c.mu.Out, stream, http2.ErrCodeNo)
		}
	}
	c.mu.Unlock()
	if !ended {
		c.noteEndedEarly(stream)
	}
	c.removeRequest(r)
	return nil
}

// answerHTTP answers a request that is not gRPC.
func (c *connection) answerHTTP(r *request, ended bool) error {
	stream, code := r.stream, r.head.http
	c.removeRequest(r)
	c.mu.Lock()
	if k, ok := c.mu.open[stream]; ok {
		c.closeCall(stream, k)
	}
	c.sendHTTP(stream, code, ended)
	c.mu.Unlock()
	if !ended {
		c.noteEndedEarly(stream)
	}
	return nil
}

// armDeadlines gives the deadlines of calls that came with this chunk, and are still open, to the scanner.
func (c *connection) armDeadlines() {
	if len(c.in.deadlines) == 0 {
		return
	}
	c.mu.Lock()
	for _, d := range c.in.deadlines {
		k, ok := c.mu.open[d.stream]
		if r := c.request(d.stream); r != nil {
			k, ok, r.armed = call(r.head.index())|callReceiving, true, true
		}
		if ok {
			c.mu.open[d.stream] = k | callTimed
			c.mu.timed++
			c.srv.scan.add(alarm{when: d.when, conn: c, stream: d.stream})
		}
	}
	c.mu.Unlock()
	c.in.deadlines = c.in.deadlines[:0]
}
