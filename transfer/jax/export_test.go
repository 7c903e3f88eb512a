package jax

import (
	"context"
	"net"

	"github.com/serry-dev/serry/transfer/offer"
)

// Serve is Listen on other listeners.
func Serve(control, lanes net.Listener, cfg Config) (*Server, error) {
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	return serve(control, lanes, cfg), nil
}

// By is a Config that dials another way.
func (cfg Config) By(dial func(ctx context.Context, network, address string) (net.Conn, error)) Config {
	cfg.dial = dial
	return cfg
}

// The messages, for peers of tests.
type (
	Message     = message
	PullRequest = pullRequest
	Packet      = packet
	Failure     = failure
	Establish   = establish
	HalfClose   = halfClose
)

// NewPacket makes the announcement of a part.
func NewPacket(request, lane, offset, size uint64, largest bool) Packet {
	return packet{request, lane, offset, size, largest}
}

// NewFailure makes the announcement of an error.
func NewFailure(request, offset, size uint64, largest bool, text string) Failure {
	return failure{request, offset, size, largest, text}
}

// NewPull makes a request.
func NewPull(id, request uint64, until int64, indexes ...uint64) PullRequest {
	return pullRequest{offer: offer.ID(id), indexes: indexes, request: request, until: until}
}

// NewEstablish makes the first message.
func NewEstablish(addresses []string, uuids ...uint64) Establish { return establish{addresses, uuids} }

// Lanes is where the lanes of an Establish are, and their first number.
func (m establish) Lanes() ([]string, uint64) { return m.addresses, m.uuids[0] }

// Frame and ReadFrame are the codec.
var (
	Frame     = frame
	ReadFrame = readFrame
	Decode    = decode
)

// Spans is for tests.
type Spans = spans

// Add adds a part.
func (s spans) Add(from, to uint64) (Spans, error) { return s.add(span{from, to}) }

// PacketFields are what a packet announces.
type PacketFields struct{ Request, Lane, Offset, Size uint64 }

// Fields is what a packet announces.
func (p packet) Fields() PacketFields { return PacketFields{p.request, p.lane, p.offset, p.size} }
