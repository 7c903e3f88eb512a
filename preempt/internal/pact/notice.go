package pact

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/serry-dev/serry"
)

// A Notice says that a task will be taken away.
type Notice struct {
	Deadline time.Time
	Source   string
}

// The dates that have no number.
const (
	forever = "infinite-future"
	always  = "infinite-past"
)

// FormatTime writes a date the way jax does: RFC 3339 with a fraction and a numeric zone.
func FormatTime(t time.Time) string {
	switch year := t.Year(); {
	case year > 9999:
		return forever
	case year < 0:
		return always
	}
	return t.Format("2006-01-02T15:04:05.999999999-07:00")
}

// ParseTime reads a date in any zone, with any fraction.
func ParseTime(text string) (time.Time, error) {
	switch text = strings.TrimSpace(text); text {
	case forever:
		return time.Unix(1<<40, 0), nil
	case always:
		return time.Unix(0, 0), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("time of a preemption notice: %w", err)
	}
	return t, nil
}

func formatNotice(n Notice) []byte { return []byte(FormatTime(n.Deadline) + " " + n.Source) }

// parseNotice reads a notice. What cannot be read is a notice without a deadline that a task must keep:
// it counts as one for the end of time, so that it does not hide those that can be read.
func parseNotice(text []byte) Notice {
	date, source, _ := strings.Cut(string(text), " ")
	deadline, err := ParseTime(date)
	if err != nil {
		deadline, _ = ParseTime(forever)
	}
	return Notice{Deadline: deadline, Source: source}
}

// A Posting adds a notice to the chain of its round.
type Posting struct {
	round   int
	notice  Notice
	slot    int
	listing bool // the next call reads the chain; else it adds to it
	done    bool
}

// newPosting begins a posting.
func newPosting(round int, n Notice) Posting {
	return Posting{round: round, notice: n, listing: true}
}

// Round is the one that the notice belongs to.
func (p *Posting) Round() int { return p.round }

// Next is the next call, if there is one.
func (p *Posting) Next() (Command, bool) {
	dir := Key(p.round, "notice")
	switch {
	case p.done:
		return Command{}, false
	case p.listing:
		return Command{Do: List, Key: dir}, true
	}
	return Command{Do: Create, Key: dir + "/" + strconv.Itoa(p.slot), Value: formatNotice(p.notice)}, true
}

// Heard takes the reply to a call. After an error the same call can be made again.
func (p *Posting) Heard(r Reply) error {
	switch {
	case p.listing && r.Err != nil:
		return r.Err
	case p.listing:
		p.listing, p.slot = false, 0
		for _, e := range r.Entries { // sorted as texts, and there may be keys of other kinds
			p.done = p.done || !parseNotice(e.Value).Deadline.After(p.notice.Deadline)
			if n, err := strconv.Atoi(path.Base(e.Key)); err == nil && n < maxNumber {
				p.slot = max(p.slot, n+1)
			}
		}
	case r.Err == nil:
		p.done = true
	case errors.Is(r.Err, serry.ErrExists): // another notice came in between
		p.listing = true
	default:
		return r.Err
	}
	return nil
}
