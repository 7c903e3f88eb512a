// Attack measures what strangers who reach the ports of a job can do to it: connections that say nothing, floods of
// frames, messages that expand to gigabytes, thousands of waiting calls, names full of escapes, orders that make no
// sense, calls in the name of others, all at once, as long as a real jax job of four processes steps beside them
// (SECT-20).
//
// usage: go run ./bench/attack [flags]
//
// There are three scenes:
//
//	plain         a server without certificates, and strangers without any credential; a person looks at the service
//	meeting       the job under two launchers, and strangers where the launchers meet
//	certificates  a server that binds certificates to tasks, and strangers whose certificate names no task
//
// In each the job runs twice: alone, and beside the strangers. They have the last processor and the job has all
// others, both times; the server may use every one. So the figures are what the server loses, and not what a
// machine loses on which strangers compute.
//
// Read scene.go first.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/bench/internal/sheet"
)

func main() { sheet.Main("attack", run) }

// What must hold (SECT-20).
const (
	maxSlower = 2 // times the p99 of a step without strangers
	maxPeak   = 256 << 20
	maxLog    = 1 << 20
)

// files is how many files the strangers open.
const files = 12 << 10

// aloneShare is the part of the time that the job steps alone: enough for a p99, and the whole takes minutes.
const aloneShare = 4

// options are the flags, and what all scenes share.
type options struct {
	lasts          time.Duration
	python, binary string
	scene, only    string

	command []string // of a process of the job
	dir     string   // for files
	fewer   int      // by which the strangers of a row are divided

	everywhere, forJob, forStrangers proc.CPUs
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if err := errors.Join(proc.CheckPython(o.python), proc.RaiseFiles(files)); err != nil {
		return err
	}
	if o.dir, err = os.MkdirTemp("", "serry-bench"); err != nil {
		return err
	}
	defer os.RemoveAll(o.dir)
	if o.binary == "" {
		if o.binary, err = proc.Build(ctx, o.dir); err != nil {
			return err
		}
	}
	all, err := scenes()
	if err != nil {
		return err
	}
	var results []result
	for _, s := range all {
		if !chosen(o.scene, s.name) {
			continue
		}
		r, err := s.compare(ctx, o, stderr)
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	return show(stdout, results)
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	o.fewer = 1
	fs := flag.NewFlagSet("attack", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.DurationVar(&o.lasts, "for", time.Minute, "how `long` the job steps beside strangers")
	fs.StringVar(&o.python, "python", proc.DefaultPython, "`interpreter` with jax (scripts/venvs.sh jax-new)")
	fs.StringVar(&o.binary, "serry", "", "`binary` to measure (default: build it)")
	fs.StringVar(&o.scene, "scene", "", "`names` of scenes, with commas (default: all)")
	fs.StringVar(&o.only, "only", "", "`names` of rows, with commas (default: all)")
	if err := sheet.Parse(fs, args); err != nil {
		return o, err
	}
	if o.lasts <= 0 || fs.NArg() > 0 {
		fmt.Fprintln(stderr, "-for: want more than 0; and no argument")
		return o, sheet.ErrUsage
	}
	o.command = []string{o.python, "-c", jobScript}
	o.everywhere, o.forJob, o.forStrangers, err = proc.SplitCPUs()
	return o, err
}

// chosen says whether a name is in a list with commas. Without a list all are.
func chosen(list, name string) bool {
	return list == "" || strings.Contains(","+list+",", ","+name+",")
}

// A result is what a scene came to.
type result struct {
	scene
	alone, beside measure
}

// compare runs the job of a scene alone, and then beside strangers.
func (s scene) compare(ctx context.Context, o options, stderr io.Writer) (r result, err error) {
	r.scene = s
	alone := o.lasts / aloneShare
	fmt.Fprintf(stderr, "attack: %s: the job steps alone for %v\n", s.name, alone)
	if r.alone, err = s.measure(ctx, o, alone, false); err != nil {
		return r, err
	}
	if r.alone.err != nil {
		return r, fmt.Errorf("%s: the job fails without strangers: %w", s.name, r.alone.err)
	}
	fmt.Fprintf(stderr, "attack: %s: beside strangers for %v\n", s.name, o.lasts)
	r.beside, err = s.measure(ctx, o, o.lasts, true)
	return r, err
}
