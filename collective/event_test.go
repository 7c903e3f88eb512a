package collective_test

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// A buffer takes the lines of a log.
type buffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// A wait that takes long is told of after 10 s and then after twice the time, with the ranks that are waited for; in an
// operation and in the forming of a clique.
func TestLongWaitIsTold(t *testing.T) {
	clause.Cite(t, "CL-TMO-12", "CL-TMO-10", "CL-RDV-9")
	for _, forming := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world) {
			events, log := make(chan collective.Event, 100), new(buffer)
			w.group.Events, w.group.Log = events, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
			procs := w.startAll(3)
			var comms []*collective.Comm
			if !forming {
				comms = w.clique(procs, devices(3))
			}
			began := time.Now()
			errs := each(procs, func(i int, p *process) error {
				if i == 2 {
					pause(75 * time.Second)
				}
				if forming {
					_, err := p.Clique(t.Context(), devices(3), collective.CliqueOptions{})
					return err
				}
				return comms[i].Do(t.Context(), collective.Barrier{})
			})
			if err := errors.Join(errs...); err != nil || time.Since(began) < 75*time.Second {
				t.Fatalf("after %v: %v", time.Since(began), err)
			}
			seen := make(map[int][]time.Duration)
			for range len(events) {
				e := <-events
				seen[e.Rank] = append(seen[e.Rank], e.For)
				missing := slices.Equal(e.Ranks, []int{2}) || forming && e.Rank == 1 && slices.Equal(e.Ranks, []int{0}) // it waits for the host
				if e.Kind != collective.Waiting || !missing || e.Clique == nil {
					t.Errorf("forming %v: event %+v; want that rank 2 is waited for", forming, e)
				}
			}
			want := []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second}
			for _, rank := range []int{0, 1} {
				if !slices.Equal(seen[rank], want) {
					t.Errorf("forming %v: rank %d tells after %v; want %v", forming, rank, seen[rank], want)
				}
			}
			if n := strings.Count(log.String(), "clique is held up"); n != 6 {
				t.Errorf("forming %v: %d lines in the log; want 6", forming, n)
			}
		})
	}
}

// A rank that is alive and makes no progress, while others wait for it, is reported once, and what follows can be chosen.
func TestStall(t *testing.T) {
	clause.Cite(t, "CL-TMO-11", "CLT-TMO-5")
	for _, policy := range []collective.StallPolicy{collective.StallLog, collective.StallRevoke, collective.StallSuspect} {
		for _, oneProcess := range []bool{false, true} {
			inBubble(t, func(t *testing.T, w *world) {
				events := make(chan collective.Event, 100)
				w.group.Events, w.group.Stall, w.group.OnStall, w.group.Warn = events, time.Minute, policy, -1
				var comms []*collective.Comm
				if oneProcess {
					comms = ranksOf(w.clique([]*process{one(w, 3)}, devices(3)))
				} else {
					comms = w.clique(w.startAll(3), devices(3))
				}
				errs := each(comms, func(i int, c *collective.Comm) error {
					if err := c.Do(t.Context(), collective.Barrier{}); err != nil {
						return err
					}
					if i == 1 {
						pause(90 * time.Second)
					}
					return c.Do(t.Context(), collective.Barrier{})
				})
				reports := 0
				for range len(events) {
					e := <-events
					reports++
					if e.Kind != collective.Stalled || !slices.Equal(e.Ranks, []int{1}) || e.Seq != 2 || e.For < time.Minute || e.For > 80*time.Second {
						t.Errorf("event %+v; want that rank 1 is stalled after a minute", e)
					}
				}
				if reports == 0 || reports > 2 {
					t.Errorf("%d reports; want one of each rank that waits", reports)
				}
				for i, err := range errs {
					if policy != collective.StallRevoke {
						if err != nil {
							t.Errorf("policy %v: rank %d: %v", policy, i, err)
						}
						continue
					}
					if e := failure(t, err); !errors.Is(e, collective.ErrTimeout) || !slices.Equal(e.Ranks, []int{1}) || !strings.Contains(e.Error(), "no progress") {
						t.Errorf("rank %d: %v; want that rank 1 is stalled", i, err)
					}
				}
				if n := w.suspicions(serry.TaskID{Job: "worker", Index: 1}); (n > 0) != (policy == collective.StallSuspect && !oneProcess) {
					t.Errorf("policy %v: the service was told %d times", policy, n)
				}
			})
		}
	}
}
