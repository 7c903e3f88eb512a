package web

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/harmless"
	"github.com/serry-dev/serry/wire"
)

// Topics of the stream. Beside them there are hello, reset and ping, which every viewer gets.
const (
	topicJob    = "job"
	topicGrid   = "grid"
	topicHosts  = "hosts"
	topicWaits  = "waits"
	topicWhy    = "why"
	topicEvents = "events"
	topicPing   = "ping"
)

var topicNames = []string{topicJob, topicGrid, topicHosts, topicWaits, topicWhy, topicServers, topicEvents}

// A Grid is the mark of every rank, in the order of their numbers, in a few bytes: 10,000 ranks of which one is odd are
// ".996!1.9003" (D-WEB-8).
type Grid struct {
	Version int              `json:"version"`
	Epoch   int              `json:"epoch"`
	Size    int              `json:"size"`
	Jobs    []wire.JobStatus `json:"jobs"`
	States  string           `json:"states"` // a mark, and how many ranks in a row have it
}

// Hosts are where the ranks are: runs of ranks that were heard from one host.
type Hosts struct {
	Version int       `json:"version"`
	Hosts   []HostRun `json:"hosts"`
}

// A HostRun is ranks with consecutive numbers on one host.
type HostRun struct {
	Host  string `json:"host"` // empty: not known
	Ranks int    `json:"ranks"`
}

func newGrid(p *picture) Grid {
	return Grid{Version: Version, Epoch: p.Status.Epoch, Size: p.Status.Size, Jobs: p.Status.Jobs, States: runLengths(p.marks)}
}

// runLengths writes marks as runs: a mark, and how often it comes in a row.
func runLengths(marks []diagnose.Marked) string {
	var b strings.Builder
	for i := 0; i < len(marks); {
		j := i + 1
		for j < len(marks) && marks[j].Mark == marks[i].Mark {
			j++
		}
		b.WriteByte(byte(marks[i].Mark))
		b.WriteString(strconv.Itoa(j - i))
		i = j
	}
	return b.String()
}

func newHosts(p *picture) Hosts {
	h := Hosts{Version: Version, Hosts: []HostRun{}}
	for i := range p.Status.Tasks {
		host := diagnose.HostOf(p.Status.Tasks[i].From)
		if last := len(h.Hosts) - 1; last >= 0 && h.Hosts[last].Host == host {
			h.Hosts[last].Ranks++
		} else {
			h.Hosts = append(h.Hosts, HostRun{host, 1})
		}
	}
	return h
}

// summary is the status without its tasks, as serry status asks for it.
func summary(s wire.Status) wire.Status {
	s.Tasks, s.Steps = nil, nil
	return s
}

// shortSummary is a summary without what has a topic of its own.
func shortSummary(s wire.Status) wire.Status {
	s = summary(s)
	s.Notes, s.Barriers = []wire.NoteStatus{}, []wire.BarrierStatus{}
	return s
}

// publishPicture sends what of a picture is new. It needs mu.
func (h *hub) publishPicture(p *picture) {
	s := shortSummary(p.Status)
	h.publish(p.taken, topicJob, jobKey(s), s)
	grid := newGrid(p)
	h.publish(p.taken, topicGrid, keyOf(grid), grid)
	hosts := newHosts(p)
	h.publish(p.taken, topicHosts, keyOf(hosts), hosts)
	waits := newWaits(p)
	h.publish(p.taken, topicWaits, waits.key(), waits)
	h.publish(p.taken, topicWhy, whyKey(p.report), p.report)
}

// publishAway says whether the source answers. It needs mu.
func (h *hub) publishAway(now time.Time, err error) {
	ping := newPing(now, err)
	h.publish(now, topicPing, ping.Away, ping)
}

// A Ping says that the page is served, and whether the service of the job answers.
type Ping struct {
	Version int       `json:"version"`
	Clock   time.Time `json:"clock"`          // on the wall of the server of the page
	Away    string    `json:"away,omitempty"` // why the service does not answer
}

// newPing is a ping after the source has answered with an error, or nil.
func newPing(now time.Time, err error) Ping {
	p := Ping{Version: Version, Clock: now.UTC()}
	if err != nil {
		p.Away = err.Error()
	}
	return p
}

func keyOf(document any) string { return string(encode(document)) }

// jobKey leaves out what changes while nothing happens.
func jobKey(s wire.Status) string {
	s.Clock, s.UpSeconds = time.Time{}, 0
	if g := s.Goodput; g != nil {
		s.Goodput = &wire.GoodputStatus{Step: g.Step, Phase: g.Phase}
	}
	return keyOf(s)
}

// whyKey leaves out the ages of waits and calls, which viewers count themselves. Ages in the texts of the verdict and the
// evidence count: they are what people read.
func whyKey(r diagnose.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %q %v %v %v %q %q %q", r.Healthy, r.Verdict, r.Kind, r.Stage, r.Grade, r.Evidence, r.Advice, r.Past)
	for _, w := range r.Waits {
		fmt.Fprintf(&b, " %q %v %v %v", w.Barrier, w.Arrived, w.Stage, w.On)
	}
	for _, k := range r.Keys {
		fmt.Fprintf(&b, " %q", k.Key)
	}
	return b.String()
}

// encode writes a document in JSON that neither a terminal nor a page takes for anything else than text.
func encode(document any) []byte {
	text, err := json.Marshal(document)
	if err != nil {
		panic(fmt.Sprintf("web: %T in JSON: %v", document, err)) // documents are plain structs
	}
	return harmless.JSON(text)
}
