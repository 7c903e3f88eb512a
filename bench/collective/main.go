// Collective measures the collective operations of serry beside those of torch's Gloo, of Open MPI and of jax, on the same
// processors in one run: over links, where Open MPI uses TCP, and through shared memory, where it does so, too, on private
// memory and on memory of arenas. The vectors of Open MPI are aligned, and lie in huge pages where the machine has some.
//
// usage: go run ./bench/collective [flags]
//
// Every peer is a group of processes that stays for the whole run. In every round all peers run the same operation on
// vectors of the same size, in an order drawn for the round, so that none always follows the same one. Before each turn there is
// a pause: threads of the peer before run on for a while after it has answered, and would take processors from the next one.
// Sources are rewritten and results checked in each round, and the time is that of the slowest rank. A ratio is the median of
// the ratios of the rounds: how many times as fast as the peer serry is. Beside each time of serry stands which part of it the
// machine needs at least, and for what: see bound.go. Operations other than those that most programs spend their time in are measured
// with a few sizes. The last rows of a table have no peer: how long small frames of control
// take there and back beside all-reduces of 64 MiB; two all-reduces on two communicators, one after the other and at the same
// time; and all-reduces with the flight recorder and without. The exit code is 1 if a bar is missed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/serry-dev/serry/bench/internal/sheet"
	"github.com/serry-dev/serry/collective/gauge"
)

func main() { rankOr(func() int { sheet.Main("bench", run); return 0 }) }

// rankOr makes this process a rank of serry if it was started as one, and else does something else.
func rankOr(otherwise func() int) {
	if len(os.Args) != 2 || os.Args[1] != rankCommand {
		os.Exit(otherwise())
	}
	if err := beRank(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench: error:", err)
		os.Exit(1)
	}
}

// A plan is what to measure.
type plan struct {
	ranks  []int
	over   []string // ways between the ranks
	ops    []string
	sizes  []int64
	few    []int64 // of operations that are not among gauge.Main
	rounds int
	peers  []string
	settle time.Duration // the pause before each turn
	json   bool

	torch, mpi, jax string // interpreters
	binary          string // serry
}

// ways are those between the ranks.
var ways = []string{overLinks, overMemory, overArena}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	p, err := parse(args, stderr)
	if err != nil {
		return err
	}
	var rows []row
	for _, over := range p.over {
		for _, ranks := range p.ranks {
			more, err := measure(ctx, p, over, ranks, stderr)
			if err != nil {
				return err
			}
			rows = append(rows, more...)
		}
	}
	if p.json {
		err = sheet.JSON(stdout, rows)
	} else {
		err = show(stdout, p, rows)
	}
	return errors.Join(err, missed(rows))
}

func parse(args []string, stderr io.Writer) (p plan, err error) {
	flags := flag.NewFlagSet("collective", flag.ContinueOnError)
	flags.SetOutput(stderr)
	ranks := flags.String("ranks", "2,4", "how many processes take part: a `list`")
	over := flags.String("over", strings.Join(ways, ","), "`ways` between the ranks: a list")
	ops := flags.String("ops", strings.Join(gauge.Ops(), ","), "operations: a `list`")
	sizes := flags.String("sizes", "8,4096,65536,262144,1048576,16777216,67108864,134217728", "`bytes` of the vectors: a list")
	few := flags.String("few", "65536,16777216", "`bytes` of the vectors of all operations but "+strings.Join(gauge.Main(), ", ")+": a list")
	peers := flags.String("peers", "gloo,mpi,jax", "`names` of the peers")
	flags.IntVar(&p.rounds, "rounds", 11, "how often each peer is measured")
	flags.DurationVar(&p.settle, "settle", 20*time.Millisecond, "`pause` before each turn: threads of the peer before come to rest")
	flags.StringVar(&p.torch, "torch", ".cache/venv/torch/bin/python", "`interpreter` with torch (scripts/venvs.sh torch)")
	flags.StringVar(&p.mpi, "mpi", ".cache/venv/mpi/bin/python", "`interpreter` with mpi4py (scripts/venvs.sh mpi)")
	flags.StringVar(&p.jax, "jax", ".cache/venv/jax-new/bin/python", "`interpreter` with jax (scripts/venvs.sh jax-new)")
	flags.StringVar(&p.binary, "serry", "bin/serry", "`binary` of the service")
	flags.BoolVar(&p.json, "json", false, "print JSON")
	if err := sheet.Parse(flags, args); err != nil {
		return p, err
	}
	p.over, p.ops, p.peers = list(*over), list(*ops), list(*peers)
	p.ranks, err = numbers(*ranks)
	var sizesErr, fewErr error
	p.sizes, sizesErr = wide(*sizes)
	p.few, fewErr = wide(*few)
	if flags.NArg() > 0 {
		err = errors.New("want no arguments")
	}
	if err = errors.Join(err, sizesErr, fewErr, p.check()); err != nil {
		fmt.Fprintln(stderr, "bench: error:", err)
		return p, sheet.ErrUsage
	}
	return p, nil
}

