package goodput

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A Pace finds stragglers by when ranks arrive (D-GP-3 to D-GP-6). Each time all ranks have passed the same place, the caller
// tells when each of them came. Places of one class, such as the barriers save-1 and save-2, are compared over windows of 32.
type Pace struct {
	ranks   int
	classes map[string]*window
	flagged map[placed]*flag
}

// A placed rank is a rank at places of one class: a rank may be late for the barriers of one loop and not for those of another.
type placed struct {
	class string
	rank  int
}

// A flag is what is known of a straggler.
type flag struct {
	Straggler
	clean int // windows since it was last late
}

// A Straggler is a rank, or all ranks of a host, that arrive later than the others again and again.
type Straggler struct {
	Rank    int           // -1: it is a host
	Host    string        // where the rank is, or empty
	Class   string        // of the places
	Late    time.Duration // as a rule, behind the median rank
	Typical time.Duration // what the median rank works between two such places
	Cost    time.Duration // how much earlier the last rank would have come without it, in all
	Of      time.Duration // how long the window took
	Places  int           // how many places that is about
}

// Slower says by how much longer a straggler works than the others, as a share of their time.
func (s Straggler) Slower() float64 { return float64(s.Late) / float64(max(s.Typical, 1)) }

// Share is what a straggler costs, as a share of the time.
func (s Straggler) Share() float64 {
	if s.Of <= 0 {
		return 0
	}
	return min(1, float64(s.Cost)/float64(s.Of))
}

const (
	windowPlaces = 32 // that are looked at together
	oftenLate    = 24 // of them: three quarters
	cleanWindows = 2  // until a straggler is none any more

	// maxClasses and maxSamples bound what is kept. Classes beyond are not looked at. 4 Mi samples are 16 MiB.
	maxClasses = 64
	maxSamples = 4 << 20

	zLimit    = 5.0    // how many deviations a straggler lies behind
	lateShare = 0.05   // of the typical interval, that it is late at least
	noise     = 0.002  // of the typical interval: a deviation is never taken for less
	madScale  = 1.4826 // makes the median of deviations a standard deviation
)

// A window is the last places of one class, up to windowPlaces.
type window struct {
	late    []int32 // by place and rank, microseconds behind the median; absent: the rank was not there
	medians []time.Duration
	lasts   []time.Duration  // when the last rank came
	former  [2]time.Duration // median and last arrival at the last place of the window before
	known   bool             // former is
}

// absent is the lateness of a rank that does not take part.
const absent = math.MinInt32

// NewPace makes a pace for so many ranks.
func NewPace(ranks int) *Pace {
	return &Pace{ranks: ranks, classes: make(map[string]*window), flagged: make(map[placed]*flag)}
}

// Passed takes the times at which ranks came to a place that all of them have passed. A negative time: the rank does not take
// part. hosts, or nil, says which host a rank is on.
func (p *Pace) Passed(class string, at []time.Duration, hosts func(rank int) string) {
	w := p.classes[class]
	if len(at) != p.ranks || p.ranks < 2 {
		return
	}
	if w == nil {
		if len(p.classes) >= maxClasses || (len(p.classes)+1)*windowPlaces*p.ranks > maxSamples {
			return
		}
		w = new(window)
		p.classes[class] = w
	}
	w.add(at)
	if len(w.medians) == windowPlaces {
		p.judge(class, w, hosts)
		w.next()
	}
}

// add takes one place.
func (w *window) add(at []time.Duration) {
	var there []time.Duration
	for _, t := range at {
		if t >= 0 {
			there = append(there, t)
		}
	}
	if len(there) == 0 {
		return
	}
	middle := median(there)
	for _, t := range at {
		late := int32(absent)
		if t >= 0 {
			late = int32(min(max((t-middle).Microseconds(), math.MinInt32+1), math.MaxInt32))
		}
		w.late = append(w.late, late)
	}
	w.medians = append(w.medians, middle)
	w.lasts = append(w.lasts, slices.Max(there))
}

// next empties the window for the places that follow.
func (w *window) next() {
	last := len(w.medians) - 1
	w.former, w.known = [2]time.Duration{w.medians[last], w.lasts[last]}, true
	w.late, w.medians, w.lasts = w.late[:0], w.medians[:0], w.lasts[:0]
}

// intervals are how long the median rank worked before each place: since the last rank came to the place before, which let all go
// on. The time between two last arrivals would not do: among a thousand ranks one is always an outlier, so it would measure
// outliers (D-GP-5). Where ranks do not wait for each other it is the time between median arrivals. total is how long all of it took.
func (w *window) intervals() (all []time.Duration, total time.Duration) {
	former, known := w.former, w.known
	for i, m := range w.medians {
		if known && m > former[0] {
			worked := m - former[1]
			if worked <= 0 {
				worked = m - former[0]
			}
			all = append(all, worked)
			total += m - former[0]
		}
		former, known = [2]time.Duration{m, w.lasts[i]}, true
	}
	return all, total
}

// judge flags the stragglers of a full window, and takes the flag from those that have been on time for two.
func (p *Pace) judge(class string, w *window, hosts func(rank int) string) {
	intervals, total := w.intervals()
	if len(intervals) == 0 {
		return
	}
	typical := median(intervals)
	usual := w.usual(p.ranks)
	middle, scale := center(usual)
	scale = max(scale*madScale, noise*float64(typical.Microseconds()))
	least := int32(min(lateShare*float64(typical.Microseconds()), math.MaxInt32))
	var costs []time.Duration // by rank; made for the first straggler
	for rank, x := range usual {
		key := placed{class, rank}
		if x == absent || float64(x)-middle <= zLimit*scale || x <= least || w.often(rank, p.ranks, least) < oftenLate {
			p.clear(key)
			continue
		}
		if costs == nil {
			costs = w.costs(p.ranks, func(rank int) int { return rank })
		}
		f := &flag{Straggler: Straggler{
			Rank: rank, Class: class, Late: time.Duration(x) * time.Microsecond, Typical: typical, Cost: costs[rank], Of: total, Places: windowPlaces,
		}}
		if hosts != nil {
			f.Host = hosts(rank)
		}
		p.flagged[key] = f
	}
	if costs != nil && hosts != nil {
		p.foldHosts(class, w, hosts)
	}
}

