package collective

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/internal/rendezvous"
	"github.com/serry-dev/serry/link"
)

// A step is what the members of a clique do together, and all of them keep or none does. An operation alone cannot promise
// that: when a member dies in it, some of the others may have their result, and some an error (CL-ERR-9). So at the end of a
// step each member says whether it has done its part, in one agreement of the service (client.Member.Agree). All that get its answer
// get the same one.
//
// The service groups agreements by the set of tasks that take part, and an agreement waits for all of them that are alive. The set of a step has one
// more task, which does not exist and is named by the clique and the number of the step: so steps do not mix with each
// other, nor with the agreements of Reform. A task of the set may be alive and never come by itself: it was restarted, or its clique has failed
// and its program forms the next one. Its program cannot say yes any more. Members that wait call it (a JOIN with step 2), and its
// group says no for it.

var (
	// ErrStepFailed says that a step is not committed, on any member; facts: StepError. The clique has ended: the members re-form it.
	ErrStepFailed = errors.New("step is not committed")

	// ErrInDoubt says that this process does not know whether the others have committed a step that it has done its part of. It must not
	// commit. It closes the clique, which has ended, and forms it anew by [Group.Clique], like a process that was restarted: the
	// others take it in, and give it their state.
	ErrInDoubt = errors.New("outcome of the step is not known")
)

// Live has the members that take part in a step.
type Live struct {
	Step    uint64                             // its number in the clique, from 1 on
	Devices []serry.DeviceID                   // of the clique, ascending (CL-ATM-5)
	Lives   map[serry.TaskID]serry.Incarnation // of the processes that drive them
}

// A StepError says why a step is not committed. It is the same on all members, but for Body.
type StepError struct {
	Step   uint64
	Rank   int        // the lowest that is lost, or whose part failed by itself; else the lowest whose part failed
	Life   serry.Life // of its process
	Detail string     // what it said
	Lost   bool       // it did not come to the end of the step
	Body   error      // what this process's own part returned, or nil
}

func (e *StepError) Error() string {
	text := fmt.Sprintf("step %d: %v: rank %d (%v): %s", e.Step, ErrStepFailed, e.Rank, e.Life.Task, e.Detail)
	if e.Body != nil {
		text += fmt.Sprintf("; here: %v", e.Body)
	}
	return text
}

// Unwrap makes ErrStepFailed visible to errors.Is, ErrPeerFailed if a member is lost, and the error of this process.
func (e *StepError) Unwrap() []error {
	list := []error{ErrStepFailed}
	if e.Lost {
		list = append(list, ErrPeerFailed)
	}
	if e.Body != nil {
		list = append(list, e.Body)
	}
	return list
}

// Step runs a part of a program on all members of a clique, such that all of them commit it or none does (CL-ATM-4). Every rank calls it with its
// part, fn, which runs operations on the clique and computes, and waits for the end of both; it changes nothing that it cannot
// take back. When Step returns nil, every member has done its part, and every member gets nil: now the program takes over
// the result. Else:
//
//   - ErrStepFailed: no member commits. A member was lost, or fn failed on one of them; [StepError] names it. The clique has ended on all members,
//     so that none waits for one that has given up. They form the next one ([Comm.Reform]) and run the step again.
//   - ErrInDoubt: this process has lost the service, or ctx has ended, before it had the answer. The others may have committed.
//
// In a clique that has failed nothing is run, and the step fails. All ranks of a process call it. With a stock service it needs
// [Options].Keys, and a member that has barriers, as *client.Member does; else every step is in doubt.
func Step(ctx context.Context, c *Comm, fn func(ctx context.Context, live Live) error) error {
	n, err := c.enterStep()
	if err != nil {
		return err
	}
	err = c.step(ctx, n, fn)
	c.leaveStep(err != nil)
	return err
}

