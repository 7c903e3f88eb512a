package history

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

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
//
// A history of which that could not be found out in reasonable time is [ErrTooLong].
func CheckKeys(calls []KeyCall) error { return checkKeys(calls, judgeTime) }

func checkKeys(calls []KeyCall, longest time.Duration) error {
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
		switch linearizable(keys[name], longest) {
		case porcupine.Illegal:
			return fmt.Errorf("key %q: no order makes all answers true:\n%s", name, lines(keys[name]))
		case porcupine.Unknown:
			return fmt.Errorf("key %q: %w in %v, of %d calls:\n%s", name, ErrTooLong, longest, len(keys[name]), lines(keys[name]))
		}
	}
	return nil
}

// A keyState is what a key holds.
type keyState struct {
	there bool
	value string
}

// ErrTooLong is that the calls on a key could not be judged: they may be true or not. Each call without an answer
// that is not like any other doubles the work at worst.
var ErrTooLong = errors.New("not judged")

// judgeTime is how long the calls on one key are judged. Those of nearly all schedules take milliseconds.
const judgeTime = time.Minute

func linearizable(calls []KeyCall, longest time.Duration) porcupine.CheckResult {
	ops := make([]porcupine.Operation, len(calls))
	for i, c := range alikes(calls) {
		ops[i] = porcupine.Operation{ClientId: i, Input: c, Call: int64(c.Call), Output: c, Return: int64(c.end())}
	}
	return porcupine.CheckOperationsTimeout(porcupine.Model{
		Init: func() any { return judgedState{} },
		Step: func(state, _, call any) (bool, any) { return state.(judgedState).step(call.(judgedCall)) },
	}, ops, longest)
}

// A judgedCall is a call on the key that is judged. Calls without an answer that ask for the same are alike: any of
// them may have had its effect at any time after it was made. So where an order of all calls exists, there is
// also one with those that are alike in the order in which they were made, and only such orders are tried.
// Otherwise n increments without an answer would have to be tried in 2^n subsets.
type judgedCall struct {
	KeyCall
	kind  int // of the calls that are alike, from 1; 0: the call is like no other
	order int // among them
}

// alikes finds calls that are alike.
func alikes(calls []KeyCall) []judgedCall {
	type request struct {
		action     KeyAction
		value, old string
	}
	judged := make([]judgedCall, len(calls))
	for i, c := range calls {
		judged[i] = judgedCall{KeyCall: c}
	}
	slices.SortFunc(judged, func(a, b judgedCall) int { return cmp.Compare(a.Call, b.Call) })
	kinds, count := make(map[request]int), make(map[request]int)
	for i := range judged {
		c := &judged[i]
		r := request{c.Action, c.Value, c.Old}
		if c.Return != 0 || count[r] == math.MaxUint8 {
			continue
		}
		if kinds[r] == 0 {
			kinds[r] = len(kinds) + 1
		}
		c.kind, c.order = kinds[r], count[r]
		count[r]++
	}
	return judged
}

// A judgedState is what a key holds, and how many calls of each kind have had their effect, one byte a kind.
type judgedState struct {
	key  keyState
	done string
}

func (s judgedState) step(c judgedCall) (bool, judgedState) {
	if c.kind > 0 {
		done := []byte(s.done)
		for len(done) < c.kind {
			done = append(done, 0)
		}
		if int(done[c.kind-1]) != c.order {
			return false, s
		}
		done[c.kind-1]++
		s.done = string(done)
	}
	ok, next := s.key.step(c.KeyCall)
	s.key = next
	return ok, s
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
