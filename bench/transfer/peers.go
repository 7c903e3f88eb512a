package main

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
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
	if s.lanes == 1 { // small buffers have a connection of their own
		return append(list,
			latency(rawTrip, func() ([]time.Duration, error) { return n.raw.trips(p.trips) }),
			latency(ourSmall, func() ([]time.Duration, error) { return n.each(ctx, memory.Of(make([]byte, smallBytes)), p.trips) })), nil
	}
	list = append(list, latency(ourGroup, func() ([]time.Duration, error) { return once(n.group(ctx, p.group)) }),
		latency(besideUrgent, func() ([]time.Duration, error) { return n.beside(ctx, transfer.Urgent) }),
		latency(besideBulk, func() ([]time.Duration, error) { return n.beside(ctx, transfer.Bulk) }))
	return n.addPython(ctx, p, list)
}

func once(d time.Duration, err error) ([]time.Duration, error) { return []time.Duration{d}, err }

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

//go:embed *.py
var scripts embed.FS

// A pythonPair is two Python processes with a library that transfers, one of which pulls from the other.
type pythonPair struct {
	name string // of the script
	cmd  *exec.Cmd
	in   io.WriteCloser
	log  proc.Tail
	out  *bufio.Scanner
}

// startPair starts them with a script, and adds them to what is stopped in the end.
func (n *near) startPair(ctx context.Context, p plan, python, name string, args ...string) (*pythonPair, error) {
	text, err := scripts.ReadFile(name)
	if err != nil {
		return nil, err
	}
	script := filepath.Join(p.dir, name)
	if err := os.WriteFile(script, text, 0o600); err != nil {
		return nil, err
	}
	j := &pythonPair{name: name, cmd: exec.CommandContext(ctx, python, append([]string{script, "pull"}, args...)...)}
	j.cmd.Env = append(os.Environ(), "UCX_TLS=tcp") // of NIXL: no shared memory
	if j.in, err = j.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	j.cmd.Stderr = &j.log
	j.out = bufio.NewScanner(out)
	if err := j.cmd.Start(); err != nil {
		return nil, err
	}
	n.pairs = append(n.pairs, j)
	return j, nil
}

// pull has one process pull buffers from the other, and returns how long that took.
func (j *pythonPair) pull(count int, size int64) (time.Duration, error) {
	fmt.Fprintln(j.in, count, size)
	for j.out.Scan() {
		if text, ok := strings.CutPrefix(j.out.Text(), "seconds "); ok {
			seconds, err := strconv.ParseFloat(text, 64)
			return time.Duration(seconds * 1e9), err
		}
	}
	return 0, fmt.Errorf("%s ended: %w\n%s", j.name, j.cmd.Wait(), j.log.String())
}

// stop ends the processes: the one that pulls ends with its input, and the other one with it.
func (j *pythonPair) stop() {
	j.in.Close()
	_ = j.cmd.Wait() // it has said all that counts
}

// addPython adds the rows of libraries in Python, of those that there are.
func (n *near) addPython(ctx context.Context, p plan, list []*peer) ([]*peer, error) {
	for _, other := range []struct{ python, script, name string }{{p.mooncake, "mooncakes.py", mooncakeRead}, {p.nixl, "nixls.py", nixlRead}} {
		if other.python == "" {
			continue
		}
		j, err := n.startPair(ctx, p, other.python, other.script)
		if err != nil {
			return nil, err
		}
		list = append(list, throughput(other.name, p, func() (time.Duration, error) { return j.pull(1, p.size) }))
	}
	if p.python == "" {
		return list, nil
	}
	usual, err := n.startPair(ctx, p, p.python, "pulls.py", "1", "0") // one address, and the default size of chunks
	if err != nil {
		return nil, err
	}
	best, err := n.startPair(ctx, p, p.python, "pulls.py", "4", strconv.Itoa(1<<20))
	if err != nil {
		return nil, err
	}
	return append(list,
		throughput(jaxPull, p, func() (time.Duration, error) { return usual.pull(1, p.size) }),
		throughput(jaxBest, p, func() (time.Duration, error) { return best.pull(1, p.size) }),
		latency(jaxGroup, func() ([]time.Duration, error) { return once(best.pull(p.group, smallBytes)) })), nil
}