// step runs a step that this rank has begun.
func (c *Comm) step(ctx context.Context, n stepName, fn func(ctx context.Context, live Live) error) (err error) {
	ctx, cancel := c.group.bounded(ctx)
	defer cancel()
	if err = c.Err(); err == nil {
		err = fn(ctx, c.clique.live(n.number))
	}
	mine := c.voteOf(err)
	if mine.code != votesYes {
		c.clique.revoke(&Error{Origin: c.rank, Detail: fmt.Sprintf("rank %d failed step %d: %s", c.rank, n.number, mine.text), Err: ErrCancelled})
	}
	o := c.clique.meetInStep(ctx, n, mine)
	switch {
	case o.err != nil && c.group.opt.Planted.Has(plant.CommitInDoubt):
		return nil
	case o.err != nil:
		return c.clique.doubt(n, mine, o.err)
	case o.failed != nil:
		e := *o.failed
		e.Body = mine.err
		c.clique.revoke(&Error{Origin: c.rank, Ranks: []int{e.Rank}, Detail: fmt.Sprintf("step %d failed: %s", n.number, e.Detail), Err: ErrCancelled})
		return &e
	}
	return nil
}

// An outcome is what became of a step: it is committed, or failed, or this process does not know.
type outcome struct {
	failed *StepError
	err    error
}

// meetInStep meets the other ranks of this process at the end of a step, and decides the step with the vote of all. A rank of a clique that has failed may not
// come: its program may form the next one. Then those that wait vote without it.
func (c *clique) meetInStep(ctx context.Context, n stepName, mine vote) outcome {
	meeting, stop := c.group.bounded(context.WithoutCancel(ctx)) // the other ranks come when their parts end, not when this one is cancelled
	defer stop()
	defer context.AfterFunc(c.ctx, func() { time.AfterFunc(stepEndTime, stop) })()
	place := rendezvous.Place[vote]{Name: fmt.Sprintf("rank %d", mine.rank), Size: len(c.key.RanksOf(c.group.life)), Value: mine}
	o, err := c.group.steps.Join(meeting, n, place, func(all []vote) (outcome, error) {
		return c.decide(ctx, n, slices.MinFunc(all, vote.compare)), nil
	})
	if err != nil {
		return c.decide(ctx, n, slices.MinFunc([]vote{mine, {code: votesEnd, rank: mine.rank, text: err.Error()}}, vote.compare))
	}
	return o
}

// stepName names a step: the clique by its stream.
type stepName struct {
	stream uint64
	number uint64
}

// task is one that does not exist: it names the agreement of the step.
func (n stepName) task() serry.TaskID {
	return serry.TaskID{Job: fmt.Sprintf("step-%016x-%d", n.stream, n.number)}
}

// stepSet are the tasks of the agreement of a step.
func stepSet(key *Key, n stepName) []serry.TaskID {
	tasks := mapped(key.Lives(), func(l serry.Life) serry.TaskID { return l.Task })
	return append(tasks, n.task())
}

// enterStep numbers the step that this rank begins. A rank of a clique that has failed takes part in it, too, and does not vote yes: the others
// may wait for it, and must not take it for the cause. But no step follows one that has failed.
func (c *Comm) enterStep() (n stepName, err error) {
	k := c.clique
	k.mu.Lock()
	defer k.mu.Unlock()
	if failed := k.failed.Load(); failed != nil && k.mu.stepped {
		return n, failed
	}
	c.steps++
	k.mu.stepping++
	return stepName{k.stream, c.steps}, nil
}

// leaveStep notes the end of a step.
func (c *Comm) leaveStep(failed bool) {
	c.clique.mu.Lock()
	defer c.clique.mu.Unlock()
	c.clique.mu.stepping--
	c.clique.mu.stepped = c.clique.mu.stepped || failed
}

// live has the members that take part in a step.
func (c *clique) live(step uint64) Live {
	l := Live{Step: step, Lives: make(map[serry.TaskID]serry.Incarnation)}
	for _, p := range c.key.Ranks {
		l.Devices = append(l.Devices, p.Device)
		l.Lives[p.Life.Task] = p.Life.Incarnation
	}
	slices.Sort(l.Devices)
	return l
}

