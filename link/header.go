package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/serry-dev/serry/internal/crc32c"
)

const (
	headerBytes  = 48
	checkBytes   = 4 // of the checksum behind a payload
	magic        = 0x5E77
	version      = 1
	flagChecksum = 1 << 0 // a checksum follows the payload
	flagAnnounce = 1 << 1 // of data: the message waits for credit
	flagCredited = 1 << 2 // of data on the small lane: it had credit, and takes nothing of the window

	// SmallBytes is the greatest message that is sent without waiting for its receiver.
	SmallBytes = 8 << 10

	// ControlBytes is the greatest payload of a frame that is not data.
	ControlBytes = 64 << 10

	// ChunkBytes is the greatest payload of a data frame. Larger messages are cut into chunks.
	ChunkBytes = 4 << 20
)

// A Family says which layer a frame belongs to.
type Family uint8

// The families. The link's own frames are not seen by programs.
const (
	linkFamily Family = iota
	Collective
	Transfer
	families
)

// String is one lower-case word.
func (f Family) String() string {
	switch f {
	case linkFamily:
		return "link"
	case Collective:
		return "collective"
	case Transfer:
		return "transfer"
	}
	return "family " + strconv.Itoa(int(f))
}

// A Type says what a frame of a family is.
type Type uint8

// Types of the link family.
const (
	typeHello Type = 1 + iota
	typeAuth
	typeRefused
	typePing
	typePong
	typeBye
	typeWindow
	typeLend
	typeNeed // the peer has use for the link, though it carries nothing
)

// Types of the collective family.
const (
	OpDesc         Type = 1 + iota // what an operation is, for the peer to compare
	CollectiveData                 // a message, see [Link.Post]
	collectiveCredit
	Revoke   // a clique has failed
	Mismatch // the two sides run different operations
	Record   // what a member did, for those who ask why it hangs
	Join     // a process wants to form a clique
	Welcome  // all processes of a clique have come
	Leave    // a process has done with a clique
	OneSided // a rank puts, signals, or says how far it is with what another one asked of it
	TakeBack // an arena that was lent to a clique is not any more
)

// Types of the transfer family.
const (
	Offer Type = 1 + iota // transfers that a task wants to make
	Accept
	Refuse
	TransferData // a message, see [Link.Post]
	transferCredit
	Done   // the verdict of the receiver
	Query  // asks for it
	Cancel // a transfer is over
	Resume // ranges that are missing
	Pull   // asks for data that were offered
	Return // an arena that was lent is not any more
)

// grammar has what the link must know of the types of a family.
var grammar = [families]struct{ last, data, credit Type }{
	linkFamily: {last: typeNeed},
	Collective: {TakeBack, CollectiveData, collectiveCredit},
	Transfer:   {Return, TransferData, transferCredit},
}

// A Class says which frames go first.
type Class uint8

// The classes, the most urgent first. Data of class Control have the class that their size asks for.
const (
	Control Class = iota
	Urgent
	Normal
	Bulk
	classes
)

// A Header names a frame. Family, Type, Stream, Generation, Step and Seq name the message that data belong to; of
// a transfer, Stream and Generation alone, and Seq numbers its frames. Offset is where the data begin in
// the memory of the receiver.
type Header struct {
	Family     Family
	Type       Type
	Class      Class
	Stream     uint64
	Generation uint32
	Step       uint32
	Seq        uint64
	Offset     uint64

	flags  uint16
	length uint32 // of the payload; the link fills it in
}

// Data says whether the frame carries a message, or a part of one.
func (h *Header) Data() bool { return h.Family != linkFamily && h.Type == grammar[h.Family].data }

// payload is how many bytes follow the header.
func (h *Header) payload() int {
	if h.flags&flagChecksum != 0 {
		return int(h.length) + checkBytes
	}
	return int(h.length)
}

// append adds the bytes of the header to b.
func (h *Header) append(b []byte) []byte {
	start := len(b)
	le := binary.LittleEndian
	b = le.AppendUint16(b, magic)
	b = append(b, version, byte(h.Family), byte(h.Type), byte(h.Class))
	b = le.AppendUint16(b, h.flags)
	b = le.AppendUint64(b, h.Stream)
	b = le.AppendUint32(b, h.Generation)
	b = le.AppendUint32(b, h.Step)
	b = le.AppendUint64(b, h.Seq)
	b = le.AppendUint64(b, h.Offset)
	b = le.AppendUint32(b, h.length)
	return le.AppendUint32(b, crc32c.Sum(b[start:]))
}

// What can be wrong with the bytes of a peer. All of these end the link (CL-TRN-26).
var (
	errMagic    = errors.New("not a frame of serry")
	errVersion  = errors.New("frame of another version")
	errFamily   = errors.New("frame of an unknown family")
	errHeader   = errors.New("header checksum is wrong")
	errLength   = errors.New("frame is too long")
	errOverlap  = errors.New("the same bytes of a message came twice")
	errPieces   = errors.New("message came in too many pieces")
	errOutside  = errors.New("data outside of the memory that was granted")
	errWindow   = errors.New("peer sent more than its window")
	errLane     = errors.New("frame on a lane that is not for it")
	errCredit   = errors.New("peer gave more credit than there can be messages")
	errAnnounce = errors.New("peer announced more messages than there can be")
)

// parseHeader reads the header at the beginning of b, which has at least that many bytes.
func parseHeader(b []byte) (Header, error) {
	le := binary.LittleEndian
	switch {
	case le.Uint16(b) != magic:
		return Header{}, errMagic
	case le.Uint32(b[44:]) != crc32c.Sum(b[:44]):
		return Header{}, errHeader
	case b[2] != version:
		return Header{}, fmt.Errorf("%w: %d", errVersion, b[2])
	case b[3] >= byte(families):
		return Header{}, fmt.Errorf("%w: %d", errFamily, b[3])
	}
	h := Header{
		Family: Family(b[3]), Type: Type(b[4]), Class: Class(b[5]), flags: le.Uint16(b[6:]),
		Stream: le.Uint64(b[8:]), Generation: le.Uint32(b[16:]), Step: le.Uint32(b[20:]),
		Seq: le.Uint64(b[24:]), Offset: le.Uint64(b[32:]), length: le.Uint32(b[40:]),
	}
	most := uint32(ControlBytes)
	if h.Data() {
		most = ChunkBytes
	}
	if h.length > most {
		return Header{}, fmt.Errorf("%w: %d bytes, at most %d", errLength, h.length, most)
	}
	return h, nil
}

// A message names what data belong to, as a key of maps.
type message struct {
	family     Family
	zero       [7]byte // so that the compiler adds no gaps, and maps hash and compare a message as plain memory
	generation uint32
	step       uint32
	stream     uint64
	seq        uint64
}

func (h *Header) message() message {
	m := message{family: h.Family, generation: h.Generation, step: h.Step, stream: h.Stream, seq: h.Seq}
	if h.Family == Transfer {
		m.step, m.seq = 0, 0
	}
	return m
}
