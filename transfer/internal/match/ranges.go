package match

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Range is bytes of a transfer: From, up to but not with To.
type Range struct{ From, To int64 }

// Ranges are bytes of a transfer: ascending, none empty, none adjacent to the next.
type Ranges []Range

// MaxRanges is how many ranges an Accept can name. A receiver that lacks more asks for the bytes between some of them again.
const MaxRanges = 1024

// String is "0-5 7-9".
func (s Ranges) String() string {
	texts := make([]string, len(s))
	for i, r := range s {
		texts[i] = fmt.Sprintf("%d-%d", r.From, r.To)
	}
	return strings.Join(texts, " ")
}

// Bytes is how many bytes there are.
func (s Ranges) Bytes() (n int64) {
	for _, r := range s {
		n += r.To - r.From
	}
	return n
}

// add joins a range with those that are there.
func (s Ranges) add(r Range) Ranges {
	if r.From >= r.To {
		return s
	}
	first, _ := slices.BinarySearchFunc(s, r.From, func(x Range, from int64) int { return cmp.Compare(x.To, from) })
	last := first
	for last < len(s) && s[last].From <= r.To {
		r.From, r.To = min(r.From, s[last].From), max(r.To, s[last].To)
		last++
	}
	return slices.Replace(s, first, last, r)
}

// missing is what is not there of the first n bytes.
func (s Ranges) missing(n int64) Ranges {
	var gaps Ranges
	at := int64(0)
	for _, r := range s {
		if r.From > at {
			gaps = append(gaps, Range{at, r.From})
		}
		at = r.To
	}
	if at < n {
		gaps = append(gaps, Range{at, n})
	}
	if len(gaps) > MaxRanges { // the last one covers the rest
		gaps[MaxRanges-1].To = gaps[len(gaps)-1].To
		gaps = gaps[:MaxRanges]
	}
	return gaps
}

// within says whether the ranges are as they should be, and lie in the first n bytes. A peer may have sent anything.
func (s Ranges) within(n int64) bool {
	at := int64(-1)
	for _, r := range s {
		if r.From <= at || r.To <= r.From || r.To > n {
			return false
		}
		at = r.To
	}
	return len(s) <= MaxRanges
}
