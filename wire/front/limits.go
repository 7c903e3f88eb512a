package front

import (
	"errors"
	"time"
)

// Sizes that the server announces or keeps to.
const (
	connWindow   = 16 << 20 // receive window of a connection
	streamWindow = 1 << 20  // receive window of a stream at its start
	messageGrant = 16 << 20 // most window a message gets at a time
	maxDataFrame = 1 << 20

	maxHeaderList    = 16 << 10 // decoded
	maxHeaderBlock   = 64 << 10 // encoded
	maxContinuations = 8
	maxTrailerBytes  = 7 << 10 // grpc-message and details, encoded (C-WIRE-16)
	maxMethods       = 1 << 16
)

// Limits of a connection. Correct clients stay far below all of them.
const (
	maxOpenCalls     = 1 << 20   // beyond: the stream is refused
	maxUnfinished    = 1 << 17   // of them, those whose requests have not ended
	pumpOutput       = 48 << 10  // output up to which large replies are encoded ahead of the socket
	maxPile          = 64 << 20  // unread replies of a peer that reads nothing
	maxConnBytes     = 256 << 20 // unfinished requests
	maxTinyData      = 10_000    // DATA frames in a row that carry next to nothing
	tinyData         = 16
	maxAcks          = 10_000 // acknowledgements that wait to be written
	maxIgnoredBody   = 64 << 10
	rememberedResets = 256
	maxCachedBlocks  = 64
)

// Times.
const (
	stallTime  = 20 * time.Second // bytes wait and none moves
	pileTime   = 5 * time.Second  // the same with more than maxPile
	lingerTime = time.Second      // between GOAWAY and the end
	watchEvery = time.Second
)

// What a limit refused, for counting.
const (
	refusedStreams = iota
	refusedMemory
	refusedResets
	refusedTinyData
	refusedPings
	refusedSettings
	refusedIdleFrames
	refusedHeaders
	refusedAcks
	refusedNotReading
	refusals
)

var refusalNames = [refusals]string{
	"streams", "memory", "resets", "tiny data", "pings", "settings",
	"idle frames", "headers", "acknowledgements", "does not read",
}

var (
	errHandshake = errors.New("no HTTP/2 handshake in time")
	errNotHTTP2  = errors.New("not HTTP/2")
	errDrained   = errors.New("drained")
)

// A rate is how many events a second are let through, and how many may come at once.
type rate struct{ perSecond, burst float64 }

var (
	resetRate    = rate{1000, 10_000} // young streams reset, by the peer or for its errors
	pingRate     = rate{1000, 1000}   // without data between them
	settingsRate = rate{100, 100}
	idleRate     = rate{10_000, 10_000} // PRIORITY, WINDOW_UPDATE and unknown frames without a request
)

// A bucket fills by events and drains with time.
type bucket struct {
	level float64
	at    time.Duration
}

// over counts an event and says whether there have been too many.
func (b *bucket) over(r rate, now time.Duration) bool {
	b.level = max(0, b.level-r.perSecond*(now-b.at).Seconds()) + 1
	b.at = now
	return b.level > r.burst
}
