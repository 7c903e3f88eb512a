package client

import (
	"context"
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

// broken is a store that answers every call with an error.
type broken struct{ err error }

func (b broken) change(context.Context, func(coord.Call) coord.Event) (coord.Result, error) {
	return nil, b.err
}

func (b broken) keep(value []byte) []byte { return value }

func (b broken) read(context.Context, func(coord.Call) coord.Event) (coord.Result, error) {
	return nil, b.err
}

// Keys that could not be read are not keys that are not there: an exchange would take a member for one
// that has not published yet.
func TestExchangeOfAStoreThatFails(t *testing.T) {
	for _, need := range []int{0, 1} {
		_, err := exchangeKeys{&KV{store: broken{serry.ErrStopped}}}.Get(t.Context(), []string{"a", "b"}, need, 0)
		if err == nil {
			t.Errorf("Get() of a store that fails, %d keys needed = nil; want an error", need)
		}
	}
	found, err := exchangeKeys{&KV{store: broken{serry.ErrNotFound}}}.Get(t.Context(), []string{"a", "b"}, 0, 0)
	if err != nil || len(found) != 0 {
		t.Errorf("Get() of keys that are not there = %v, %v; want none", found, err)
	}
}
