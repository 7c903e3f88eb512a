package etcd_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/lab/conform"
	"github.com/serry-dev/serry/internal/lab/faultyetcd"
	"github.com/serry-dev/serry/internal/lab/search"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/store/member"
)

var (
	stormSeed  = flag.Uint64("etcd.seed", 0, "the first seed of TestStorm")
	stormSeeds = flag.Int("etcd.seeds", 20, "how many seeds TestStorm tries")
	planted    = flag.Bool("etcd.planted", false, "let TestStorm run with a late duplicate planted")
)

// A storm is servers, one after the other, that write to one journal over links with faults, and a model
// of what was acknowledged.
type storm struct {
	fleet
	model *model
	rnd   *rand.Rand
	rates faultyetcd.Rates
	now   *writer
	gone  []*writer // whose late requests may still arrive
	made  int       // names so far
}

// TestStorm finds after every crash, and at the end, what was acknowledged, and nothing else but the one
// thing that was under way. A failure is repeated by -etcd.seed N -etcd.seeds 1.
func TestStorm(t *testing.T) {
	lab.Clause(t, "C-LOG-2", "C-LOG-4", "C-LOG-5", "C-TERM-2")
	f := newFleet(t, "", member.Config{})
	seeds := min(*stormSeeds, search.Pick(*stormSeeds, 6))
	if *planted {
		f.planted, seeds = plant.LateDuplicate, *stormSeeds
	}
	seed := *stormSeed
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	for ; seed < *stormSeed+uint64(seeds); seed++ {
		f.prefix = fmt.Sprintf("/storm/%d/", seed)
		s := &storm{
			fleet: f, model: newModel(), rnd: rand.New(rand.NewPCG(seed, 1)),
			rates: faultyetcd.Rates{Slow: 5, Lost: 15, NoReply: 25, Late: 40, Twice: 40, NoSpace: 15, FullDone: 15, Compact: 5, Crash: 15},
		}
		s.now = s.lead(t, nil)
		s.now.link.Plan(faultyetcd.Seeded(seed, s.rates))
		s.run(t)
		if t.Failed() {
			return
		}
	}
}

// TestPlantedLateDuplicateIsFound lets a process of its own run TestStorm on a store with a mistake, which
// must be found within 500 seeds.
func TestPlantedLateDuplicateIsFound(t *testing.T) {
	lab.Clause(t, "C-LOG-4")
	out, err := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestStorm$", "-etcd.planted", "-etcd.seeds=500").CombinedOutput()
	found := regexp.MustCompile(`seed \d+`).Find(out)
	if exit := new(exec.ExitError); !errors.As(err, &exit) || found == nil {
		t.Fatalf("not found in 500 seeds: %v\n%s", err, out)
	}
	t.Logf("found by %s", found)
}

// run makes a number of random steps, and replaces the server when it has crashed.
func (s *storm) run(t *testing.T) {
	for range 60 {
		before := s.model.clone()
		under, err := s.step(t.Context(), s.now.reign)
		switch crashed := s.crashed(); {
		case err == nil && s.rnd.IntN(30) == 0:
			s.succeed(t, s.model, s.model)
		case err != nil && !crashed:
			t.Fatalf("a server that lives says %v", err)
		case crashed && err == nil: // it crashed after the last thing that it was asked for
			s.succeed(t, s.model, s.model)
		case crashed:
			s.succeed(t, before, under)
		}
	}
	s.now.link.Plan(nil)
	for _, g := range append(s.gone, s.now) {
		g.link.Deliver(t.Context())
		g.client.Close()
	}
}

func (s *storm) crashed() bool {
	select {
	case <-s.now.link.Crashed():
		return true
	default:
		return false
	}
}

// step asks for one thing. After an error the journal is as it was, or as under.
func (s *storm) step(ctx context.Context, r store.Reign) (under *model, err error) {
	s.made++
	name := fmt.Sprint(s.made)
	under = s.model.clone()
	switch s.rnd.IntN(10) {
	case 0:
		under.Loaded = conform.Loaded{Snapshot: "S" + name, Saved: true}
		return under, s.model.save(ctx, r, "S"+name)
	case 1:
		large := string(conform.Bytes(name, 3500))
		under.Batches = append(under.Batches, large)
		return under, s.model.append(ctx, r, large)
	case 2, 3: // few values, so that most come back
		value := fmt.Sprint("value ", s.rnd.IntN(3))
		under.Batches = append(under.Batches, "names "+value)
		under.values[value] = conform.Bytes(value, 2500)
		return under, s.model.put(ctx, r, value)
	case 4:
		for _, value := range slices.Sorted(maps.Keys(s.model.values)) {
			delete(s.model.values, value)
			delete(under.values, value)
			break
		}
	}
	under.Batches = append(under.Batches, name)
	return under, s.model.append(ctx, r, name)
}

// succeed lets another server lead, and goes on with what it finds: the journal as it was, or as it would
// have been.
func (s *storm) succeed(t *testing.T, before, under *model) {
	t.Helper()
	old := s.now
	if s.rnd.IntN(2) == 0 {
		old.link.Deliver(t.Context())
	}
	s.now = s.replace(t, old)
	s.gone = append(s.gone, old)
	found := conform.Load(t, s.now.reign)
	s.model = before
	if cmp.Equal(found, under.Loaded) {
		s.model = under
	}
	s.model.check(t, "the next server", s.now.reign)
	s.now.link.Plan(faultyetcd.Seeded(s.rnd.Uint64(), s.rates))
	if g := s.gone[s.rnd.IntN(len(s.gone))]; s.rnd.IntN(2) == 0 {
		g.link.Deliver(t.Context())
	}
}

func (m *model) clone() *model {
	c := &model{Loaded: m.Loaded, values: maps.Clone(m.values)}
	c.Batches = slices.Clone(m.Batches)
	return c
}
