package stream

// Numbers gives out the numbers of one requester's request ids, and knows up to which number all results
// have reached their caller (A-SIDE-15). The zero value is ready to use. It has no lock.
type Numbers struct {
	last      uint64
	watermark uint64
	above     map[uint64]struct{} // delivered ones above the watermark
}

// Next is the next number.
func (n *Numbers) Next() uint64 {
	n.last++
	return n.last
}

// Last is the number that was given out last, or 0.
func (n *Numbers) Last() uint64 { return n.last }

// Watermark is the number up to which all results have been delivered.
func (n *Numbers) Watermark() uint64 { return n.watermark }

// Deliver notes that the caller has the result of a number, or no longer waits for it, and says whether the
// watermark has risen. Zero, which is no number, and a number that was delivered before change nothing.
func (n *Numbers) Deliver(number uint64) (raised bool) {
	if number <= n.watermark {
		return false
	}
	if number != n.watermark+1 {
		if n.above == nil {
			n.above = make(map[uint64]struct{})
		}
		n.above[number] = struct{}{}
		return false
	}
	n.watermark = number
	for {
		if _, ok := n.above[n.watermark+1]; !ok {
			return true
		}
		n.watermark++
		delete(n.above, n.watermark)
	}
}
