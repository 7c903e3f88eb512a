package history

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

// A KeyAction is what a call does to a key.
type KeyAction string

// The calls on keys.
const (
	Insert    KeyAction = "insert"    // refused if there is a value
	Overwrite KeyAction = "overwrite" // whatever there is
	Increment KeyAction = "increment" // a decimal number; none is 0
	Delete    KeyAction = "delete"
	Get       KeyAction = "get"  // what is there
	Has       KeyAction = "has"  // whether there is a value
	Wait      KeyAction = "wait" // for a value to be there
	Swap      KeyAction = "swap" // one value for another, if that is what is there
)

// A KeyCall is one call on one key.
type KeyCall struct {
	Span
	Client int
	Action KeyAction
	Key    string
	Value  string // to store, or to add
	Old    string // of a Swap: what must be there; empty: nothing

	// What the client heard, of a call that returned.
	Found  string // the value of a Get or a Wait, or the new number of an Increment
	Absent bool   // to a Get or a Has: there is none
	Exists bool   // to an Insert: there is one
	Other  bool   // to a Swap: something else is there
}

func (c KeyCall) String() string {
	s := fmt.Sprintf("[%d,%d] client %d: %s %s", c.Call, c.Return, c.Client, c.Action, c.Key)
	if c.Old != "" {
		s += " " + c.Old + " by"
	}
	if c.Value != "" {
		s += " " + c.Value
	}
	switch {
	case c.Return == 0:
		return s + ": no answer"
	case c.Exists:
		return s + ": exists"
	case c.Absent:
		return s + ": absent"
	case c.Other:
		return s + ": something else is there"
	case c.Found != "":
		return s + ": " + c.Found
	}
	return s + ": done"
}

// CheckKeys says whether the calls on each key can have happened one after the other, each at one moment
// between its beginning and its end, so that all answers are true. In such an order no increment is lost
// and none happens twice, and nothing that was acknowledged is forgotten.
func CheckKeys(calls []KeyCall) error {
	keys := make(map[string][]KeyCall)
	var names []string
	for _, c := range calls {
		if c.Return == 0 && (c.Action == Get || c.Action == Has || c.Action == Wait) {
			continue // nobody heard what it found
		}
		if keys[c.Key] == nil {
			names = append(names, c.Key)
		}
		keys[c.Key] = append(keys[c.Key], c)
	}
	slices.Sort(names)
	for _, name := range names {
		if !linearizable(keys[name]) {
			return fmt.Errorf("key %q: no order makes all answers true:\n%s", name, lines(keys[name]))
		}
	}
	return nil
}

// A keyState is what a key holds.
type keyState struct {
	there bool
	value string
}

func linearizable(calls []KeyCall) bool {
	ops := make([]porcupine.Operation, len(calls))
	for i, c := range calls {
		ops[i] = porcupine.Operation{ClientId: i, Input: c, Call: int64(c.Call), Output: c, Return: int64(c.end())}
	}
	return porcupine.CheckOperations(porcupine.Model{
		Init: func() any { return keyState{} },
		Step: func(state, _, call any) (bool, any) { return state.(keyState).step(call.(KeyCall)) },
	}, ops)
}

// step says whether a call can have been answered as it was at this state, and what comes of it.
func (s keyState) step(c KeyCall) (bool, keyState) {
	answered := c.Return != 0
	switch c.Action {
	case Insert:
		if s.there {
			return !answered || c.Exists, s
		}
		return !answered || !c.Exists, keyState{true, c.Value}
	case Overwrite:
		return true, keyState{true, c.Value}
	case Delete:
		return true, keyState{}
	case Swap:
		if s.value != c.Old || s.there != (c.Old != "") {
			return !answered || c.Other, s
		}
		return !answered || !c.Other, keyState{true, c.Value}
	case Increment:
		next, err := s.plus(c.Value)
		return err == nil && (!answered || next.value == c.Found), next
	case Has:
		return s.there == !c.Absent, s
	default:
		return s.there == !c.Absent && s.value == c.Found, s
	}
}

func (s keyState) plus(by string) (keyState, error) {
	n := int64(0)
	if s.there {
		var err error
		if n, err = strconv.ParseInt(s.value, 10, 64); err != nil {
			return s, err
		}
	}
	d, err := strconv.ParseInt(by, 10, 64)
	return keyState{true, strconv.FormatInt(n+d, 10)}, err
}

// lines prints calls in the order in which they began.
func lines[T interface {
	fmt.Stringer
	began() Moment
}](calls []T) string {
	calls = slices.Clone(calls)
	slices.SortFunc(calls, func(a, b T) int { return int(a.began() - b.began()) })
	var b strings.Builder
	for _, c := range calls {
		b.WriteString("  " + c.String() + "\n")
	}
	return b.String()
}

func (s Span) began() Moment { return s.Call }
