package remap

import (
	"cmp"
	"slices"
	"sort"

	"github.com/serry-dev/serry"
)

// A stock is all that is held of one array: its distinct boxes, by where they
// begin, each with its holders.
type stock struct {
	shape   []int64
	dtype   string
	first   serry.TaskIndex // whose index had it first
	lots    []*lot
	longest int64 // of the first dimension of any box
}

type lot struct {
	box     Box
	size    int64
	holders []holder // by task, the store first
}

type holder struct {
	task  serry.TaskIndex
	shard Shard
}

// order sorts the lots and puts copies of one box together.
func (s *stock) order() {
	slices.SortStableFunc(s.lots, func(a, b *lot) int {
		return cmp.Or(compareBoxes(a.box, b.box), cmp.Compare(a.holders[0].task, b.holders[0].task))
	})
	var merged []*lot
	for _, l := range s.lots {
		if n := len(merged); n > 0 && slices.Equal(merged[n-1].box, l.box) {
			merged[n-1].holders = append(merged[n-1].holders, l.holders...)
			continue
		}
		merged = append(merged, l)
		if len(l.box) > 0 {
			s.longest = max(s.longest, l.box[0].Stop-l.box[0].Start)
		}
	}
	s.lots = merged
}

func compareBoxes(a, b Box) int {
	return slices.CompareFunc(a, b, func(x, y Range) int {
		return cmp.Or(cmp.Compare(x.Start, y.Start), cmp.Compare(x.Stop, y.Stop))
	})
}

// near returns the lots that can overlap a box, by looking only at the first
// dimension.
func (s *stock) near(b Box) []*lot {
	if len(b) == 0 {
		return s.lots
	}
	from := sort.Search(len(s.lots), func(i int) bool { return s.lots[i].box[0].Start > b[0].Start-s.longest })
	to := sort.Search(len(s.lots), func(i int) bool { return s.lots[i].box[0].Start >= b[0].Stop })
	return s.lots[min(from, to):to]
}

// best chooses who gives the next piece of a box to a task.
func (p *planner) best(array string, box Box, task serry.TaskIndex) (holder, Box, bool) {
	s := p.stock[array]
	if s == nil {
		return holder{}, nil, false
	}
	var chosen offer
	for _, l := range s.near(box) {
		common, ok := l.box.overlap(box)
		if !ok {
			continue
		}
		for _, h := range l.holders {
			o := p.offer(h, l, common, task)
			if chosen.common == nil || o.compare(chosen) < 0 {
				chosen = o
			}
		}
	}
	return chosen.holder, chosen.common, chosen.common != nil
}

// An offer is one holder's share in a box. Ranks are better the smaller.
type offer struct {
	holder
	common   Box
	distance int   // 0 the task itself, 1 a peer, 2 the store
	lacking  int64 // elements of the box it does not have, as a negative share
	surplus  int64 // elements of the shard that are not asked for
	served   int64 // bytes it gives already
	abroad   int   // 1 for a peer that is not known to be in the same partition
}

func (p *planner) offer(h holder, l *lot, common Box, task serry.TaskIndex) offer {
	n := common.Elements()
	o := offer{holder: h, common: common, distance: 1, lacking: -n, surplus: l.size - n, served: p.served[h.task], abroad: 1}
	switch h.task {
	case task:
		o.distance = 0
	case FromStore:
		o.distance = 2
	}
	x, okX := p.part[task]
	y, okY := p.part[h.task]
	if okX && okY && x == y {
		o.abroad = 0
	}
	return o
}

func (o offer) compare(q offer) int {
	return cmp.Or(cmp.Compare(o.distance, q.distance), cmp.Compare(o.lacking, q.lacking), cmp.Compare(o.surplus, q.surplus),
		cmp.Compare(o.served, q.served), cmp.Compare(o.abroad, q.abroad), cmp.Compare(o.task, q.task), compareBoxes(o.common, q.common))
}
