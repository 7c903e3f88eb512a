package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/bench/internal/pair"
	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer"
)

// The two processes, which are their devices, too.
const (
	farProcess  serry.DeviceID = 0
	nearProcess serry.DeviceID = 1
)

const (
	farCommand = "far" // the argument with which this program is the far process
	smallBytes = 1 << 10
	orders     = 1 // the namespace of what the far process is told to receive: how many buffers, and of how many bytes
	digests    = 2 // and of digests that it sends back, when it is told to receive none
	bulks      = 3 // and of large buffers that it receives beside all else
	readies    = 4 // and of a byte that says that it is ready to receive what it was told

	activationBytes = 64 << 10 // of what goes from one stage of a pipeline to the next
	activations     = 50       // in a round
)

// options are those of links on both sides.
func options(lanes int, w way) link.Options {
	o := link.Options{Lanes: lanes, TCPOnly: w == overTCP}
	if o.TCPOnly {
		o.Listen = []string{"127.0.0.1:0"}
	}
	return o
}

// farOr makes this process the far one if it was started as that, and else does something else.
func farOr(otherwise func()) {
	if len(os.Args) < 2 || os.Args[1] != farCommand {
		otherwise()
		return
	}
	if err := beFar(context.Background(), os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench: error:", err)
		os.Exit(1)
	}
}

// beFar is the main function of the far process. It ends with the near one.
func beFar(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet(farCommand, flag.ContinueOnError)
	lanes := flags.Int("lanes", 1, "connections")
	w := flags.String("way", "", "how bytes come")
	size := flags.Int64("size", 0, "bytes of a large buffer")
	if err := flags.Parse(args); err != nil {
		return err
	}
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go serveRaw(raw)
	p, err := pair.Open(ctx, pair.Life(int(farProcess), 1), pair.Life(int(nearProcess), 1), "", options(*lanes, way(*w)), transfer.Options{Timeout: -1})
	if err != nil {
		return err
	}
	if way(*w) == overTCP {
		go receiveBulk(ctx, p, *size) // until the near process ends, as serve does, which says so
	}
	fmt.Println(raw.Addr(), p.Address)
	return serve(ctx, p, *size)
}

// serve receives what it is told to, again and again. Large buffers come into the same memory, one after the other; of small
// ones each has its own.
func serve(ctx context.Context, p *pair.Pair, size int64) error {
	data := bytes.Repeat([]byte{1}, int(max(size, 1<<20))) // touched
	order := make([]byte, 16)
	key := uint64(0)
	for n := uint64(0); ; n++ {
		if err := wait(ctx, p, receives(transfer.Key{Namespace: orders, Seq: n}, [][]byte{order}, p)); err != nil {
			return err
		}
		count, bytes := binary.LittleEndian.Uint64(order), binary.LittleEndian.Uint64(order[8:])
		if bytes > uint64(len(data)) {
			return fmt.Errorf("told to receive %d bytes", bytes)
		}
		if count == 0 {
			digest := sha256.Sum256(data[:bytes])
			b := buffer(p, memory.Of(digest[:]), farProcess, p.Pool().Ready())
			if err := wait(ctx, p, []transfer.Op{{Key: transfer.Key{Namespace: digests, Seq: n}, Src: farProcess, Dst: nearProcess, Buffer: b}}); err != nil {
				return err
			}
			continue
		}
		into := make([][]byte, count)
		for i := range into {
			into[i] = data[:bytes]
			if bytes*count <= uint64(len(data)) {
				into[i] = data[uint64(i)*bytes:][:bytes]
			}
		}
		g, err := p.Transfer(ctx, receives(transfer.Key{Seq: key}, into, p))
		if err != nil {
			return err
		}
		b := buffer(p, memory.Of([]byte{1}), farProcess, p.Pool().Ready())
		if err := wait(ctx, p, []transfer.Op{{Key: transfer.Key{Namespace: readies, Seq: n}, Src: farProcess, Dst: nearProcess, Buffer: b}}); err != nil {
			return err
		}
		if err := g.Done().Wait(ctx); err != nil {
			return err
		}
		key += count
	}
}

