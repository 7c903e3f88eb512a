package wire

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/goodput"
	"github.com/serry-dev/serry/wire/serrypb"
)

// HangKey is where the launcher of a job stores, in JSON, what it knows of ranks that keep the others waiting. Package diagnose has
// the type; it is known here because a server counts the verdicts.
const HangKey = "serry/diagnose/hang"

// StatusVersion is the version of [Status]. It changes when a field changes its meaning or goes.
const StatusVersion = 1

// A Status is a picture of the service for people and their scripts, as JSON. Times are seconds of
// service time, the present is UpSeconds; ages count from now.
type Status struct {
	Version    int             `json:"version"`
	Epoch      int             `json:"epoch"`
	Service    uint64          `json:"service,string"`
	Clock      time.Time       `json:"clock"` // on the wall of the server
	UpSeconds  float64         `json:"up_seconds"`
	Leader     string          `json:"leader,omitempty"` // address of the server that answers, where there are several
	Term       uint64          `json:"term,omitempty"`   // of its leadership
	Takeover   *Takeover       `json:"takeover,omitempty"`
	Jobs       []JobStatus     `json:"jobs,omitempty"` // in the order of their names
	Stopped    bool            `json:"stopped"`
	Failure    string          `json:"failure,omitempty"`       // the first error that was told to all tasks
	First      *NoteStatus     `json:"first_failure,omitempty"` // of the epoch, told to all or not
	Size       int             `json:"size"`                    // number of tasks
	Counts     map[string]int  `json:"counts"`                  // of tasks by state
	Tasks      []TaskStatus    `json:"tasks,omitempty"`         // where they were asked for
	Barriers   []BarrierStatus `json:"barriers"`
	Notes      []NoteStatus    `json:"notes"` // what happened lately, oldest first
	Keys       int             `json:"keys"`
	StoreBytes int64           `json:"store_bytes"`
	Waiting    int             `json:"waiting_calls"`

	// How the time of the job was used, since it was launched or, under a service of its own, since this server leads;
	// nil where no step was reported. Steps are those of Tasks, -1 for one that has reported none.
	Goodput    *GoodputStatus    `json:"goodput,omitempty"`
	Stragglers []StragglerStatus `json:"stragglers,omitempty"` // the most expensive first
	Steps      []int64           `json:"steps,omitempty"`

	Picked *Picked `json:"picked,omitempty"` // what Tasks has, where a query has picked from them

	// Writers has, with last calls, the task that has written a key last in each folder in which a task waits for one.
	Writers map[string]string `json:"writers,omitempty"`
}

// FolderOf is the folder of a key: "data" of "data/7". A key without one has none.
func FolderOf(key string) (folder string, ok bool) {
	i := strings.LastIndexByte(key, '/')
	return key[:max(i, 0)], i > 0
}

// A GoodputStatus is how the time of a job was used, in a [Status].
type GoodputStatus struct {
	WallSeconds       float64            `json:"wall_seconds"`
	ProductiveSeconds float64            `json:"productive_seconds"`
	LostSeconds       map[string]float64 `json:"lost_seconds"`            // by cause; with productive_seconds they add up to wall_seconds
	Step              int64              `json:"step"`                    // the last one
	UsualSeconds      float64            `json:"usual_seconds,omitempty"` // that a step takes; 0: too few were made
	Phase             string             `json:"phase,omitempty"`
}

// A StragglerStatus is a rank, or a host, that holds the others up, in a [Status].
type StragglerStatus struct {
	Task           string  `json:"task,omitempty"` // empty: it is the host
	Host           string  `json:"host,omitempty"`
	Class          string  `json:"class"` // of the barriers
	LateSeconds    float64 `json:"late_seconds"`
	TypicalSeconds float64 `json:"typical_seconds"` // that the others work between two such barriers
	CostSeconds    float64 `json:"cost_seconds"`
	OfSeconds      float64 `json:"of_seconds"` // how long the barriers took that this is about
	Places         int     `json:"places"`     // how many they are
	Slower         float64 `json:"slower"`     // 0.25: it works a quarter longer than the others
	Share          float64 `json:"share"`      // of the time, that it costs
}

