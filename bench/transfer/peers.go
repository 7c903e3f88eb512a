package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer"
)

// peers are what a section measures.
func (n *near) peers(ctx context.Context, p plan, s section) (list []*peer, err error) {
	list = append(list, throughput(ours, p, func() (time.Duration, error) { return n.move(ctx) }))
	if s.way == overMemory {
		into := bytes.Repeat([]byte{1}, int(p.size))
		return append(list, throughput(fmt.Sprintf("%s, %d goroutines", plainCopy, copiers()), p, func() (time.Duration, error) {
			return copyMemory(into, n.large.Bytes()), nil
		})), nil
	}
	message := bytes.Clone(n.large.Bytes())
	for _, chunk := range []int{256 << 10, 1 << 20, 4 << 20} {
		list = append(list, throughput(fmt.Sprintf("%s, %d KiB writes", rawStream, chunk>>10), p, func() (time.Duration, error) {
			return n.raw.move(message, chunk)
		}))
	}
	if p.iperf != "" {
		list = append(list, iperf(ctx, p, s.lanes))
	}
	switch s.lanes {
	case 1: // small buffers have a connection of their own
		list = append(list,
			latency(rawTrip, n.apart(func() ([]time.Duration, error) { return n.raw.trips(p.trips) })),
			latency(ourSmall, n.apart(func() ([]time.Duration, error) { return n.each(ctx, memory.Of(make([]byte, smallBytes)), p.trips) })))
	case 4:
		list = append(list, latency(ourGroup, again(func() (time.Duration, error) { return n.group(ctx, p.group) })),
			latency(besideUrgent, func() ([]time.Duration, error) { return n.beside(ctx, transfer.Urgent) }),
			latency(besideBulk, func() ([]time.Duration, error) { return n.beside(ctx, transfer.Bulk) }))
		if list, err = n.addLibraries(ctx, p, list); err != nil {
			return nil, err
		}
	}
	return n.addJAX(ctx, p, s, list)
}

// apart has both processes run on a processor each, as they do on two hosts. Otherwise they meet on one processor in some rounds, where 1 KiB
// comes back in a third of the time.
func (n *near) apart(f func() ([]time.Duration, error)) func() ([]time.Duration, error) {
	return func() (took []time.Duration, err error) {
		all, _, last, err := proc.SplitCPUs()
		if err != nil {
			return nil, err
		}
		first, err := proc.FirstCPUs(1)
		if err == nil {
			err = errors.Join(first.Pin(n.far.PID), last.PinSelf())
		}
		if err == nil {
			took, err = f()
		}
		return took, errors.Join(err, all.Pin(n.far.PID), all.PinSelf())
	}
}

// again measures what takes milliseconds, and the first time longer, a few times in a round.
func again(f func() (time.Duration, error)) func() ([]time.Duration, error) {
	const times = 5
	return func() (took []time.Duration, err error) {
		for range times {
			d, err := f()
			if err != nil {
				return nil, err
			}
			took = append(took, d)
		}
		return took, nil
	}
}

// copiers is how many goroutines of an engine copy memory.
func copiers() int { return min(4, runtime.GOMAXPROCS(0)) }

// copyMemory copies memory by as many goroutines as an engine does.
func copyMemory(to, from []byte) time.Duration {
	begun := time.Now()
	var all sync.WaitGroup
	k := copiers()
	for i := range k {
		all.Go(func() { copy(to[len(to)*i/k:len(to)*(i+1)/k], from[len(from)*i/k:]) })
	}
	all.Wait()
	return time.Since(begun)
}

// iperf runs iperf3, which has two processes of its own.
func iperf(ctx context.Context, p plan, lanes int) *peer {
	return &peer{name: "iperf3, 1024 KiB writes", unit: "GB/s", run: func() (float64, error) {
		port, err := freePort()
		if err != nil {
			return 0, err
		}
		server := exec.CommandContext(ctx, p.iperf, "-s", "-1", "-p", port, "--forceflush")
		said, err := server.StdoutPipe()
		if err == nil {
			err = server.Start()
		}
		if err != nil {
			return 0, err
		}
		defer server.Wait()
		if _, err := said.Read(make([]byte, 1<<10)); err != nil { // it says that it listens
			return 0, fmt.Errorf("iperf3: %w", err)
		}
		seconds := strconv.Itoa(max(1, int(p.lasts.Seconds())))
		out, err := exec.CommandContext(ctx, p.iperf, "-c", "127.0.0.1", "-p", port, "-P", strconv.Itoa(lanes), "-l", "1M", "-t", seconds, "-J").Output()
		if err != nil {
			return 0, fmt.Errorf("iperf3: %w\n%s", err, bytes.TrimSpace(out))
		}
		var r struct {
			End struct {
				Received struct {
					Rate float64 `json:"bits_per_second"`
				} `json:"sum_received"`
			} `json:"end"`
		}
		err = json.Unmarshal(out, &r)
		return r.End.Received.Rate / 8e9, err
	}}
}

// freePort is a port that no process has, on any address: iperf3 listens on all of them.
func freePort() (string, error) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