// receiveBulk receives large buffers, one after the other.
func receiveBulk(ctx context.Context, p *pair.Pair, size int64) error {
	into := [][]byte{make([]byte, size)}
	for n := uint64(0); ; n++ {
		if err := wait(ctx, p, receives(transfer.Key{Namespace: bulks, Seq: n}, into, p)); err != nil {
			return err
		}
	}
}

// receives are receives into memory, under keys that ascend.
func receives(first transfer.Key, into [][]byte, p *pair.Pair) []transfer.Op {
	return ops(first, into, p, nil)
}

// ops are halves of transfers from the near to the far process.
func ops(first transfer.Key, data [][]byte, p *pair.Pair, definition *transfer.Event) []transfer.Op {
	list := make([]transfer.Op, len(data))
	device := farProcess
	if definition != nil {
		device = nearProcess
	}
	for i, b := range data {
		list[i] = transfer.Op{Key: first, Src: nearProcess, Dst: farProcess, Buffer: buffer(p, memory.Of(b), device, definition)}
		first.Seq++
	}
	return list
}

// buffer makes a buffer, and defines it if there is a definition. The sizes are right by construction.
func buffer(p *pair.Pair, r memory.Region, device serry.DeviceID, definition *transfer.Event) *transfer.Buffer {
	b, err := p.Pool().Buffer(transfer.Spec{Type: memory.U8, Dims: []int64{r.Len()}}, transfer.Memory{Region: r, Device: device})
	if err == nil && definition != nil {
		err = b.Define(definition)
	}
	if err != nil {
		panic(err)
	}
	return b
}

// wait runs a group to its end.
func wait(ctx context.Context, p *pair.Pair, list []transfer.Op) error {
	g, err := p.Transfer(ctx, list)
	if err != nil {
		return err
	}
	return g.Done().Wait(ctx)
}

// A near is the process that measures.
type near struct {
	far    *proc.Process
	pair   *pair.Pair
	raw    rawConns
	arena  *memory.Arena
	large  memory.Region // in the arena, or not, as the section says
	orders uint64
	key    uint64
	bulk   uint64 // the next key of bulks
	pairs  []*pythonPair

	closers []func() error
}

func openNear(ctx context.Context, p plan, s section) (*near, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	n := new(near)
	n.far, err = proc.Start(ctx, self, farCommand, "-lanes", fmt.Sprint(s.lanes), "-way", string(s.way), "-size", fmt.Sprint(p.size))
	if err != nil {
		return nil, err
	}
	raw, address, _ := strings.Cut(n.far.Line, " ")
	n.pair, err = pair.Open(ctx, pair.Life(int(nearProcess), 1), pair.Life(int(farProcess), 1), address, options(s.lanes, s.way), transfer.Options{})
	if err == nil {
		n.raw, err = dialRaw(ctx, raw, s.lanes)
	}
	if err == nil {
		n.arena, err = memory.NewArena(p.size, memory.ArenaOptions{})
	}
	if err == nil {
		n.large, err = n.arena.Alloc(p.size)
	}
	if err != nil {
		n.close()
		return nil, err
	}
	copy(n.large.Bytes(), bytes.Repeat([]byte("bytes"), int(p.size/5)+1))
	if s.way == overTCP {
		n.large = memory.Of(bytes.Clone(n.large.Bytes()))
	}
	return n, nil
}

func (n *near) close() error {
	for _, c := range n.closers {
		_ = c() // what counts was said
	}
	for _, j := range n.pairs {
		j.stop()
	}
	n.raw.close()
	var err error
	if n.pair != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err = n.pair.Close(ctx)
	}
	n.far.Kill()
	<-n.far.Ended()
	if n.arena != nil {
		err = errors.Join(err, n.arena.Close())
	}
	return err
}

// order tells the far process what to receive, and waits until it is ready for that.
func (n *near) order(ctx context.Context, count int, size int64) error {
	b := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(count)), uint64(size))
	_, err := n.pair.Transfer(ctx, ops(transfer.Key{Namespace: orders, Seq: n.orders}, [][]byte{b}, n.pair, n.pair.Pool().Ready()))
	if err == nil && count > 0 {
		b := buffer(n.pair, memory.Of(make([]byte, 1)), nearProcess, nil)
		err = wait(ctx, n.pair, []transfer.Op{{Key: transfer.Key{Namespace: readies, Seq: n.orders}, Src: farProcess, Dst: nearProcess, Buffer: b}})
	}
	n.orders++
	return err
}

