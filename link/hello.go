package link

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/serry-dev/serry"
)

// A role says which side of a connection speaks.
type role byte

const (
	dialler  role = 'd'
	acceptor role = 'a'
)

// A hello is what each side of a connection says first.
type hello struct {
	oldest, newest byte // versions of the protocol
	order          byte // of the bytes of numbers: 'l' or 'b'
	lane, lanes    byte // which connection of the set this is, and how many there are
	largest        uint32
	job            serry.Incarnation // of the service: it names the run of the job
	set            uint64            // names the set that the connection belongs to
	lastSet        uint64            // the last set between these two lives that the sender knew, or 0
	from, to       serry.Life        // to is who the sender expects at the other end
	nonce          [32]byte
}

const (
	littleEndian = 'l'
	maxTaskText  = 512
	helloBytes   = 5 + 4 + 5*8 + 32 // without the names of tasks
)

var errHello = errors.New("malformed hello")

func (h *hello) append(b []byte) []byte {
	le := binary.LittleEndian
	b = append(b, h.oldest, h.newest, h.order, h.lane, h.lanes)
	b = le.AppendUint32(b, h.largest)
	for _, n := range []uint64{uint64(h.job), h.set, h.lastSet, uint64(h.from.Incarnation), uint64(h.to.Incarnation)} {
		b = le.AppendUint64(b, n)
	}
	b = append(b, h.nonce[:]...)
	for _, task := range []serry.TaskID{h.from.Task, h.to.Task} {
		text := task.String()
		b = append(le.AppendUint16(b, uint16(len(text))), text...)
	}
	return b
}

// parseHello reads a hello. Bytes behind it are left to later versions.
func parseHello(b []byte) (h hello, err error) {
	if len(b) < helloBytes {
		return h, errHello
	}
	le := binary.LittleEndian
	h.oldest, h.newest, h.order, h.lane, h.lanes = b[0], b[1], b[2], b[3], b[4]
	h.largest = le.Uint32(b[5:])
	h.job = serry.Incarnation(le.Uint64(b[9:]))
	h.set, h.lastSet = le.Uint64(b[17:]), le.Uint64(b[25:])
	h.from.Incarnation = serry.Incarnation(le.Uint64(b[33:]))
	h.to.Incarnation = serry.Incarnation(le.Uint64(b[41:]))
	copy(h.nonce[:], b[49:])
	b = b[helloBytes:]
	for _, task := range []*serry.TaskID{&h.from.Task, &h.to.Task} {
		if len(b) < 2 || len(b)-2 < int(le.Uint16(b)) || le.Uint16(b) > maxTaskText {
			return hello{}, errHello
		}
		n := int(le.Uint16(b))
		if *task, err = serry.ParseTaskID(string(b[2 : 2+n])); err != nil {
			return hello{}, fmt.Errorf("%w: %w", errHello, err)
		}
		b = b[2+n:]
	}
	return h, nil
}

// proof shows that the side with a role knows the secret. It covers everything that both sides said, and
// the role, so that no proof can be sent back to the side that made it.
func proof(secret []byte, r role, dialled, accepted []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte{byte(r)})
	for _, said := range [][]byte{dialled, accepted} {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(said)))
		mac.Write(n[:])
		mac.Write(said)
	}
	return mac.Sum(nil)
}

// A Refusal is why a process does not take a connection.
type Refusal uint16

// The refusals.
const (
	OtherJob    Refusal = 1 + iota // it belongs to another run of the job
	NoVersion                      // the two have no version of the protocol in common
	WrongSecret                    // the other side does not know the secret of the job
	Stale                          // a life that is over is dialled
	ByteOrder                      // the other machine writes numbers in another byte order
	Crossed                        // both sides dialled, and the other set stays
	Busy                           // it has as many links as it may have
	Closing                        // it is about to end
	OtherUser                      // the other process of this host runs as another user
	Untrusted                      // one side does not accept the certificate of the other
	Replaced                       // the service knows a newer life of the task that dials, or not this one
	NoSegment                      // memory that was lent is not taken
)

// String says it in a few words.
func (r Refusal) String() string {
	texts := [...]string{"", "other job", "no common version", "wrong secret", "stale incarnation", "other byte order", "dialled from both sides", "too many links", "closing", "other user", "certificate not accepted", "replaced incarnation", "segment not taken"}
	if int(r) < len(texts) && r > 0 {
		return texts[r]
	}
	return fmt.Sprintf("refusal %d", uint16(r))
}

// appendRefused writes the payload of REFUSED.
func appendRefused(b []byte, r Refusal, text string) []byte {
	return append(binary.LittleEndian.AppendUint16(b, uint16(r)), text...)
}

// parseRefused reads the payload of REFUSED. The text comes from outside and is cut.
func parseRefused(b []byte) (Refusal, string) {
	if len(b) < 2 {
		return 0, ""
	}
	return Refusal(binary.LittleEndian.Uint16(b)), clean(b[2:])
}

// clean makes text of a peer fit for a line of a log.
func clean(b []byte) string {
	text := make([]rune, 0, len(b))
	for _, r := range string(b[:min(len(b), 512)]) {
		if r < ' ' || r == 0x7f {
			r = '?'
		}
		text = append(text, r)
	}
	return string(text)
}