// A vote is what a rank says at the end of a step, and the vote of a process is the first of those of its ranks.
type vote struct {
	code uint8
	rank int
	text string
	err  error // of this process's own part
	lost bool  // the process did not vote
}

// The codes of votes, those that decide first.
const (
	votesNo  = iota // its part failed
	votesEnd        // its part failed because the clique did
	votesNot        // it does not take part any more
	votesYes
)

const maxVoteText = 900 // bytes; a word of an agreement has at most 1 KiB

// voteOf is what a rank says after its part.
func (c *Comm) voteOf(err error) vote {
	if err == nil {
		return vote{code: votesYes, rank: c.rank}
	}
	v := vote{code: votesNo, rank: c.rank, text: err.Error(), err: err}
	if _, ok := errors.AsType[*Error](err); ok && c.Err() != nil {
		v.code = votesEnd
	}
	if len(v.text) > maxVoteText {
		v.text = v.text[:maxVoteText] + "..."
	}
	return v
}

// compare orders votes: those that decide first, and of equal ones that of the lower rank.
func (v vote) compare(other vote) int {
	return cmp.Or(cmp.Compare(v.code, other.code), cmp.Compare(v.rank, other.rank))
}

func (v vote) append(b []byte) []byte {
	b = append(b, v.code)
	b = binary.LittleEndian.AppendUint16(b, uint16(v.rank))
	return append(b, v.text...)
}

// parseVote reads a vote. One that cannot be read is none.
func parseVote(b []byte) vote {
	if len(b) < 3 || b[0] > votesYes {
		return vote{code: votesNot}
	}
	return vote{code: b[0], rank: int(binary.LittleEndian.Uint16(b[1:])), text: string(b[3:])}
}

// stepEndTime bounds how long a process whose part failed waits for the answer after its context has ended. The step fails whatever the answer
// is; the others wait for this vote.
const stepEndTime = 10 * time.Second

// decide hands in the vote of this process, and returns why the step is not committed, or nil if it is.
func (c *clique) decide(ctx context.Context, n stepName, mine vote) outcome {
	if mine.code != votesYes {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepEndTime)
		defer cancel()
		ctx = late
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.group.ctx, cancel)()
	a, err := c.votes(ctx, n, mine)
	switch {
	case err == nil:
		return outcome{failed: c.verdict(n, a)}
	case mine.code != votesYes: // the others have this vote, or find this process lost: none commits
		return outcome{failed: &StepError{Step: n.number, Rank: mine.rank, Life: c.key.Ranks[mine.rank].Life, Detail: mine.text}}
	}
	return outcome{err: err}
}

// verdict is what an agreement says of a step: nil, or why it is not committed.
func (c *clique) verdict(n stepName, a serry.Agreement) *StepError {
	var first *vote
	for _, l := range c.key.Lives() {
		if v := c.voteIn(a, l); v.code != votesYes && (first == nil || v.compare(*first) < 0) {
			first = &v
		}
	}
	if first == nil {
		return nil
	}
	return &StepError{Step: n.number, Rank: first.rank, Life: c.key.Ranks[first.rank].Life, Detail: first.text, Lost: first.lost}
}

// voteIn is the vote of a life in an agreement. That it did not come weighs as much as that its part failed.
func (c *clique) voteIn(a serry.Agreement, l serry.Life) vote {
	ranks := c.key.RanksOf(l)
	none := vote{code: votesNo, rank: ranks[0], text: "it did not come to the end of the step", lost: true}
	if incarnation, alive := a.Alive[l.Task]; !alive || incarnation != l.Incarnation {
		return none
	}
	if v := parseVote(a.Words[l.Task]); v.code != votesNot && slices.Contains(ranks, v.rank) {
		return v
	}
	return none
}

