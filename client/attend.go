package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/wire"
)

// A Question is one of the service, on behalf of a person: where in its code is a rank, which collectives does it run?
type Question struct {
	Kind     string         // wire.StacksEvidence and so on
	Argument string         // what the kind makes of it
	Tasks    []serry.TaskID // whom it is about; none: all
	MaxBytes int            // of all findings together; what is beyond is not sent
}

// A Finding is what is found out about some tasks.
type Finding struct {
	Tasks []serry.TaskID
	Body  []byte
}

// An Attendant answers questions of a service.
type Attendant struct {
	Name string       // for people: of the host, or of the task
	Task serry.TaskID // the only task that it knows about; zero: it has the processes of a host

	// Answer is called by a goroutine for each question, two at a time at most. A question of an unknown kind has no findings.
	Answer func(context.Context, Question) []Finding
}

// ErrNotAsked says that a service asks no questions: it is not one of serry's, or an older one.
var ErrNotAsked = errors.New("the service asks no questions")

const (
	answerTime   = 10 * time.Second // for an answer, its way to the service included
	answersAhead = 2                // questions at a time
	toldKept     = 2                // answers whose bodies may still be asked for
)

// Attend answers questions of a service until ctx ends. It returns ErrNotAsked if there will be none. While nothing is asked,
// it is one call that waits.
func Attend(ctx context.Context, t Transport, a Attendant) error {
	n := &attendance{transport: t, attendant: a, busy: make(chan struct{}, answersAhead)}
	defer n.work.Wait()
	request := wire.Attendance{ID: rand.Uint64() | 1, Name: a.Name, Task: a.Task}.Bytes()
	for wait := firstRetry; ; {
		reply, st, err := t.Call(ctx, wire.AttendMethod, request)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case st.Code == codes.Unimplemented:
			return ErrNotAsked
		case err == nil && st.OK():
			wait = firstRetry
			if q, err := wire.ReadQuestion(reply); err == nil {
				n.begin(ctx, q)
			}
			continue
		}
		if err := pause.For(ctx, jittered(wait)); err != nil {
			return err
		}
		wait = min(2*wait, lastRetry)
	}
}

// An attendance is a running Attend.
type attendance struct {
	transport Transport
	attendant Attendant
	busy      chan struct{} // has a value for each question under way
	work      sync.WaitGroup

	mu   sync.Mutex
	told []map[uint64][]byte // bodies of the last answers that had digests in their place, by digest
}

// begin answers a question beside the wait for the next one. While it has enough to do the question gets no answer: the
// service does not wait for ever.
func (n *attendance) begin(ctx context.Context, q wire.Question) {
	select {
	case n.busy <- struct{}{}:
	default:
		return
	}
	n.work.Go(func() {
		defer func() { <-n.busy }()
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		answer := wire.Answer{Ticket: q.Ticket, Parts: n.parts(ctx, q)}
		// A service that does not take the answer names this process to the command as silent.
		_, _, _ = n.transport.Call(ctx, wire.AnswerMethod, answer.Bytes())
	})
}

// parts finds the parts of an answer.
func (n *attendance) parts(ctx context.Context, q wire.Question) (parts []wire.Part) {
	if len(q.Digests) > 0 {
		for _, digest := range q.Digests {
			if body := n.body(digest); body != nil {
				parts = append(parts, wire.Part{Body: body})
			}
		}
		return parts
	}
	most := int(min(q.MaxBytes, wire.MaxAnswerBytes))
	bodies := make(map[uint64][]byte)
	for _, f := range n.attendant.Answer(ctx, Question{q.Kind, q.Argument, q.Tasks, most}) {
		if most -= len(f.Body); most < 0 {
			break
		}
		p := wire.Part{Tasks: f.Tasks, Body: f.Body}
		if q.DigestsOnly {
			p.Digest, p.Body = wire.DigestOf(f.Body), nil
			bodies[p.Digest] = f.Body
		}
		parts = append(parts, p)
	}
	if q.DigestsOnly {
		n.mu.Lock()
		n.told = append(n.told, bodies)
		n.told = n.told[max(0, len(n.told)-toldKept):]
		n.mu.Unlock()
	}
	return parts
}

// body is one that was told as a digest, or nil.
func (n *attendance) body(digest uint64) []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, bodies := range n.told {
		if b := bodies[digest]; b != nil {
			return b
		}
	}
	return nil
}

// Answer has the member answer questions of one kind from now on: what this process knows, in at most so many bytes, or nil. A
// service of serry asks them when a person wants to know.
func (m *Member) Answer(kind string, answer func(ctx context.Context, argument string, most int) []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.answers[kind] = answer
}

// attend answers questions for as long as the member lives.
func (m *Member) attend() {
	err := Attend(m.ctx, m.transport, Attendant{Name: m.cfg.Task.String(), Task: m.cfg.Task, Answer: m.find})
	m.cfg.Log.Debug("no more questions", "task", m.cfg.Task, "err", err)
}

// find answers a question about this process.
func (m *Member) find(ctx context.Context, q Question) []Finding {
	m.mu.Lock()
	answer := m.mu.answers[q.Kind]
	m.mu.Unlock()
	if answer == nil {
		return nil
	}
	body := answer(ctx, q.Argument, q.MaxBytes)
	if body == nil {
		return nil
	}
	return []Finding{{Tasks: []serry.TaskID{m.cfg.Task}, Body: body}}
}
