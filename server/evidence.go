package server

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
)

// inquiries ask the processes of the job what only they know, on behalf of a command (D-ST-12, D-ST-15). wire/evidence.go has
// the three calls. The machine has no part in it, because nothing here is state of the job. The Attend calls of processes wait at
// the server that leads; when another server takes over, the processes make these calls again there, and it knows them from then on.
//
// One lock guards everything. Replies are gathered under the lock and sent after it is released, so a slow connection delays no
// other.
//
// An inquiry goes like this. The Attend call of each process waits (attendants). A Gather call comes, and every attendant that
// the question may concern gets it as the reply to its Attend call, with a ticket (ask). The reply uses the Attend call up, so
// the attendant is forgotten until the process makes the next one, which clients do at once. Each process sends its answer with
// the ticket by an Answer call. When all have answered, or the time is over, the command gets the reply to its Gather call
// (advance, end).
//
// These goroutines touch it: those that serve calls or close connections, those of timers, and the one that ends the server.
// None of them needs the owner's turn, so inquiries work while the journal stands still. That is when people need them most.
type inquiries struct {
	binding  binding     // set in New, then constant
	barriers *barrierLog // the same

	mu struct {
		sync.Mutex
		attendants map[uint64]*attendant // by their ids
		calls      map[rpc.Conn]map[rpc.CallID]*attendant
		tickets    map[uint64]*askedAttendant
		open       map[*inquiry]bool
		closed     bool
	}
}

// A callKey names a call that waits.
type callKey struct {
	conn rpc.Conn
	call rpc.CallID
}

// An attendant is a process whose Attend call waits.
type attendant struct {
	wire.Attendance
	at callKey
}

// An inquiry is one Gather call.
//
// It has one round, or two where many attendants answer and equal answers are to be sent once. A thousand ranks that are in the
// same place of their code would send the same stack a thousand times. So in the first round they send digests alone. In the
// second round one attendant for each digest sends the body.
type inquiry struct {
	wire.Inquiry
	caller  callKey
	share   uint64                     // bytes that each attendant has for its answer
	digests bool                       // the first answers have digests alone
	bodies  bool                       // the second round runs, for the bodies of digests
	asked   map[uint64]*askedAttendant // by the ids of attendants
	tickets []uint64                   // of this round
	waiting int                        // of them without an answer
	parts   []*gatheredPart
	folded  map[uint64]*gatheredPart // by digest, with Fold
	room    int                      // bytes of bodies that still fit
	leftOut int
	timer   *time.Timer
}

// An askedAttendant has a ticket for an inquiry. It stays in asked after its answer, because the reply names those that were
// silent.
type askedAttendant struct {
	inquiry  *inquiry
	name     string
	id       uint64
	at       time.Time
	answered bool
}

// A gatheredPart is one of the reply, and which attendant can send its body. Several attendants are kept, because the first of
// them may be gone, or busy with another question, when the body is wanted.
type gatheredPart struct {
	wire.GatheredPart
	digest uint64
	from   []uint64 // ids of attendants, the first few that have the body
}

// Limits of inquiries.
const (
	maxAttendants    = 1 << 17
	attendantsOfConn = 8
	maxInquiries     = 16
	maxInquiryTime   = 10 * time.Second
	inquiryTime      = 2 * time.Second // where the command names none (D-ST-16)
	leastShare       = 4 << 10         // bytes
	foldFrom         = 16              // attendants from which on equal answers are sent once
	sendersKept      = 3               // attendants that are remembered for a body
	silentNamed      = 16
)

// newInquiries makes an empty set. newOwner sets barriers before any call can come.
func newInquiries(b binding) *inquiries {
	q := &inquiries{binding: b}
	q.mu.attendants = make(map[uint64]*attendant)
	q.mu.calls = make(map[rpc.Conn]map[rpc.CallID]*attendant)
	q.mu.tickets = make(map[uint64]*askedAttendant)
	q.mu.open = make(map[*inquiry]bool)
	return q
}

// replies are what leaves when the lock is given back.
type replies []struct {
	to     callKey
	body   []byte
	status rpc.Status
}

func (r *replies) add(to callKey, body []byte, st rpc.Status) {
	*r = append(*r, struct {
		to     callKey
		body   []byte
		status rpc.Status
	}{to, body, st})
}

// send must be called without the lock. A reply to a call that is gone meanwhile is dropped by the transport.
func (r replies) send() {
	for _, p := range r {
		p.to.conn.Reply(p.to.call, p.body, p.status)
		p.to.conn.Flush()
	}
}

