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
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/link/gauge"
)

func newBench() *cobra.Command {
	cmd := &cobra.Command{Use: "bench", Short: "Measure what connects the tasks of a job", Args: noArguments}
	cmd.AddCommand(newBenchLink(), newBenchCollective())
	return cmd
}

// A linkBench measures links.
type linkBench struct {
	printer
	listen, dial string
	plain        bool
	lanes        int
	size         int64
	lasts        time.Duration
}

func newBenchLink() *cobra.Command {
	b := &linkBench{}
	cmd := &cobra.Command{
		Use:   "link",
		Short: "Measure latency and throughput between two processes",
		Long: `Measure the links between processes: how long 8 bytes take there and back, and
how many bytes a second move, with checksums and without.

Under serry run the first task measures its link to each of the others in turn.
Elsewhere one process listens and another one dials it. Between hosts both need
the same secret, in a file that SERRY_JOB_SECRET_FILE names, or --plain.`,
		Example: `  serry run -n 2 -- serry bench link
  serry bench link --listen 10.0.0.1:7000
  serry bench link --dial 10.0.0.1:7000`,
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
	f.StringVar(&b.listen, "listen", "", "answer measurements at this `address`, until a signal comes")
	f.StringVar(&b.dial, "dial", "", "measure the link to the process at this `address`")
	f.BoolVar(&b.plain, "plain", false, "connect hosts without a secret")
	f.IntVar(&b.lanes, "lanes", 2, "`number` of connections for data, 1 to 8")
	f.Int64Var(&b.size, "size", 64<<20, "`bytes` of a message")
	f.DurationVar(&b.lasts, "for", 2*time.Second, "how long each figure is taken")
	return cmd
}

// check says what is wrong with the flags.
func (b *linkBench) check() error {
	switch {
	case b.listen != "" && b.dial != "":
		return errors.New("--listen and --dial exclude each other")
	case b.listen == "" && b.dial == "" && os.Getenv("SERRY_ADDRESS") == "":
		return errors.New("want --listen or --dial, or serry run around it")
	case b.lanes < 1 || b.lanes > link.MaxLanes:
		return fmt.Errorf("--lanes %d: want 1 to %d", b.lanes, link.MaxLanes)
	case b.size < 1 || b.size > gauge.MaxBytes:
		return fmt.Errorf("--size %d: want 1 to %d", b.size, gauge.MaxBytes)
	}
	return nil
}

func (b *linkBench) options() link.Options {
	return link.Options{Lanes: b.lanes, Plain: b.plain, Collective: link.Never, Transfer: link.Always}
}

func (b *linkBench) run(ctx context.Context) error {
	switch {
	case b.listen != "":
		return b.answer(ctx)
	case b.dial != "":
		n, l, err := gauge.Dial(ctx, b.dial, b.options())
		if err != nil {
			return noSecret(err)
		}
		defer n.Close(context.WithoutCancel(ctx))
		f, err := b.measure(ctx, l)
		if err != nil {
			return err
		}
		return b.show([]linkFigures{f})
	}
	return b.inJob(ctx)
}

// noSecret adds what helps where a secret is missing.
func noSecret(err error) error {
	if errors.Is(err, link.ErrNoSecret) {
		return hinted{err, "name a file with the secret in SERRY_JOB_SECRET_FILE, on both hosts, or use --plain"}
	}
	return err
}

// answer lets others measure, until a signal comes.
func (b *linkBench) answer(ctx context.Context) error {
	h, err := gauge.Listen(ctx, b.listen, b.options())
	if err != nil {
		return noSecret(err)
	}
	fmt.Fprintf(b.out, "serry: answering measurements on %s\n", strings.Join(h.Addresses(), ", "))
	<-ctx.Done()
	return h.Close(context.WithoutCancel(ctx))
}

// inJob measures the links of the first task to all others. Every task ends when that is done.
func (b *linkBench) inJob(ctx context.Context) error {
	cfg, tasks, err := client.ConfigFromEnv()
	if err != nil {
		return err
	}
	m, err := client.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer m.Close()
	n, err := link.Open(ctx, m, m.KV(), b.options())
	if err != nil {
		return noSecret(err)
	}
	defer n.Close(context.WithoutCancel(ctx))
	if m.Task().Index == 0 {
		err = b.measureAll(ctx, m, n)
	} else {
		err = b.answerFirst(ctx, m, n)
	}
	if err != nil || tasks == 1 {
		return err
	}
	return m.Leave(ctx)
}

// measureAll measures one link after the other.
func (b *linkBench) measureAll(ctx context.Context, m *client.Member, n *link.Net) error {
	s, err := m.Tasks(ctx)
	if err != nil {
		return err
	}
	var all []linkFigures
	for _, t := range s.Tasks {
		if t.Task == m.Task() {
			continue
		}
		l, err := n.Link(ctx, serry.Life{Task: t.Task, Incarnation: t.Incarnation})
		if err != nil {
			return err
		}
		f, err := b.measure(ctx, l)
		if err != nil {
			return err
		}
		all = append(all, f)
	}
	return b.show(all)
}

// answerFirst answers the first task.
func (b *linkBench) answerFirst(ctx context.Context, m *client.Member, n *link.Net) error {
	s, err := m.Tasks(ctx)
	if err != nil {
		return err
	}
	for _, t := range s.Tasks {
		if t.Task.Index == 0 {
			l, err := n.Link(ctx, serry.Life{Task: t.Task, Incarnation: t.Incarnation})
			if err != nil {
				return err
			}
			return gauge.Serve(ctx, l)
		}
	}
	return fmt.Errorf("%w: task 0", serry.ErrNotFound)
}

// linkFigures are what was measured of one link.
type linkFigures struct {
	Peer      string  `json:"peer"`
	Address   string  `json:"address"`
	Lanes     int     `json:"lanes"`
	TripP50   float64 `json:"tripMicros"`
	TripP99   float64 `json:"tripMicrosP99"`
	Plain     float64 `json:"gigabytesPerSecond"`
	Checksums float64 `json:"gigabytesPerSecondWithChecksums"`
}

const benchTrips = 2000

// measure measures one link.
func (b *linkBench) measure(ctx context.Context, l *link.Link) (linkFigures, error) {
	g := gauge.New(l)
	stats := l.Stats()
	f := linkFigures{Peer: l.Peer().Task.String(), Address: stats.Remote, Lanes: b.lanes}
	trips, err := g.Trips(ctx, 8, benchTrips)
	if err != nil {
		return f, err
	}
	f.TripP50, f.TripP99 = quantileMicros(trips, 0.5), quantileMicros(trips, 0.99)
	if f.Plain, err = b.rate(ctx, g, link.Collective); err != nil {
		return f, err
	}
	if f.Checksums, err = b.rate(ctx, g, link.Transfer); err != nil {
		return f, err
	}
	return f, g.End(ctx)
}

// rate is how many gigabytes a second a family moves. The first message touches the memory, and does not
// count.
func (b *linkBench) rate(ctx context.Context, g *gauge.Gauge, family link.Family) (float64, error) {
	if _, err := g.Stream(ctx, family, b.size, 1); err != nil {
		return 0, err
	}
	var took time.Duration
	var bytes int64
	for took < b.lasts || bytes == 0 {
		more, err := g.Stream(ctx, family, b.size, 1)
		if err != nil {
			return 0, err
		}
		took += more
		bytes += b.size
	}
	return float64(bytes) / 1e9 / took.Seconds(), nil
}

// quantileMicros is a share of the trips in microseconds: so many took no longer.
func quantileMicros(all []time.Duration, share float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return float64(sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]) / 1e3
}

func (b *linkBench) show(all []linkFigures) error {
	answer := struct {
		Version int           `json:"version"`
		Links   []linkFigures `json:"links"`
	}{1, all}
	if done, err := b.object(answer); done {
		return err
	}
	t := &table{columns: []column{{title: "PEER"}, {title: "ADDRESS"}, {title: "8 B THERE AND BACK"}, {title: "99 %"}, {title: "GB/S"}, {title: "WITH CHECKSUMS"}}}
	for _, f := range all {
		t.add(texts(f.Peer, f.Address, fmt.Sprintf("%.1f us", f.TripP50), fmt.Sprintf("%.1f us", f.TripP99), fmt.Sprintf("%.2f", f.Plain), fmt.Sprintf("%.2f", f.Checksums))...)
	}
	return b.table(t)
}
