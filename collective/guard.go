package collective

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/link"
)

// Every operation has a deadline of its own. A guard is for what no operation sees: a section of a program that hangs before, between
// or behind its operations, as in the work of a device that never ends. The other members cannot tell such a process from one
// that computes for long. So it says itself that it has failed, and they go on without it.

const (
	// defaultLinger is the time between the first word of an expired guard and the end of the process.
	defaultLinger = 10 * time.Second

	// lastChance is how long a section may take to end after the cliques of its process have.
	lastChance = time.Minute

	// guardExit is the exit code of a process that a guard has ended.
	guardExit = 1
)

// Guards end a process whose sections take too long. The zero value is ready; a process has one, which its groups share
// (Options.Guards).
type Guards struct {
	// End ends the process; why is for people. Nil means that it is written to the standard error, and the exit code is 1.
	End func(why string)

	// Linger is how long the process goes on after the first guard has expired, so that others can expire, too, and all are in the log. Zero
	// means 10 seconds.
	Linger time.Duration

	Log *slog.Logger // or nil

	ending atomic.Bool // a guard is about to end the process
}

// A Guard watches over one section of a program. A nil Guard watches over nothing.
type Guard struct {
	// Set when it is made, then constant.
	guards  *Guards
	section string
	timeout time.Duration
	expired func(*Guard) // or nil: the process ends
	timer   *time.Timer

	mu struct {
		sync.Mutex
		over   bool   // it was released, or has expired
		left   bool   // it was released
		second *Guard // that watches over the section from now on, or nil
	}
}

// Guard watches over a section of a program from now on, until [Guard.Release] is called. If the section takes longer, the process
// ends: first it is logged, and after Linger the first guard that has expired calls End (CL-TMO-4). A timeout of 0 or less is
// infinite: there is no guard, and the result is nil.
func (s *Guards) Guard(section string, timeout time.Duration) *Guard {
	return s.watch(section, timeout, nil)
}

// watch makes a guard. The goroutine that expired is called on is that of its timer, or nil ends the process.
func (s *Guards) watch(section string, timeout time.Duration, expired func(*Guard)) *Guard {
	if timeout <= 0 {
		return nil
	}
	x := &Guard{guards: s, section: section, timeout: timeout, expired: expired}
	x.timer = time.AfterFunc(timeout, x.expire)
	return x
}

// Release ends the guard: the section has ended. A guard that is released before its time never fires. Where the work of a section
// goes on after the call that began it, as that of a device or of [Comm.Start], the caller releases the guard when the work is done (CL-TMO-6); any
// goroutine may. Releasing it again does nothing.
func (x *Guard) Release() {
	if x == nil {
		return
	}
	x.mu.Lock()
	x.mu.over, x.mu.left = true, true
	second := x.mu.second
	x.mu.Unlock()
	x.timer.Stop()
	second.Release()
}

// expire is called when the time is over.
func (x *Guard) expire() {
	x.mu.Lock()
	over := x.mu.over
	x.mu.over = true
	x.mu.Unlock()
	switch {
	case over:
	case x.expired != nil:
		x.guards.log().Error("guarded section takes too long", "section", x.section, "for", x.timeout)
		x.expired(x)
	default:
		x.guards.endProcess(x)
	}
}

// leaveTo lets another guard watch over the section from now on, unless the section has ended.
func (x *Guard) leaveTo(second *Guard) {
	x.mu.Lock()
	x.mu.second = second
	left := x.mu.left
	x.mu.Unlock()
	if left {
		second.Release()
	}
}

// why says what the guard has seen.
func (x *Guard) why() string {
	return fmt.Sprintf("%s has not ended after %v", x.section, x.timeout)
}

// endProcess ends the process a moment later. Only the first guard does; the others have their lines in the log.
func (s *Guards) endProcess(x *Guard) {
	linger := s.Linger
	if linger == 0 {
		linger = defaultLinger
	}
	s.log().Error("guarded section takes too long, the process ends", "section", x.section, "for", x.timeout, "in", linger)
	if s.ending.CompareAndSwap(false, true) {
		time.AfterFunc(linger, func() { s.end(x.why()) })
	}
}

