// Cuts moves large buffers between two hosts while the connections between them are cut, again and again.
//
// usage: go run ./bench/cuts [flags]
//
// The other host is a network namespace, so this needs root and iproute2. A cut is a reset of all connections, a link that is
// down for longer than detection, or a receiver that is stopped for so long (SIGSTOP, TRT-223). Every transfer must end well with the same content; each cut must have been noticed, which
// shows as connections that are made again, and at most one window of a transfer may be sent twice for each cut (TRT-213,
// TRT-222). Then the other process is killed and replaced in the middle of transfers: those with the old life must fail, and the next
// life gets the data.
//
// The exit code is 1 if any of that does not hold.
package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/serry-dev/serry/bench/internal/sheet"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/transfer"
)

func main() { farOr(func() { sheet.Main("bench", run) }) }

// A plan is what to do.
type plan struct {
	cuts, kills int
	size        int64
	dead        time.Duration // silence after which a link is down
	gap         time.Duration // at most between two cuts
	seed        uint64
}

const (
	windowBytes = 32 << 20 // of a transfer: 8 pieces
	patience    = 5 * time.Minute
)

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("cuts", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var p plan
	flags.IntVar(&p.cuts, "cuts", 500, "how often the connections are cut")
	flags.IntVar(&p.kills, "kills", 20, "how often the other process is killed: as a receiver and as a sender in turn")
	flags.Int64Var(&p.size, "size", 1<<30, "`bytes` of a transfer")
	flags.DurationVar(&p.dead, "dead", 500*time.Millisecond, "silence after which a link is down")
	flags.DurationVar(&p.gap, "gap", 400*time.Millisecond, "most time between two cuts")
	flags.Uint64Var(&p.seed, "seed", 1, "of the random times")
	if err := sheet.Parse(flags, args); err != nil {
		return err
	}
	n, err := openNear(ctx, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	r := rand.New(rand.NewPCG(p.seed, 222))
	var t tally
	for round := uint64(0); t.cuts < p.cuts; round++ {
		if err := n.transferThroughCuts(ctx, p, r, &t, round); err != nil {
			return fmt.Errorf("transfer %d, after %d cuts: %w", round, t.cuts, err)
		}
		fmt.Fprintf(stderr, "\rbench: %d of %d cuts", t.cuts, p.cuts)
	}
	for i, late := 0, 0; i < p.kills; {
		switch err := n.kill(ctx, p, r, &t, uint64(1)<<40+uint64(i+late)*2, i%2 == 1); {
		case errors.Is(err, errTooLate) && late < p.kills+tooLate:
			late++
			continue
		case err != nil:
			return fmt.Errorf("kill %d: %w", i, err)
		}
		i++
		fmt.Fprintf(stderr, "\rbench: %d of %d kills   ", i, p.kills)
	}
	fmt.Fprintln(stderr)
	t.show(stdout)
	return nil
}

// A tally is what has happened.
type tally struct {
	transfers, cuts, resets, stops int
	kills                          [2]int        // of receivers, of senders
	heard                          time.Duration // after which the other side has heard of a kill, at most
	redials                        int64
	bytes, twice, mostTwice        int64 // mostTwice is for one cut, of the transfer that had most
}

func (t *tally) show(w io.Writer) {
	fmt.Fprintf(w, "%d transfers, %d bytes: 0 corrupt, 0 lost, 0 stuck\n", t.transfers, t.bytes)
	fmt.Fprintf(w, "%d cuts: %d resets, %d of silence, %d receivers stopped; %d connections made again\n", t.cuts, t.resets, t.cuts-t.resets-t.stops, t.stops, t.redials)
	fmt.Fprintf(w, "sent twice: %d bytes; at most %d for a cut, and a window is %d\n", t.twice, t.mostTwice, int64(windowBytes))
	fmt.Fprintf(w, "%d receivers and %d senders killed in the middle: every transfer with them failed, after %v at most, and the next life moved the data\n",
		t.kills[0], t.kills[1], t.heard.Round(time.Millisecond))
}

// transferThroughCuts moves one buffer while connections are cut.
func (n *near) transferThroughCuts(ctx context.Context, p plan, r *rand.Rand, t *tally, key uint64) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	data := fill(n.data, key)
	dials, sent, cuts := n.network.dials.Load(), n.pair.Net.Totals().BytesSent, 0
	g, err := n.send(ctx, key, data)
	if err != nil {
		return err
	}
	done, timer := g.Done(), time.NewTimer(0)
	defer timer.Stop()
	for over := false; !over; {
		timer.Reset(time.Duration(r.Int64N(int64(p.gap))))
		select {
		case <-done.Done():
			over = true
		case <-timer.C:
			if t.cuts+cuts >= p.cuts {
				<-done.Done()
				continue
			}
			kind, err := n.cut(ctx, p, r)
			if err != nil {
				return err
			}
			switch kind {
			case byReset:
				t.resets++
				cuts++
			case byStop:
				t.stops++
				cuts++
			case bySilence:
				cuts++
			}
		}
	}
	if err := errors.Join(done.Err(), n.compare(ctx, key, data)); err != nil {
		return err
	}
	redials := n.network.dials.Load() - dials
	twice := max(0, int64(n.pair.Net.Totals().BytesSent-sent)-p.size)
	t.transfers, t.cuts, t.redials, t.bytes, t.twice = t.transfers+1, t.cuts+cuts, t.redials+redials, t.bytes+p.size, t.twice+twice
	if cuts == 0 {
		return nil
	}
	t.mostTwice = max(t.mostTwice, twice/int64(cuts))
	if redials < int64(cuts) {
		return fmt.Errorf("%d cuts, and %d connections made again: some cuts were none", cuts, redials)
	}
	if twice > int64(cuts)*windowBytes+windowBytes/8 { // and frames that are no data
		return fmt.Errorf("%d bytes were sent twice, in %d cuts", twice, cuts)
	}
	return nil
}

