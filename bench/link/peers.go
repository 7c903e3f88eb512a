package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"time"

	"github.com/serry-dev/serry/bench/internal/sheet"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/link/gauge"
)

// Names of the peers that others are compared with.
const (
	rawStream   = "bare sockets"
	rawTrip     = "8 B there and back, bare socket"
	fixedStream = "fixed socket buffers, 1024 KiB writes"
	ourPlain    = "link"
	ourSums     = "link with checksums"
	ourTrip     = "8 B there and back, link"
)

// open connects all peers to the far process. closeAll is never nil.
func open(ctx context.Context, p plan, lanes int, f *far) (peers []*peer, closeAll func(), err error) {
	closeAll = func() {}
	raw, err := dialRaw(ctx, f.raw, lanes, 0)
	if err != nil {
		return nil, closeAll, err
	}
	closeAll = raw.close
	n, l, err := gauge.Dial(ctx, f.link, options(lanes))
	if err != nil {
		return nil, closeAll, err
	}
	var fixed rawConns
	closeAll = func() {
		raw.close()
		fixed.close()
		n.Close(context.WithoutCancel(ctx))
	}
	message := bytes.Repeat([]byte("bytes"), int(p.size/5)+1)[:p.size] // written, as the memory of a gauge is
	for _, chunk := range []int{256 << 10, 1 << 20, 4 << 20} {
		peers = append(peers, stream(fmt.Sprintf("%s, %d KiB writes", rawStream, chunk>>10), p, raw.sender(message, chunk)))
	}
	if p.buffers > 0 {
		if fixed, err = dialRaw(ctx, f.raw, lanes, p.buffers); err != nil {
			return nil, closeAll, err
		}
		peers = append(peers, stream(fixedStream, p, fixed.sender(message, 1<<20)))
	}
	g := gauge.New(l)
	for family, name := range map[link.Family]string{link.Collective: ourPlain, link.Transfer: ourSums} {
		peers = append(peers, stream(name, p, func(count int) (time.Duration, error) { return g.Stream(ctx, family, p.size, count) }))
	}
	if p.iperf != "" {
		peers = append(peers, iperf(ctx, p, lanes))
	}
	if lanes == p.lanes[0] { // small messages have a connection of their own
		peers = append(peers, trip(rawTrip, p, raw.trips))
		peers = append(peers, trip(ourTrip, p, func(n int) ([]time.Duration, error) { return g.Trips(ctx, tripBytes, n) }))
	}
	return peers, closeAll, nil
}

// stream is a peer that moves messages, for about as long as the plan says.
func stream(name string, p plan, send func(count int) (time.Duration, error)) *peer {
	run := func() (value float64, bytes int64, spent time.Duration, err error) {
		var took time.Duration
		for took < p.lasts {
			more, err := send(4)
			if err != nil {
				return 0, 0, 0, err
			}
			took += more
			bytes += 4 * p.size
		}
		return float64(bytes) / 1e9 / took.Seconds(), bytes, 0, nil
	}
	return &peer{name: name, run: run}
}

// trip is a peer that sends small messages there and back. Its figure is the median, in microseconds.
func trip(name string, p plan, send func(n int) ([]time.Duration, error)) *peer {
	return &peer{name: name, latent: true, run: func() (float64, int64, time.Duration, error) {
		took, err := send(p.trips)
		return float64(sheet.Median(took)) / 1e3, 0, 0, err
	}}
}

// iperf runs iperf3, which has two processes of its own.
func iperf(ctx context.Context, p plan, lanes int) *peer {
	run := func() (value float64, n int64, spent time.Duration, err error) {
		port, err := freePort()
		if err != nil {
			return 0, 0, 0, err
		}
		server := exec.CommandContext(ctx, p.iperf, "-s", "-1", "-p", port, "--forceflush")
		said, err := server.StdoutPipe()
		if err == nil {
			err = server.Start()
		}
		if err != nil {
			return 0, 0, 0, err
		}
		defer server.Wait()
		if _, err := said.Read(make([]byte, 1<<10)); err != nil { // it says that it listens
			return 0, 0, 0, fmt.Errorf("iperf3: %w", err)
		}
		client := exec.CommandContext(ctx, p.iperf, "-c", "127.0.0.1", "-p", port, "-P", strconv.Itoa(lanes), "-l", "1M", "-t", strconv.Itoa(max(1, int(p.lasts.Seconds()))), "-J")
		out, err := client.Output()
		if err != nil {
			return 0, 0, 0, fmt.Errorf("iperf3: %w\n%s", err, bytes.TrimSpace(out))
		}
		return readIperf(out)
	}
	return &peer{name: "iperf3, 1024 KiB writes", run: run}
}

// readIperf reads what iperf3 says in JSON. It has the processor use of both ends, in percent of the time.
func readIperf(out []byte) (value float64, n int64, spent time.Duration, err error) {
	var r struct {
		End struct {
			Received struct {
				Bytes   int64   `json:"bytes"`
				Seconds float64 `json:"seconds"`
			} `json:"sum_received"`
			CPU struct {
				Here  float64 `json:"host_total"`
				There float64 `json:"remote_total"`
			} `json:"cpu_utilization_percent"`
		} `json:"end"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return 0, 0, 0, fmt.Errorf("iperf3: %w", err)
	}
	e := r.End
	if e.Received.Seconds == 0 {
		return 0, 0, 0, fmt.Errorf("iperf3 has no result: %.300s", out)
	}
	used := time.Duration((e.CPU.Here + e.CPU.There) / 100 * e.Received.Seconds * 1e9)
	return float64(e.Received.Bytes) / 1e9 / e.Received.Seconds, e.Received.Bytes, used, nil
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
