package mesh

import "slices"

// A Pattern says how the bytes of a range lie in two buffers: Run bytes in a
// row, repeated in nested loops, the outermost first. Without Counts it is one
// run. Neighbouring loops that go on without a gap on both sides are merged, so
// the number of runs is the least possible.
type Pattern struct {
	Run         int
	Counts      []int // how often each loop goes round
	FromStrides []int // bytes between two rounds in the source
	ToStrides   []int // and in the destination
}

// Bytes is the number of bytes in all runs.
func (p *Pattern) Bytes() int { return p.Run * product(p.Counts) }

// newPattern describes the copy of a block of the given extent out of one dense
// array into another.
func newPattern(extent, from, to []int, elementBytes int) *Pattern {
	p := &Pattern{Run: elementBytes}
	fromStep, toStep := elementBytes, elementBytes
	var counts, froms, tos []int // innermost first
	for d := len(extent) - 1; d >= 0; d-- {
		n, last := extent[d], len(counts)-1
		switch {
		case n == 1:
		case last < 0 && fromStep == p.Run && toStep == p.Run:
			p.Run *= n
		case last >= 0 && fromStep == froms[last]*counts[last] && toStep == tos[last]*counts[last]:
			counts[last] *= n
		default:
			counts, froms, tos = append(counts, n), append(froms, fromStep), append(tos, toStep)
		}
		fromStep, toStep = fromStep*from[d], toStep*to[d]
	}
	slices.Reverse(counts)
	slices.Reverse(froms)
	slices.Reverse(tos)
	p.Counts, p.FromStrides, p.ToStrides = counts, froms, tos
	return p
}

// copy moves the bytes; to and from start at the first byte of the range.
func (p *Pattern) copy(to, from []byte) { p.loop(0, to, from) }

func (p *Pattern) loop(level int, to, from []byte) {
	if level == len(p.Counts) {
		copy(to[:p.Run], from[:p.Run])
		return
	}
	for i := range p.Counts[level] {
		p.loop(level+1, to[i*p.ToStrides[level]:], from[i*p.FromStrides[level]:])
	}
}

// span is how far the range reaches in a buffer with the given strides.
func (p *Pattern) span(strides []int) int {
	n := p.Run
	for i, count := range p.Counts {
		n += (count - 1) * strides[i]
	}
	return n
}
