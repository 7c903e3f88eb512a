package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/serry-dev/serry/bench/internal/proc"
)

// A recorder is a service of its own for one job, which keeps a journal. A service that serry run starts for an attempt keeps none.
type recorder struct {
	binary, store string
	server        *proc.Process
	address       string
}

// record starts one, if journals are wanted.
func (j *job) record(ctx context.Context) (flags []string, err error) {
	if j.journals == "" || j.recorder != nil {
		return nil, nil
	}
	r, err := newRecorder(ctx, j.options, "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	j.recorder, j.address = r, r.address
	return []string{"--service", r.address}, nil
}

// newRecorder starts a service that listens at an address. It keeps a journal if journals are wanted.
func newRecorder(ctx context.Context, o options, listen string) (r *recorder, err error) {
	r = &recorder{binary: o.binary, store: filepath.Join(o.dir, "store")}
	args := []string{o.binary, "serve", "--tasks", "4", "--listen", listen, "--log-level", "error"}
	if o.journals != "" {
		args = append(args, "--store", "file:"+r.store)
	}
	if r.server, err = proc.Start(ctx, args...); err != nil {
		return nil, err
	}
	if r.address, err = r.server.Address(); err != nil {
		r.server.Kill()
		return nil, err
	}
	return r, nil
}

// keep leaves the journal of a job that was found in a file, as it is while the job still stands or fails: what the ranks do when they are ended is no part of
// the row.
func (j *job) keep(ctx context.Context, s scenario, found finding) error {
	r, file := j.recorder, filepath.Join(j.journals, s.name+".journal")
	if r == nil || j.journals == "" || found.line == "" {
		return nil
	}
	r.server.Kill()
	out, err := exec.CommandContext(ctx, r.binary, "replay", "--export", file, r.store).CombinedOutput()
	if err != nil {
		return fmt.Errorf("serry replay --export: %w: %s", err, out)
	}
	return nil
}

// hasService says whether a job names the service that it uses.
func hasService(flags []string) bool { return slices.Contains(flags, "--service") }
