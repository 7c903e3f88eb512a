package main

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/transfer/jax"
	"github.com/serry-dev/serry/transfer/offer"
)

//go:embed *.py
var scripts embed.FS

// A pythonPair is two Python processes with a library that transfers, one of which pulls from the other; or one of them, and this one.
type pythonPair struct {
	name string // of the script
	cmd  *exec.Cmd
	in   io.WriteCloser
	log  proc.Tail
	out  *bufio.Scanner
}

var errEnded = errors.New("it answers no more")

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
	j := &pythonPair{name: name, cmd: exec.CommandContext(ctx, python, append([]string{script}, args...)...)}
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
	return j.seconds()
}

// seconds is the time that the process says next.
func (j *pythonPair) seconds() (time.Duration, error) {
	text, err := j.answer("seconds ")
	if err != nil {
		return 0, err
	}
	seconds, err := strconv.ParseFloat(text, 64)
	return time.Duration(seconds * 1e9), err
}

// answer is the rest of the next line that begins with a word.
func (j *pythonPair) answer(word string) (string, error) {
	for j.out.Scan() {
		if text, ok := strings.CutPrefix(j.out.Text(), word); ok {
			return text, nil
		}
	}
	return "", fmt.Errorf("%s ended: %w\n%s", j.name, errors.Join(j.out.Err(), j.cmd.Wait(), errEnded), j.log.String())
}

// stop ends the processes: the one that pulls ends with its input, and the other one with it.
func (j *pythonPair) stop() {
	j.in.Close()
	_ = j.cmd.Wait() // it has said all that counts
}

// addLibraries adds the rows of libraries in Python, of those that there are.
func (n *near) addLibraries(ctx context.Context, p plan, list []*peer) ([]*peer, error) {
	for _, other := range []struct{ python, script, name string }{{p.mooncake, "mooncakes.py", mooncakeRead}, {p.nixl, "nixls.py", nixlRead}} {
		if other.python == "" {
			continue
		}
		j, err := n.startPair(ctx, p, other.python, other.script, "pull")
		if err != nil {
			return nil, err
		}
		list = append(list, throughput(other.name, p, func() (time.Duration, error) { return j.pull(1, p.size) }))
	}
	return list, nil
}

// The settings of JAX's transfer server.
const (
	usualLanes = "4" // as many addresses are given: without any it aborts
	usualChunk = "0" // its default, 256 MiB
	bestLanes  = 8
	bestChunk  = 16 << 20
)

// addJAX adds the rows about JAX: one process pulls from the other; a Go process pulls from one, and is pulled from.
func (n *near) addJAX(ctx context.Context, p plan, s section, list []*peer) ([]*peer, error) {
	if p.python == "" {
		return list, nil
	}
	large := p
	large.size = p.jaxSize
	lanes, chunk := strconv.Itoa(bestLanes), strconv.Itoa(bestChunk)
	usual, err := n.startPair(ctx, p, p.python, "pulls.py", "pull", usualLanes, usualChunk)
	if err != nil {
		return nil, err
	}
	best, err := n.startPair(ctx, p, p.python, "pulls.py", "pull", lanes, chunk)
	if err != nil {
		return nil, err
	}
	list = append(list,
		throughput(jaxPull, large, func() (time.Duration, error) { return usual.pull(1, large.size) }),
		throughput(jaxBest, large, func() (time.Duration, error) { return best.pull(1, large.size) }))
	switch s.lanes {
	case 4:
		list = append(list,
			latency(jaxSmall, func() ([]time.Duration, error) { return best.each(p.trips / 10) }),
			latency(jaxGroup, again(func() (time.Duration, error) { return best.pull(p.group, smallBytes) })))
	case bestLanes:
		from, err := n.pullFromJAX(ctx, large, lanes, chunk)
		if err != nil {
			return nil, err
		}
		to, err := n.serveJAX(ctx, large, lanes, chunk)
		if err != nil {
			return nil, err
		}
		list = append(list, from, to)
	}
	return list, nil
}

// each has buffers of 1 KiB be pulled one after the other.
func (j *pythonPair) each(count int) (took []time.Duration, err error) {
	for range max(1, count) {
		d, err := j.pull(1, smallBytes)
		if err != nil {
			return nil, err
		}
		took = append(took, d)
	}
	return took, nil
}

// pullFromJAX is the peer in which this process pulls from a JAX process.
func (n *near) pullFromJAX(ctx context.Context, p plan, lanes, chunk string) (*peer, error) {
	j, err := n.startPair(ctx, p, p.python, "pulls.py", "serve", lanes, chunk)
	if err != nil {
		return nil, err
	}
	address, err := j.answer("address ")
	if err != nil {
		return nil, err
	}
	c, err := jax.Dial(ctx, address, jax.Config{Lanes: bestLanes})
	if err != nil {
		return nil, err
	}
	n.closers = append(n.closers, c.Close)
	into, id := bytes.Repeat([]byte{1}, int(p.size)), 0
	return throughput(goFromJAX, p, func() (time.Duration, error) {
		fmt.Fprintln(j.in, id, 1, p.size)
		if _, err := j.answer("offered"); err != nil {
			return 0, err
		}
		begun := time.Now()
		err := c.Pull(ctx, offer.ID(id), []jax.Want{{Into: into}})
		took := time.Since(begun)
		if id++; err == nil && id == 1 && bytes.Count(into, []byte{0}) != len(into) {
			err = errors.New("the content is another one")
		}
		return took, err
	}), nil
}

// serveJAX is the peer in which a JAX process pulls from this process.
func (n *near) serveJAX(ctx context.Context, p plan, lanes, chunk string) (*peer, error) {
	s, err := jax.Listen("127.0.0.1:0", jax.Config{Lanes: bestLanes})
	if err != nil {
		return nil, err
	}
	n.closers = append(n.closers, s.Close)
	j, err := n.startPair(ctx, p, p.python, "pulls.py", "fetch", lanes, chunk, s.Address())
	if err != nil {
		return nil, err
	}
	data, id := bytes.Repeat([]byte{7}, int(p.size)), 0
	return throughput(goToJAX, p, func() (time.Duration, error) {
		if _, err := s.Offer(jax.Offer{ID: offer.ID(id), Buffers: []jax.Buffer{{Bytes: data}}}); err != nil {
			return 0, err
		}
		fmt.Fprintln(j.in, id, 1, p.size)
		id++
		return j.seconds()
	}), nil
}
