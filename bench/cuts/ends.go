package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/bench/internal/pair"
	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer"
)

// The two processes, which are their devices, too.
const (
	farProcess  = 0
	nearProcess = 1
)

const (
	farCommand = "far" // the argument with which this program is the receiver
	digests    = 1     // the namespace of digests that the receiver sends back
	orders     = 2     // and of keys that the receiver is told to receive
	backwards  = 3     // and of data that the receiver is told to send

	toSend = 1 << 63 // of an order: the key is of data to send
)

// A near is the process that sends, and has the other one cut off.
type near struct {
	pair    *pair.Pair
	host    *proc.Host
	far     *proc.Process
	network *network
	life    uint64 // incarnation of the far process
	orders  uint64 // that it was sent
	data    []byte
}

func openNear(ctx context.Context, p plan) (*near, error) {
	n := &near{network: new(network), data: make([]byte, p.size)}
	var err error
	if n.host, err = proc.NewHost(ctx); err != nil {
		return nil, err
	}
	o := options(p, n.host.NearIP+":0")
	o.Network = n.network
	n.pair, err = pair.Open(ctx, pair.Life(nearProcess, 1), pair.Life(farProcess, 1), "", o, transfer.Options{Timeout: patience})
	if err == nil {
		err = n.startFar(ctx, p)
	}
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

// startFar starts the next life of the receiver.
func (n *near) startFar(ctx context.Context, p plan) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	n.life++
	n.orders = 0
	args := append(n.host.Prefix(), self, farCommand, "-life", fmt.Sprint(n.life), "-size", fmt.Sprint(p.size), "-dead", p.dead.String(), "-near", n.pair.Address, "-listen", n.host.FarIP+":0")
	if n.far, err = proc.Start(ctx, args...); err != nil {
		return err
	}
	return n.pair.Replace(ctx, pair.Life(farProcess, n.life), n.far.Line)
}

func (n *near) close() error {
	if n.far != nil {
		n.far.Kill()
		<-n.far.Ended()
	}
	var err error
	if n.pair != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err = n.pair.Close(ctx)
	}
	return errors.Join(err, n.host.Remove())
}

// fill makes content that no other transfer has.
func fill(data []byte, key uint64) []byte {
	x := key*2862933555777941757 + 3037000493
	for i := 0; i+8 <= len(data); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(data[i:], x)
	}
	return data
}

// A network is that of the system. It counts connections that are dialled, and can reset all that there are.
type network struct {
	dials atomic.Int64

	mu    sync.Mutex
	conns []*net.TCPConn // guarded by mu
}

// Listen implements link.Network.
func (w *network) Listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &listener{l, w}, nil
}

// Dial implements link.Network.
func (w *network) Dial(ctx context.Context, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	w.add(c)
	return c, nil
}

func (w *network) add(c net.Conn) {
	w.dials.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, c.(*net.TCPConn))
}

// reset resets all connections: the other side sees an error, and not an end. It is false if there are none: they are not
// made again yet since the last cut.
func (w *network) reset() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		c.SetLinger(0)
		c.Close()
	}
	some := len(w.conns) > 0
	w.conns = nil
	return some
}

// A listener counts the connections that it accepts.
type listener struct {
	net.Listener
	network *network
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.network.add(c)
	}
	return c, err
}

// farOr makes this process the receiver if it was started as that, and else does something else.
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

// beFar is the main function of the receiver. It says its address, and ends when it is killed.
func beFar(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet(farCommand, flag.ContinueOnError)
	life := flags.Uint64("life", 1, "incarnation")
	size := flags.Int64("size", 0, "bytes of a transfer")
	dead := flags.Duration("dead", 0, "silence after which a link is down")
	other := flags.String("near", "", "address of the other process")
	listen := flags.String("listen", "", "own address")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o := options(plan{dead: *dead}, *listen)
	p, err := pair.Open(ctx, pair.Life(farProcess, *life), pair.Life(nearProcess, 1), *other, o, transfer.Options{Timeout: patience})
	if err != nil {
		return err
	}
	fmt.Println(p.Address)
	return serve(ctx, p, *size)
}

// serve does what it is told to, one buffer after the other: it receives it, and sends the digest back, or it sends it.
func serve(ctx context.Context, p *pair.Pair, size int64) error {
	data, order := make([]byte, size), make([]byte, 8)
	for n := uint64(0); ; n++ {
		if err := receive(ctx, p, transfer.Key{Namespace: orders, Seq: n}, order); err != nil {
			return err
		}
		key := binary.LittleEndian.Uint64(order)
		if key&toSend != 0 {
			key &^= toSend
			g, err := send(ctx, p, farProcess, nearProcess, transfer.Key{Namespace: backwards, Seq: key}, fill(data, key))
			if err == nil {
				err = g.Done().Wait(ctx)
			}
			if err != nil {
				return err
			}
			continue
		}
		if err := receive(ctx, p, transfer.Key{Seq: key}, data); err != nil {
			return err
		}
		digest := sha256.Sum256(data)
		if _, err := send(ctx, p, farProcess, nearProcess, transfer.Key{Namespace: digests, Seq: key}, digest[:]); err != nil {
			return err
		}
	}
}

// receive receives bytes into memory.
func receive(ctx context.Context, p *pair.Pair, key transfer.Key, into []byte) error {
	g, err := beginReceive(ctx, p, key, into)
	if err != nil {
		return err
	}
	return g.Done().Wait(ctx)
}

func beginReceive(ctx context.Context, p *pair.Pair, key transfer.Key, into []byte) (*transfer.Group, error) {
	op := transfer.Op{Key: key, Src: nearProcess, Dst: farProcess}
	if key.Namespace == digests || key.Namespace == backwards {
		op.Src, op.Dst = farProcess, nearProcess
	}
	var err error
	if op.Buffer, err = p.Pool().Buffer(bytesOf(into), transfer.Memory{Region: memory.Of(into), Device: op.Dst}); err != nil {
		return nil, err
	}
	return p.Transfer(ctx, []transfer.Op{op})
}

// send begins to send bytes.
func send(ctx context.Context, p *pair.Pair, from, to serry.DeviceID, key transfer.Key, data []byte) (*transfer.Group, error) {
	b, err := p.Pool().Buffer(bytesOf(data), transfer.Memory{Region: memory.Of(data), Device: from})
	if err != nil {
		return nil, err
	}
	if err := b.Define(p.Pool().Ready()); err != nil {
		return nil, err
	}
	return p.Transfer(ctx, []transfer.Op{{Key: key, Src: from, Dst: to, Buffer: b}})
}

func bytesOf(b []byte) transfer.Spec {
	return transfer.Spec{Type: memory.U8, Dims: []int64{int64(len(b))}}
}
