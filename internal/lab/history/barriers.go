package history

import (
	"fmt"
	"slices"
	"strings"
)

// AnyInstance is the number of an arrival by a member that does not know which instance is open, and was
// never told.
const AnyInstance = -1

// A BarrierCall is the arrival of one member at one instance of a barrier, as the member counts them.
type BarrierCall struct {
	Span
	ID       string
	Instance int64
	Members  []int // who must come; the same for all calls of an instance
	Member   int   // who calls
	Life     uint64

	// What the member heard, of a call that returned. An error that is about the caller alone, such as
	// that it was replaced, is no outcome of the instance: such a call is one without an answer.
	Passed bool
	Failed string // why not

	Counter int64 // with Passed: the instance that the service names
}

func (c BarrierCall) String() string {
	s := fmt.Sprintf("[%d,%d] member %d (life %d) at %s::%d", c.Call, c.Return, c.Member, c.Life, c.ID, c.Instance)
	switch {
	case c.Return == 0:
		return s + ": no answer"
	case c.Passed:
		return fmt.Sprintf("%s: passed %d", s, c.Counter)
	}
	return s + ": " + c.Failed
}

// CheckBarriers says whether members saw the same outcome of every instance: if one passed, then no
// other was told that it failed, and all had come before. Nobody passes an instance twice, and nobody
// another one than that at which it arrived.
func CheckBarriers(calls []BarrierCall) error {
	type instance struct {
		id     string
		number int64
	}
	all := make(map[instance][]BarrierCall)
	var order []instance
	var loose []BarrierCall
	for _, c := range calls {
		if c.Instance == AnyInstance {
			loose = append(loose, c)
			continue
		}
		at := instance{c.ID, c.Instance}
		if all[at] == nil {
			order = append(order, at)
		}
		all[at] = append(all[at], c)
	}
	for _, at := range order {
		for _, c := range loose {
			if c.ID == at.id {
				all[at] = append(all[at], c)
			}
		}
		if what := judge(all[at]); what != "" {
			return fmt.Errorf("barrier %s::%d: %s:\n%s", at.id, at.number, what, lines(all[at]))
		}
	}
	return nil
}

// judge says what is wrong with the calls of an instance, if something is.
func judge(calls []BarrierCall) string {
	var wrong []string
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	failed := slices.IndexFunc(calls, func(c BarrierCall) bool { return c.Return != 0 && !c.Passed })
	came := make(map[int]Moment) // by member: its first arrival
	for _, c := range calls {
		if first, ok := came[c.Member]; !ok || c.Call < first {
			came[c.Member] = c.Call
		}
	}
	for i, c := range calls {
		if c.Return == 0 || !c.Passed {
			continue
		}
		if failed >= 0 {
			add("member %d passed and member %d did not", c.Member, calls[failed].Member)
		}
		if c.Counter != c.Instance {
			add("member %d passed instance %d", c.Member, c.Counter)
		}
		for _, m := range c.Members {
			if first, ok := came[m]; !ok || first >= c.Return {
				add("member %d passed before member %d came", c.Member, m)
			}
		}
		for j := range calls[:i] {
			if o := &calls[j]; o.Passed && o.Member == c.Member && o.Life == c.Life {
				add("member %d passed twice", c.Member)
			}
		}
	}
	return strings.Join(wrong, "; ")
}
