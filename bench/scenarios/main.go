// Scenarios lets things go wrong in jobs of four processes, most of them of unmodified jax, and measures how long serry takes to
// say what is wrong, and whether it is right.
//
// usage: go run ./bench/scenarios [flags] [name]...
//
// Each row is a job of its own under serry run. A rank, the last one as a rule, does what the row says at step 30 or at the start
// (train.py), and prints the time; or the benchmark itself does it, to a host or to a server. From then on serry why is asked again
// and again; the time counts to the first line that is right, of serry why or of serry run itself. A row is missed if there is none
// in time, or if serry why has no answer that begins with such a line, shows what it rests on, and has at least the grade of the row. Rows that cannot be played on a machine are named with the reason.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/bench/internal/sheet"
	"github.com/serry-dev/serry/diagnose"
)

//go:embed train.py
var program []byte

//go:embed tf_train.py
var tensorflowProgram []byte

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case rankCommand:
			sheet.Main("rank", runRank)
			return
		case launcherCommand:
			sheet.Main("launcher", runLauncher)
			return
		}
	}
	sheet.Main("bench", run)
}

// A scenario is what happens, and what is right to say about it.
type scenario struct {
	name, clause, right string
	shown               []string       // what the line rests on: all of these in one answer
	grade               diagnose.Grade // at least, of that answer; empty: serry run says it, without a grade
	stuck               string         // what is said later, where -hang-after says when; empty: nothing
	most                time.Duration  // until it is said
	play                func(context.Context, options, scenario) (finding, error)
}

// A finding is how a scenario was named, and when. An empty line: it was not.
type finding struct {
	after time.Duration
	line  string
	grade diagnose.Grade // of the answer that shows what it rests on, or empty
	lacks bool           // there was none with all of it, or none of that grade
	said  string         // what the job and serry why said, where it was not found
}

// cannot says why a scenario cannot be played here.
type cannot struct{ why string }

func (c cannot) Error() string { return c.why }

// Bars: what ends a process is known at once, what keeps it from going on takes time to tell from work, and so does a silent host.
const (
	atOnce = time.Second
	silent = 5 * time.Second
	soon   = 12 * time.Second
)

// A library is what the ranks of a job use, by its Python.
type library struct {
	flag, usual string // the flag that names the interpreter, and what it is if not given
	rows        []scenario
}

type options struct {
	python, binary string
	dir            string        // of this run, or of one job
	hangAfter      time.Duration // 0: as serry run has it
	atOnce         int           // scenarios that are played at the same time
	patient        bool          // a right line that comes late counts
	patience       time.Duration // for a line that is right
	journals       string        // folder for the journals of jobs, or empty
	names          []string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	fs := flag.NewFlagSet("scenarios", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.binary, "serry", "", "`binary` to measure (default: build it)")
	fs.DurationVar(&o.hangAfter, "hang-after", 0, "`time` after which ranks that keep the others waiting are stuck (default: as serry run has it)")
	fs.IntVar(&o.atOnce, "at-once", 1, "`number` of scenarios that are played at the same time, which makes all of them slower")
	fs.BoolVar(&o.patient, "patient", false, "do not fail where a right line comes too late")
	fs.DurationVar(&o.patience, "wait", sayPatience, "`time` to wait for a right line")
	fs.StringVar(&o.journals, "journals", "", "`folder` for the journal of each job that serry run starts on one host; its service is then serry serve")
	pythons := make([]string, len(libraries))
	for i, l := range libraries {
		fs.StringVar(&pythons[i], l.flag, l.usual, fmt.Sprintf("`interpreter` with %s; empty: leave out its rows", l.flag))
	}
	if err := sheet.Parse(fs, args); err != nil {
		return err
	}
	if o.names = fs.Args(); o.atOnce < 1 {
		fmt.Fprintln(stderr, "-at-once: want 1 or more")
		return sheet.ErrUsage
	}
	if err := o.prepare(ctx); err != nil {
		return err
	}
	defer os.RemoveAll(o.dir)
	missed := 0
	for i, l := range libraries {
		if pythons[i] == "" {
			continue
		}
		var err error
		if o.python, err = filepath.Abs(pythons[i]); err != nil {
			return err
		}
		n, err := o.all(ctx, l, stdout, stderr)
		if err != nil {
			return err
		}
		missed += n
	}
	if missed > 0 {
		return fmt.Errorf("%d scenarios were missed, or said too late", missed)
	}
	return nil
}

