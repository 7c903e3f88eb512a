package wire

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire/tfpb"
)

// A Codec reads requests that are meant for one set of jobs. It does not change what it says; where an epoch opens
// with other jobs, a new one takes its place. The zero Codec knows no job.
type Codec struct {
	jobs  []coord.Job
	tasks int // of all jobs

	// lastList is the last list of task numbers that was read. Members of a job ask for the same set
	// all at once, and ten thousand lists of ten thousand numbers are better read once.
	lastList atomic.Pointer[numberList]
}

// A numberList is a list of tasks as it came and as it reads. It is never changed.
type numberList struct {
	packed []byte
	tasks  []serry.TaskID
}

// NewCodec makes a codec for these jobs, of which there is at least one.
func NewCodec(jobs []coord.Job) *Codec {
	c := &Codec{jobs: jobs}
	for _, j := range jobs {
		c.tasks += j.Tasks
	}
	return c
}

// An Origin is what the server knows of a call beside its bytes.
type Origin struct {
	Req  coord.Req
	Next serry.Incarnation // for RegisterTask: of the epoch that the call may open

	// ID makes a call that is sent again the same one. It came beside the request, so it counts for
	// the dialects that have none inside, and for methods that change something (C-REQ-1).
	ID coord.RequestID

	// Identify says which life of the task is registered on the connection that the call came by,
	// and with which epoch of the service; zeros if none is. The zero task means the only task
	// registered there. Calls of dialect TF do not say it themselves (C-INC-6). Nil: nothing is
	// known of the connection.
	Identify func(task serry.TaskID) (own, service serry.Incarnation)
}

// A Shape is what must be remembered of a request in order to answer it: a small value that can be
// compared. Requests with equal Shapes read equal replies alike, so that bytes can be shared.
type Shape struct {
	Dialect Dialect
	Op      Op

	oneJob  bool                      // the cluster has one job, and its name does not matter
	job     string                    // what the caller calls that job
	task    serry.TaskID              // who calls, or zero
	barrier string                    // of calls on barriers: the id
	counter int64                     // of calls on barriers: the instance
	asked   *tfpb.GetTaskStateRequest // of GetTaskState: the tasks as the caller wrote them
	query   StatusQuery               // of GetStatus
}

// Form is s without what only errors show of a call. Requests with equal Forms read equal results
// alike.
func (s Shape) Form() Shape {
	s.task, s.barrier, s.counter = serry.TaskID{}, "", 0
	return s
}

// Decode turns a request into an event. With an error the event is nil and the call is to be
// answered with [Shape.Refuse]. Nothing of body is kept.
func (c *Codec) Decode(path string, body []byte, o Origin) (coord.Event, Shape, error) {
	m, ok := methods[path]
	if !ok {
		return nil, Shape{}, errNoMethod
	}
	if ev, s, ok := c.fastPath(m, body, o); ok {
		return ev, s, nil
	}
	return c.generated(m, body, o)
}

// generated decodes any request, with generated code.
func (c *Codec) generated(m method, body []byte, o Origin) (coord.Event, Shape, error) {
	d := c.decoder(m, o)
	ev, err := m.decode(&d, body)
	if err != nil {
		return nil, d.shape, err
	}
	return ev, d.shape, nil
}

// Causes that only the wire knows.
var (
	errNoMethod = errors.New("no such method")
	errNotATask = errors.New("a call meant for a task")
)

// A decoder reads one request. What the reply needs it leaves in shape.
type decoder struct {
	codec  *Codec
	origin Origin
	shape  Shape
}

func (c *Codec) decoder(m method, o Origin) decoder {
	if o.ID.Requester != 0 && m.op != opDo && !coord.Kind(m.op).Row().Once {
		o.ID = coord.RequestID{}
	}
	return decoder{codec: c, origin: o, shape: Shape{Dialect: m.dialect, Op: m.op, oneJob: len(c.jobs) == 1}}
}

// parse parses body into m. Fields that m does not have are dropped.
func (d *decoder) parse(body []byte, m proto.Message) error {
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, m); err != nil {
		return &serry.InvalidError{What: "not a request of " + d.shape.Op.String()}
	}
	return nil
}

// extraTasks is how many more tasks than the cluster has a list may name. Such a list is wrong in
// any case, but a short one is worth the exact answer of the machine.
const extraTasks = 1024

// A list is where a request has its tasks.
type list struct {
	field   protowire.Number
	numbers bool // else messages
}

// checkList refuses a list of n tasks if that is more than the cluster has, with some to spare.
func (d *decoder) checkList(n int) error {
	if n > d.codec.tasks+extraTasks {
		return &serry.InvalidError{What: fmt.Sprintf("a list of %d tasks, the cluster has %d", n, d.codec.tasks)}
	}
	return nil
}

// len counts the entries of the list in a message that may be malformed.
func (l list) len(body []byte) (total int) {
	eachField(body, func(f field) bool {
		switch {
		case f.number != l.field:
		case l.numbers && f.typ == protowire.BytesType:
			total += countVarints(f.bytes)
		default:
			total++
		}
		return true
	})
	return total
}

// countVarints counts the bytes that end a number.
func countVarints(packed []byte) int {
	total := 0
	for _, b := range packed {
		if b < 0x80 {
			total++
		}
	}
	return total
}

// each applies f to all of a list. Of none it makes nil.
func each[A, B any](list []A, f func(A) B) []B {
	if len(list) == 0 {
		return nil
	}
	all := make([]B, len(list))
	for i, a := range list {
		all[i] = f(a)
	}
	return all
}

// barrier notes which barrier a call is about.
func (d *decoder) barrier(id string, counter int64) error {
	if err := checkName("barrier id", id); err != nil {
		return err
	}
	d.shape.barrier, d.shape.counter = id, counter
	return nil
}

// checkName refuses a name that is too long, since it will stand in texts and payloads
// (C-WIRE-16).
func checkName(what, name string) error {
	if len(name) <= coord.MaxNameBytes {
		return nil
	}
	return &serry.InvalidError{What: fmt.Sprintf("%s %q is %d bytes long, at most %d are allowed",
		what, middle(name, 64), len(name), coord.MaxNameBytes)}
}

// millis turns a number of milliseconds into a duration, the largest or smallest if it has no room.
func millis(ms int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	switch {
	case ms > most:
		return math.MaxInt64
	case ms < -most:
		return math.MinInt64
	}
	return time.Duration(ms) * time.Millisecond
}