// move sends the large buffer, and returns how long that took.
func (n *near) move(ctx context.Context) (time.Duration, error) {
	took, err := n.each(ctx, n.large, 1)
	if err != nil {
		return 0, err
	}
	return took[0], nil
}

// each sends memory as often as count says, one transfer after the other, and returns how long each took.
func (n *near) each(ctx context.Context, r memory.Region, count int) ([]time.Duration, error) {
	return n.eachAs(ctx, r, count, transfer.Normal)
}

func (n *near) eachAs(ctx context.Context, r memory.Region, count int, c transfer.Class) ([]time.Duration, error) {
	if err := n.order(ctx, count, r.Len()); err != nil {
		return nil, err
	}
	took := make([]time.Duration, count)
	for i := range took {
		b := buffer(n.pair, r, nearProcess, n.pair.Pool().Ready())
		op := transfer.Op{Key: transfer.Key{Seq: n.key}, Src: nearProcess, Dst: farProcess, Buffer: b, Class: c}
		n.key++
		begun := time.Now()
		if err := wait(ctx, n.pair, []transfer.Op{op}); err != nil {
			return nil, err
		}
		took[i] = time.Since(begun)
	}
	return took, nil
}

// beside sends activations of a class, one after the other, while bulk transfers fill the link.
func (n *near) beside(ctx context.Context, c transfer.Class) ([]time.Duration, error) {
	first, err := n.sendBulk(ctx)
	if err != nil {
		return nil, err
	}
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- n.keepBulk(ctx, first, stop) }()
	took, err := n.eachAs(ctx, memory.Of(make([]byte, activationBytes)), activations, c)
	close(stop)
	return took, errors.Join(err, <-ended)
}

// keepBulk has two bulk transfers be under way until it is told to stop, and then waits for them.
func (n *near) keepBulk(ctx context.Context, last *transfer.Group, stop <-chan struct{}) error {
	for {
		select {
		case <-stop:
			return last.Done().Wait(ctx)
		default:
		}
		next, err := n.sendBulk(ctx)
		if err == nil {
			err = last.Done().Wait(ctx)
		}
		if err != nil {
			return err
		}
		last = next
	}
}

// sendBulk begins to send the large buffer as bulk.
func (n *near) sendBulk(ctx context.Context) (*transfer.Group, error) {
	b := buffer(n.pair, n.large, nearProcess, n.pair.Pool().Ready())
	op := transfer.Op{Key: transfer.Key{Namespace: bulks, Seq: n.bulk}, Src: nearProcess, Dst: farProcess, Buffer: b, Class: transfer.Bulk}
	n.bulk++
	return n.pair.Transfer(ctx, []transfer.Op{op})
}

// group sends small buffers in one group, and returns how long that took.
func (n *near) group(ctx context.Context, count int) (time.Duration, error) {
	if err := n.order(ctx, count, smallBytes); err != nil {
		return 0, err
	}
	data := make([][]byte, count)
	for i := range data {
		data[i] = make([]byte, smallBytes)
	}
	list := ops(transfer.Key{Seq: n.key}, data, n.pair, n.pair.Pool().Ready())
	n.key += uint64(count)
	begun := time.Now()
	err := wait(ctx, n.pair, list)
	return time.Since(begun), err
}

// compare sends the large buffer once more, and compares it with what the far process says that it has.
func (n *near) compare(ctx context.Context) error {
	if _, err := n.move(ctx); err != nil {
		return err
	}
	if err := n.order(ctx, 0, n.large.Len()); err != nil {
		return err
	}
	digest := make([]byte, sha256.Size)
	op := transfer.Op{Key: transfer.Key{Namespace: digests, Seq: n.orders - 1}, Src: farProcess, Dst: nearProcess, Buffer: buffer(n.pair, memory.Of(digest), nearProcess, nil)}
	if err := wait(ctx, n.pair, []transfer.Op{op}); err != nil {
		return err
	}
	if sha256.Sum256(n.large.Bytes()) != [sha256.Size]byte(digest) {
		return errors.New("the far process has other content")
	}
	return nil
}