// prepare builds what is measured.
func (o *options) prepare(ctx context.Context) (err error) {
	if o.dir, err = os.MkdirTemp("", "serry-bench"); err != nil {
		return err
	}
	if o.binary == "" {
		if o.binary, err = proc.Build(ctx, o.dir); err != nil {
			return err
		}
	}
	o.binary, err = filepath.Abs(o.binary)
	return err
}

// A result is how a scenario went.
type result struct {
	scenario
	finding
	err error
}

// ok says whether it is as it should be.
func (r result) ok(patient bool) bool {
	return r.line != "" && !r.lacks && (patient || r.after <= r.most)
}

// all plays the scenarios of a library and prints the table. It returns how many were not as they should be.
func (o options) all(ctx context.Context, l library, stdout, stderr io.Writer) (bad int, err error) {
	results := o.playAll(ctx, l, stderr)
	fmt.Fprintf(stderr, "\r%-20s\r", "")
	t := sheet.Table(stdout)
	fmt.Fprintf(t, "%s\tclause\tseconds\tat most\tkept\tgrade\tline\n", l.flag)
	var took []float64
	var unplayed []string
	for _, r := range results {
		if c, ok := errors.AsType[cannot](r.err); ok {
			unplayed = append(unplayed, fmt.Sprintf("NOT PLAYED: %s (%s): %s", r.name, r.clause, c.why))
			continue
		}
		if r.err != nil {
			bad++
			unplayed = append(unplayed, fmt.Sprintf("FAILED: %s (%s): %v", r.name, r.clause, r.err))
			continue
		}
		if !r.ok(o.patient) {
			bad++
		}
		if r.line == "" || r.lacks {
			fmt.Fprintf(stderr, "%s: no line like %q, or not with %q and the grade %q; this was said:\n%s\n", r.name, r.right, r.shown, r.scenario.grade, r.said)
		}
		kept, seconds := sheet.Kept(r.after <= r.most), fmt.Sprintf("%.1f", r.after.Seconds())
		switch {
		case r.line == "":
			kept, seconds = "missed", "-"
		case r.lacks:
			kept = "unproven"
		default:
			took = append(took, r.after.Seconds())
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.0f\t%s\t%s\t%s\n", r.name, r.clause, seconds, r.most.Seconds(), kept, cmp.Or(string(r.finding.grade), "-"), r.line)
	}
	if len(results) == 0 {
		return 0, nil
	}
	if err := t.Flush(); err != nil {
		return bad, err
	}
	fmt.Fprintf(stdout, "\nfound %d of %d", len(took), len(results)-len(unplayed))
	if len(took) > 0 {
		fmt.Fprintf(stdout, "; seconds: median %.1f, worst %.1f", sheet.Median(took), slices.Max(took))
	}
	fmt.Fprintln(stdout, "\n"+strings.Join(unplayed, "\n"))
	return bad, nil
}

// playAll plays the scenarios, so many at once.
func (o options) playAll(ctx context.Context, l library, stderr io.Writer) []result {
	var results []result
	for _, s := range l.rows {
		if len(o.names) == 0 || slices.Contains(o.names, s.name) {
			results = append(results, result{scenario: s})
		}
	}
	places := make(chan struct{}, o.atOnce)
	var work sync.WaitGroup
	for i := range results {
		r := &results[i]
		places <- struct{}{}
		fmt.Fprintf(stderr, "\r%-20s", r.name)
		work.Go(func() {
			defer func() { <-places }()
			own := o
			if own.dir, r.err = o.folder(l.flag + "-" + r.name); r.err == nil {
				r.finding, r.err = r.play(ctx, own, r.scenario)
			}
		})
	}
	work.Wait()
	return results
}

// folder makes a folder for one job, with the programs of its ranks.
func (o options) folder(name string) (string, error) {
	dir := filepath.Join(o.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	for name, text := range map[string][]byte{"train.py": program, "eval.py": program, "tf_train.py": tensorflowProgram} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return "", err
		}
	}
	return dir, nil
}