// A Takeover says that the server that answers leads in the place of another.
type Takeover struct {
	From        string    `json:"from"`                   // address of the server that led before
	At          time.Time `json:"at"`                     // when this one began to lead, on its wall
	TookSeconds float64   `json:"took_seconds,omitempty"` // from the loss of the other to that; 0: it handed over
}

// A JobStatus is a job in a [Status].
type JobStatus struct {
	Name  string `json:"name"`
	Tasks int    `json:"tasks"`
}

// States of tasks in a [Status].
const (
	StateConnected   = "connected"
	StateRegistering = "registering" // it waits for the others to register
	StateAbsent      = "absent"      // it has not come yet
	StateLeft        = "left"
	StateFailed      = "failed"
)

// A TaskStatus is a task in a [Status].
type TaskStatus struct {
	Task        string  `json:"task"`
	State       string  `json:"state"`
	Incarnation uint64  `json:"incarnation,string,omitempty"`
	ForSeconds  float64 `json:"for_seconds"`
	Departed    bool    `json:"departed,omitempty"` // its connections are closed
	Cause       string  `json:"cause,omitempty"`    // of its failure, in the words of a sentinel
	Error       string  `json:"error,omitempty"`

	HeardSeconds *float64 `json:"heard_seconds,omitempty"` // since its last heartbeat; nil: it has sent none
	From         string   `json:"from,omitempty"`          // address of its process, or of the relay of its host

	// The newest call of its program since this server leads, and the barrier or key that it is about.
	LastCall    string  `json:"last_call,omitempty"`
	LastOf      string  `json:"last_call_of,omitempty"`
	CallSeconds float64 `json:"last_call_seconds,omitempty"` // how long ago that was
	CallWaits   bool    `json:"last_call_waits,omitempty"`   // it has no answer yet
}

// A BarrierStatus is an open barrier in a [Status].
type BarrierStatus struct {
	ID          string   `json:"id"`
	Counter     int64    `json:"counter"`
	Arrived     int      `json:"arrived"`
	Members     int      `json:"members"`
	First       string   `json:"first,omitempty"`
	Missing     []string `json:"missing"` // the first maxListed of them
	ForSeconds  float64  `json:"for_seconds"`
	LeftSeconds float64  `json:"left_seconds,omitempty"` // until it times out

	// How long barriers of its class take, from the first arrival to the last: the median of those that passed
	// since this server leads. 0: none has.
	UsualSeconds float64 `json:"usual_seconds,omitempty"`
}

// A NoteStatus is something that happened, in a [Status].
type NoteStatus struct {
	Number      uint64   `json:"number"` // ascends
	AtSeconds   float64  `json:"at_seconds"`
	What        string   `json:"what"`
	Task        string   `json:"task,omitempty"`
	Incarnation uint64   `json:"incarnation,string,omitempty"`
	Barrier     string   `json:"barrier,omitempty"`
	Counter     int64    `json:"counter,omitempty"`
	Count       int      `json:"count,omitempty"`
	Of          int      `json:"of,omitempty"`
	Cause       string   `json:"cause,omitempty"`    // of a failure, in the words of a sentinel
	Evidence    string   `json:"evidence,omitempty"` // what was seen, or what the task itself said
	Missing     []string `json:"missing,omitempty"`  // at a barrier, the first maxListed of them
	Error       string   `json:"error,omitempty"`
	From        string   `json:"from,omitempty"` // of a refusal: the address of the caller
	More        int      `json:"more,omitempty"` // how many of the same kind followed at once and are left out
}

// A Report is a status as the server knows it: what the machine says, and what the server saw.
type Report struct {
	coord.Status
	Clock  time.Time
	Leader string      // address of the server; empty: it is the only one
	Term   uint64      // of its leadership
	First  *NoteStatus // or nil

	Takeover *Takeover // or nil: no other server has led before, as far as this one knows

	Notes []NoteStatus // ascending by number

	// Sight, or nil, says how long ago a task was last heard, and from which address; a negative time: never. It is
	// called where a query wants it.
	Sight func(serry.TaskID) (ago time.Duration, from string)

	Goodput    goodput.Goodput
	Stragglers []Straggler
	Steps      []int64 // of the tasks of the view; or nil

	Usual []coord.Time // of the barriers of the view, how long such take; or nil
	Calls []LastCall   // of the tasks of the view; or nil

	Writers map[string]string // as Status has them
}