// serve takes a call about evidence, and says whether it is one. The bodies of an answer are parts of the request, which is
// valid only until serve returns, so the request of an answer is copied.
func (q *inquiries) serve(at callKey, method string, body []byte) bool {
	var out replies
	var err error
	switch method {
	case wire.AttendMethod:
		out, err = q.attend(at, body)
	case wire.AnswerMethod:
		out, err = q.answer(at, bytes.Clone(body))
	case wire.GatherMethod:
		out, err = q.gather(at, body)
	default:
		return false
	}
	if err != nil {
		out = nil
		out.add(at, nil, refusedEvidence(err))
	}
	out.send()
	return true
}

// errNotBound says that the certificate of the caller does not allow the call.
type errNotBound struct{ rpc.Status }

func (e errNotBound) Error() string { return e.Message }

// refusedEvidence is the reply to a call that is not taken.
func refusedEvidence(err error) rpc.Status {
	switch err := err.(type) {
	case errNotBound:
		return err.Status
	case *serry.LimitError:
		return rpc.Status{Code: codes.ResourceExhausted, Message: err.Error()}
	}
	return rpc.Status{Code: codes.InvalidArgument, Message: err.Error()}
}

// allowed checks the certificate of a caller: that of the task that it speaks for, or of any task of the job or an
// operator where it speaks for none. Answer needs no check: a caller with a ticket has had it from an Attend call that was
// checked.
func (q *inquiries) allowed(at callKey, t serry.TaskID, what string) error {
	r := rightOwn
	if t.IsZero() {
		r = rightMember
	}
	if q.binding.hold(at.conn, r, t) {
		return nil
	}
	return errNotBound{q.binding.refusal(what, t)}
}

// attend keeps the call of an attendant until there is a question. One that comes back while an inquiry is open that it
// has not been asked for is asked at once: it was answering another question.
//
// The attendant is known by its id, which it draws itself. If it calls again on another connection, its former call is
// forgotten without a reply.
func (q *inquiries) attend(at callKey, body []byte) (out replies, err error) {
	a, err := wire.ReadAttendance(body)
	if err == nil {
		err = q.allowed(at, a.Task, "Attend")
	}
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	old := q.mu.attendants[a.ID]
	switch {
	case q.mu.closed:
		out.add(at, nil, wire.ShutDown())
		return out, nil
	case old == nil && len(q.mu.attendants) >= maxAttendants:
		return nil, &serry.LimitError{Limit: "attendants", Max: maxAttendants}
	case old != nil: // its connection broke, and the end of that is yet to be noticed
		q.forget(old)
	}
	if len(q.mu.calls[at.conn]) >= attendantsOfConn {
		return nil, &serry.LimitError{Limit: "attendants of a connection", Max: attendantsOfConn}
	}
	n := &attendant{a, at}
	q.remember(n)
	for i := range q.mu.open {
		if i.asked[a.ID] == nil && !i.bodies && i.concerns(n) {
			q.ask(i, n, nil, &out)
			break
		}
	}
	return out, nil
}

// remember and forget keep the two indexes of attendants in step: by id for questions, by connection and call for their ends.
func (q *inquiries) remember(n *attendant) {
	if q.mu.calls[n.at.conn] == nil {
		q.mu.calls[n.at.conn] = make(map[rpc.CallID]*attendant)
	}
	q.mu.attendants[n.ID], q.mu.calls[n.at.conn][n.at.call] = n, n
}

func (q *inquiries) forget(n *attendant) {
	delete(q.mu.attendants, n.ID)
	delete(q.mu.calls[n.at.conn], n.at.call)
	if len(q.mu.calls[n.at.conn]) == 0 {
		delete(q.mu.calls, n.at.conn)
	}
}

// concerns says whether an attendant may know something about the tasks of an inquiry.
func (i *inquiry) concerns(n *attendant) bool {
	return len(i.Tasks) == 0 || n.Task.IsZero() || slices.Contains(i.Tasks, n.Task)
}

// ask answers the call of an attendant with a question, which names the digests whose bodies are wanted, or none.
func (q *inquiries) ask(i *inquiry, n *attendant, digests []uint64, out *replies) {
	q.forget(n)
	ticket := newTicket()
	asked := &askedAttendant{inquiry: i, name: n.Name, id: n.ID, at: time.Now()}
	q.mu.tickets[ticket], i.tickets = asked, append(i.tickets, ticket)
	i.asked[n.ID] = asked
	i.waiting++
	question := wire.Question{
		Ticket: ticket, Kind: i.Kind, Argument: i.Argument, Tasks: i.Tasks, MaxBytes: i.share,
		DigestsOnly: i.digests && digests == nil, Digests: digests,
	}
	out.add(n.at, question.Bytes(), rpc.Status{})
}

