package stream

import (
	"errors"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/rpc"
)

// Preface is what both ends send first. Its first byte differs from that of HTTP/2 and of TLS. Its number
// is that of the layout of frames, which every [Version] keeps.
const Preface = "\xf5serry frames 1\n"

// Protocol is the name of the protocol in TLS handshakes (ALPN).
const Protocol = "serry/1"

// Times of the protocol.
const (
	BeatEvery   = 500 * time.Millisecond // A-SIDE-18
	ResumeAfter = time.Second            // without a byte: a second connection (A-SIDE-18)
	SilentAfter = 4 * time.Second        // without a byte: the session is over (C-LOST-5)
)

// ErrNotSpoken says that a server answers but does not speak this protocol.
var ErrNotSpoken = errors.New("the server does not speak serry's stream")

// ErrStandby says that a server speaks this protocol, and does not lead.
var ErrStandby = errors.New("stream: the server does not lead")

// ErrHungUp comes with ErrNotSpoken if the server ended the connection without an answer. It may speak
// another protocol, or it was about to die.
var ErrHungUp = errors.New("or is not there")

// A Kind says what a host is, and so what its silence means.
type Kind uint8

// The kinds of hosts.
const (
	Relay  Kind = 1 // many tasks of one machine: silence is that of the machine
	Client Kind = 2 // one program
)

// A ConnID names a virtual connection. It is a random number, which no other connection has, on any host.
// It is the requester of the numbered calls on the connection (C-REQ-1).
type ConnID uint64

// A Stamp says which life makes a call, as the relay knows by the connection (C-INC-6). Zero fields are not
// known.
type Stamp struct {
	serry.Life
	Service serry.Incarnation // the epoch that took the registration
}

// A Call is one call on its way to the service.
type Call struct {
	Conn ConnID
	ID   rpc.CallID // chosen by the host, not used twice on its connection

	// Number identifies a call that is sent again. Numbers ascend from 1 on a connection. It is zero for
	// calls that change nothing, and for those of serry's own dialect, which carry their ids themselves.
	Number    uint64
	Watermark uint64 // every number up to here was answered and delivered (C-REQ-3)

	Stamp  Stamp
	Method string // full path
	Body   []byte

	// Vital calls are never refused for a limit (C-LIM-1). It is not sent.
	Vital bool
}

// A Reply is how the service ended a call, whatever its code (A-SIDE-2).
type Reply struct {
	Conn   ConnID
	Call   rpc.CallID
	Term   uint64 // of the leader that answers
	Status rpc.Status
	Body   []byte // with Status OK
}

// A Standing is what the service knows of a life (C-HB-8).
type Standing struct {
	serry.Life                   // whose; if the task has another one by now, State is Disconnected
	State      serry.TaskState   // as published after the commit
	Service    serry.Incarnation // the epoch
	Error      []byte            // with Failed: why, as wire.MarshalError writes it, or nil
}

// An Ending says how a local connection ended.
type Ending uint8

// The endings of a connection.
const (
	Closed     Ending = 0 // by the client, properly or not
	NotReading Ending = 1 // by the relay, because the client left its replies unread
)

// A Closure says that the last local connection of a life has closed, with its error poll unanswered.
type Closure struct {
	serry.Life
	How     Ending
	Resumes bool // the client is one of serry's own, which may come back on another connection
}