// A Straggler is one of package goodput with the name of its task, which is zero for a host.
type Straggler struct {
	goodput.Straggler
	Task serry.TaskID
}

// A LastCall is the newest call of a task. The zero value is none.
type LastCall struct {
	Kind  coord.Kind
	Of    string     // the barrier or key that it is about, or empty
	Ago   coord.Time // how long ago it came
	Waits bool       // it has no answer yet
}

// Class is what the ids of barriers, or keys, have in common but for numbers: "save-100" is of "save-#".
func Class(id string) string {
	if strings.IndexFunc(id, isDigit) < 0 {
		return id
	}
	class := make([]byte, 0, len(id))
	for i := range len(id) {
		switch digit := isDigit(rune(id[i])); {
		case !digit:
			class = append(class, id[i])
		case i == 0 || !isDigit(rune(id[i-1])):
			class = append(class, '#')
		}
	}
	return string(class)
}

func isDigit(r rune) bool { return r >= '0' && r <= '9' }

const (
	maxListed = 64   // tasks that a list in a status names
	maxShown  = 1000 // of an error in a status, which may name every task
)

// StatusQuery says what a status is to hold beside its numbers.
type StatusQuery struct {
	Tasks bool   // every task
	After uint64 // the notes with greater numbers
	Sight bool   // of every task, when and from where it was last heard
	Calls bool   // of every task, its last call
	Pick  *Pick  // with Tasks: which of them; nil: all

	rows bool // the caller reads tasks as messages; callers of older versions read JSON alone
}

// Request is what asks for a status.
func (q StatusQuery) Request() (path string, body []byte, err error) {
	p := &serrypb.StatusQuery{Tasks: q.Tasks, After: q.After, Sight: q.Sight, Calls: q.Calls, Rows: true}
	if k := q.Pick; k != nil {
		p.Pick = &serrypb.Pick{Limit: uint32(max(0, k.Limit)), From: uint32(max(0, k.From)), Order: string(k.Order), Filter: valid(k.Filter), Blamed: k.Blamed}
	}
	return serryPath(&serrypb.Request{Call: &serrypb.Request_Status{Status: p}})
}

func serryPath(r *serrypb.Request) (path string, body []byte, err error) {
	body, err = proto.Marshal(r)
	return serrypb.CoordinationService_Do_FullMethodName, body, err
}

// ReadStatus reads the reply to a call for the status of the service.
func ReadStatus(body []byte) (Status, error) {
	p := new(serrypb.Reply)
	if err := proto.Unmarshal(body, p); err != nil {
		return Status{}, fmt.Errorf("reply of the server: %w", err)
	}
	if e := p.GetError(); e != nil {
		return Status{}, readSerryError(e)
	}
	var s Status
	if err := json.Unmarshal(p.GetStatus().GetJson(), &s); err != nil {
		return Status{}, fmt.Errorf("status of the server: %w", err)
	}
	if rows := p.GetStatus().GetTasks(); len(rows) > 0 {
		s.Tasks = readRows(rows)
	}
	return s, nil
}

// takeRows takes the tasks out of the status and returns them as rows, if the query wants rows. Ten thousand tasks
// take most of the time of a command, and JSON takes several times as long to read as messages.
func (s *Status) takeRows(q StatusQuery) []*serrypb.TaskRow {
	if !q.rows {
		return nil
	}
	rows := make([]*serrypb.TaskRow, len(s.Tasks))
	for i := range s.Tasks {
		t := &s.Tasks[i]
		rows[i] = &serrypb.TaskRow{
			Task: valid(t.Task), State: t.State, Incarnation: t.Incarnation, ForSeconds: t.ForSeconds, Departed: t.Departed,
			Cause: valid(t.Cause), Error: valid(t.Error), HeardSeconds: t.HeardSeconds, From: valid(t.From),
			LastCall: t.LastCall, LastCallOf: valid(t.LastOf), LastCallSeconds: t.CallSeconds, LastCallWaits: t.CallWaits,
		}
	}
	s.Tasks = nil
	return rows
}

