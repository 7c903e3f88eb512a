package diagnose

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/serry-dev/serry/wire"
)

// Calls are ranks whose last calls are alike. A job that stands still where the service does not see it, in a
// collective or in a file system, leaves no other trace there.
type Calls struct {
	Tasks        []string `json:"tasks"`
	Call         string   `json:"call,omitempty"`  // empty: none since this server leads
	Of           string   `json:"of,omitempty"`    // the barrier or key, with # for numbers in which they differ
	AgoSeconds   float64  `json:"ago_seconds"`     // the longest
	LeastSeconds float64  `json:"least_seconds"`   // the shortest
	Waits        bool     `json:"waits,omitempty"` // it has no answer yet
	Text         string   `json:"text"`            // all of it, in a line
}

// callsListed is how many groups of calls a report has.
const callsListed = 8

// quietFor is how long a rank makes no call before a report says so. Ranks that compute make none for long,
// which is nothing bad.
const quietFor = 10.0 // seconds

// likeness is what the last calls of ranks have in common.
type likeness struct {
	call, class string
	waits       bool
}

// calls groups the connected ranks by their last calls, the ones that have been quiet longest first.
func (j *judge) calls() []Calls {
	groups := []Calls{}
	at := make(map[likeness]int)
	for i := range j.status.Tasks {
		t := &j.status.Tasks[i]
		if t.State != wire.StateConnected {
			continue
		}
		like := likeness{t.LastCall, wire.Class(t.LastOf), t.CallWaits}
		if _, ok := at[like]; !ok {
			at[like] = len(groups)
			groups = append(groups, Calls{Call: t.LastCall, Of: t.LastOf, Waits: t.CallWaits, LeastSeconds: t.CallSeconds})
		}
		groups[at[like]].add(t)
	}
	slices.SortStableFunc(groups, func(a, b Calls) int { return cmp.Compare(b.AgoSeconds, a.AgoSeconds) })
	groups = groups[:min(len(groups), callsListed)]
	for i := range groups {
		groups[i].Text = j.callText(groups[i])
	}
	return groups
}

// Quiet says whether ranks of the group have made no call for a while.
func (c *Calls) Quiet() bool { return c.Call != "" && !c.Waits && c.AgoSeconds >= quietFor }

func (c *Calls) add(t *wire.TaskStatus) {
	c.Tasks = append(c.Tasks, t.Task)
	c.AgoSeconds, c.LeastSeconds = max(c.AgoSeconds, t.CallSeconds), min(c.LeastSeconds, t.CallSeconds)
	if t.LastOf != c.Of {
		c.Of = wire.Class(t.LastOf)
	}
}

// callText says it in a line: `ranks 0-2 last called GetKeyValue "a/#" 38s to 41s ago`.
func (j *judge) callText(c Calls) string {
	call := c.Call
	if c.Of != "" {
		call += fmt.Sprintf(" %q", c.Of)
	}
	ago := Ago(c.AgoSeconds)
	if least := Ago(c.LeastSeconds); least != ago {
		ago = least + " to " + ago
	}
	switch who := j.ranks(c.Tasks); {
	case c.Call == "":
		return who + " made no call since this server leads"
	case c.Waits:
		return fmt.Sprintf("%s %s in %s since %s", who, verb(len(c.Tasks), "waits", "wait"), call, ago)
	default:
		return fmt.Sprintf("%s last called %s %s ago", who, call, ago)
	}
}

// quietest is the connected rank whose last call is longest ago, or nil if none is known to be quiet.
func (j *judge) quietest() *wire.TaskStatus {
	var found *wire.TaskStatus
	for i := range j.status.Tasks {
		t := &j.status.Tasks[i]
		quiet := t.State == wire.StateConnected && t.LastCall != "" && !t.CallWaits && t.CallSeconds >= quietFor
		if quiet && (found == nil || t.CallSeconds > found.CallSeconds) {
			found = t
		}
	}
	return found
}
