package link

import (
	"encoding/binary"
	"hash/crc32"
)

// Inject writes a frame to a lane as a peer would that does not keep to the protocol. Length is what the
// header says, whatever the payload has; flags are those of the header.
func (l *Link) Inject(lane int, h Header, flags uint16, length uint32, payload []byte) {
	h.flags, h.length = flags, length
	b := append(h.append(nil), payload...)
	if flags&flagChecksum != 0 {
		b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(payload, castagnoli))
	}
	a := l.lanes[lane]
	if a.pipe == nil {
		a.out.Write(b)
		return
	}
	a.pipe.Lock()
	a.pipe.Queue(b)
	a.pipe.Unlock()
	a.pipe.Flush()
}

// Watched is how many small messages are watched.
func Watched(l *Link) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.receiver.watched
}

// Types and flags that a peer may send and programs do not.
const (
	Hello            = typeHello
	Window           = typeWindow
	CollectiveCredit = collectiveCredit
	Announce         = flagAnnounce
	WindowBytes      = windowBytes
	TurnGap          = turnGap
)

// NewReport is newReport.
var NewReport = newReport
