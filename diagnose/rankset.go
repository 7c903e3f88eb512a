package diagnose

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// A RankSet is numbers of ranks, sorted. Its text has runs, so thousands of ranks take few bytes: "0-2,5". As JSON it is that text in a
// string; a list of numbers is read, too, as older launchers write it.
type RankSet []int

// maxRankSet bounds what is read: few bytes stand for many ranks.
const maxRankSet = 1 << 17

var errRankSet = errors.New("malformed set of ranks")

func (s RankSet) String() string {
	var b strings.Builder
	for i := 0; i < len(s); {
		n := 1
		for i+n < len(s) && s[i+n] == s[i]+n {
			n++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(run{s[i], s[i+n-1]}.String())
		i += n
	}
	return b.String()
}

// ParseRankSet reads what String wrote, of so many ranks at most.
func ParseRankSet(text string, most int) (s RankSet, err error) {
	if text == "" {
		return nil, nil
	}
	next := 0
	for part := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		last := first
		if ranged && err == nil {
			last, err = strconv.Atoi(to)
		}
		if err != nil || first < next || last < first || last-first >= most-len(s) {
			return nil, errRankSet
		}
		for n := first; n <= last; n++ {
			s = append(s, n)
		}
		next = last + 1
	}
	return s, nil
}

// MarshalJSON writes the text. A list that is no set is written as it is.
func (s RankSet) MarshalJSON() ([]byte, error) {
	for i, n := range s {
		if n < 0 || i > 0 && n <= s[i-1] {
			return json.Marshal([]int(s))
		}
	}
	return json.Marshal(s.String())
}

// UnmarshalJSON reads what MarshalJSON writes.
func (s *RankSet) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) != nil {
		return json.Unmarshal(b, (*[]int)(s))
	}
	all, err := ParseRankSet(text, maxRankSet)
	*s = all
	return err
}

// alikeGroups is how many groups of ranks a report tells apart.
const alikeGroups = 64

// A rankGroup is a rank, and others of which the same is to be told.
type rankGroup struct {
	RankEvidence
	Alike RankSet `json:"alike,omitempty"`
}

type plainHang Hang

// MarshalJSON writes the ranks in groups: thousands may be waited for, and be at few places.
func (h Hang) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		plainHang
		Ranks []rankGroup `json:"ranks"`
	}{plainHang(h), groupAlike(h.Ranks)})
}

// UnmarshalJSON reads what MarshalJSON wrote, or older launchers. Of ranks that are told of together the first has a process.
func (h *Hang) UnmarshalJSON(b []byte) error {
	var read struct {
		plainHang
		Ranks []rankGroup `json:"ranks"`
	}
	if err := json.Unmarshal(b, &read); err != nil {
		return err
	}
	*h = Hang(read.plainHang)
	h.Ranks = nil
	for _, g := range read.Ranks {
		if h.Ranks = append(h.Ranks, g.RankEvidence); len(h.Ranks)+len(g.Alike) > maxRankSet {
			return errRankSet
		}
		for _, rank := range g.Alike {
			r := g.RankEvidence
			r.Rank, r.PID = rank, 0
			h.Ranks = append(h.Ranks, r)
		}
	}
	slices.SortStableFunc(h.Ranks, func(a, b RankEvidence) int { return cmp.Compare(a.Rank, b.Rank) })
	return nil
}

// groupAlike puts ranks together that do the same at the same place. Their processes and rates differ, and when they came there: of these
// the ones of the first rank are told. The pressure of a host is told with the host.
func groupAlike(ranks []RankEvidence) []rankGroup {
	at := make(map[RankEvidence]int)
	groups := []rankGroup{}
	for _, r := range ranks {
		key := r
		key.Rank, key.PID, key.Since, key.Rate, key.Until = 0, 0, 0, 0, 0
		if key.Pressure == (Pressure{}) {
			key.Host = ""
		}
		i, known := at[key]
		switch {
		case known:
		case len(groups) < alikeGroups:
			at[key], groups = len(groups), append(groups, rankGroup{RankEvidence: r})
			continue
		default:
			i = alikeGroups - 1
		}
		groups[i].Alike, groups[i].Rate = append(groups[i].Alike, r.Rank), max(groups[i].Rate, r.Rate)
	}
	return groups
}