// valid makes a text one that a message can carry, as JSON does by itself: no message is written with another.
func valid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

// readRows is the inverse of takeRows.
func readRows(rows []*serrypb.TaskRow) []TaskStatus {
	tasks := make([]TaskStatus, len(rows))
	for i, r := range rows {
		tasks[i] = TaskStatus{
			Task: r.GetTask(), State: r.GetState(), Incarnation: r.GetIncarnation(), ForSeconds: r.GetForSeconds(), Departed: r.GetDeparted(),
			Cause: r.GetCause(), Error: r.GetError(), HeardSeconds: r.HeardSeconds, From: r.GetFrom(),
			LastCall: r.GetLastCall(), LastOf: r.GetLastCallOf(), CallSeconds: r.GetLastCallSeconds(), CallWaits: r.GetLastCallWaits(),
		}
	}
	return tasks
}

// AsksForCalls says whether the call is for a status with the last call of every task.
func (s Shape) AsksForCalls() bool { return s.query.Tasks && s.query.Calls }

// NewStatus draws the status that a query asks for.
func NewStatus(r Report, q StatusQuery) Status {
	v := r.View
	s := Status{
		Version: StatusVersion, Epoch: v.Epoch, Service: uint64(v.Service), Clock: r.Clock, UpSeconds: seconds(v.Now), Stopped: v.Stopped,
		Leader: r.Leader, First: r.First, Size: len(v.Tasks), Counts: make(map[string]int),
		Barriers: []BarrierStatus{}, Notes: []NoteStatus{}, Keys: v.Keys, StoreBytes: v.StoreBytes, Waiting: v.Waiters,
	}
	if r.Leader != "" {
		s.Term, s.Takeover = r.Term, r.Takeover
	}
	if v.Failure != nil {
		s.Failure = clip(v.Failure.Error())
	}
	if q.Tasks {
		s.Tasks = make([]TaskStatus, 0, len(v.Tasks))
	}
	for i := range v.Tasks {
		t := &v.Tasks[i]
		s.Counts[stateOf(t)]++
		if last := len(s.Jobs) - 1; last >= 0 && s.Jobs[last].Name == t.Task.Job {
			s.Jobs[last].Tasks++
		} else {
			s.Jobs = append(s.Jobs, JobStatus{t.Task.Job, 1})
		}
		if q.Tasks {
			k := taskStatus(t, v.Now)
			if q.Sight && r.Sight != nil {
				k.saw(r.Sight(t.Task))
			}
			if r.Calls != nil {
				k.called(r.Calls[i])
			}
			s.Tasks = append(s.Tasks, k)
		}
	}
	s.account(r, q)
	for i := range v.Barriers {
		s.Barriers = append(s.Barriers, barrierStatus(&v.Barriers[i], v.Now))
		if r.Usual != nil {
			s.Barriers[i].UsualSeconds = seconds(r.Usual[i])
		}
	}
	if q.Tasks && q.Pick != nil {
		s.Picks(*q.Pick)
	}
	for _, n := range r.Notes {
		if n.Number > q.After {
			s.Notes = append(s.Notes, n)
		}
	}
	return s
}

// NewGoodput is how the time of a job was used, as a [Status] has it; nil where no step was reported.
func NewGoodput(g goodput.Goodput) *GoodputStatus {
	if !g.Known() {
		return nil
	}
	s := &GoodputStatus{WallSeconds: g.Wall.Seconds(), ProductiveSeconds: g.Productive.Seconds(), LostSeconds: make(map[string]float64), Step: g.Step, UsualSeconds: g.Usual.Seconds(), Phase: g.Phase}
	for cause, d := range g.Lost {
		s.LostSeconds[string(cause)] = d.Seconds()
	}
	return s
}

// maxStragglers is how many of them a status names.
const maxStragglers = 16

// account adds how the time of the job was used.
func (s *Status) account(r Report, q StatusQuery) {
	if q.Tasks {
		s.Steps, s.Writers = r.Steps, r.Writers
	}
	s.Goodput = NewGoodput(r.Goodput)
	for _, one := range r.Stragglers[:min(len(r.Stragglers), maxStragglers)] {
		st := StragglerStatus{
			Host: one.Host, Class: clip(one.Class), LateSeconds: one.Late.Seconds(), TypicalSeconds: one.Typical.Seconds(),
			CostSeconds: one.Cost.Seconds(), OfSeconds: one.Of.Seconds(), Places: one.Places, Slower: one.Slower(), Share: one.Share(),
		}
		if !one.Task.IsZero() {
			st.Task = one.Task.String()
		}
		s.Stragglers = append(s.Stragglers, st)
	}
}