// The kinds of cuts.
const (
	none = iota // there was nothing to cut
	byReset
	bySilence
	byStop
)

// cut cuts the connections: by a reset, or by silence that is longer than detection, of the link or of the receiver.
func (n *near) cut(ctx context.Context, p plan, r *rand.Rand) (kind int, err error) {
	if len(n.pair.Net.Links()) == 0 {
		return none, nil // the link is not made again yet since the last cut
	}
	kind = []int{byReset, bySilence, byStop}[r.IntN(3)]
	switch kind {
	case byReset:
		if n.network.reset() {
			return byReset, nil
		}
		return none, nil
	case byStop:
		err = n.far.Signal(syscall.SIGSTOP)
	default:
		err = n.host.Link(ctx, "down")
	}
	if err != nil {
		return none, err
	}
	timer := time.NewTimer(p.dead*3/2 + time.Duration(r.Int64N(int64(p.dead))))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	if kind == byStop {
		return kind, n.far.Signal(syscall.SIGCONT)
	}
	return kind, n.host.Link(ctx, "up")
}

// errTooLate says that a transfer had ended well before its process was killed, as on a machine that is busy with something else.
var errTooLate = errors.New("transfers end before the process is killed")

// tooLate is how many more such transfers there may be than kills.
const tooLate = 10

// kill kills the other process in the middle of a transfer, and starts its next life, which moves the data. The transfer must fail: the
// process is killed when at most four fifths have moved, as far as this process sees.
func (n *near) kill(ctx context.Context, p plan, r *rand.Rand, t *tally, key uint64, sender bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	side := 0
	if sender {
		side = 1
	}
	g, err := n.move(ctx, key, sender)
	if err != nil {
		return err
	}
	if err := reach(ctx, g, r.Int64N(p.size*4/5)); err != nil {
		return err
	}
	n.far.Kill()
	<-n.far.Ended()
	killed := time.Now()
	switch err := g.Done().Wait(ctx); {
	case err == nil:
		return cmp.Or(n.startFar(ctx, p), errTooLate)
	case !errors.Is(err, transfer.ErrUnavailable):
		return fmt.Errorf("transfer with a process that was killed in the middle = %v; want that it is not reachable", err)
	}
	t.heard = max(t.heard, time.Since(killed))
	if err := n.startFar(ctx, p); err != nil {
		return err
	}
	if g, err = n.move(ctx, key+1, sender); err != nil {
		return err
	}
	t.kills[side]++
	if err := g.Done().Wait(ctx); err != nil {
		return fmt.Errorf("transfer with the next life: %w", err)
	}
	if sender {
		if got := sha256.Sum256(n.data); got != sha256.Sum256(fill(n.data, key+1)) {
			return errors.New("the content is corrupt")
		}
		return nil
	}
	return n.compare(ctx, key+1, n.data)
}

// move begins a transfer with the other process, which receives, or sends.
func (n *near) move(ctx context.Context, key uint64, sender bool) (*transfer.Group, error) {
	if !sender {
		return n.send(ctx, key, fill(n.data, key))
	}
	if err := n.order(ctx, key|toSend); err != nil {
		return nil, err
	}
	return beginReceive(ctx, n.pair, transfer.Key{Namespace: backwards, Seq: key}, n.data)
}

// reach waits until so many bytes have moved.
func reach(ctx context.Context, g *transfer.Group, bytes int64) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if moved, _ := g.Progress(); moved >= bytes {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// order tells the other process what to do next.
func (n *near) order(ctx context.Context, key uint64) error {
	order := binary.LittleEndian.AppendUint64(nil, key)
	if _, err := send(ctx, n.pair, nearProcess, farProcess, transfer.Key{Namespace: orders, Seq: n.orders}, order); err != nil {
		return err
	}
	n.orders++
	return nil
}

// send tells the other process to receive a buffer, and begins to send it.
func (n *near) send(ctx context.Context, key uint64, data []byte) (*transfer.Group, error) {
	if err := n.order(ctx, key); err != nil {
		return nil, err
	}
	return send(ctx, n.pair, nearProcess, farProcess, transfer.Key{Seq: key}, data)
}

// compare compares content with the digest of what has come.
func (n *near) compare(ctx context.Context, key uint64, data []byte) error {
	digest := make([]byte, sha256.Size)
	if err := receive(ctx, n.pair, transfer.Key{Namespace: digests, Seq: key}, digest); err != nil {
		return fmt.Errorf("digest: %w", err)
	}
	if want := sha256.Sum256(data); [sha256.Size]byte(digest) != want {
		return errors.New("the content is corrupt")
	}
	return nil
}

// options are those of links on both sides.
func options(p plan, address string) link.Options {
	return link.Options{
		Listen: []string{address}, Secret: []byte("the two processes of a benchmark"),
		Timing: link.Timing{Ping: p.dead / 10, Suspect: p.dead / 2, Dead: p.dead},
	}
}
