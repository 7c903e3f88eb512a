package shareddisk_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/internal/lab/shareddisk"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/store"
)

// A storm is servers that append while they lead, on a disk in memory to which everything happens that
// can happen to servers.
type storm struct {
	rnd    *rand.Rand
	shared *shareddisk.Disk

	mu struct {
		sync.Mutex
		acknowledged []string
	}
}

// serve campaigns and appends until the handle is dead. A batch is its term and a number of its own.
func (s *storm) serve(ctx context.Context, handle *shareddisk.Handle, name string, pauses *rand.Rand) {
	for {
		r, err := handle.Campaign(ctx, store.Candidate{Address: name})
		if err != nil {
			return
		}
		for i := 0; ; i++ {
			time.Sleep(time.Duration(pauses.IntN(300)) * time.Millisecond)
			batch := fmt.Sprint(r.Term(), "/", i)
			if r.Append(ctx, []byte(batch)) != nil {
				break
			}
			s.mu.Lock()
			s.mu.acknowledged = append(s.mu.acknowledged, batch)
			s.mu.Unlock()
		}
	}
}

// run lets a storm rage for some virtual minutes, and says what is wrong after it.
func (s *storm) run(ctx context.Context, seed uint64, planted plant.Faults) string {
	s.rnd = rand.New(rand.NewPCG(seed, 2))
	s.shared = shareddisk.New(shareddisk.Config{LeaseTTL: 2 * time.Second, Notice: time.Second, Planted: planted})
	ctx, cancel := context.WithCancel(ctx)
	handles := make([]*shareddisk.Handle, 3)
	open := func(i int) {
		handles[i] = s.shared.Open()
		handle, pauses := handles[i], rand.New(rand.NewPCG(seed, s.rnd.Uint64()))
		go s.serve(ctx, handle, fmt.Sprint("server ", i), pauses)
	}
	for i := range handles {
		open(i)
	}
	for range 60 {
		time.Sleep(time.Duration(s.rnd.IntN(1500)) * time.Millisecond)
		i := s.rnd.IntN(len(handles))
		switch s.rnd.IntN(6) {
		case 0:
			handles[i].Kill()
			open(i)
		case 1, 2:
			handles[i].Cut()
		case 3:
			handles[i].Heal()
		case 4:
			s.shared.Expire()
		case 5:
			short, done := context.WithTimeout(ctx, time.Millisecond) // a handle that is cut off has to give up
			if l, err := handles[i].Leader(short); err == nil {
				_ = handles[i].Depose(short, l)
			}
			done()
		}
	}
	cancel()
	time.Sleep(time.Second) // longer than they pause
	synctest.Wait()
	return s.wrong(ctx)
}

// wrong compares the journal with what was acknowledged: that must be in it once, and nothing may come
// after what is of a higher term, or later in its own.
func (s *storm) wrong(ctx context.Context) string {
	_, batches, err := s.shared.Journal().Load(context.WithoutCancel(ctx))
	if err != nil {
		return err.Error()
	}
	found := make(map[string]bool)
	lastTerm, last := 0, 0
	for b := range batches {
		var term, i int
		if _, err := fmt.Sscanf(string(b), "%d/%d", &term, &i); err != nil {
			return err.Error()
		}
		if term < lastTerm || term == lastTerm && i <= last {
			return fmt.Sprintf("batch %s after %d/%d", b, lastTerm, last)
		}
		lastTerm, last, found[string(b)] = term, i, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.mu.acknowledged {
		if !found[b] {
			return fmt.Sprintf("batch %s was acknowledged and is not there", b)
		}
	}
	return ""
}

// C-TERM-2, C-LOG-2 in any weather; and the checks are worth something: without the fence they find
// what is wrong.
func TestSharedStorm(t *testing.T) {
	storms := func(planted plant.Faults) (wrong []string) {
		for seed := range uint64(150) {
			synctest.Test(t, func(t *testing.T) {
				if w := new(storm).run(t.Context(), seed, planted); w != "" {
					wrong = append(wrong, fmt.Sprintf("seed %d: %s", seed, w))
				}
			})
		}
		return wrong
	}
	if wrong := storms(0); len(wrong) > 0 {
		t.Errorf("%d storms end badly: %s", len(wrong), wrong[0])
	}
	if wrong := storms(plant.NoFence); len(wrong) == 0 {
		t.Error("no storm shows that there is no fence")
	} else {
		t.Logf("without the fence %d storms end badly: %s", len(wrong), wrong[0])
	}
}
