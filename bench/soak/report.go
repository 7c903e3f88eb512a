package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/serry-dev/serry/bench/internal/sheet"
	"github.com/serry-dev/serry/internal/lab/history"
)

const (
	barStall = 2 * time.Second // at p99
	aimStall = 500 * time.Millisecond

	// lease is how long a leader may be silent. One whose folder stands still, or whose process is stopped,
	// loses it after that, and then another takes over as after a kill.
	lease     = 3 * time.Second
	barFreeze = lease + barStall // at p99
)

// A report is what came of a soak, as JSON has it too.
type report struct {
	Version  int     `json:"version"`
	Seconds  float64 `json:"seconds"`
	Clients  int     `json:"clients"`
	Relays   int     `json:"relays"`
	Kills    int     `json:"kills"`
	Freezes  int     `json:"freezes"`             // of the folder of a server
	NoFreeze string  `json:"no_freeze,omitempty"` // why there was none
	Stops    int     `json:"stops"`               // of the process of a leader

	Calls    int `json:"calls"` // that were answered
	Writes   int `json:"writes"`
	Barriers int `json:"barriers"` // instances
	LiveSets int `json:"live_sets"`

	Deaths   []string `json:"deaths"`
	Failed   []string `json:"failed"` // calls
	Lost     []string `json:"lost"`   // acknowledged writes
	Disagree []string `json:"disagree"`

	Stalls stalls  `json:"stall_ms"`
	Frozen stalls  `json:"freeze_stall_ms"`
	Halted stalls  `json:"stop_stall_ms"`
	Calm   float64 `json:"calm_ms"` // the longest call of a client before the first disturbance, at p99
}

// stalls are how long the longest call of a client took after a disturbance of one kind, over all clients and
// such disturbances.
type stalls struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	Most  float64 `json:"most"`
	Kept  string  `json:"kept"` // of the bar: ok or MISS
}

func newStalls(ms []float64, bar time.Duration) stalls {
	s := stalls{Count: len(ms), P50: sheet.Quantile(ms, 0.5), P99: sheet.Quantile(ms, 0.99), Most: sheet.Quantile(ms, 1), Kept: "MISS"}
	if s.P99 <= bar.Seconds()*1e3 {
		s.Kept = "ok"
	}
	return s
}

// judge asks whether all that the clients saw can be true.
func (c *clients) judge(took time.Duration) *report {
	r := &report{Version: 1, Seconds: took.Seconds(), Clients: len(c.all), Calls: int(c.calls.Load()), Failed: c.complaint}
	seen := records{meetings: make(map[meeting][]history.RoundCall), lives: make(map[int][]history.Lifetime)}
	after := make(map[disturbance][]float64)
	var before []float64
	for _, one := range c.all {
		select {
		case <-one.agent.Dead():
			_, why := one.agent.Death()
			r.Deaths = append(r.Deaths, fmt.Sprintf("client %d: %v", one.task, why))
		default:
		}
		r.Lost = append(r.Lost, one.lost...)
		seen.add(one)
		for number, d := range one.stalls {
			if ms := d.Seconds() * 1e3; number == 0 {
				before = append(before, ms)
			} else {
				kind := c.disturbances[number-1]
				after[kind] = append(after[kind], ms)
			}
		}
	}
	r.Disagree = seen.check()
	r.count(&seen)
	r.Stalls, r.Frozen, r.Halted = newStalls(after[kill], barStall), newStalls(after[freeze], barFreeze), newStalls(after[stop], barFreeze)
	r.Calm = sheet.Quantile(before, 0.99)
	return r
}

// records are the calls of all clients.
type records struct {
	keys     []history.KeyCall
	barriers []history.BarrierCall
	meetings map[meeting][]history.RoundCall
	lives    map[int][]history.Lifetime // by group
	sights   []history.Sight
}

// A meeting is a round in which a group asks which members are alive. As no client dies, all members have a call in it.
type meeting struct{ group, round int }

func (s *records) add(c *client) {
	s.keys = append(s.keys, c.keys...)
	s.barriers = append(s.barriers, c.barrierCalls...)
	for round, call := range c.liveCalls {
		at := meeting{c.group, round}
		s.meetings[at] = append(s.meetings[at], call)
	}
	s.lives[c.group] = append(s.lives[c.group], history.Lifetime{LiveMember: history.LiveMember{Member: c.task, Life: c.life}})
	s.sights = append(s.sights, c.sights...)
}

// check returns what cannot be true.
func (s *records) check() (wrong []string) {
	errs := make([]error, 4)
	var wg sync.WaitGroup
	wg.Go(func() { errs[0] = history.CheckKeys(s.keys) })
	wg.Go(func() { errs[1] = history.CheckBarriers(s.barriers) })
	wg.Go(func() { errs[2] = s.checkMeetings() })
	wg.Go(func() { errs[3] = history.CheckWatches(s.sights) })
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	return wrong
}

