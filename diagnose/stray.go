package diagnose

import (
	"fmt"
	"time"
)

// A Stray is a process of an attempt that is over. Its launcher has found it by the variables that it was started with (D-SC-22).
type Stray struct {
	Rank    int       `json:"rank"`
	Attempt int       `json:"attempt"` // that it was started for
	PID     int       `json:"pid"`
	Host    string    `json:"host,omitempty"`
	Now     int       `json:"now"`               // the attempt that runs
	Reaches bool      `json:"reaches,omitempty"` // the attempt that runs has the address that the process knows
	Seen    time.Time `json:"seen"`
}

// Text says it in one line.
func (s Stray) Text() string {
	where := ""
	if s.Host != "" {
		where = " on " + s.Host
	}
	who := fmt.Sprintf("a process of attempt %d (rank %d, pid %d%s)", s.Attempt, s.Rank, s.PID, where)
	if s.Reaches {
		return fmt.Sprintf("%s runs beside attempt %d and may take the place of its rank %d: end it", who, s.Now, s.Rank)
	}
	return fmt.Sprintf("%s tried to join attempt %d and was refused; the job is not affected", who, s.Now)
}

// lines are what that rests on.
func (s Stray) lines() []HangLine {
	return []HangLine{
		{"process", fmt.Sprintf("its variables are those of attempt %d", s.Attempt)},
		{"grade", fmt.Sprintf("%s: the launcher has seen its variables", Sure)},
		{"next", fmt.Sprintf("kill %d", s.PID)},
	}
}

// strayLately is the newest stray, if a launcher has found it lately; or nil.
func (r *HangReport) strayLately(clock time.Time) *Stray {
	if r == nil || len(r.Strays) == 0 {
		return nil
	}
	s := &r.Strays[len(r.Strays)-1]
	if clock.Sub(s.Seen) > refusedLately {
		return nil
	}
	return s
}
