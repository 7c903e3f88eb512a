package link

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/pause"
)

// A running process is asked about its links through the key-value store (CL-TRN-33). The caller creates the AskKey of a
// life. The life watches its own keys: it deletes the question, and only then takes its figures and writes its report.
// So a caller that finds a question there already needs none of its own: the report is yet to come. The caller deletes
// the report that it has read. A process that is not asked writes nothing, and costs the service one call that waits.

const (
	// KeyDir is the directory of all keys of links.
	KeyDir = "serry/link"

	maxReportBytes = 8 << 10
	reportPause    = time.Second // between two reports, however many ask
)

// AskKey is the key that asks a life for a report on its links.
func AskKey(l serry.Life) string { return AddressKey(l) + "/ask" }

// ReportKey is where a life writes the report.
func ReportKey(l serry.Life) string { return AddressKey(l) + "/report" }

// ParseKey says which life a key of links belongs to: one that has addresses, or a report. Other keys are not ok.
func ParseKey(key string) (life serry.Life, report, ok bool) {
	rest, inDir := strings.CutPrefix(key, KeyDir+"/")
	rest, report = strings.CutSuffix(rest, "/report")
	at := strings.LastIndexByte(rest, '/')
	if !inDir || at < 0 {
		return serry.Life{}, false, false
	}
	task, err := serry.ParseTaskID(rest[:at])
	number, wrong := strconv.ParseUint(rest[at+1:], 16, 64)
	if err != nil || wrong != nil || len(rest[at+1:]) != 16 {
		return serry.Life{}, false, false
	}
	return serry.Life{Task: task, Incarnation: serry.Incarnation(number)}, report, true
}

// A Report is what a member tells of its links when it is asked.
type Report struct {
	Links  int               `json:"links"` // that are up
	Worst  []Figures         `json:"worst"` // as many as a report has room for: suspected first, then the longest silent
	Losses map[string]uint64 `json:"losses,omitempty"`
}

// Figures are those of one link, as a report has them.
type Figures struct {
	Peer           string  `json:"peer"`
	Incarnation    uint64  `json:"incarnation,string"` // of the peer
	Address        string  `json:"address"`
	Lanes          int     `json:"lanes"`
	Suspected      bool    `json:"suspected"`
	UpSeconds      float64 `json:"up_seconds"`
	SilentSeconds  float64 `json:"silent_seconds"` // since the peer was last heard
	TripMicros     float64 `json:"trip_micros"`    // of a ping, there and back; 0 before the first
	FramesSent     uint64  `json:"frames_sent"`
	FramesReceived uint64  `json:"frames_received"`
	BytesSent      uint64  `json:"bytes_sent"` // of payloads
	BytesReceived  uint64  `json:"bytes_received"`
	Retransmits    uint64  `json:"retransmits"` // packets, over all lanes
	Waiting        int     `json:"waiting"`     // messages that the peer has no memory for yet
}

// ParseReport reads what a member has written.
func ParseReport(text []byte) (r Report, err error) {
	if len(text) > maxReportBytes {
		return r, &serry.InvalidError{What: fmt.Sprintf("report on links of %d bytes", len(text))}
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, &serry.InvalidError{What: fmt.Sprintf("report on links: %v", err)}
	}
	return r, nil
}

// answer writes a report whenever one is asked for, until ctx ends.
func (n *Net) answer(ctx context.Context) {
	for e, err := range n.keys.Watch(ctx, AddressKey(n.life)) {
		if err != nil {
			n.log.Debug("reports on links end", "err", err)
			return
		}
		if e.Key != AskKey(n.life) || e.Deleted {
			continue
		}
		if err := n.report(ctx); err != nil {
			n.log.Debug("no report on links", "err", err)
		}
		if pause.For(ctx, reportPause) != nil {
			return
		}
	}
}

// report writes a report.
func (n *Net) report(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reportTime)
	defer cancel()
	if err := n.keys.Delete(ctx, AskKey(n.life)); err != nil {
		return err
	}
	return n.keys.Put(ctx, ReportKey(n.life), newReport(n.Links(), n.Totals().Losses))
}

// newReport puts figures into as many bytes as a report may have.
func newReport(links []Stats, losses map[Source]uint64) []byte {
	slices.SortStableFunc(links, func(a, b Stats) int {
		switch {
		case a.Suspected == b.Suspected: // pings are 250 ms apart: less than a second says nothing
			return cmp.Compare(b.Silent.Truncate(time.Second), a.Silent.Truncate(time.Second))
		case a.Suspected:
			return -1
		}
		return 1
	})
	r := Report{Links: len(links), Worst: []Figures{}, Losses: make(map[string]uint64)}
	for source, count := range losses {
		if count > 0 {
			r.Losses[source.String()] = count
		}
	}
	room := maxReportBytes - len(encode(r))
	for _, s := range links {
		f := figures(s)
		if room -= len(encode(f)) + len(","); room < 0 {
			break
		}
		r.Worst = append(r.Worst, f)
	}
	return encode(r)
}

// figures are those of a link. Addresses of peers are bounded: the peer has published them.
func figures(s Stats) Figures {
	return Figures{
		Peer: s.Peer.Task.String(), Incarnation: uint64(s.Peer.Incarnation), Address: s.Remote, Lanes: s.Lanes, Suspected: s.Suspected,
		UpSeconds: seconds(time.Since(s.Since)), SilentSeconds: seconds(s.Silent), TripMicros: float64(s.RoundTrip.Nanoseconds()) / 1e3,
		FramesSent: s.FramesSent, FramesReceived: s.FramesRecv, BytesSent: s.BytesSent, BytesReceived: s.BytesRecv,
		Retransmits: s.Retransmit, Waiting: s.Waiting,
	}
}

// seconds has three digits behind the point.
func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1e3 }

// encode writes a value that has nothing which JSON lacks.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}
