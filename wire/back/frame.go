package back

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

// Frames are appended to a buffer rather than written by a [http2.Framer], which would copy each
// once more. Reading is the Framer's.

// controlBytes has room for any frame without a payload of the caller's.
const controlBytes = 32

func appendFrameHeader(b []byte, length int, kind http2.FrameType, flags http2.Flags, stream uint32) []byte {
	b = append(b, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags))
	return binary.BigEndian.AppendUint32(b, stream)
}

func appendHeaders(b []byte, stream uint32, block []byte) []byte {
	b = appendFrameHeader(b, len(block), http2.FrameHeaders, http2.FlagHeadersEndHeaders, stream)
	return append(b, block...)
}

// appendMessage appends a whole request as one DATA frame: prefix, message, end of the stream.
func appendMessage(b []byte, stream uint32, m message) []byte {
	b = appendFrameHeader(b, prefixBytes+len(m.body), http2.FrameData, http2.FlagDataEndStream, stream)
	b = appendPrefix(b, m)
	return append(b, m.body...)
}

func appendData(b []byte, stream uint32, end bool, data []byte) []byte {
	var flags http2.Flags
	if end {
		flags = http2.FlagDataEndStream
	}
	b = appendFrameHeader(b, len(data), http2.FrameData, flags, stream)
	return append(b, data...)
}

func appendSettings(b []byte, settings ...http2.Setting) []byte {
	b = appendFrameHeader(b, 6*len(settings), http2.FrameSettings, 0, 0)
	for _, s := range settings {
		b = binary.BigEndian.AppendUint16(b, uint16(s.ID))
		b = binary.BigEndian.AppendUint32(b, s.Val)
	}
	return b
}

func appendSettingsAck(b []byte) []byte {
	return appendFrameHeader(b, 0, http2.FrameSettings, http2.FlagSettingsAck, 0)
}

func appendPingAck(b []byte, data [8]byte) []byte {
	b = appendFrameHeader(b, len(data), http2.FramePing, http2.FlagPingAck, 0)
	return append(b, data[:]...)
}

func appendWindowUpdate(b []byte, stream, increment uint32) []byte {
	b = appendFrameHeader(b, 4, http2.FrameWindowUpdate, 0, stream)
	return binary.BigEndian.AppendUint32(b, increment)
}

func appendReset(b []byte, stream uint32, code http2.ErrCode) []byte {
	b = appendFrameHeader(b, 4, http2.FrameRSTStream, 0, stream)
	return binary.BigEndian.AppendUint32(b, uint32(code))
}

// prefixBytes is what gRPC puts before a message: a flag and a length.
const prefixBytes = 5

func appendPrefix(b []byte, m message) []byte {
	var flag byte
	if m.compressed {
		flag = 1
	}
	return binary.BigEndian.AppendUint32(append(b, flag), uint32(len(m.body)))
}
