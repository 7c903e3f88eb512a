package wire

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/tfpb"
	"github.com/serry-dev/serry/wire/xlapb"
)

const (
	// maxTextBytes is how long a text may be before it is cut (C-WIRE-10).
	maxTextBytes = 3072
	truncated    = " ... [truncated]"

	// maxTrailerBytes bounds text and details as they are encoded: clients refuse trailers from
	// 8 KiB on, and then see neither (C-WIRE-16).
	maxTrailerBytes = 7 << 10
)

// Refuse says err, an error of package serry or of [Codec.Decode], in the caller's dialect.
func (s Shape) Refuse(err error) rpc.Status {
	a, f := s.find(err)
	payloads := s.payloads(a.payload, f)
	return trailer(a.code, s.words(a, f, payloads), payloads)
}

// ShutDown is the answer to calls that come when the service has ended (C-INC-4).
func ShutDown() rpc.Status { return Shape{}.Refuse(serry.ErrStopped) }

// A stored status is how a failure of a task is shown to others.
type stored struct {
	code     codes.Code
	text     string
	reported bool
}

func (s Shape) stored(err error) stored {
	s.Op = opTask
	a, f := s.find(err)
	text := voice{shape: s, names: maxNames, bytes: maxTextBytes}.fill(a.text, f)
	return stored{a.code, cut(strings.ToValidUTF8(text, "\uFFFD"), maxTextBytes), a.payload == reportPayload}
}

// words puts an error into words that fit a trailer beside the payloads. Lists of names give way
// first, then ids and keys (C-WIRE-16).
func (s Shape) words(a answer, f *facts, payloads []byte) string {
	var text string
	for _, v := range [...]voice{
		{names: maxNames, bytes: maxTextBytes},
		{names: 3, bytes: maxTextBytes},
		{names: 1, bytes: maxTextBytes},
		{names: 1, bytes: 1024},
		{names: 1, bytes: 256},
		{names: 1, bytes: 64},
	} {
		v.shape = s
		text = strings.ToValidUTF8(v.fill(a.text, f), "\uFFFD")
		if len(text) <= maxTextBytes && encodedBytes(text, details(a.code, text, payloads)) <= maxTrailerBytes {
			break
		}
	}
	return text
}

// trailer puts a status together. Payloads are never cut; of the text as much is kept as fits, and
// of its second copy what fits then.
func trailer(code codes.Code, text string, payloads []byte) rpc.Status {
	text = cut(text, maxTextBytes)
	if len(payloads) == 0 {
		return rpc.Status{Code: code, Message: fit(text, maxTrailerBytes)}
	}
	text = fit(text, maxTrailerBytes-encodedBytes("", details(code, "", payloads)))
	room := base64.RawStdEncoding.DecodedLen(maxTrailerBytes-encodedBytes(text, nil)) - len(details(code, "", payloads))
	second := text[:runeStart(text, max(0, room-protowire.SizeVarint(maxTextBytes)))]
	return rpc.Status{Code: code, Message: text, Details: details(code, second, payloads)}
}

// fit shortens text to n bytes as they are encoded, and says so.
func fit(text string, n int) string {
	if encodedBytes(text, nil) <= n {
		return text
	}
	end, room := 0, n-len(truncated)
	for i := range len(text) {
		if room -= encodedByte(text[i]); room < 0 {
			break
		}
		end = i + 1
	}
	return text[:runeStart(text, end)] + truncated
}

// details is the value of grpc-status-details-bin: nothing without payloads (C-WIRE-8), else the
// container of the payloads, followed by code and text in the fields where a google.rpc.Status has
// them. Readers of one skip what belongs to the other (C-WIRE-15).
func details(code codes.Code, text string, payloads []byte) []byte {
	if len(payloads) == 0 {
		return nil
	}
	b := append([]byte(nil), payloads...)
	b = protowire.AppendTag(b, 1, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(code))
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	return protowire.AppendString(b, text)
}

// encodedBytes is what message and details take as header fields.
func encodedBytes(message string, details []byte) int {
	n := base64.RawStdEncoding.EncodedLen(len(details))
	for i := range len(message) {
		n += encodedByte(message[i])
	}
	return n
}

// encodedByte is what a byte of a message takes: more if it must be written as a number.
func encodedByte(c byte) int {
	if c >= ' ' && c <= '~' && c != '%' {
		return 1
	}
	return len("%00")
}

// The names of payloads, the same in both dialects (C-WIRE-7).
const (
	errorURL    = "type.googleapis.com/tensorflow.CoordinationServiceError"
	barrierURL  = "type.googleapis.com/tensorflow.BarrierError"
	mismatchURL = "type.googleapis.com/tensorflow.ServiceMismatchError"
)

// payloads serializes the container of an answer's payloads.
func (s Shape) payloads(p payload, f *facts) []byte {
	m := &tfpb.GrpcPayloadContainer{Payloads: map[string][]byte{}}
	switch p {
	case noPayload:
		return nil
	case emptyPayload:
		m.Payloads[errorURL] = nil
	case taskPayload, reportPayload:
		m.Payloads[errorURL] = s.source(f.task, p == reportPayload)
	case barrierPayload:
		m.Payloads[errorURL] = nil
		m.Payloads[barrierURL] = marshal(&xlapb.BarrierError{BarrierId: f.barrier, Counter: f.counter})
	case servicePayload:
		m.Payloads[errorURL] = nil
		m.Payloads[mismatchURL] = marshal(&xlapb.ServiceMismatchError{ServiceIncarnation: uint64(f.current)})
	}
	return marshal(m)
}

// source serializes who is to blame, in the caller's dialect.
func (s Shape) source(t serry.TaskID, reported bool) []byte {
	if s.Dialect == XLA {
		return marshal(&xlapb.CoordinationServiceError{IsReportedError: reported, SourceTaskId: int32(t.Index)})
	}
	return marshal(&tfpb.CoordinationServiceError{IsReportedError: reported, SourceTask: s.tfTask(t)})
}

// marshal serializes a message that this package built, with its map in order. It cannot fail: all strings in it
// are valid, having come from requests that were.
func marshal(m proto.Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil
	}
	return b
}

// cut shortens s to n bytes and says so.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:runeStart(s, n)] + truncated
}

// middle shortens s to about n bytes by leaving out its middle.
func middle(s string, n int) string {
	const gap = "[...]"
	if len(s) <= n {
		return s
	}
	half := max(0, n-len(gap)) / 2
	tail := len(s) - half
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return s[:runeStart(s, half)] + gap + s[tail:]
}

// runeStart is the largest number up to n at which s can be cut without splitting a character.
func runeStart(s string, n int) int {
	if n >= len(s) {
		return len(s)
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return n
}
