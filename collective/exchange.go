package collective

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/rendezvous"
)

// Values are what the ranks of a clique have given each other in an exchange. All ranks have the same.
type Values struct {
	given []any // by rank; nil where a rank gave nothing
}

// An exchangeName names an exchange: the clique by its stream, and which exchange of each rank it is.
type exchangeName struct {
	stream uint64
	number uint64
}

// A gift is what one rank gives in an exchange.
type gift struct {
	rank  int
	value any
}

// Exchange gives the other ranks of the clique a value of any type, and returns the values of all. All ranks must be in this process, and
// all call it; a rank that has nothing to give calls it with nil (CL-RDV-14). Nothing is copied: a value that must not be copied is
// given as a pointer, and all ranks get this pointer.
//
// It is no operation of the clique. It takes no sequence number, and the clique goes on when it fails. It ends for all ranks when one of them
// gives up, and when the clique ends.
func (c *Comm) Exchange(ctx context.Context, value any) (*Values, error) {
	if len(c.clique.others) > 0 {
		return nil, invalid("exchange of values in a non-local clique: %v", c.Key())
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil { // the call is withdrawn, as that of an operation
		return nil, fmt.Errorf("exchange of values: %w", context.Cause(ctx))
	}
	ctx, cancel := c.group.bounded(ctx)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(c.clique.ctx, func() { stop(context.Cause(c.clique.ctx)) })()
	name := exchangeName{c.clique.stream, c.exchanges.Add(1)}
	place := rendezvous.Place[gift]{Name: fmt.Sprintf("rank %d", c.rank), Size: c.Size(), Value: gift{c.rank, value}}
	v, err := c.group.exchanges.Join(ctx, name, place, collect)
	if e, ok := errors.AsType[*Error](err); ok { // the clique has ended
		return nil, e
	}
	return v, err
}

// collect puts the values of all ranks in their order.
func collect(all []gift) (*Values, error) {
	v := &Values{given: make([]any, len(all))}
	for _, g := range all {
		v.given[g.rank] = g.value
	}
	return v, nil
}

// ValueOf is what a rank has given in an exchange. A rank that gave nothing, or does not exist, is serry.ErrNotFound; a value of another
// type than T is ErrInvalid.
func ValueOf[T any](v *Values, rank int) (T, error) {
	var none T
	if rank < 0 || rank >= len(v.given) || v.given[rank] == nil {
		return none, absentError(rank)
	}
	value, ok := v.given[rank].(T)
	if !ok {
		return none, invalid("rank %d gave a %T, not a %v", rank, v.given[rank], reflect.TypeFor[T]())
	}
	return value, nil
}

// An absentError says that a rank has given no value.
type absentError int

func (e absentError) Error() string { return fmt.Sprintf("rank %d gave no value", int(e)) }

// Unwrap makes serry.ErrNotFound visible to errors.Is.
func (absentError) Unwrap() error { return serry.ErrNotFound }