func stateOf(t *coord.TaskView) string {
	switch {
	case t.Registering:
		return StateRegistering
	case t.State == serry.Disconnected && t.Incarnation != 0:
		return StateLeft
	case t.State == serry.Disconnected:
		return StateAbsent
	case t.State == serry.Failed:
		return StateFailed
	}
	return StateConnected
}

func taskStatus(t *coord.TaskView, now coord.Time) TaskStatus {
	s := TaskStatus{
		Task: t.Task.String(), State: stateOf(t), Incarnation: uint64(t.Incarnation),
		ForSeconds: seconds(now - t.Since), Departed: t.Departed,
	}
	if t.Err != nil {
		s.Error = clip(t.Err.Error())
		s.Cause, _ = causeOf(t.Err)
	}
	return s
}

// saw adds when and from where a task was last heard.
func (s *TaskStatus) saw(ago time.Duration, from string) {
	if ago < 0 {
		return
	}
	age := ago.Round(time.Millisecond).Seconds() // short, for ten thousand of them
	s.HeardSeconds, s.From = &age, from
}

func (s *TaskStatus) called(c LastCall) {
	if c.Kind != 0 {
		s.LastCall, s.LastOf, s.CallSeconds, s.CallWaits = c.Kind.Row().Name, c.Of, seconds(c.Ago), c.Waits
	}
}

func barrierStatus(b *coord.BarrierView, now coord.Time) BarrierStatus {
	s := BarrierStatus{
		ID: b.ID, Counter: b.Counter, Arrived: b.Arrived, Members: b.Members,
		Missing: taskNames(b.Missing), ForSeconds: seconds(now - b.Since),
	}
	if !b.First.IsZero() {
		s.First = b.First.String()
	}
	if b.Deadline >= 0 && b.Deadline < math.MaxInt64 {
		s.LeftSeconds = seconds(max(0, b.Deadline-now))
	}
	return s
}

// NewNote draws a note of the machine.
func NewNote(number uint64, at coord.Time, n coord.Note) NoteStatus {
	s := NoteStatus{
		Number: number, AtSeconds: seconds(at), What: n.What, Incarnation: uint64(n.Incarnation),
		Barrier: n.Barrier, Counter: n.Counter, Count: n.Count, Of: n.Of, From: n.From,
	}
	if !n.Task.IsZero() {
		s.Task = n.Task.String()
	}
	if n.Err == nil {
		return s
	}
	s.Error = clip(n.Err.Error())
	s.Cause, s.Evidence = causeOf(n.Err)
	if b, ok := errors.AsType[*serry.BarrierError](n.Err); ok {
		s.Missing = taskNames(b.Missing)
	}
	return s
}

// causeOf says what lies behind an error: the sentinel, and what was seen or said.
func causeOf(err error) (cause, evidence string) {
	switch e := err.(type) {
	case *serry.TaskError:
		if evidence = cmp.Or(e.Evidence, e.Text); evidence == "" && e.Was != 0 && e.Now != 0 {
			evidence = fmt.Sprintf("incarnation %d was there, %d came", e.Was, e.Now)
		}
		return e.Err.Error(), clip(evidence)
	case *serry.LostError:
		return serry.ErrTaskDead.Error(), clip(e.Lost[0].Evidence)
	case *serry.MismatchError:
		return serry.ErrMismatch.Error(), ""
	case *serry.BarrierError:
		return e.Err.Error(), ""
	}
	return clip(err.Error()), ""
}

func taskNames(tasks []serry.TaskID) []string {
	names := make([]string, min(len(tasks), maxListed))
	for i := range names {
		names[i] = tasks[i].String()
	}
	return names
}

// clip shortens a text that a client chose or that may be long.
func clip(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "..."
}

func seconds(t coord.Time) float64 { return time.Duration(t).Seconds() }
