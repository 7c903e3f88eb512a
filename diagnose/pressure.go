package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Pressure is how much of the last 10 s, in percent, processes have waited because there was too little of something, as the kernel
// counts it ("some" of /proc/pressure, or of a control group). The zero Pressure: there is enough, or it is not known.
type Pressure struct {
	Memory int `json:"memory,omitempty"`
	CPU    int `json:"cpu,omitempty"`
	IO     int `json:"io,omitempty"`

	Group bool `json:"group,omitempty"` // of the control group of the rank, not of all its host
}

// From these shares on there is too little, and below half of them there is enough again. Memory is short when little of the time is
// lost: to reclaim it takes most of that. Processors are shared by as many programs as people like.
const (
	shortMemory = 20
	shortIO     = 40
	shortCPU    = 60

	pressureStep = 20 // by so much a share must have changed to be told again
)

// Next is what is to be told where p was told last, and this is seen: shares of what there is too little of. It is p unless there is
// something new, so that shares that change all the time are no message each time (D-EV-6).
func (p Pressure) Next(seen Pressure) Pressure {
	next := Pressure{
		Memory: short(p.Memory, seen.Memory, shortMemory), CPU: short(p.CPU, seen.CPU, shortCPU), IO: short(p.IO, seen.IO, shortIO),
	}
	next.Group = seen.Group && next != Pressure{}
	if next.Group == p.Group && alike(p.Memory, next.Memory) && alike(p.CPU, next.CPU) && alike(p.IO, next.IO) {
		return p
	}
	return next
}

// short is a share, or 0 where there is enough.
func short(told, seen, least int) int {
	if told > 0 {
		least /= 2
	}
	if seen < least {
		return 0
	}
	return min(seen, 100)
}

// alike says whether a share is as it was told.
func alike(told, now int) bool {
	return (told == 0) == (now == 0) && max(told-now, now-told) < pressureStep
}

// Worst is the greatest share.
func (p Pressure) Worst() int { return max(p.Memory, p.CPU, p.IO) }

// Text says what there is too little of: "its host is short of memory (PSI some 83 %)". It is empty where there is enough.
func (p Pressure) Text() string {
	if p.Group {
		return p.of("its control group is")
	}
	return p.of("its host is")
}

// of is Text with other words for where that is.
func (p Pressure) of(where string) string {
	var what, shares []string
	for _, one := range []struct {
		name  string
		share int
	}{{"memory", p.Memory}, {"processor time", p.CPU}, {"IO", p.IO}} {
		if one.share > 0 {
			what, shares = append(what, one.name), append(shares, fmt.Sprintf("%d %%", one.share))
		}
	}
	if what == nil {
		return ""
	}
	return fmt.Sprintf("%s short of %s (PSI some %s)", where, strings.Join(what, " and "), strings.Join(shares, " and "))
}

// A Shortage is a host, or the control group of ranks on it, that is under pressure.
type Shortage struct {
	Host  string `json:"host"`
	Ranks []int  `json:"ranks"` // there, sorted
	Pressure
}

// pressed are lines about the hosts of ranks that a verdict names, where these are short of something, or were when they were last
// heard.
func (r *HangReport) pressed(is string, ranks ...int) []HangLine {
	if r == nil {
		return nil
	}
	var lines []HangLine
	for _, s := range r.Short {
		if slices.ContainsFunc(s.Ranks, func(rank int) bool { return slices.Contains(ranks, rank) }) {
			lines = append(lines, HangLine{"host", s.text(is)})
		}
	}
	return lines
}

// text names the host: "node-b, of rank 3, is short of memory (PSI some 83 %)".
func (s *Shortage) text(is string) string {
	where := fmt.Sprintf("%s, of %s,", s.Host, rankRanges(s.Ranks))
	if s.Group {
		where = fmt.Sprintf("the control group of %s on %s", rankRanges(s.Ranks), s.Host)
	}
	return s.Pressure.of(where + " " + is)
}

// hosts are the shortages of the hosts of the ranks that are waited for, each once.
func (h *Hang) hosts() []string {
	var lines []string
	for _, s := range Shortages(h.Ranks) {
		lines = append(lines, s.text("is"))
	}
	return lines
}

// maxShortages is how many hosts under pressure are told of.
const maxShortages = 16

// Shortages are the hosts of ranks that are short of something, the worst first, 16 at most. Ranks in a group of their own are apart.
func Shortages(ranks []RankEvidence) []Shortage {
	pressed := slices.DeleteFunc(slices.Clone(ranks), func(r RankEvidence) bool { return r.Pressure == Pressure{} })
	slices.SortFunc(pressed, func(a, b RankEvidence) int { return cmp.Compare(a.Rank, b.Rank) })
	type place struct {
		host  string
		group Pressure // of the group of the rank, or zero
	}
	at := make(map[place]int)
	var all []Shortage
	for _, r := range pressed {
		p := place{host: r.Host}
		if r.Pressure.Group {
			p.group = r.Pressure
		}
		i, known := at[p]
		if !known {
			i = len(all)
			at[p], all = i, append(all, Shortage{Host: r.Host, Pressure: r.Pressure})
		}
		all[i].Ranks = append(all[i].Ranks, r.Rank)
		if r.Pressure.Worst() > all[i].Worst() {
			all[i].Pressure = r.Pressure
		}
	}
	slices.SortStableFunc(all, func(a, b Shortage) int { return cmp.Compare(b.Worst(), a.Worst()) })
	return all[:min(len(all), maxShortages)]
}
