package front

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry/wire/internal/h2"
	"github.com/serry-dev/serry/wire/rpc"
)

// A headerBlock is a header block of which CONTINUATION frames are still to come.
type headerBlock struct {
	stream uint32 // 0: there is none
	ends   bool   // END_STREAM was set
	self   bool   // it made the stream depend on itself
	frames int
	bytes  []byte
}

func (c *connection) headersFrame(h h2.Head, p []byte) error {
	if h.Stream%2 == 0 {
		return protocolError("even stream number")
	}
	p, ok := unpad(h, p)
	if !ok {
		return protocolError("bad padding")
	}
	block := headerBlock{stream: h.Stream, ends: h.Flags.Has(http2.FlagHeadersEndStream), bytes: p}
	if h.Flags.Has(http2.FlagHeadersPriority) {
		if len(p) < 5 {
			return &ConnError{http2.ErrCodeFrameSize, "HEADERS without priority"}
		}
		block.self = binary.BigEndian.Uint32(p)&h2.MaxWindow == h.Stream
		block.bytes = p[5:]
	}
	if h.Flags.Has(http2.FlagHeadersEndHeaders) {
		return c.headers(block)
	}
	block.bytes = append([]byte(nil), block.bytes...)
	c.in.block = block
	return nil
}

func (c *connection) continuationFrame(h h2.Head, p []byte) error {
	b := &c.in.block
	if b.stream == 0 {
		return protocolError("CONTINUATION without HEADERS")
	}
	b.frames++
	if b.frames > maxContinuations || len(b.bytes)+len(p) > maxHeaderBlock {
		return c.overLimit(refusedHeaders, "header block too long")
	}
	b.bytes = append(b.bytes, p...)
	if !h.Flags.Has(http2.FlagContinuationEndHeaders) {
		return nil
	}
	block := *b
	*b = headerBlock{}
	return c.headers(block)
}

// unpad returns the payload of a frame without its padding.
func unpad(h h2.Head, p []byte) ([]byte, bool) {
	if !h.Flags.Has(http2.FlagHeadersPadded) {
		return p, true
	}
	if len(p) == 0 || int(p[0]) > len(p)-1 {
		return nil, false
	}
	return p[1 : len(p)-int(p[0])], true
}

// headers handles a whole header block: the start of a request, or its trailers.
func (c *connection) headers(b headerBlock) error {
	head, err := c.in.headers.read(b.bytes, c.srv.methods) // always: the table must stay right
	if err != nil {
		return &ConnError{http2.ErrCodeCompression, "header block"}
	}
	if b.stream > c.in.highest {
		if c.in.refusing {
			return nil
		}
		return c.open(b, head)
	}
	if r := c.request(b.stream); r != nil {
		if !b.ends || head.malformed || head.pseudo {
			return c.resetStream(b.stream, http2.ErrCodeProtocol)
		}
		return c.requestEnds(r, nil)
	}
	if slices.Contains(c.in.endedEarly, b.stream) {
		return nil
	}
	c.mu.Lock()
	_, waiting := c.mu.open[b.stream]
	waiting = waiting || c.mu.sender.has(b.stream)
	c.mu.Unlock()
	if waiting {
		return c.resetStream(b.stream, http2.ErrCodeStreamClosed)
	}
	return protocolError("stream number not above the last")
}

// open begins a request.
func (c *connection) open(b headerBlock, head *head) error {
	c.in.highest = b.stream
	c.in.idle.level, c.in.tiny = 0, 0
	if head.malformed || !head.pseudo || b.self {
		return c.resetStream(b.stream, http2.ErrCodeProtocol)
	}
	if c.full() {
		c.srv.count.refused[refusedStreams].Add(1)
		return c.resetStream(b.stream, http2.ErrCodeRefusedStream)
	}
	r := c.newRequest(b.stream, head)
	if head.timeout != noTimeout {
		r.deadline = c.in.now + head.timeout
		c.in.deadlines = append(c.in.deadlines, deadline{b.stream, r.deadline})
	}
	if head.refusal != nil {
		return c.refuse(r, *head.refusal, b.ends)
	}
	if b.ends {
		return c.requestEnds(r, nil)
	}
	return nil
}

// full says whether one more call would be too many.
func (c *connection) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.in.parked) >= maxUnfinished || len(c.mu.open)+c.mu.sender.len() >= maxOpenCalls
}

// A head is what a header block says, as far as the front cares. It does not change once made.
type head struct {
	method    *method     // never nil for a request that is not refused
	malformed bool        // a breach of HTTP
	pseudo    bool        // has pseudo-header fields
	http      int         // HTTP status that answers the request, or 0
	refusal   *rpc.Status // gRPC status that answers it, or nil
	gzip      bool        // grpc-encoding is gzip
	timeout   time.Duration
	length    int64 // content-length, or -1
}

// index is that of the method, 0 for an unknown one.
func (h *head) index() uint16 {
	if h.method == nil {
		return 0
	}
	return h.method.index
}

const noTimeout = time.Duration(-1)

// A headerReader decodes header blocks. Owned by the reader.
type headerReader struct {
	decoder *hpack.Decoder
	fields  fields
	known   map[string]*head // by block; valid as long as the dynamic table stays as it is
}

