package diagnose

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// brokenWords are in the errors of programs whose connection to another rank has ended: those of Gloo, NCCL, gRPC and the
// kernel (D-RC-4).
var brokenWords = []string{
	"connection reset", "connection closed", "connection refused", "connection aborted", "broken pipe", "socket closed",
	"closed by peer", "remote process exited", "end of file",
}

// BrokenByPeer says whether an error of a rank tells that its connection to another one has ended: then the other rank is
// what to look at. The text is that of any program.
func BrokenByPeer(text string) bool { return brokenWord(text) != "" }

// brokenWord is what such an error says of the connection, or empty.
func brokenWord(text string) string {
	text = strings.ToLower(text)
	if i := slices.IndexFunc(brokenWords, func(words string) bool { return strings.Contains(text, words) }); i >= 0 {
		return brokenWords[i]
	}
	return ""
}

// An Aftermath is what a launcher knows of the first failure of an attempt, and of what followed from it, beside what the service
// does. The places are those that Python has printed.
type Aftermath struct {
	Rank     int      `json:"rank"`
	PID      int      `json:"pid,omitempty"`
	Host     string   `json:"host,omitempty"`
	Raised   bool     `json:"raised,omitempty"`   // it has printed an exception, and waits for the others to leave
	At       string   `json:"at,omitempty"`       // where in its code it was
	Together []int    `json:"together,omitempty"` // other ranks that a fault ended at the same time: any of them may have been first
	Output   string   `json:"output,omitempty"`   // what its output says of it, a line
	Effects  []Effect `json:"effects,omitempty"`
}

// An Effect is what happened to ranks because another one had failed, those together of which the same is said (D-CLI-6).
type Effect struct {
	Ranks        []int   `json:"ranks"`          // the first of them
	More         int     `json:"more,omitempty"` // that Ranks does not name
	Text         string  `json:"text"`
	AfterSeconds float64 `json:"after_seconds,omitempty"` // since the failure, of the first of them; 0: it was not seen
}

// String says it in a line.
func (e Effect) String() string {
	text := Ranks(e.Ranks)
	if e.More > 0 {
		text += fmt.Sprintf(" and %d more", e.More)
	}
	text += ": " + e.Text
	if e.AfterSeconds > 0 {
		text += fmt.Sprintf(" (+%.2fs)", e.AfterSeconds)
	}
	return text
}

// A Follower is a rank beside the one that failed first.
type Follower struct {
	Rank      int
	Ended     string        // how its process has ended: "signal 6 (ABRT)"; empty: it has not, or only when it was told to
	Runs      bool          // it has not been told to end
	After     time.Duration // since the first failure
	Exception string        // the last one that it has printed, or empty
	Output    []string      // its last lines
	Condition Condition     // as it was last seen
}

// text says what became of the rank. What it had printed says more than how it ended: a rank whose peer has gone prints that, and
// the client of the coordination service then aborts it.
func (f Follower) text() string {
	at := PlaceIn(f.Output)
	switch broken := brokenWord(f.Exception); {
	case broken != "":
		return broken
	case f.Exception != "":
		return "raised " + f.Exception
	case f.Condition.Class == ClassWaiting && f.Condition.Wait != "":
		return "waiting in " + f.Condition.Wait
	case f.Runs:
		return "still at work"
	case f.Ended == "":
		return "told to end"
	case at != "":
		return fmt.Sprintf("%s, was at %s", f.Ended, at)
	}
	return f.Ended
}

// FoldEffects puts the ranks together of which the same is said, in the order in which it happened. Ranks of which nothing was seen
// come last.
func FoldEffects(all []Follower) []Effect {
	var effects []Effect
	at := make(map[string]int)
	for _, f := range all {
		text := f.text()
		i, ok := at[text]
		if !ok {
			i = len(effects)
			at[text] = i
			effects = append(effects, Effect{Text: text})
		}
		e := &effects[i]
		if len(e.Ranks) < maxAffected {
			e.Ranks = append(e.Ranks, f.Rank)
		} else {
			e.More++
		}
		if after := f.After.Seconds(); after > 0 && (e.AfterSeconds == 0 || after < e.AfterSeconds) {
			e.AfterSeconds = after
		}
	}
	late := func(e Effect) float64 {
		if e.AfterSeconds == 0 {
			return math.Inf(1)
		}
		return e.AfterSeconds
	}
	slices.SortStableFunc(effects, func(a, b Effect) int { return cmp.Compare(late(a), late(b)) })
	return effects[:min(len(effects), maxEffects)]
}

const (
	maxEffects   = 16  // of which a launcher tells
	maxAffected  = 256 // ranks that one of them names
	effectsShown = 3   // that a line has room for
)

// lines are what a verdict on the failure rests on, and what followed from it.
func (a *Aftermath) lines() []HangLine {
	var lines []HangLine
	add := func(word, text string) {
		if text != "" {
			lines = append(lines, HangLine{word, text})
		}
	}
	add("at", a.At)
	if a.PID != 0 {
		r := RankEvidence{PID: a.PID, Host: a.Host}
		text := r.process()
		if a.Raised {
			text += ", waits for the others to leave"
		}
		add("process", text)
	}
	add("output", a.Output)
	if len(a.Together) > 0 {
		add("effects", "together with "+Ranks(a.Together)+": which was first cannot be told")
	}
	add("effects", a.effects())
	return lines
}

// effects are the effects in a line.
func (a *Aftermath) effects() string {
	var parts []string
	rest := 0
	for i, e := range a.Effects {
		if i < effectsShown {
			parts = append(parts, e.String())
		} else {
			rest += len(e.Ranks) + e.More
		}
	}
	if rest > 0 {
		parts = append(parts, counted(rest, "more rank", "more ranks"))
	}
	return strings.Join(parts, "; ")
}

// aftermath is what is known of the first failure of the report beside what the service knows, or nil.
func (r *Report) aftermath(e Evidence) *Aftermath {
	if e.Ending != nil && e.Ending.Aftermath != nil {
		return e.Ending.Aftermath
	}
	if e.Hang == nil || e.Hang.Aftermath == nil || !slices.Contains(indexOf(r.First.Task), e.Hang.Aftermath.Rank) {
		return nil
	}
	return e.Hang.Aftermath
}

// lineOrder is the order of the lines below a verdict (D-CLI-1).
var lineOrder = []string{"at", "process", "storage", "waiting", "transfer", "clique", "output", "memory", "host", "effects", "step", "program", "grade", "next"}

// orderLines brings them into that order.
func orderLines(lines []HangLine) []HangLine {
	slices.SortStableFunc(lines, func(a, b HangLine) int { return slices.Index(lineOrder, a.Word) - slices.Index(lineOrder, b.Word) })
	for i := len(lines) - 1; i > 0 && len(lines) > linesShown; i-- {
		if lines[i].Word == lines[i-1].Word {
			lines = slices.Delete(lines, i, i+1)
		}
	}
	return lines
}

// linesShown is how many lines stand below a verdict; where there are more, one of each word stays.
const linesShown = 8
