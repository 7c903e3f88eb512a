package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/collective/gauge"
	"github.com/serry-dev/serry/link"
)

// A collectiveBench measures the collective operations of a job.
type collectiveBench struct {
	printer
	ops    []string
	sizes  []string
	rounds int

	bytes []int64 // of sizes
}

func newBenchCollective() *cobra.Command {
	b := &collectiveBench{}
	cmd := &cobra.Command{
		Use:   "collective",
		Short: "Measure collective operations between the ranks of a job",
		Long: `Measure collective operations between all ranks of a job, as serry run starts
it: the time of the slowest rank, and the bytes of the vector by that time.

Sources are written anew in every round, and no figure is shown for a result
that is wrong. The first rank prints the table.`,
		Example: `  serry run -n 4 -- serry bench collective
  serry run -n 2 -- serry bench collective --op allreduce --size 8,1MiB,64MiB -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(b.check(), b.printer.open(cmd)); err != nil {
				return seeHelp(cmd, err)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return failed(b.run(ctx))
		},
	}
	b.printer.define(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&b.ops, "op", gauge.Main(), "`operations` to measure; "+strings.Join(gauge.Ops()[len(gauge.Main()):], ", ")+" are others")
	f.StringSliceVar(&b.sizes, "size", []string{"8", "64KiB", "1MiB", "16MiB"}, "`bytes` of the vectors")
	f.IntVar(&b.rounds, "rounds", 5, "how often each figure is taken; the median counts")
	_ = cmd.RegisterFlagCompletionFunc("op", cobra.FixedCompletions(gauge.Ops(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// check says what is wrong with the flags.
func (b *collectiveBench) check() error {
	if b.rounds < 1 || b.rounds > 10_000 {
		return fmt.Errorf("--rounds %d: want 1 to 10000", b.rounds)
	}
	b.bytes = nil
	for _, text := range b.sizes {
		var n size
		if err := n.Set(text); err != nil {
			return fmt.Errorf("--size %q: %w", text, err)
		}
		b.bytes = append(b.bytes, int64(n))
	}
	for _, op := range b.ops {
		for _, n := range b.bytes {
			if err := (gauge.Work{Op: op, Bytes: n, Count: 1}).Check(1); err != nil {
				return err
			}
		}
	}
	if os.Getenv("SERRY_ADDRESS") == "" {
		return errors.New("want serry run around it")
	}
	return nil
}

// run takes part in the measurement as the rank that this process is.
func (b *collectiveBench) run(ctx context.Context) error {
	cfg, tasks, err := client.ConfigFromEnv()
	if err != nil {
		return err
	}
	m, err := client.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer m.Close()
	n, err := link.Open(ctx, m, m.KV(), link.Options{})
	if err != nil {
		return noSecret(err)
	}
	defer n.Close(context.WithoutCancel(ctx))
	g, err := collective.New(m, n, collective.Options{})
	if err != nil {
		return err
	}
	defer g.Close(context.WithoutCancel(ctx))
	devices := make([]serry.DeviceID, tasks)
	for i := range devices {
		devices[i] = serry.DeviceID(i)
	}
	c, err := g.Clique(ctx, devices, collective.CliqueOptions{})
	if err != nil {
		return err
	}
	if err := b.measureAll(ctx, c); err != nil {
		return err
	}
	// A rank that left the job first would be missed by operations that have not ended everywhere.
	if err := g.Close(ctx); err != nil {
		return err
	}
	return m.Leave(ctx)
}

// A collectiveFigure is what was measured of an operation on vectors of one size.
type collectiveFigure struct {
	Op        string  `json:"op"`
	Bytes     int64   `json:"bytes"`
	Median    float64 `json:"micros"`
	Least     float64 `json:"microsLeast"`
	Most      float64 `json:"microsMost"`
	PerSecond float64 `json:"gigabytesPerSecond"` // of the vector, by the median
}

// measureAll measures everything. All ranks do the same in the same order; the first one tells.
func (b *collectiveBench) measureAll(ctx context.Context, c *collective.Comm) error {
	var all []collectiveFigure
	for _, op := range b.ops {
		for _, bytes := range b.bytes {
			f, err := b.measure(ctx, c, gauge.Work{Op: op, Bytes: bytes, Count: benchCount(bytes)})
			if err != nil {
				return err
			}
			all = append(all, f)
		}
	}
	if c.Rank() != 0 {
		return nil
	}
	return b.show(c.Size(), all)
}

// benchCount is how often an operation is repeated in a round: a clock cannot tell small ones.
func benchCount(bytes int64) int { return int(max(1, min(10, (16<<20)/max(1, bytes)))) }

func (b *collectiveBench) measure(ctx context.Context, c *collective.Comm, w gauge.Work) (f collectiveFigure, err error) {
	times := make([]time.Duration, b.rounds+1)
	for i := range times {
		if times[i], err = gauge.Measure(ctx, c, w); err != nil {
			return f, err
		}
	}
	times = times[1:] // the first touches the memory
	slices.Sort(times)
	median := times[len(times)/2]
	micros := func(d time.Duration) float64 { return float64(d) / 1e3 }
	return collectiveFigure{
		Op: w.Op, Bytes: w.Bytes, Median: micros(median), Least: micros(times[0]), Most: micros(times[len(times)-1]),
		PerSecond: float64(w.Bytes) / 1e9 / max(median, 1).Seconds(),
	}, nil
}

func (b *collectiveBench) show(ranks int, all []collectiveFigure) error {
	answer := struct {
		Version int                `json:"version"`
		Ranks   int                `json:"ranks"`
		Figures []collectiveFigure `json:"figures"`
	}{outputVersion, ranks, all}
	if done, err := b.object(answer); done {
		return err
	}
	t := &table{columns: []column{{title: "OPERATION"}, {title: "BYTES", right: true}, {title: "MEDIAN", right: true}, {title: "LEAST", right: true}, {title: "MOST", right: true}, {title: "GB/S", right: true}}}
	us := func(v float64) string { return fmt.Sprintf("%.1f us", v) }
	for _, f := range all {
		t.add(texts(f.Op, fmt.Sprint(f.Bytes), us(f.Median), us(f.Least), us(f.Most), fmt.Sprintf("%.2f", f.PerSecond))...)
	}
	return b.table(t)
}