// check says what is wrong with the plan.
func (p plan) check() error {
	if p.rounds < 1 {
		return fmt.Errorf("%d rounds: want 1 or more", p.rounds)
	}
	if p.settle < 0 {
		return fmt.Errorf("a pause of %v: want 0 or more", p.settle)
	}
	for _, over := range p.over {
		if !slices.Contains(ways, over) {
			return fmt.Errorf("over %q: want one of %v", over, ways)
		}
	}
	for _, name := range p.peers {
		if all := []string{glooName, mpiName, jaxName}; !slices.Contains(all, name) {
			return fmt.Errorf("peer %q: want one of %v", name, all)
		}
	}
	for _, ranks := range p.ranks {
		for _, op := range p.ops {
			for _, size := range p.bytes(op) {
				if err := (gauge.Work{Op: op, Bytes: size, Count: 1}).Check(ranks); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// bytes are the sizes of the vectors of an operation. A barrier has none.
func (p plan) bytes(op string) []int64 {
	switch {
	case op == "barrier":
		return []int64{0}
	case slices.Contains(gauge.Main(), op):
		return p.sizes
	}
	return p.few
}

func list(s string) []string {
	return slices.DeleteFunc(strings.Split(s, ","), func(s string) bool { return s == "" })
}

func numbers(s string) (all []int, err error) {
	for _, text := range list(s) {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q: want numbers above 0", text)
		}
		all = append(all, n)
	}
	return all, nil
}

func wide(s string) (all []int64, err error) {
	list, err := numbers(s)
	for _, n := range list {
		all = append(all, int64(n))
	}
	return all, err
}

// measure runs all peers in turn, with a number of ranks.
func measure(ctx context.Context, p plan, over string, ranks int, stderr io.Writer) (rows []row, err error) {
	peers, closeAll, err := p.start(ctx, over, ranks)
	defer closeAll()
	if err != nil {
		return nil, err
	}
	machine := newMachine(ranks)
	orders := rand.New(rand.NewPCG(1, uint64(ranks))) // the same in each run
	for _, op := range p.ops {
		for _, size := range p.bytes(op) {
			fmt.Fprintf(stderr, "bench: %d ranks over %s, %s of %d bytes\n", ranks, over, op, size)
			w := gauge.Work{Op: op, Bytes: size, Count: count(size, ranks)}
			r := row{Over: over, Op: op, Ranks: ranks, Bytes: size, times: make(map[string][]float64)}
			for round := range p.rounds + 1 {
				for _, i := range orders.Perm(len(peers)) {
					peer := peers[i]
					if round > 0 && r.times[peer.name] == nil {
						continue // it does not have the operation
					}
					time.Sleep(p.settle)
					took, err := peer.measure(w)
					if err != nil {
						return nil, fmt.Errorf("%s: %s of %d bytes, %d ranks: %w", peer.name, op, size, ranks, err)
					}
					switch {
					case took == 0:
					case round == 0: // it touches the memory, and does not count
						r.times[peer.name] = []float64{}
					default:
						r.times[peer.name] = append(r.times[peer.name], took.Seconds()*1e6)
					}
				}
			}
			rows = append(rows, r.judged())
		}
	}
	fmt.Fprintf(stderr, "bench: %d ranks over %s, two things at the same time\n", ranks, over)
	more, err := besides(p, peers[0], over, ranks)
	rows = append(rows, more...)
	if err == nil && over == overMemory {
		fmt.Fprintf(stderr, "bench: %d ranks over %s, with records and without\n", ranks, over)
		more, err = recordedRows(p, peers[0], over, ranks)
		rows = append(rows, more...)
	}
	for i, r := range rows {
		l := machine.limit(over, r.Op, r.Bytes)
		rows[i].Bound, rows[i].BoundBy = l.micro, l.term
	}
	return rows, err
}

// count is how often an operation is repeated in a round: enough for a clock, and never more than sums allow.
func count(size int64, ranks int) int {
	const enough = 32 << 20
	return int(max(1, min(40, enough/max(size*int64(ranks), 1))))
}
