package wire

import (
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/rpc"
)

// A service asks the processes of a job what only they know: where in their code ranks are, which collectives they run. A
// process that can answer makes an Attend call, which waits until there is a question; its reply is the question. So
// no process needs a port, a relay passes everything on as it does any call, and a job that is not asked costs one call that
// waits for each process. The process answers by an Answer call. A command asks by a Gather call, and the service puts
// the answers together.
const (
	AttendMethod = "/serry.Evidence/Attend"
	AnswerMethod = "/serry.Evidence/Answer"
	GatherMethod = "/serry.Evidence/Gather"
)

// Kinds of evidence. The service knows none of these: it passes questions and answers on. Those of barriers.go and logs.go it knows.
const (
	StacksEvidence      = "stacks"      // where in its code a rank is; each part is JSON, a list of [ThreadStack]
	CollectivesEvidence = "collectives" // the last operations of cliques, as package collective writes them
	TransfersEvidence   = "transfers"   // what transfers wait for, as package transfer writes it
)

// Limits of questions and answers.
const (
	MaxAnswerBytes   = 64 << 10 // of the bodies of one answer
	MaxGatheredBytes = 8 << 20  // of all bodies that a Gather returns

	maxEvidenceText = 1 << 10
	maxParts        = 4096    // of an answer, and tasks of all of them
	maxListedTasks  = 1 << 17 // of one list
	maxDigests      = 4096
	attendBytes     = 4 << 10
	answerBytes     = MaxAnswerBytes + 64<<10 // with the tasks of its parts
	gatherBytes     = 64 << 10
)

// evidenceMethods says how large requests about evidence may be.
func evidenceMethods(all rpc.Methods) {
	all[AttendMethod] = rpc.Method{MaxRequestBytes: attendBytes}
	all[AnswerMethod] = rpc.Method{MaxRequestBytes: answerBytes}
	all[GatherMethod] = rpc.Method{MaxRequestBytes: gatherBytes}
}

// An Attendance names a process that waits for questions.
type Attendance struct {
	ID   uint64       // drawn at random, the same in all calls of one attendant
	Name string       // for people: a host, or a rank
	Task serry.TaskID // the only task that it knows about; zero: it has the processes of a host
}

// A Question is the reply to an Attendance.
type Question struct {
	Ticket      uint64         // names the question in the answer; no other attendant has it
	Kind        string         // of evidence
	Argument    string         // what its kind makes of it
	Tasks       []serry.TaskID // whom it is about; none: all
	MaxBytes    uint64         // of all bodies of the answer
	DigestsOnly bool           // the answer is to have digests in place of bodies
	Digests     []uint64       // these bodies of the last such answer are wanted, and nothing else
}

// An Answer is that to one question.
type Answer struct {
	Ticket uint64
	Parts  []Part
}

// A Part is what an attendant says of some tasks.
type Part struct {
	Tasks  []serry.TaskID
	Digest uint64 // of the body, where there is none
	Body   []byte
}

// An Inquiry is what a command asks of the service.
type Inquiry struct {
	Kind, Argument string
	Tasks          []serry.TaskID // none: all
	Fold           bool           // equal parts of different attendants become one
	Wait           time.Duration  // how long attendants have to answer
}

// Gathered is the reply to an Inquiry.
type Gathered struct {
	Parts   []GatheredPart // in the order in which they came
	Silent  []string       // names of attendants that have not answered, the first of them
	Asked   int            // attendants
	Missing int            // attendants that have not answered
	LeftOut int            // parts for which there was no room
}

// A GatheredPart is a part, or several equal ones.
type GatheredPart struct {
	Tasks           []serry.TaskID
	Body            []byte    // nil: the attendants that have it did not send it in time
	Asked, Answered time.Time // by the clock of the service
}

// A ThreadStack is where one thread of a rank is: a part of the body of an answer about stacks.
type ThreadStack struct {
	Name   string       `json:"name,omitempty"` // "main thread 811 python", "3 goroutines"
	Frames []StackFrame `json:"frames,omitempty"`
	Deeper bool         `json:"more,omitempty"`  // there are more frames, further out
	Doing  string       `json:"doing,omitempty"` // what the thread does there
	Error  string       `json:"error,omitempty"` // why there are no frames
}

// A StackFrame is a call of a function that has not returned.
type StackFrame struct {
	Function string `json:"function"`
	File     string `json:"file"`
	Line     int    `json:"line"`
}

// AllThreads is the argument of a question about stacks that wants those of all threads. Without it the answer has that
// of the main thread alone, whose name is left out, so that equal ranks have equal answers.
const AllThreads = "threads"
