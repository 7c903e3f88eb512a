package collective

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/link"
)

// What can happen to a clique or a call. A program that can go on with fewer members re-forms the clique after
// the first four; the others are mistakes of the program, or the end of the clique that it asked for.
var (
	ErrPeerFailed = link.ErrPeerFailed // a member is lost; facts: Error
	ErrTransport  = link.ErrTransport  // a link between two members broke; facts: Error
	ErrTimeout    = serry.ErrTimeout   // members did not come in time; facts: Error
	ErrCancelled  = serry.ErrCancelled // a member revoked the clique, or gave an operation up; facts: Error

	ErrMismatch    = errors.New("members run different operations") // facts: Error
	ErrFault       = errors.New("a member met a limit or a fault")  // facts: Error
	ErrClosed      = errors.New("clique is closed")                 // facts: Error
	ErrInvalid     = serry.ErrInvalid                               // facts: serry.InvalidError, or Error if it ended the clique
	ErrUnsupported = errors.New("operation is not supported")
)

// causes lists what can end a clique, the strongest first: of concurrent causes every member keeps the strongest
// (CL-ABT-20). A lost member explains a broken link, and a broken link explains a wait. The places are known to
// the wire: new causes come last.
var causes = []error{ErrPeerFailed, ErrTransport, ErrMismatch, ErrInvalid, ErrFault, ErrTimeout, ErrCancelled, ErrClosed}

// An Error says why a clique failed. Every member gets the same facts, whether it found the failure or was told.
type Error struct {
	Ranks  []int      // blamed, ascending: the lost one, the ends of the link, those waited for; or none
	Life   serry.Life // of ErrPeerFailed: the life that is lost
	Origin int        // the rank that found it
	Seq    uint64     // of the operation that it was found in, or 0
	Detail string     // what was seen
	Err    error      // a sentinel of this package
}

func (e *Error) Error() string {
	var b strings.Builder
	switch {
	case errors.Is(e.Err, ErrPeerFailed) && len(e.Ranks) == 1:
		fmt.Fprintf(&b, "rank %d (%v): ", e.Ranks[0], e.Life.Task)
	case errors.Is(e.Err, ErrTransport) && len(e.Ranks) == 2:
		fmt.Fprintf(&b, "ranks %d and %d: ", e.Ranks[0], e.Ranks[1])
	}
	b.WriteString(e.Err.Error())
	if errors.Is(e.Err, ErrTimeout) && len(e.Ranks) > 0 {
		fmt.Fprintf(&b, ", waiting for %s", ranksText(e.Ranks))
	}
	if e.Detail != "" {
		fmt.Fprintf(&b, ": %s", e.Detail)
	}
	fmt.Fprintf(&b, " (found by rank %d", e.Origin)
	if e.Seq > 0 {
		fmt.Fprintf(&b, " in operation %d", e.Seq)
	}
	b.WriteByte(')')
	return b.String()
}

// Unwrap makes the sentinel visible to errors.Is.
func (e *Error) Unwrap() error { return e.Err }

// ranksText is "rank 3", or "ranks 3, 7", shortened where there are many.
func ranksText(ranks []int) string {
	const most = 10
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	var list []string
	for _, r := range ranks[:min(len(ranks), most)] {
		list = append(list, fmt.Sprint(r))
	}
	if len(ranks) > most {
		list = append(list, fmt.Sprintf("and %d more", len(ranks)-most))
	}
	return "ranks " + strings.Join(list, ", ")
}

// within says whether a clique has all ranks that the error names.
func (e *Error) within(k *Key) bool {
	p := len(k.Ranks)
	return e.Origin < p && !slices.ContainsFunc(e.Ranks, func(r int) bool { return r >= p })
}

// strength orders causes: the place of the sentinel, then the lowest blamed rank.
func (e *Error) strength() (cause, rank int) {
	rank = math.MaxInt
	if len(e.Ranks) > 0 {
		rank = e.Ranks[0]
	}
	return slices.Index(causes, e.Err), rank
}

// outranks says whether e takes the place of the cause that is held, which may be nil.
func (e *Error) outranks(held *Error) bool {
	if held == nil {
		return true
	}
	cause, rank := e.strength()
	heldCause, heldRank := held.strength()
	return cause < heldCause || cause == heldCause && rank < heldRank
}

// invalid is the error for a call that was refused before anything was sent.
func invalid(format string, args ...any) error {
	return &serry.InvalidError{What: fmt.Sprintf(format, args...)}
}
