package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/bench/internal/sheet"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
)

// TestMain runs a process of the job in place of the tests where the environment says so.
func TestMain(m *testing.M) {
	if os.Getenv("JOB_SECONDS") == "" {
		os.Exit(m.Run())
	}
	if err := step(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// step is job.py without jax.
func step(ctx context.Context) error {
	cfg, tasks, err := client.ConfigFromEnv()
	if err != nil {
		return err
	}
	lasts, err := time.ParseDuration(os.Getenv("JOB_SECONDS") + "s")
	if err != nil {
		return err
	}
	m, err := client.Join(ctx, cfg)
	if err != nil {
		return err
	}
	first := cfg.Task.Index == 0
	if first {
		fmt.Println("JOB steps")
	}
	var took []float64
	for end, word := time.Now().Add(lasts), "on"; word == "on"; {
		began := time.Now()
		key := fmt.Sprint("step/", len(took))
		if _, err := m.KV().Add(ctx, "count", 1); err != nil {
			return err
		}
		if first && began.After(end) {
			word = "over"
		}
		if first {
			if err := m.KV().Put(ctx, key, []byte(word)); err != nil {
				return err
			}
		}
		said, err := m.KV().Wait(ctx, key)
		if err != nil {
			return err
		}
		if err := m.Barrier(ctx, "step", serry.BarrierOptions{Timeout: time.Minute}); err != nil {
			return err
		}
		word = string(said)
		took = append(took, float64(time.Since(began).Microseconds())/1000)
	}
	if count, err := m.KV().Add(ctx, "count", 0); err != nil || count != int64(tasks*len(took)) {
		return fmt.Errorf("the count is %d after %d steps of %d tasks, error %v", count, len(took), tasks, err)
	}
	if first {
		fmt.Println("JOB took", len(took), sheet.Quantile(took, 0.5), sheet.Quantile(took, 0.99))
	}
	return m.Leave(ctx)
}

// Strangers do all that they can in each scene for a moment. The job of Go processes goes on and counts exactly, the
// server takes no more memory than the bar allows and logs little, refuses what it must, and a person reads no byte
// that steers the terminal.
func TestScenes(t *testing.T) {
	lab.Clause(t, "SECT-20", "SEC-31", "SEC-61", "SEC-100", "SEC-102", "SEC-103", "SEC-112")
	if testing.Short() {
		t.Skip("it builds serry, and takes seconds")
	}
	if err := proc.RaiseFiles(files / 10); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	binary, err := proc.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := scenes()
	if err != nil {
		t.Fatal(err)
	}
	o := options{binary: binary, dir: dir, command: []string{os.Args[0]}, fewer: 20}
	if o.everywhere, err = proc.FirstCPUs(1 << 10); err != nil {
		t.Fatal(err)
	}
	o.forJob, o.forStrangers = o.everywhere, o.everywhere
	for _, s := range all {
		t.Run(s.name, func(t *testing.T) {
			var m measure
			for lasts := 2 * time.Second; lasts < time.Minute && m.seen.written+m.seen.refused+m.seen.theirs == 0; lasts *= 4 { // on a busy machine strangers come late
				var err error
				if m, err = s.measure(t.Context(), o, lasts, true); err != nil || m.err != nil {
					t.Fatalf("measure() = %v, the job: %v", err, m.err)
				}
			}
			if err := show(t.Output(), []result{{s, m, m}}); err != nil || m.steps == 0 {
				t.Errorf("%d steps, %v; want some, and every bar kept", m.steps, err)
			}
		})
	}
}

// The table says which bar is missed, and that the program failed.
func TestShow(t *testing.T) {
	alone := measure{pace: pace{steps: 3, p99: 3}, peak: 10 << 20}
	seen := sighting{refused: 1}
	for _, tt := range []struct {
		name   string
		beside measure
		misses int
	}{
		{"all kept", measure{pace: pace{p99: 6}, peak: maxPeak, log: maxLog, seen: seen}, 0},
		{"too slow", measure{pace: pace{p99: 6.1}, seen: seen}, 1},
		{"large, with much to say", measure{peak: maxPeak + 1, log: maxLog + 1, seen: seen}, 2},
		{"no stranger came", measure{}, 1},
		{"a call was let through", measure{seen: sighting{refused: 1, let: 1, first: "RegisterTask"}}, 1},
		{"a terminal was steered", measure{seen: sighting{refused: 1, spoiled: "\a"}}, 1},
		{"the job failed", measure{err: io.ErrUnexpectedEOF, seen: seen}, 2},
	} {
		var out strings.Builder
		well := result{scene{name: "one", proof: byRefusals}, alone, measure{seen: seen}}
		err := show(&out, []result{well, {scene{name: "two", proof: byRefusals}, alone, tt.beside}})
		if n := strings.Count(out.String(), "MISS"); n != tt.misses || (err != nil) != (n > 0) {
			t.Errorf("%s: %d misses, error %v; want %d\n%s", tt.name, n, err, tt.misses, out.String())
		}
	}
}
