package history

import (
	"fmt"
	"slices"
)

// A RoundCall is a question of one member who of a set is alive.
type RoundCall struct {
	Span
	Member int
	Life   uint64
	Of     string // names the set; those who ask of one meet

	Alive []LiveMember // the answer
}

// A LiveMember is one that was alive, in which life.
type LiveMember struct {
	Member int
	Life   uint64
}

func (c RoundCall) String() string {
	if c.Return == 0 {
		return fmt.Sprintf("[%d,-] member %d (life %d) of %s: no answer", c.Call, c.Member, c.Life, c.Of)
	}
	return fmt.Sprintf("[%d,%d] member %d (life %d) of %s: %v", c.Call, c.Return, c.Member, c.Life, c.Of, c.Alive)
}

// A Lifetime is how long one life of a member was certainly connected: from when it was told so to when
// it left, was killed, or another life was about to take its place.
type Lifetime struct {
	LiveMember
	From  Moment
	Until Moment // zero: to the end
}

// CheckRounds says whether those who met heard the same: whoever is in an answer was itself in a call of
// that set at the time, and heard the same answer there, unless it died before it heard any. And nobody
// is left out who was alive all the time; lives are those of the members of every set.
func CheckRounds(calls []RoundCall, lives []Lifetime) error {
	by := make(map[LiveMember][]RoundCall)
	for _, c := range calls {
		m := LiveMember{c.Member, c.Life}
		by[m] = append(by[m], c)
	}
	for _, c := range calls {
		if c.Return == 0 {
			continue
		}
		for _, l := range lives {
			if l.From < c.Call && (l.Until == 0 || l.Until > c.Return) && !slices.Contains(c.Alive, l.LiveMember) {
				return fmt.Errorf("live set of %s: member %d (life %d) is left out, although it lived from %d to %d:\n  %v", c.Of, l.Member, l.Life, l.From, l.Until, c)
			}
		}
		for _, m := range c.Alive {
			if !slices.ContainsFunc(by[m], c.met) {
				return fmt.Errorf("live set of %s: member %d (life %d) is in an answer that it does not share:\n  %v\n%s", c.Of, m.Member, m.Life, c, lines(around(calls, c)))
			}
		}
	}
	return nil
}

// met says whether o can be the call of a member by which it took part in the round that answered c.
func (c RoundCall) met(o RoundCall) bool {
	return o.Of == c.Of && o.overlaps(c.Span) && (o.Return == 0 || slices.Equal(o.Alive, c.Alive))
}

// around are the calls of the same set that were under way with c.
func around(calls []RoundCall, c RoundCall) (found []RoundCall) {
	for _, o := range calls {
		if o.Of == c.Of && o.overlaps(c.Span) {
			found = append(found, o)
		}
	}
	return found
}

// A Sight is the answer to a watch: the version that a client was told, and by which service.
type Sight struct {
	Span
	Client  int
	Version int64
}

func (s Sight) String() string {
	return fmt.Sprintf("[%d,%d] client %d: version %d", s.Call, s.Return, s.Client, s.Version)
}

// CheckWatches says whether no client was told a version lower than one it knew when it asked.
func CheckWatches(sights []Sight) error {
	by := make(map[int][]Sight)
	for _, s := range sights {
		for _, o := range by[s.Client] {
			if o.Version > s.Version && o.Return < s.Call || o.Version < s.Version && s.Return < o.Call {
				return fmt.Errorf("watch: client %d was told versions %d and %d:\n%s", s.Client, s.Version, o.Version, lines([]Sight{o, s}))
			}
		}
		by[s.Client] = append(by[s.Client], s)
	}
	return nil
}
