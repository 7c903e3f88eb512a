package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/serry-dev/serry/bench/internal/sheet"
	"github.com/serry-dev/serry/internal/lab/history"
)

// A short soak of real processes: leaders are killed and stopped, and no client notices.
func TestSoak(t *testing.T) {
	var out, progress bytes.Buffer
	if err := run(t.Context(), []string{"-for", "12s", "-every", "5s", "-n", "24", "-relays", "3", "-freeze", "0", "-stop", "4s", "-stop-every", "6s", "-times=false", "-json"}, &out, &progress); err != nil {
		t.Fatalf("run() = %v; report:\n%s\nprogress:\n%s", err, out.String(), progress.String())
	}
	var got report
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Kills == 0 || got.Stops == 0 || got.Writes == 0 || got.Barriers == 0 || got.LiveSets == 0 || got.Stalls.Count < 24 {
		t.Errorf("report %+v; want a kill, a stop, some of everything, and a stall of each client", got)
	}
}

// What is wrong is found, and is a failure.
func TestVerdict(t *testing.T) {
	sound := report{Kills: 1, Stalls: stalls{Kept: "ok"}, Frozen: stalls{Kept: "ok"}, Halted: stalls{Kept: "ok"}}
	if err := sound.verdict(true); err != nil {
		t.Errorf("verdict() of a good soak = %v", err)
	}
	for _, tc := range []struct {
		name   string
		change func(*report)
		want   string
	}{
		{"a death", func(r *report) { r.Deaths = []string{"client 3"} }, "1 clients died"},
		{"a failed call", func(r *report) { r.Failed = []string{"barrier"} }, "1 kinds of calls failed"},
		{"a lost write", func(r *report) { r.Lost = []string{"key"} }, "1 acknowledged writes were lost"},
		{"answers that disagree", func(r *report) { r.Disagree = []string{"barrier"} }, "1 kinds of answers disagree"},
		{"long stalls", func(r *report) { r.Stalls = stalls{P99: 2100, Kept: "MISS"} }, "stall of 2100 ms"},
		{"long stalls of a freeze", func(r *report) { r.Frozen = stalls{P99: 5100, Kept: "MISS"} }, "stall of 5100 ms"},
		{"long stalls of a stop", func(r *report) { r.Halted = stalls{P99: 5200, Kept: "MISS"} }, "stall of 5200 ms"},
		{"nothing happened", func(r *report) { r.Kills = 0 }, "no leader was killed"},
	} {
		r := sound
		tc.change(&r)
		if err := r.verdict(true); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: verdict() = %v; want %q", tc.name, err, tc.want)
		}
		if err := r.verdict(false); (err == nil) != strings.HasPrefix(tc.name, "long stalls") {
			t.Errorf("%s: verdict() without times = %v", tc.name, err)
		}
	}
}

func TestRecordsDisagree(t *testing.T) {
	span := func(from, to history.Moment) history.Span { return history.Span{Call: from, Return: to} }
	both := []int{0, 1}
	life := func(member int) history.LiveMember { return history.LiveMember{Member: member, Life: 7} }
	for _, tc := range []struct {
		name string
		seen records
		want string // part of what is said, or empty
	}{
		{"all agree", records{
			keys:     []history.KeyCall{{Span: span(1, 2), Action: history.Increment, Key: "n", Value: "1", Found: "1"}},
			barriers: []history.BarrierCall{{Span: span(1, 4), ID: "b", Members: both, Passed: true}, {Span: span(2, 3), ID: "b", Members: both, Member: 1, Passed: true}},
			meetings: map[meeting][]history.RoundCall{{}: {
				{Span: span(1, 4), Member: 0, Life: 7, Alive: []history.LiveMember{life(0), life(1)}},
				{Span: span(2, 3), Member: 1, Life: 7, Alive: []history.LiveMember{life(0), life(1)}}}},
		}, ""},
		{"an increment done twice", records{keys: []history.KeyCall{{Span: span(1, 2), Action: history.Increment, Key: "n", Value: "1", Found: "2"}}}, `key "n"`},
		{"a barrier passed too early", records{barriers: []history.BarrierCall{{Span: span(1, 2), ID: "b", Members: both, Passed: true}, {Span: span(3, 4), ID: "b", Members: both, Member: 1, Passed: true}}}, "barrier b"},
		{"different live sets", records{meetings: map[meeting][]history.RoundCall{{}: {
			{Span: span(1, 4), Member: 0, Life: 7, Alive: []history.LiveMember{life(0), life(1)}},
			{Span: span(2, 3), Member: 1, Life: 7, Alive: []history.LiveMember{life(1)}}}}}, "live set"},
	} {
		got := strings.Join(tc.seen.check(), "\n")
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: check() = %q; want %q in it", tc.name, got, tc.want)
		}
	}
}

// Clients that meet again and again all end after the same round, whenever they are told to.
func TestRounds(t *testing.T) {
	var r rounds
	const n = 8
	ended := make([]int, n)
	meet := make(chan struct{}, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for r.begin(ended[i]) {
				ended[i]++
				meet <- struct{}{}
			}
		})
	}
	for range 100 {
		<-meet
	}
	r.stop()
	go func() { wg.Wait(); close(meet) }()
	for range meet {
	}
	for i, rounds := range ended {
		if rounds != ended[0] || rounds == 0 {
			t.Errorf("client %d ended after %d rounds, client 0 after %d; want the same", i, rounds, ended[0])
		}
	}
}

func TestStalls(t *testing.T) {
	var c client
	for _, s := range []struct {
		kill int
		took time.Duration
	}{{0, 5}, {2, 7}, {2, 9}, {2, 8}} {
		c.noteStall(s.kill, s.took)
	}
	if len(c.stalls) != 3 || c.stalls[0] != 5 || c.stalls[1] != 0 || c.stalls[2] != 9 {
		t.Errorf("stalls %v; want [5ns 0s 9ns]", c.stalls)
	}
}

func TestFlags(t *testing.T) {
	for _, bad := range [][]string{{"-n", "1"}, {"-relays", "0"}, {"-n", "4", "-relays", "5"}, {"-for", "0s"}, {"-every", "1ms"}, {"stray"}, {"-unknown"}} {
		if _, err := parse(bad, io.Discard); !errors.Is(err, sheet.ErrUsage) {
			t.Errorf("parse(%q): %v; want a usage error", bad, err)
		}
	}
	if _, err := parse([]string{"-h"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("parse(-h): %v; want help", err)
	}
}
