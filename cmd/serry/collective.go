package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry/internal/schedule"
)

func newCollective() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "collective",
		Short: "See how a collective operation is carried out",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			return hinted{errors.New("collective: what about it is not said"), "serry collective explain"}
		},
	}
	cmd.AddCommand(newCollectiveExplain())
	return cmd
}

// explainedRanks bounds the job of one explanation: every rank of every algorithm is played.
const explainedRanks = 512

// An explanation is what serry collective explain prints: the algorithms of an operation and what a rank does.
type explanation struct {
	op, algorithm string
	bytes         size
	job           schedule.Job
	rank          int
	out           printer
}

func newCollectiveExplain() *cobra.Command {
	e := &explanation{bytes: 1 << 20}
	cmd := &cobra.Command{
		Use:   "explain --op operation --ranks number",
		Short: "Show the algorithms of an operation, what they cost, and what a rank does",
		Long: `Show the algorithms of a collective operation between processes on sockets: the
time that each takes by a model (25 us a message, 3 GB/s each way, 6 GB/s of
sums), the one that is chosen, the least time that any could take, and what one
rank does round by round. in, out and tmp are its buffers; out[3] is block 3 of
the result, of as many blocks as is said.

Operations: ` + strings.Join(operationNames(), ", ") + `.`,
		Example: `  serry collective explain --op allreduce --size 16MiB --ranks 8
  serry collective explain --op broadcast --ranks 6 --root 2 --rank 3 --algorithm chain -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := e.out.open(cmd); err != nil {
				return err
			}
			return e.run()
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&e.op, "op", "allreduce", "`operation` to explain")
	f.Var(&e.bytes, "size", "`bytes` of the vector, its large side")
	f.IntVar(&e.job.Ranks, "ranks", 2, "`number` of ranks")
	f.IntVar(&e.job.Hosts, "hosts", 0, "`number` of hosts on which they lie evenly, in order")
	f.IntVar(&e.job.Root, "root", 0, "`rank` that has the vector, or gets it")
	f.IntVar(&e.rank, "rank", 0, "`rank` whose rounds are shown")
	f.StringVar(&e.algorithm, "algorithm", "", "show the rounds of this `algorithm`, not of the chosen one")
	e.out.define(cmd)
	_ = cmd.RegisterFlagCompletionFunc("op", cobra.FixedCompletions(operationNames(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func operationNames() []cobra.Completion {
	var names []cobra.Completion
	for _, op := range schedule.Operations() {
		names = append(names, string(op))
	}
	return names
}

// An explained is the answer as an object.
type explained struct {
	Version    int            `json:"version"`
	Op         schedule.Op    `json:"op"`
	Bytes      int64          `json:"bytes"`
	Ranks      int            `json:"ranks"`
	Least      float64        `json:"least_us"`
	Bounded    string         `json:"bounded_by"`
	Algorithms []explainedWay `json:"algorithms"`
	Algorithm  string         `json:"algorithm"`
	Rank       int            `json:"rank"`
	Blocks     int            `json:"blocks"`
	Rounds     []string       `json:"rounds"`
}

type explainedWay struct {
	Name   string  `json:"name"`
	Chosen bool    `json:"chosen"`
	Time   float64 `json:"time_us"`
	Rounds int     `json:"rounds"`
	Sent   int64   `json:"sent_bytes"`
	Summed int64   `json:"summed_bytes"`
}

func (e *explanation) run() error {
	e.job.Op = schedule.Op(e.op)
	if len(schedule.Algorithms(e.job.Op)) == 0 {
		return fmt.Errorf("--op %q: want one of %s", e.op, strings.Join(operationNames(), ", "))
	}
	if err := e.job.Check(); err != nil {
		return err
	}
	if e.job.Ranks > explainedRanks {
		return fmt.Errorf("--ranks %d: want at most %d", e.job.Ranks, explainedRanks)
	}
	answer, err := e.explain()
	if err != nil {
		return err
	}
	if done, err := e.out.object(answer); done {
		return err
	}
	return e.print(answer)
}

func (e *explanation) explain() (explained, error) {
	bytes := int64(e.bytes)
	chosen, job := schedule.Choose(e.job, bytes)
	least, term := schedule.TCP.Bound(job, bytes)
	x := explained{
		Version: outputVersion, Op: job.Op, Bytes: bytes, Ranks: job.Ranks, Least: micros(least), Bounded: term,
		Algorithm: cmp.Or(e.algorithm, string(chosen)), Rank: e.rank, Rounds: []string{},
	}
	for _, a := range schedule.Algorithms(job.Op) {
		if a == schedule.TwoLevel && job.Hosts == 0 {
			continue
		}
		bill, err := schedule.TCP.Cost(a, schedule.Pipelined(a, job, bytes), bytes)
		if err != nil {
			return x, err
		}
		x.Algorithms = append(x.Algorithms, explainedWay{string(a), a == chosen, micros(bill.Time), bill.Rounds, bill.Sent, bill.Summed})
	}
	slices.SortStableFunc(x.Algorithms, func(a, b explainedWay) int { return cmp.Compare(a.Time, b.Time) })
	a := schedule.Algorithm(x.Algorithm)
	s, err := schedule.New(a, schedule.Pipelined(a, job, bytes), e.rank)
	if err != nil {
		return x, err
	}
	x.Blocks = s.Blocks
	for _, r := range s.Rounds {
		x.Rounds = append(x.Rounds, r.String())
	}
	return x, nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// shownRounds is how many rounds people are shown.
const shownRounds = 40

func (e *explanation) print(x explained) error {
	t := &table{columns: []column{{title: "ALGORITHM"}, {title: "TIME"}, {title: "ROUNDS"}, {title: "SENT"}, {title: "SUMMED"}, {}}}
	for _, w := range x.Algorithms {
		mark := ""
		if w.Chosen {
			mark = "chosen"
		}
		sent, summed := size(w.Sent), size(w.Summed)
		t.add(texts(w.Name, fmt.Sprintf("%.0f us", w.Time), fmt.Sprint(w.Rounds), sent.String(), summed.String(), mark)...)
	}
	if err := e.out.table(t); err != nil {
		return err
	}
	w := e.out.out
	fmt.Fprintf(w, "least possible: %.0f us, for its %s\n\n", x.Least, x.Bounded)
	fmt.Fprintf(w, "rank %d, %s, blocks: %d\n", x.Rank, x.Algorithm, x.Blocks)
	for i, r := range x.Rounds {
		if i == shownRounds {
			fmt.Fprintf(w, "  ... %d more rounds; -o json has all\n", len(x.Rounds)-i)
			break
		}
		fmt.Fprintf(w, "  %2d  %s\n", i+1, r)
	}
	return nil
}
