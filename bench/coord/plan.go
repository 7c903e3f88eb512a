package main

import (
	"slices"
	"time"
)

// A plan says what is measured, and at which sizes.
type plan struct {
	sizes   []int // numbers of tasks for connecting and barriers
	focus   int   // number of tasks for keys, watches, mTLS and the shared connection
	alive   []int // numbers of tasks for live sets
	real    []int // numbers of real clients with a connection each
	crowd   int   // tasks in the largest cluster, of serry alone
	hosts   int   // connections that the crowd shares
	streams int   // and streams, of relays
	groups  []string

	value int   // bytes of the largest value
	bomb  int64 // bytes that a compressed request expands to
	flood int   // frames of a flood

	rounds   int
	arrivals int           // a round's barriers have about so many
	keysFor  time.Duration // how long keys are set and read, per row and round
}

// fullPlan is what the bars are judged by.
func fullPlan() plan {
	return plan{
		sizes: []int{64, 256, 512, 2048, 4096}, focus: barTasks, alive: []int{512, barAliveTasks}, real: []int{fewTasks, barTasks},
		crowd: barCrowd, hosts: 64, streams: 1250, groups: groups(),
		value: 1 << 30, bomb: 10 << 30, flood: 100_000,
		rounds: 5, arrivals: 8192, keysFor: time.Second,
	}
}

// quickPlan only shows that everything still runs.
func quickPlan() plan {
	return plan{
		sizes: []int{4, 16}, focus: 16, alive: []int{4, 16}, real: []int{16},
		crowd: 64, hosts: 4, streams: 8, groups: groups(),
		value: 16 << 20, bomb: 256 << 20, flood: 2000,
		rounds: 1, arrivals: 64, keysFor: 20 * time.Millisecond,
	}
}

func (p plan) has(group string) bool { return slices.Contains(p.groups, group) }

// waves is how many barriers of n tasks a round has.
func (p plan) waves(n int) int { return min(max(p.arrivals/n, 3), 64) }

// realWaves is how many barriers of n real clients a round has. They take ten times as long.
func (p plan) realWaves(n int) int { return min(max(p.arrivals/4/n, 3), 16) }

// clusters are the numbers of tasks, each with a connection of its own, that the plan asks for.
func (p plan) clusters() []int {
	var all []int
	if p.has(groupConnect) || p.has(groupBarrier) {
		all = append(all, p.sizes...)
	}
	if p.has(groupKeys) || p.has(groupWatch) {
		all = append(all, p.focus)
	}
	if p.has(groupAlive) {
		all = append(all, p.alive...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// files is how many files one process needs open for the plan.
func (p plan) files() uint64 {
	const others = 100
	most := 0
	if clusters := p.clusters(); len(clusters) > 0 {
		most = slices.Max(clusters)
	}
	if p.has(groupScale) {
		most = max(most, p.crowd)
	}
	return uint64(most + others)
}