// newTicket draws a number that no other process can guess: a process that has it may answer. Zero is left out, because it is
// what a message without the field has.
func newTicket() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return cmp.Or(binary.NativeEndian.Uint64(b[:]), 1)
}

// gather begins an inquiry. It asks the attendants of this moment, and those that come during its first round and were not
// asked yet.
func (q *inquiries) gather(at callKey, body []byte) (out replies, err error) {
	i := &inquiry{caller: at, asked: make(map[uint64]*askedAttendant), folded: make(map[uint64]*gatheredPart), room: wire.MaxGatheredBytes}
	if i.Inquiry, err = wire.ReadInquiry(body); err == nil {
		err = q.allowed(at, serry.TaskID{}, "Gather")
	}
	if err != nil {
		return nil, err
	}
	if i.Kind == wire.BarriersEvidence {
		return q.tellBarriers(at, i.Argument)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.mu.closed:
		out.add(at, nil, wire.ShutDown())
		return out, nil
	case len(q.mu.open) >= maxInquiries:
		return nil, &serry.LimitError{Limit: "inquiries at a time", Max: maxInquiries}
	}
	var all []*attendant
	for _, n := range q.mu.attendants {
		if i.concerns(n) {
			all = append(all, n)
		}
	}
	// The command says how long it waits, up to a bound. The bytes of the reply are divided among the attendants, so that a few
	// large answers cannot take the room of all others; the least share of very many attendants adds up to more than there is
	// room for, and take bounds the sum.
	i.Wait = min(cmp.Or(i.Wait, inquiryTime), maxInquiryTime)
	i.share = uint64(min(max(wire.MaxGatheredBytes/max(len(all), 1), leastShare), wire.MaxAnswerBytes))
	if i.Kind == wire.LogsEvidence {
		i.share = wire.MaxAnswerBytes // all launchers are asked, but only one or two have lines of the task
	}
	if i.digests = i.Fold && len(all) >= foldFrom; i.digests {
		i.share = wire.MaxAnswerBytes // of which few are sent
	}
	for _, n := range all {
		q.ask(i, n, nil, &out)
	}
	if i.waiting == 0 {
		out.add(at, wire.Gathered{}.Bytes(), rpc.Status{})
		return out, nil
	}
	q.mu.open[i] = true
	i.timer = time.AfterFunc(i.round(), func() { q.expire(i, false) })
	return out, nil
}

// tellBarriers answers a question that this server knows the answer to.
func (q *inquiries) tellBarriers(at callKey, argument string) (out replies, err error) {
	body, err := q.barriers.answer(argument)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	g := wire.Gathered{Parts: []wire.GatheredPart{{Body: body, Asked: now, Answered: now}}}
	out.add(at, g.Bytes(), rpc.Status{})
	return out, nil
}

// round is how long the answers of one round may take.
func (i *inquiry) round() time.Duration {
	if i.digests {
		return i.Wait / 2
	}
	return i.Wait
}

// expire ends a round, that of bodies or the first one, whose time is over. The timer may have fired just before the last answer
// ended the round; then the inquiry is not open any more, or is in its second round, which has a timer of its own.
func (q *inquiries) expire(i *inquiry, bodies bool) {
	var out replies
	q.mu.Lock()
	if q.mu.open[i] && i.bodies == bodies {
		q.advance(i, &out)
	}
	q.mu.Unlock()
	out.send()
}

// answer takes an answer. One that comes too late, or a second time, finds no ticket. Its sender gets an empty reply all the
// same, as there is nothing that it could do about it. A part beyond the share of the attendant is left out and counted.
func (q *inquiries) answer(at callKey, body []byte) (out replies, err error) {
	a, err := wire.ReadAnswer(body)
	if err != nil {
		return nil, err
	}
	out.add(at, nil, rpc.Status{})
	q.mu.Lock()
	defer q.mu.Unlock()
	asked := q.mu.tickets[a.Ticket]
	if asked == nil {
		return out, nil
	}
	delete(q.mu.tickets, a.Ticket)
	asked.answered = true
	i := asked.inquiry
	left := int(i.share)
	for _, p := range a.Parts {
		if left -= len(p.Body); left < 0 {
			i.leftOut++
			continue
		}
		i.take(asked, p)
	}
	if i.waiting--; i.waiting == 0 {
		q.advance(i, &out)
	}
	return out, nil
}

