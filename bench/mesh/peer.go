package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

//go:embed peer.py
var script string

// A peer is a Python process that measures what it is asked, one line at a time.
type peer struct {
	version string
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
}

func startPeer(ctx context.Context, python string, stderr io.Writer) (*peer, error) {
	if _, err := os.Stat(python); err != nil {
		return nil, fmt.Errorf("%w: run scripts/venvs.sh jax-new, or set SERRY_JAX_PYTHON", err)
	}
	cmd := exec.CommandContext(ctx, python, "-c", script)
	cmd.Stderr = stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &peer{cmd: cmd, in: in, out: bufio.NewScanner(out)}
	var hello struct{ JAX string }
	if err := p.read(&hello); err != nil {
		p.stop()
		return nil, err
	}
	p.version = hello.JAX
	return p, nil
}

// measure asks for one figure.
func (p *peer) measure(ask any) (time.Duration, int64, error) {
	if err := json.NewEncoder(p.in).Encode(ask); err != nil {
		return 0, 0, err
	}
	var reply struct {
		Seconds float64
		Sum     int64
	}
	err := p.read(&reply)
	return time.Duration(reply.Seconds * float64(time.Second)), reply.Sum, err
}

func (p *peer) read(into any) error {
	if !p.out.Scan() {
		if err := p.out.Err(); err != nil {
			return err
		}
		return io.ErrUnexpectedEOF
	}
	return json.Unmarshal(p.out.Bytes(), into)
}

// stop ends the process; what it says on the way out does not matter.
func (p *peer) stop() {
	p.in.Close()
	_ = p.cmd.Wait()
}