// doubt ends the clique for a process that does not know the outcome of a step.
func (c *clique) doubt(n stepName, mine vote, err error) error {
	c.mu.Lock()
	c.mu.doubt = true
	c.mu.Unlock()
	c.revoke(&Error{Origin: mine.rank, Ranks: []int{mine.rank}, Detail: fmt.Sprintf("rank %d does not know the outcome of step %d", mine.rank, n.number), Err: ErrCancelled})
	return fmt.Errorf("step %d: %w: %w", n.number, ErrInDoubt, err)
}

// isInDoubt says whether this process must not go on from this clique.
func (c *clique) isInDoubt() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.doubt
}

// callsToStep is the step of a JOIN that calls a process to the end of a step, with the stream of the clique, the number of the step
// as Seq, and the key.
const callsToStep = 2

// callToStep calls the processes of the tasks of a step until ctx ends: those that took the place of members at once, and all again and
// again.
func (c *clique) callToStep(ctx context.Context, n stepName) {
	again := time.NewTicker(callAgain)
	defer again.Stop()
	members := c.key.Lives()
	tasks := mapped(members, func(l serry.Life) serry.TaskID { return l.Task })
	for everyone := false; ; {
		lives, changed, _ := c.group.present(tasks)
		for task, incarnation := range lives {
			life := serry.Life{Task: task, Incarnation: incarnation}
			if _, member := slices.BinarySearchFunc(members, life, serry.Life.Compare); life != c.group.life && (everyone || !member) {
				c.group.background(callAgain, func(ctx context.Context) { c.callProcessToStep(ctx, n, life) })
			}
		}
		select {
		case <-changed:
			everyone = false
		case <-again.C:
			everyone = true
		case <-ctx.Done():
			return
		}
	}
}

// callProcessToStep calls one process to the end of a step.
func (c *clique) callProcessToStep(ctx context.Context, n stepName, life serry.Life) {
	to, err := c.group.net.Link(ctx, life)
	if err == nil {
		_, err = to.Post(link.Header{Family: link.Collective, Type: link.Join, Class: link.Control, Stream: n.stream, Generation: c.key.Generation,
			Seq: n.number, Step: callsToStep}, c.key.append(nil))
	}
	if err != nil {
		c.group.log.Debug("process not called to a step", "peer", life.Task, "err", err)
	}
}

// maxAbsent bounds how many steps a process says no to at the same time.
const maxAbsent = 64

// calledToStep takes the call of another process that waits at the end of a step. If the program of this one cannot come there any more,
// its group says no: it is another life than that which took part, or its clique has failed and no rank of it is in a step. A
// rank that is in a step comes to its end. One that begins it later finds the clique failed, and does not vote yes.
func (g *Group) calledToStep(from serry.Life, h link.Header, payload []byte) {
	key, err := parseKey(payload)
	n := stepName{h.Stream, h.Seq}
	if err != nil || !key.hasTask(from.Task) || !key.hasTask(g.life.Task) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(key.RanksOf(g.life)) > 0 && !g.isOver(h.Stream) || g.mu.absent[n] || len(g.mu.absent) >= maxAbsent || g.mu.closed {
		return
	}
	g.mu.absent[n] = true
	g.work.Go(func() { g.sayNo(key, n) })
}

// hasTask says whether a task has ranks in the key, in whatever life.
func (k *Key) hasTask(task serry.TaskID) bool {
	return slices.ContainsFunc(k.Ranks, func(p Place) bool { return p.Life.Task == task })
}

// isOver says whether a clique has failed, and no rank of this process is in a step of it; mu is held.
func (g *Group) isOver(stream uint64) bool {
	c := g.mu.streams[stream]
	if c == nil && g.mu.over[stream] != nil {
		c = g.mu.over[stream].clique
	}
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed.Load() != nil && c.mu.stepping == 0
}

// sayNo takes part in the agreement of a step that this process does not take part in.
func (g *Group) sayNo(key *Key, n stepName) {
	ctx, cancel := context.WithTimeout(g.ctx, time.Minute)
	defer cancel()
	if _, err := g.member.Agree(ctx, vote{code: votesNot}.append(nil), stepSet(key, n)...); err != nil {
		g.log.Debug("step not refused", "err", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.mu.absent, n)
}