// checkMeetings checks each meeting by itself.
func (s *records) checkMeetings() error {
	for at, calls := range s.meetings {
		if err := history.CheckRounds(calls, s.lives[at.group]); err != nil {
			return err
		}
	}
	return nil
}

func (r *report) count(s *records) {
	for _, k := range s.keys {
		if k.Return != 0 && k.Action != history.Get {
			r.Writes++
		}
	}
	type instance struct {
		id     string
		number int64
	}
	instances := make(map[instance]bool)
	for _, b := range s.barriers {
		instances[instance{b.ID, b.Instance}] = true
	}
	r.Barriers, r.LiveSets = len(instances), len(s.meetings)
}

// verdict is nil if no client noticed the kills. How long calls stalled is judged where that is asked for.
func (r *report) verdict(times bool) error {
	var wrong []error
	for what, list := range map[string][]string{
		"clients died": r.Deaths, "kinds of calls failed": r.Failed, "acknowledged writes were lost": r.Lost, "kinds of answers disagree": r.Disagree,
	} {
		if len(list) > 0 {
			wrong = append(wrong, fmt.Errorf("%d %s", len(list), what))
		}
	}
	if times && r.Stalls.Kept != "ok" {
		wrong = append(wrong, fmt.Errorf("stall of %.0f ms at p99; want %v or less", r.Stalls.P99, barStall))
	}
	if times && r.Frozen.Kept != "ok" {
		wrong = append(wrong, fmt.Errorf("stall of %.0f ms at p99 of a freeze; want %v or less", r.Frozen.P99, barFreeze))
	}
	if times && r.Halted.Kept != "ok" {
		wrong = append(wrong, fmt.Errorf("stall of %.0f ms at p99 of a stop; want %v or less", r.Halted.P99, barFreeze))
	}
	if r.Kills == 0 {
		wrong = append(wrong, errors.New("no leader was killed"))
	}
	return errors.Join(wrong...)
}

// shown is how many of the things that are wrong a table shows.
const shown = 5

// print writes the report as a table, and what is wrong below it.
func (r *report) print(w io.Writer) error {
	fmt.Fprintf(w, "%d clients behind %d relays for %.0f s; the leader of %d servers was killed %d times\n", r.Clients, r.Relays, r.Seconds, servers, r.Kills)
	tw := sheet.Table(w)
	line := func(name, of string, list []string) {
		fmt.Fprintf(tw, "%s\t%d\t%s\t<= 0 %s\n", name, len(list), of, sheet.Kept(len(list) == 0))
	}
	fmt.Fprintln(tw, "measure\tcount\tof\tbar")
	line("clients that died", fmt.Sprintf("%d clients", r.Clients), r.Deaths)
	line("kinds of calls that failed", fmt.Sprintf("%d calls", r.Calls), r.Failed)
	line("acknowledged writes lost", fmt.Sprintf("%d writes", r.Writes), r.Lost)
	line("results that disagree", fmt.Sprintf("%d barriers, %d live sets, keys", r.Barriers, r.LiveSets), r.Disagree)
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "stall of a client at a kill: p50 %.0f ms, p99 %.0f ms, most %.0f ms of %d (bar p99 <= %v %s; aim %v; before the first one p99 %.0f ms)\n",
		r.Stalls.P50, r.Stalls.P99, r.Stalls.Most, r.Stalls.Count, barStall, r.Stalls.Kept, aimStall, r.Calm)
	if r.NoFreeze != "" {
		fmt.Fprintln(w, "NO FOLDER WAS FROZEN:", r.NoFreeze)
	} else if r.Freezes > 0 {
		fmt.Fprintf(w, "stall of a client at a freeze: p50 %.0f ms, p99 %.0f ms, most %.0f ms of %d (%d freezes; bar p99 <= %v, the lease and a take-over, %s)\n",
			r.Frozen.P50, r.Frozen.P99, r.Frozen.Most, r.Frozen.Count, r.Freezes, barFreeze, r.Frozen.Kept)
	}
	if r.Stops > 0 {
		fmt.Fprintf(w, "stall of a client at a stop: p50 %.0f ms, p99 %.0f ms, most %.0f ms of %d (%d stops; bar p99 <= %v, the lease and a take-over, %s)\n",
			r.Halted.P50, r.Halted.P99, r.Halted.Most, r.Halted.Count, r.Stops, barFreeze, r.Halted.Kept)
	}
	for _, list := range [][]string{r.Deaths, r.Failed, r.Lost, r.Disagree} {
		for _, text := range list[:min(len(list), shown)] {
			fmt.Fprintln(w, "  "+strings.TrimSpace(text))
		}
	}
	return nil
}
