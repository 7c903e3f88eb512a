package pact

import (
	"strconv"
	"strings"

	"github.com/serry-dev/serry"
)

// maxNumber bounds the numbers of rounds and attempts that are read from keys.
const maxNumber = 1 << 30

// restore takes up the protocol where the job is.
//
// The last step that was agreed on may belong to an earlier round than the present one. If the former
// life of this task has not passed it, this life has to save there, before it takes part in the present
// round. If the former life has passed it, this life begins after it. The store still has it in both
// cases: it is removed only when all tasks have come to a later round.
//
// In the present round the former life may have promised to hold for a proposal that has no outcome yet.
// This life keeps the promise.
func (p *Pact) restore(entries []serry.Entry) {
	p.release()
	p.phase = listening
	var last Point // agreed on
	round, attempt, found := 1, 0, make(map[string]string)
	for _, e := range entries {
		r, a, what, ok := splitKey(e.Key)
		if !ok {
			continue
		}
		if step, ok := agreedStep(string(e.Value)); ok && what == "outcome" && r >= last.Round {
			last = Point{r, step}
		}
		if r > round || r == round && a > attempt {
			round, attempt = r, a
			clear(found)
		}
		if r == round && a == attempt {
			found[what] = string(e.Value)
		}
	}
	p.round, p.attempt = round, attempt
	if last.Round > 0 {
		p.point, p.ahead = last, true
		p.notes = append(p.notes, Note{Kind: Agreed, Step: last.Step})
	}
	p.takeUp(found)
	p.passFormer()
}

// splitKey takes a key of a notice or an attempt apart.
func splitKey(key string) (round, attempt int, what string, ok bool) {
	_, rest, _ := strings.Cut(key, Dir+"/")
	parts := strings.Split(rest, "/")
	if len(parts) < 3 {
		return 0, 0, "", false
	}
	round, ok = number(parts[0])
	switch {
	case ok && parts[1] == "notice":
		return round, 0, "notice", true
	case ok && parts[1] == "try" && len(parts) > 3:
		attempt, ok = number(parts[2])
		return round, attempt, parts[3], ok
	}
	return 0, 0, "", false
}

// number reads a part of a key.
func number(part string) (int, bool) {
	n, err := strconv.Atoi(part)
	return n, err == nil && n >= 0 && n < maxNumber
}

// takeUp continues the last attempt, of which some keys were found.
func (p *Pact) takeUp(found map[string]string) {
	outcome, ended := found["outcome"]
	word, _, _ := strings.Cut(outcome, " ")
	switch {
	case p.ahead && p.point.Round == p.round:
		p.phase = passing
	case ended && word == over:
		p.enter(p.round + 1)
	case ended:
		p.attempt++
	default:
		if step, err := parseStep([]byte(found["proposal"])); err == nil {
			p.holds, p.from = true, step
		}
	}
}
