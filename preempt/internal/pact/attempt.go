package pact

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/serry-dev/serry"
)

// The results of an attempt, which begin the text of its outcome.
const (
	agreed = "agreed" // and the step
	late   = "late"   // a task had made the proposed step already: another attempt, at once
	again  = "again"  // and why: another attempt
	over   = "over"   // and why: the round has no step to save at
)

// The answers to a proposal.
const (
	answerHold = "hold"
	answerLate = "late"
)

const (
	firstPause = 50 * time.Millisecond // after a call or an attempt that failed
	doublings  = 6                     // of that pause: it grows to about 3 s

	maxMargins = 30 // doublings of the margin
)

func pause(failures int) time.Duration { return firstPause << min(max(failures-1, 0), doublings) }

func (p *Pact) key(parts ...string) string {
	return Key(p.round, append([]string{"try", strconv.Itoa(p.attempt)}, parts...)...)
}

// Next is what this task does now.
//
// A task that restores a checkpoint when the notice comes does not know yet at which step it will go on.
// If it published step 0, the tasks might agree on a step that all of them have behind them. So it waits
// a while for its first step.
func (p *Pact) Next(now time.Time) Command {
	if now.Before(p.resume) {
		return Command{Do: Rest, Until: p.resume}
	}
	if p.ahead && p.phase == listening { // a restarted task has an earlier round behind it first
		return Command{Do: Pass}
	}
	if p.phase == listening && p.heard > 0 && !now.Before(p.begin()) {
		if p.begun.IsZero() {
			p.begun = now
		}
		if start := p.begun.Add(p.cfg.Patience / 2); !p.started && now.Before(start) {
			return Command{Do: Pass, Until: start}
		}
		p.phase = sharing
	}
	switch p.phase {
	case looking:
		return Command{Do: List, Key: Dir}
	case reposting:
		c, _ := p.posting.Next()
		return c
	case listening:
		c := Command{Do: Wait, Key: Key(p.round, "notice", strconv.Itoa(p.heard))}
		if p.heard > 0 {
			c.Until = p.begin()
		}
		return c
	case passing:
		return Command{Do: Pass}
	}
	return p.nextOfAttempt()
}

// begin is when the next attempt begins.
func (p *Pact) begin() time.Time {
	at := p.nearest.Add(-p.cfg.Lead)
	if p.again.After(at) {
		return p.again
	}
	return at
}

func (p *Pact) nextOfAttempt() Command {
	outcome := p.key("outcome")
	switch p.phase {
	case sharing:
		return Command{Do: Put, Key: p.key("step", p.cfg.Task), Value: strconv.AppendInt(nil, p.last, 10)}
	case gathering:
		return Command{Do: Meet, Key: p.key("step"), Unless: outcome}
	case reading:
		return Command{Do: List, Key: p.key("step")}
	case proposing:
		return Command{Do: Create, Key: p.key("proposal"), Value: strconv.AppendInt(nil, p.proposal, 10)}
	case learning:
		return Command{Do: Wait, Key: p.key("proposal")}
	case clearing:
		return Command{Do: Delete, Key: p.stale[0]}
	case answering:
		return Command{Do: Put, Key: p.key("answer", p.cfg.Task), Value: []byte(p.mine)}
	case meeting:
		return Command{Do: Meet, Key: p.key("answer"), Unless: outcome}
	case counting:
		return Command{Do: List, Key: p.key("answer")}
	case deciding:
		return Command{Do: Create, Key: outcome, Value: []byte(p.mine)}
	case finding:
		return Command{Do: Wait, Key: outcome}
	}
	panic(fmt.Sprintf("pact: phase %d has no call", p.phase))
}

// Heard takes the reply to the call that Next asked for.
//
// A call that fails before the outcome ends the attempt, also for the others, by an outcome that says
// why. Calls for the outcome itself are repeated until they succeed: the others may have agreed.
func (p *Pact) Heard(now time.Time, r Reply) {
	exists := errors.Is(r.Err, serry.ErrExists) && (p.phase == proposing || p.phase == deciding)
	if r.Err != nil && !exists && p.phase != clearing && p.phase != reposting {
		p.stumble(now, r.Err)
		return
	}
	p.errs = 0
	switch p.phase {
	case looking:
		p.restore(r.Entries)
	case reposting:
		p.repost(now, r)
	case listening:
		p.listen(r.Value)
	case deciding:
		if p.phase = finding; !exists {
			p.conclude(now, p.mine)
		}
	case finding:
		p.conclude(now, string(r.Value))
	default:
		p.heardInAttempt(now, r, exists)
	}
}

func (p *Pact) heardInAttempt(now time.Time, r Reply, exists bool) {
	switch p.phase {
	case sharing:
		p.phase = gathering
	case gathering, meeting:
		if r.Value != nil { // a task ended the attempt
			p.conclude(now, string(r.Value))
		} else {
			p.phase++
		}
	case reading:
		p.read(now, r.Entries)
	case proposing:
		switch {
		case exists:
			p.phase = learning
		case len(p.stale) > 0:
			p.phase = clearing
		default:
			p.answer(p.proposal)
		}
	case learning:
		p.stale = nil
		step, err := parseStep(r.Value)
		if err != nil {
			p.giveUp(now, err.Error())
			return
		}
		p.answer(step)
	case clearing: // keys that cannot be removed do no harm
		if p.stale = p.stale[1:]; len(p.stale) == 0 {
			p.answer(p.proposal)
		}
	case answering:
		p.phase = meeting
	case counting:
		p.count(now, r.Entries)
	}
}

