package back

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry/wire/conn"
	"github.com/serry-dev/serry/wire/internal/h2"
	"github.com/serry-dev/serry/wire/rpc"
)

// A response is what the headers and trailers of an answer say.
type response struct {
	http     string // its status
	content  string // its type
	encoding string // of messages, grpc-encoding
	status   string // grpc-status, empty until it has come
	message  string // grpc-message, as sent
	details  string // grpc-status-details-bin, as sent
}

// field takes one decoded header.
func (r *response) field(f hpack.HeaderField) {
	switch f.Name {
	case ":status":
		r.http = f.Value
	case "content-type":
		r.content = f.Value
	case "grpc-encoding":
		r.encoding = f.Value
	case "grpc-status":
		r.status = f.Value
	case "grpc-message":
		r.message = f.Value
	case "grpc-status-details-bin":
		r.details = f.Value
	}
}

// end says how the call ended: with the one message in body, or another status.
func (r *response) end(body []byte, gzip bool) ([]byte, rpc.Status) {
	switch {
	case r.status == "0":
		return r.reply(body, gzip)
	case r.status != "":
		return nil, r.failure()
	}
	st := httpStatus(r.http)
	if r.http == "200" && !strings.HasPrefix(r.content, "application/grpc") {
		st = internal("response has content-type %q", r.content)
	} else if r.http == "200" {
		st = internal("response has no grpc-status")
	}
	return nil, st
}

// reply takes the message out of its frame.
func (r *response) reply(body []byte, gzip bool) ([]byte, rpc.Status) {
	if len(body) < h2.PrefixBytes {
		return nil, internal("reply of %d bytes has no message", len(body))
	}
	length := binary.BigEndian.Uint32(body[1:])
	if uint64(length) != uint64(len(body)-h2.PrefixBytes) {
		return nil, internal("reply of %d bytes says that its message has %d", len(body)-h2.PrefixBytes, length)
	}
	switch flag, message := body[0], body[h2.PrefixBytes:]; {
	case flag == 0:
		return message, rpc.Status{}
	case flag == 1 && gzip && r.encoding == "gzip":
		plain, err := h2.Gunzip(message, MaxMessageBytes, nil)
		if err != nil {
			return nil, internal("reply cannot be decompressed: %v", err)
		}
		if len(plain) < conn.Large { // a caller that keeps the reply must not keep a buffer of the pool
			defer conn.Recycle(plain)
			plain = bytes.Clone(plain)
		}
		return plain, rpc.Status{}
	default:
		return nil, internal("reply has flag %d and is compressed by %q, which was not asked for", flag, r.encoding)
	}
}

// failure is what the server says.
func (r *response) failure() rpc.Status {
	code, err := strconv.ParseUint(r.status, 10, 32)
	if err != nil || code > uint64(codes.Unauthenticated) {
		code = uint64(codes.Unknown)
	}
	st := rpc.Status{Code: codes.Code(code), Message: r.message}
	if text, err := url.PathUnescape(r.message); err == nil {
		st.Message = text
	}
	if details, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(r.details, "=")); err == nil && r.details != "" {
		st.Details = details
	}
	return st
}

func internal(format string, args ...any) rpc.Status {
	return rpc.Status{Code: codes.Internal, Message: fmt.Sprintf(format, args...)}
}

// httpStatus is the status that gRPC gives to an answer which is not gRPC.
func httpStatus(http string) rpc.Status {
	code, ok := map[string]codes.Code{
		"400": codes.Internal, "401": codes.Unauthenticated, "403": codes.PermissionDenied, "404": codes.Unimplemented,
		"429": codes.Unavailable, "502": codes.Unavailable, "503": codes.Unavailable, "504": codes.Unavailable,
	}[http]
	if !ok {
		code = codes.Unknown
	}
	return rpc.Status{Code: code, Message: fmt.Sprintf("response has HTTP status %q", http)}
}

// resetStatus is the status that gRPC gives to a stream which the server has reset.
func resetStatus(code http2.ErrCode) rpc.Status {
	st := internal("the server reset the stream: %v", code)
	switch code {
	case http2.ErrCodeEnhanceYourCalm:
		st.Code = codes.ResourceExhausted
	case http2.ErrCodeInadequateSecurity:
		st.Code = codes.PermissionDenied
	}
	return st
}