// read decodes a block. Blocks that only refer to the tables are remembered: a client sends few
// different ones (F-22).
func (r *headerReader) read(block []byte, methods map[string]*method) (*head, error) {
	pure := onlyIndexed(block)
	if !pure {
		clear(r.known)
	} else if h := r.known[string(block)]; h != nil {
		return h, nil
	}
	r.fields = fields{timeout: noTimeout, length: -1}
	if _, err := r.decoder.Write(block); err != nil {
		return nil, err
	}
	if err := r.decoder.Close(); err != nil {
		return nil, err
	}
	h := r.fields.head(methods)
	if pure {
		if r.known == nil || len(r.known) >= maxCachedBlocks {
			r.known = make(map[string]*head)
		}
		r.known[string(block)] = h
	}
	return h, nil
}

// onlyIndexed says whether the block is made of one-byte references only.
func onlyIndexed(block []byte) bool {
	for _, b := range block {
		if b < 0x80 || b == 0xff {
			return false
		}
	}
	return true
}

// field takes one decoded field.
func (r *headerReader) field(f hpack.HeaderField) { r.fields.add(f) }

// fields gathers the fields of a block.
type fields struct {
	size                 int
	malformed, ordinary  bool
	method, scheme, path string
	authority            bool
	contentType, te      string
	encoding             string
	timeout              time.Duration
	badTimeout, pseudo   bool
	length               int64
}

func (f *fields) add(h hpack.HeaderField) {
	if f.size += int(h.Size()); f.size > maxHeaderList {
		return
	}
	if strings.HasPrefix(h.Name, ":") {
		f.addPseudo(h)
		return
	}
	f.ordinary = true
	if !validName(h.Name) || !validValue(h.Value) {
		f.malformed = true
		return
	}
	switch h.Name {
	case "content-type":
		f.contentType = h.Value
	case "te":
		f.te = h.Value
		f.malformed = f.malformed || h.Value != "trailers"
	case "grpc-encoding":
		f.encoding = h.Value
	case "grpc-timeout":
		var ok bool
		f.timeout, ok = parseTimeout(h.Value)
		f.badTimeout = f.badTimeout || !ok
	case "content-length":
		n, err := strconv.ParseInt(h.Value, 10, 64)
		if err != nil || n < 0 || f.length >= 0 && f.length != n {
			f.malformed = true
		}
		f.length = n
	case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade":
		f.malformed = true
	}
}

func (f *fields) addPseudo(h hpack.HeaderField) {
	f.pseudo = true
	if f.ordinary {
		f.malformed = true
	}
	once := func(field *string) {
		if *field != "" || h.Value == "" || !validValue(h.Value) {
			f.malformed = true
		}
		*field = h.Value
	}
	switch h.Name {
	case ":method":
		once(&f.method)
	case ":scheme":
		once(&f.scheme)
	case ":path":
		once(&f.path)
	case ":authority":
		f.malformed = f.malformed || f.authority || !validValue(h.Value)
		f.authority = true
	default:
		f.malformed = true
	}
}

// head judges the fields as a request (F-23).
func (f *fields) head(methods map[string]*method) *head {
	h := &head{malformed: f.malformed, pseudo: f.pseudo, timeout: f.timeout, length: f.length, gzip: f.encoding == "gzip"}
	if f.size > maxHeaderList {
		h.malformed, h.pseudo = false, true
		h.refusal = &rpc.Status{Code: codes.ResourceExhausted, Message: "header list above " + strconv.Itoa(maxHeaderList) + " bytes"}
		return h
	}
	if f.pseudo && (f.method == "" || f.scheme == "" || f.path == "") {
		h.malformed = true
	}
	h.method = methods[f.path]
	switch {
	case h.malformed:
	case f.method != "POST":
		h.http = 405
	case !isGRPC(f.contentType):
		h.http = 415
	case f.te == "":
		h.refusal = &rpc.Status{Code: codes.Internal, Message: "header te: trailers is missing"}
	case h.method == nil:
		h.refusal = &rpc.Status{Code: codes.Unimplemented, Message: "unknown method " + shorten(f.path, 256)}
	case f.badTimeout:
		h.refusal = &rpc.Status{Code: codes.Internal, Message: "malformed grpc-timeout"}
	}
	return h
}

func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n/2] + "..." + s[len(s)-n/2:]
}

// isGRPC accepts application/grpc with or without a subtype or parameters.
func isGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(contentType, "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// timeoutUnits are the units of a grpc-timeout.
var timeoutUnits = map[byte]time.Duration{
	'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
}

// parseTimeout reads a grpc-timeout: one to eight digits and a unit. One that is too long to
// matter is none.
func parseTimeout(s string) (time.Duration, bool) {
	if len(s) < 2 || len(s) > 9 {
		return noTimeout, false
	}
	unit, ok := timeoutUnits[s[len(s)-1]]
	n, err := strconv.ParseUint(s[:len(s)-1], 10, 64)
	if !ok || err != nil {
		return noTimeout, false
	}
	const far = 100 * 365 * 24 * time.Hour
	if time.Duration(n) > far/unit {
		return noTimeout, true
	}
	return time.Duration(n) * unit, true
}

// validName says whether s may name a field: a token without capitals.
func validName(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		switch b := s[i]; {
		case 'a' <= b && b <= 'z', '0' <= b && b <= '9', strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0:
		default:
			return false
		}
	}
	return true
}

// validValue says whether s is free of the bytes that no field value may have.
func validValue(s string) bool { return !strings.ContainsAny(s, "\x00\r\n") }