// stumble is called when a call has failed.
func (p *Pact) stumble(now time.Time, err error) {
	switch p.phase {
	case looking, listening, deciding, finding:
		p.errs++
		p.resume = now.Add(pause(p.errs))
	default:
		p.giveUp(now, p.cfg.Task+": "+err.Error())
	}
}

// listen takes a notice of the chain, or the news that it is time to agree, which Next looks at.
func (p *Pact) listen(value []byte) {
	if value == nil {
		return
	}
	n := parseNotice(value)
	if p.heard == 0 || n.Deadline.Before(p.nearest) {
		p.nearest = n.Deadline
	}
	if p.heard == 0 || n.Deadline.After(p.latest) {
		p.latest = n.Deadline
	}
	p.heard++
	p.notes = append(p.notes, Note{Kind: Announced, Notice: n})
}

// read makes a proposal out of the last steps of all tasks.
func (p *Pact) read(now time.Time, steps []serry.Entry) {
	highest := p.last
	for _, e := range steps {
		step, err := parseStep(e.Value)
		if err != nil {
			p.giveUp(now, fmt.Sprintf("key %q: %v", e.Key, err))
			return
		}
		highest = max(highest, step)
	}
	margin := p.cfg.Margin << min(p.late, maxMargins)
	if margin <= 0 || highest > math.MaxInt64-margin {
		p.giveUp(now, fmt.Sprintf("no step comes after step %d", highest))
		return
	}
	p.proposal, p.phase = highest+margin, proposing
}

func parseStep(text []byte) (int64, error) {
	return strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
}

// answer promises to hold for a proposal, if it is not too late. The promise comes before its
// publication: from the moment at which another task can read it, it is kept.
func (p *Pact) answer(step int64) {
	p.proposal, p.phase, p.mine = step, answering, answerLate
	if p.promise(step) {
		p.mine, p.promised = answerHold, true
	}
}

// count looks at the answers. All tasks have given one, because all came to the barrier.
func (p *Pact) count(now time.Time, answers []serry.Entry) {
	if len(answers) == 0 {
		p.giveUp(now, p.cfg.Task+": the answers are gone")
		return
	}
	p.mine, p.phase = fmt.Sprintf("%s %d", agreed, p.proposal), deciding
	for _, a := range answers {
		switch {
		case string(a.Value) == answerHold:
		case p.open(now):
			p.mine = late
		default:
			p.mine = over + " steps are made faster than the tasks can agree on one"
		}
	}
}

// giveUp proposes that the attempt has failed. Another task may have created a different outcome.
func (p *Pact) giveUp(now time.Time, why string) {
	word := over
	if p.open(now) {
		word = again
	}
	p.mine, p.phase = word+" "+why, deciding
}

// conclude takes the outcome of the attempt. An outcome that cannot be read is a failure for all tasks.
func (p *Pact) conclude(now time.Time, outcome string) {
	p.resume = time.Time{}
	word, rest, _ := strings.Cut(outcome, " ")
	step, ok := agreedStep(outcome)
	switch {
	case ok:
		p.settle(step)
	case word == late:
		p.late++
		p.retry(now)
	case word == over:
		p.giveUpRound(now, rest)
	default:
		p.failed++
		p.notes = append(p.notes, Note{Kind: Failed, Why: rest})
		p.retry(now.Add(pause(p.failed)))
	}
}

// agreedStep is the step that an outcome says all tasks save at.
func agreedStep(outcome string) (int64, bool) {
	word, rest, _ := strings.Cut(outcome, " ")
	step, err := parseStep([]byte(rest))
	return step, word == agreed && err == nil
}

// settle makes a step the one to save at.
func (p *Pact) settle(step int64) {
	p.point, p.ahead, p.phase = Point{p.round, step}, true, passing
	p.release()
	p.notes = append(p.notes, Note{Kind: Agreed, Step: step})
}

// retry makes another attempt, not before a time.
func (p *Pact) retry(at time.Time) {
	p.release()
	p.remove(p.key())
	p.attempt++
	p.again, p.phase = at, listening
}

// giveUpRound goes on to the next round.
func (p *Pact) giveUpRound(now time.Time, why string) {
	p.release()
	p.notes = append(p.notes, Note{Kind: Ended, Why: why})
	p.enter(p.round + 1)
	p.own = slices.DeleteFunc(p.own, func(o ownNotice) bool { return !now.Before(o.until) })
	p.carryOver()
}

// carryOver posts the nearest notice to this task again. It came too late for the round that has ended,
// or its deadline is a later one.
func (p *Pact) carryOver() {
	if len(p.own) == 0 {
		return
	}
	nearest := slices.MinFunc(p.own, func(a, b ownNotice) int { return a.Deadline.Compare(b.Deadline) })
	p.posting, p.phase = newPosting(p.round, nearest.Notice), reposting
}

// repost goes on with a posting.
func (p *Pact) repost(now time.Time, r Reply) {
	if err := p.posting.Heard(r); err != nil {
		p.errs++
		p.resume = now.Add(pause(p.errs))
		return
	}
	if _, more := p.posting.Next(); !more {
		p.phase = listening
	}
}