// clear counts a window in which a rank was on time.
func (p *Pace) clear(key placed) {
	f := p.flagged[key]
	if f == nil {
		return
	}
	if f.clean++; f.clean >= cleanWindows {
		delete(p.flagged, key)
	}
}

// usual is the median lateness of each rank.
func (w *window) usual(ranks int) []int32 {
	usual := make([]int32, ranks)
	row := make([]int32, 0, windowPlaces)
	for rank := range ranks {
		row = row[:0]
		for at := rank; at < len(w.late); at += ranks {
			if w.late[at] != absent {
				row = append(row, w.late[at])
			}
		}
		if usual[rank] = absent; len(row) > windowPlaces/2 {
			usual[rank] = sortedMedian(row)
		}
	}
	return usual
}

// center is the median of values, and the median of the distances from it.
func center(values []int32) (middle, deviation float64) {
	known := slices.DeleteFunc(slices.Clone(values), func(v int32) bool { return v == absent })
	if len(known) == 0 {
		return 0, 0
	}
	m := median(known)
	for i, v := range known {
		known[i] = max(v-m, m-v)
	}
	return float64(m), float64(median(known))
}

// often is how many times a rank was late by more than least.
func (w *window) often(rank, ranks int, least int32) (n int) {
	for at := rank; at < len(w.late); at += ranks {
		if w.late[at] > least {
			n++
		}
	}
	return n
}

// costs are how much earlier the last rank would have come without those of each group, over all places (D-GP-6).
func (w *window) costs(ranks int, group func(rank int) int) []time.Duration {
	groups := make([]int, ranks)
	most := 0
	for rank := range groups {
		groups[rank] = group(rank)
		most = max(most, groups[rank]+1)
	}
	costs := make([]time.Duration, most)
	for at := 0; at+ranks <= len(w.late); at += ranks {
		last, of, other := int32(absent), -1, int32(absent) // the last rank, its group, and the last of all other groups
		for rank, late := range w.late[at : at+ranks] {
			switch g := groups[rank]; {
			case g == of:
				last = max(last, late)
			case late > last:
				last, of, other = late, g, last
			default:
				other = max(other, late)
			}
		}
		if other != absent {
			costs[of] += time.Duration(int64(last)-int64(other)) * time.Microsecond
		}
	}
	return costs
}

// foldHosts puts a host in the place of its ranks where at least three quarters of them are stragglers: then the host is slow.
func (p *Pace) foldHosts(class string, w *window, hosts func(rank int) string) {
	number := make(map[string]int)
	var all, late []int // ranks of each host, and those of them that are stragglers
	for rank := range p.ranks {
		i, ok := number[hosts(rank)]
		if !ok {
			i = len(all)
			number[hosts(rank)], all, late = i, append(all, 0), append(late, 0)
		}
		all[i]++
		if f := p.flagged[placed{class, rank}]; f != nil && f.clean == 0 {
			late[i]++
		}
	}
	var costs []time.Duration // by host
	for rank := range p.ranks {
		f := p.flagged[placed{class, rank}]
		i := number[hosts(rank)]
		if f == nil || f.Host == "" || late[i] < 2 || 4*late[i] < 3*all[i] || len(all) < 2 {
			continue
		}
		if costs == nil {
			costs = w.costs(p.ranks, func(rank int) int { return number[hosts(rank)] })
		}
		f.Rank, f.Cost = -1, costs[i] // Stragglers tells of the host once
	}
}

// Stragglers lists ranks and hosts that hold the others up, those that cost most first. A rank that is late at places of several
// classes is listed once, with the class at which it costs most.
func (p *Pace) Stragglers() []Straggler {
	worst := make(map[placed]Straggler) // by host, or by rank
	for key, f := range p.flagged {
		who := placed{rank: key.rank}
		if f.Rank < 0 {
			who = placed{class: f.Host, rank: -1}
		}
		if w, ok := worst[who]; !ok || byCost(f.Straggler, w) < 0 {
			worst[who] = f.Straggler
		}
	}
	list := make([]Straggler, 0, len(worst))
	for _, s := range worst {
		list = append(list, s)
	}
	slices.SortFunc(list, byCost)
	return list
}

// byCost orders stragglers, the most expensive first.
func byCost(a, b Straggler) int {
	return cmp.Or(cmp.Compare(b.Cost, a.Cost), cmp.Compare(b.Late, a.Late), cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Class, b.Class))
}

// median is the middle value, or the mean of the two in the middle.
func median[T ~int32 | ~int64](values []T) T { return sortedMedian(slices.Clone(values)) }

// sortedMedian is median for values that may be sorted where they are.
func sortedMedian[T ~int32 | ~int64](values []T) T {
	slices.Sort(values)
	n := len(values)
	low, high := values[(n-1)/2], values[n/2]
	return low + (high-low)/2
}

// Lag is how long after the median arrival the last one came. Negative times are of ranks that do not take part.
func Lag(at []time.Duration) time.Duration {
	there := slices.DeleteFunc(slices.Clone(at), func(t time.Duration) bool { return t < 0 })
	if len(there) == 0 {
		return 0
	}
	return slices.Max(there) - median(there)
}
