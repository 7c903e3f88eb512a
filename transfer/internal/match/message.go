package match

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/serry-dev/serry"
)

// An ID says which transfer between two lives is meant. Both processes know it without talking to each other. Which of them
// sends follows from the devices.
type ID struct {
	Namespace uint64
	Key       uint64
	Src, Dst  serry.DeviceID
}

// String is "7: 0 -> 1", with the namespace in front if there is one.
func (i ID) String() string {
	text := fmt.Sprintf("%d: %d -> %d", i.Key, i.Src, i.Dst)
	if i.Namespace != 0 {
		text = strconv.FormatUint(i.Namespace, 10) + "/" + text
	}
	return text
}

// Compare orders ids.
func (i ID) Compare(j ID) int {
	return cmp.Or(cmp.Compare(i.Namespace, j.Namespace), cmp.Compare(i.Key, j.Key), cmp.Compare(i.Src, j.Src), cmp.Compare(i.Dst, j.Dst))
}

// A Number names one send of a life. The sender draws it; the two lives of a pair draw odd and even ones, so that it names
// the data of a transfer, too.
type Number uint64

// A Shape is what the two sides of a transfer must have in common.
type Shape struct {
	Bytes  int64
	Digest uint64 // of type, dimensions and layout
	Text   string // for people
}

// MaxText is how long texts in messages may be. It keeps what an offer occupies at the receiver small (TR-MAT-7).
const MaxText = 256

// A Place is where the data of a send lie in memory of the sender that the receiver can read, if both are on one host. The
// zero Place is none.
type Place struct {
	Arena  uint64 // the name by which the receiver knows the memory
	Offset int64
}

// Known says whether there is a place.
func (p Place) Known() bool { return p.Arena != 0 }

// A Kind says what a message is.
type Kind uint8

// The kinds of messages. The sender offers and cancels, the receiver accepts and says that it is done.
const (
	Offer  Kind = 1 + iota // there is a send; Ready says whether its data are there
	Accept                 // the receiver has memory for the ranges in Missing
	Cancel                 // the sender has ended, or wants to end, by Verdict
	Done                   // the verdict of the receiver
)

// String is one lower-case word.
func (k Kind) String() string {
	names := [...]string{"", "offer", "accept", "cancel", "done"}
	if k == 0 || int(k) >= len(names) {
		return "kind " + strconv.Itoa(int(k))
	}
	return names[k]
}

// A Message is what one machine tells the other.
type Message struct {
	Kind    Kind
	Number  Number
	ID      ID
	Shape   Shape   // of Offer
	Class   uint8   // of Offer
	Ready   bool    // of Offer
	Early   bool    // of Offer: the data are not there, but will be soon; see [Machine.Early]
	Place   Place   // of Offer; the receiver may read the data there, if they are ready
	Carried bool    // of Offer: offers can carry the data; of Accept: the next one shall
	Data    []byte  // of Offer: all data, if it carries them
	Missing Ranges  // of Accept
	Verdict Verdict // of Cancel and Done
}

// String is one line for transcripts.
func (m Message) String() string {
	text := fmt.Sprintf("%v #%d (%v)", m.Kind, m.Number, m.ID)
	switch m.Kind {
	case Offer:
		text += " " + m.Shape.Text
		if m.Ready {
			text += " ready"
		}
		if m.Early {
			text += " early"
		}
		if m.Place.Known() {
			text += fmt.Sprintf(" at %d of arena %d", m.Place.Offset, m.Place.Arena)
		}
		if m.Data != nil {
			text += " with its data"
		}
	case Accept:
		text += " " + m.Missing.String()
		if m.Carried {
			text += " by an offer"
		}
	case Cancel, Done:
		text += " " + m.Verdict.String()
	}
	return text
}

// A Code says how a transfer ended. The numbers are those of gRPC.
type Code uint8

// The codes.
const (
	OK          Code = 0
	Cancelled   Code = 1
	Unknown     Code = 2
	Invalid     Code = 3
	Late        Code = 4 // deadline exceeded
	NotFound    Code = 5
	Exists      Code = 6
	Denied      Code = 7
	Exhausted   Code = 8
	Stale       Code = 9 // failed precondition
	Aborted     Code = 10
	Unsupported Code = 12
	Internal    Code = 13
	Unavailable Code = 14
	DataLoss    Code = 15
)

// codes has the words for codes that have a meaning.
var codes = map[Code]string{
	OK: "ok", Cancelled: "cancelled", Unknown: "unknown", Invalid: "invalid", Late: "deadline exceeded", NotFound: "not found",
	Exists: "already exists", Denied: "permission denied", Exhausted: "resource exhausted", Stale: "failed precondition", Aborted: "aborted",
	Unsupported: "unsupported", Internal: "internal", Unavailable: "unavailable", DataLoss: "data loss",
}

// String is a few lower-case words.
func (c Code) String() string {
	if text, ok := codes[c]; ok {
		return text
	}
	return "code " + strconv.Itoa(int(c))
}

// A Verdict is how a transfer ended.
type Verdict struct {
	Code Code
	Text string

	// Unconfirmed is set at a sender that ended without the word of the receiver. The receiver may have another verdict,
	// also OK. It does not travel.
	Unconfirmed bool
}

// String is the code, and the text if there is one.
func (v Verdict) String() string {
	text := v.Code.String()
	if v.Text != "" {
		text += ": " + v.Text
	}
	if v.Unconfirmed {
		text += " (unconfirmed)"
	}
	return text
}

// verdict makes a verdict whose text can travel.
func verdict(c Code, format string, args ...any) Verdict {
	text := fmt.Sprintf(format, args...)
	return Verdict{Code: c, Text: text[:min(len(text), MaxText)]}
}