// end ends the process.
func (s *Guards) end(why string) {
	if s.End != nil {
		s.End(why)
		return
	}
	fmt.Fprintln(os.Stderr, "serry: error:", why)
	os.Exit(guardExit)
}

func (s *Guards) log() *slog.Logger {
	if s.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.Log
}

// Guard watches over a section of the program that uses this group, such as one step of a training with the work of its devices, until
// [Guard.Release] is called. If the section takes longer than timeout (CL-TMO-5):
//
//   - The log gets what the ranks of this process do in each clique, and Options.Flights what all members do.
//   - All cliques of this process end on all members, as if it was lost: ErrPeerFailed with its rank. It forms no clique any more.
//   - The member fails: the service hears of it with the code DEADLINE_EXCEEDED, and tells the other tasks.
//   - If the section has still not ended after another minute, the process ends, as with [Guards.Guard].
//
// A timeout of 0 or less is infinite: there is no guard, and the result is nil, whose Release does nothing. A guard whose group is closed ends the
// process.
func (g *Group) Guard(section string, timeout time.Duration) *Guard {
	return g.opt.Guards.watch(section, timeout, func(x *Guard) {
		if !g.spawn(func() { g.abandon(x) }) {
			g.opt.Guards.endProcess(x)
		}
	})
}

// A failer is a member that can tell the service that it has failed; *client.Member is one.
type failer interface {
	Fail(ctx context.Context, cause error) error
}

// abandon treats this process as lost, because a section of its program has not ended. The second guard comes first: whatever hangs
// below, the process ends.
func (g *Group) abandon(x *Guard) {
	x.leaveTo(g.opt.Guards.Guard(x.section, lastChance))
	cause := fmt.Errorf("%s: %w", x.why(), serry.ErrTimeout)
	loss := &link.LossError{Peer: g.life, Source: link.FromSelf, Reason: cause, Err: ErrPeerFailed}
	g.mu.Lock()
	g.mu.abandoned = &Error{Life: g.life, Detail: cause.Error(), Err: ErrPeerFailed}
	g.announce() // to callers that wait for tasks
	cliques := g.inUse()
	g.mu.Unlock()
	for _, c := range cliques {
		g.log.Warn("what ranks do whose section takes too long", "clique", c.key.String(), "section", x.section, "detail", c.doing())
	}
	for _, c := range cliques {
		g.background(tellTime, func(context.Context) { c.revoke(c.lossOf(g.life, loss)) })
	}
	g.loseMeetings(g.life, loss)
	if m, ok := g.member.(failer); ok {
		if err := m.Fail(g.ctx, cause); err != nil {
			g.log.Warn("service does not know that this task has failed", "task", g.life.Task, "err", err)
		}
	}
}

// doing says what the ranks of this process do: the last operation of each.
func (c *clique) doing() string {
	var lines []string
	for _, comm := range c.first.Local() {
		text := "has begun no operation"
		if last := comm.Records(1); len(last) > 0 {
			text = last[0].progress()
		}
		lines = append(lines, fmt.Sprintf("rank %d %s", comm.rank, text))
	}
	return strings.Join(lines, "; ")
}

// progress says how far an operation is.
func (r *Record) progress() string {
	if !r.Ended.IsZero() {
		return fmt.Sprintf("is in no operation, and its last, number %d (%s), ended %v ago: %s", r.Seq, r.Op, time.Since(r.Ended).Round(time.Millisecond), r.Outcome)
	}
	text := fmt.Sprintf("is in operation %d (%s) for %v", r.Seq, r.Op, time.Since(r.Began).Round(time.Millisecond))
	if len(r.Waiting) > 0 {
		text += ", waiting for " + ranksText(r.Waiting)
	}
	return text
}

// outOfTime is why this process forms no clique any more, or nil.
func (g *Group) outOfTime() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.mu.abandoned; e != nil {
		return e
	}
	return nil
}
