package jax

import (
	"errors"
	"fmt"
	"slices"
)

// maxSpans is in how many pieces the announced part of a buffer may lie. Lanes are of different speed, so there are a few;
// a peer that announces every second byte is stopped here.
const maxSpans = 4096

var errOverlap = errors.New("a part of the buffer was announced twice")

// A span is a part of a buffer, from the first byte to before the last.
type span struct{ from, to uint64 }

// spans are the parts of a buffer that packets have announced: in order, without overlap, and joined where they touch.
type spans []span

// add adds a part.
func (s spans) add(p span) (spans, error) {
	i, _ := slices.BinarySearchFunc(s, p.from, func(a span, from uint64) int {
		if a.to < from { // one that ends where p begins is joined with it
			return -1
		}
		return 1
	})
	j := i
	if j < len(s) && s[j].to == p.from {
		p.from = s[j].from
		j++
	}
	if j < len(s) && s[j].from < p.to {
		return s, errOverlap
	}
	if j < len(s) && s[j].from == p.to {
		p.to = s[j].to
		j++
	}
	if s = slices.Replace(s, i, j, p); len(s) > maxSpans {
		return s, fmt.Errorf("the buffer comes in more than %d separate pieces", maxSpans)
	}
	return s, nil
}

// all says whether the parts are a whole buffer.
func (s spans) all(size uint64) bool { return len(s) == 1 && s[0] == span{0, size} }
