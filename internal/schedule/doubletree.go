package schedule

import "math/bits"

// A heap is one of the two trees of [DoubleTree]: the parent of number v is (v-1)/2. The second tree numbers the
// ranks from the other end, so a rank that is inside one tree is a leaf of the other, and both its directions
// are busy all the time.
type heap struct {
	p      int
	mirror bool
}

func (h heap) number(rank int) int {
	if h.mirror {
		return h.p - 1 - rank
	}
	return rank
}

func (h heap) depth(v int) int { return bits.Len(uint(v+1)) - 1 }

func (h heap) parent(v int) int { return h.number((v - 1) / 2) }

// children are the ranks below number v.
func (h heap) children(v int) []int {
	var list []int
	for c := 2*v + 1; c <= 2*v+2 && c < h.p; c++ {
		list = append(list, h.number(c))
	}
	return list
}

// A pipeline is what a rank does for one of the trees. Of the pieces of the vector, every second belongs to it.
type pipeline struct {
	heap
	tree, pieces int
	v, depth     int // of this rank
	height       int // the greatest depth
}

// block is the block of piece i; it says no for a piece that does not exist.
func (l pipeline) block(i int) (int, bool) { return 2*i + l.tree, i >= 0 && i < l.pieces }

// step adds what happens in a step. A message has the same step on both ends: piece i leaves depth d upwards in
// step i+height-d, and is sent down from there in step i+height+d.
func (l pipeline) step(step int, r *Round) {
	l.up(step, r)
	l.down(step, r)
}

func (l pipeline) up(step int, r *Round) {
	children := l.children(l.v)
	if b, ok := l.block(step - l.height + l.depth); ok && l.depth > 0 {
		from := span(Out, b, b+1)
		if len(children) == 0 {
			from = span(In, b, b+1)
		}
		r.Sends = append(r.Sends, one(l.parent(l.v), from)...)
	}
	if b, ok := l.block(step - l.height + l.depth + 1); ok && len(children) > 0 {
		sum := Work{Into: span(Out, b, b+1), From: []Part{span(In, b, b+1)}}
		for i, c := range children {
			got := scratch(2*l.tree+i, b, b+1)
			r.Recvs = append(r.Recvs, one(c, got)...)
			sum.From = append(sum.From, got)
		}
		r.Work = append(r.Work, sum)
	}
}

func (l pipeline) down(step int, r *Round) {
	if b, ok := l.block(step - l.height - l.depth); ok {
		for _, c := range l.children(l.v) {
			r.Sends = append(r.Sends, one(c, span(Out, b, b+1))...)
		}
	}
	if b, ok := l.block(step - l.height - l.depth + 1); ok && l.depth > 0 {
		r.Recvs = append(r.Recvs, one(l.parent(l.v), span(Out, b, b+1))...)
	}
}

// doubleTree reduces the pieces of the vector up one tree or the other and sends the sums down again. All pieces
// are in flight at once, one step apart.
func doubleTree(j Job, rank int) plan {
	if j.Ranks == 1 {
		return alone()
	}
	pieces := max(1, j.Pieces)
	var lines [2]pipeline
	for i := range lines {
		h := heap{p: j.Ranks, mirror: i == 1}
		v := h.number(rank)
		lines[i] = pipeline{heap: h, tree: i, pieces: pieces, v: v, depth: h.depth(v), height: h.depth(j.Ranks - 1)}
	}
	var rounds []Round
	for step := range pieces + 2*lines[0].height {
		var r Round
		lines[0].step(step, &r)
		lines[1].step(step, &r)
		if len(r.Sends)+len(r.Recvs) > 0 {
			rounds = append(rounds, r)
		}
	}
	return plan{2 * pieces, rounds}
}