// take adds a part of an answer.
//
// Parts with the same digest become one, with the tasks of all of them, if the command has asked for that (Fold). In the second
// round a body must have the digest of a part that is known; no part is added then. A body for which there is no room is
// dropped, and its part stays without one, so that the command sees that it is missing.
func (i *inquiry) take(from *askedAttendant, p wire.Part) {
	digest := p.Digest
	if p.Body != nil {
		digest = wire.DigestOf(p.Body)
	}
	g := i.folded[digest]
	switch {
	case g != nil && i.bodies: // the tasks of the part are known
	case g != nil:
		g.Tasks = append(g.Tasks, p.Tasks...)
	case i.bodies || len(i.parts) >= maxGatheredParts:
		i.leftOut++
		return
	default:
		g = &gatheredPart{digest: digest}
		g.Tasks, g.Asked, g.Answered = p.Tasks, from.at, time.Now()
		i.parts = append(i.parts, g)
		if i.Fold {
			i.folded[digest] = g
		}
	}
	if len(g.from) < sendersKept {
		g.from = append(g.from, from.id)
	}
	if g.Body == nil && p.Body != nil {
		if i.room -= len(p.Body); i.room >= 0 {
			g.Body = p.Body
		} else {
			i.room += len(p.Body)
		}
	}
}

// maxGatheredParts bounds the reply of an inquiry, whose bodies may be empty.
const maxGatheredParts = 1 << 17

// advance ends a round: the next one asks for the bodies of digests, each of one attendant that has it, and after that the
// command gets its reply.
func (q *inquiries) advance(i *inquiry, out *replies) {
	if i.digests && !i.bodies {
		i.bodies = true
		q.dropTickets(i)
		for n, digests := range q.holders(i) {
			was := i.asked[n.ID]
			q.ask(i, n, digests, out)
			i.asked[n.ID].answered = was.answered // who is silent is said of the first round
		}
		if i.waiting > 0 {
			i.timer.Stop()
			i.timer = time.AfterFunc(i.Wait-i.round(), func() { q.expire(i, true) })
			return
		}
	}
	q.end(i)
	out.add(i.caller, i.gathered().Bytes(), rpc.Status{})
}

// holders finds the attendants that are to send bodies. An attendant can be asked only while its Attend call waits.
func (q *inquiries) holders(i *inquiry) map[*attendant][]uint64 {
	all := make(map[*attendant][]uint64)
	for _, g := range i.parts {
		for _, id := range g.from {
			if n := q.mu.attendants[id]; g.Body == nil && n != nil {
				all[n] = append(all[n], g.digest)
				break
			}
		}
	}
	return all
}

// dropTickets ends a round: answers that come from now on find no ticket.
func (q *inquiries) dropTickets(i *inquiry) {
	for _, ticket := range i.tickets {
		delete(q.mu.tickets, ticket)
	}
	i.tickets, i.waiting = nil, 0
}

// end forgets an inquiry.
func (q *inquiries) end(i *inquiry) {
	i.timer.Stop()
	q.dropTickets(i)
	delete(q.mu.open, i)
}

// gathered is the reply to the command.
func (i *inquiry) gathered() wire.Gathered {
	g := wire.Gathered{Asked: len(i.asked), LeftOut: i.leftOut}
	for _, p := range i.parts {
		g.Parts = append(g.Parts, p.GatheredPart)
	}
	for _, a := range i.asked {
		if !a.answered {
			g.Missing++
			g.Silent = append(g.Silent, a.name)
		}
	}
	slices.Sort(g.Silent)
	g.Silent = g.Silent[:min(len(g.Silent), silentNamed)]
	return g
}

// cancel forgets a call whose caller does not wait any more.
//
// If it is an attendant, no question will come by that call. If it is a command, its inquiry ends, and the answers that are
// under way will find no ticket.
func (q *inquiries) cancel(at callKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.mu.calls[at.conn][at.call]; n != nil {
		q.forget(n)
	}
	for i := range q.mu.open {
		if i.caller == at {
			q.end(i)
		}
	}
}

// connClosed forgets the calls of a connection that has ended. An attendant that was asked by that connection may still answer
// by another one, since the ticket does not depend on the connection.
func (q *inquiries) connClosed(c rpc.Conn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, n := range q.mu.calls[c] {
		q.forget(n)
	}
	for i := range q.mu.open {
		if i.caller.conn == c {
			q.end(i)
		}
	}
}

// close answers every call that waits: the server ends. Attend and Gather calls that come later are answered in the same way.
func (q *inquiries) close() {
	var out replies
	q.mu.Lock()
	q.mu.closed = true
	for _, n := range q.mu.attendants {
		q.forget(n)
		out.add(n.at, nil, wire.ShutDown())
	}
	for i := range q.mu.open {
		q.end(i)
		out.add(i.caller, nil, wire.ShutDown())
	}
	q.mu.Unlock()
	out.send()
}
