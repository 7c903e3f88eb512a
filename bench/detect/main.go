// Detect measures how soon the tasks of a job learn that one of them is gone: killed with SIGKILL, or
// lost with its whole host, whose link goes down without a word. And it shows that the same settings
// accuse no task that is only slow: that runs in virtual time, as a test of internal/lab/storm.
//
// usage: go run ./bench/detect [flags]
//
// All tasks are processes of their own that follow the rules of jaxlib's client; they connect to serry
// relay, several to each, and those to one serry serve, all with default settings. bench/README.md says
// how to read the table. The loss of a host needs network namespaces, so root.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/bench/internal/sheet"
)

func main() {
	sheet.Main("bench", func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
		if len(args) > 0 && args[0] == rankCommand {
			return serveRank(ctx, args[1:], os.Stdin, stdout)
		}
		return run(ctx, args, stdout, stderr)
	})
}

// options are the flags.
type options struct {
	tasks, relays int
	kills, losses int
	noLab         bool
	json          bool
	binary        string
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("detect", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&o.tasks, "n", 256, "`number` of tasks, each a process")
	fs.IntVar(&o.relays, "relays", 16, "`number` of relays they connect to")
	fs.IntVar(&o.kills, "kills", 120, "how many tasks are killed, one at a time")
	fs.IntVar(&o.losses, "losses", 10, "how often a host is lost; needs root")
	fs.BoolVar(&o.noLab, "no-lab", false, "leave out the run in virtual time")
	fs.StringVar(&o.binary, "serry", "", "`binary` to measure (default: build it)")
	fs.BoolVar(&o.json, "json", false, "print one JSON object instead of a table")
	if err := sheet.Parse(fs, args); err != nil {
		return o, err
	}
	var err error
	switch {
	case fs.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case o.tasks < 2 || o.relays < 1 || o.kills < 0 || o.losses < 0:
		err = errors.New("want -n of 2 or more, -relays of 1 or more, and no negative numbers")
	case o.losses > 0 && o.relays < 2:
		err = errors.New("-losses: want -relays of 2 or more, somebody must remain")
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return o, sheet.ErrUsage
	}
	return o, nil
}

// filesEach is how many files this process needs open for one task.
const filesEach = 4

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if err := proc.RaiseFiles(uint64(filesEach*o.tasks + 100)); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "serry-detect")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.binary == "" {
		if o.binary, err = proc.Build(ctx, dir); err != nil {
			return err
		}
	}
	var rows []row
	failed := o.measure(ctx, dir, stderr, &rows) // what has been measured is shown all the same
	if o.json {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		return errors.Join(failed, enc.Encode(struct {
			Version int   `json:"version"`
			Tasks   int   `json:"tasks"`
			Relays  int   `json:"relays"`
			Rows    []row `json:"rows"`
		}{1, o.tasks, o.relays, rows}))
	}
	return errors.Join(failed, printTable(stdout, rows))
}

// measure fills the rows.
func (o options) measure(ctx context.Context, dir string, progress io.Writer, rows *[]row) error {
	if o.kills+o.losses > 0 {
		j, err := o.newJob(ctx, dir, progress)
		if err != nil {
			return err
		}
		defer j.close()
		if o.kills > 0 {
			r, err := j.kills(ctx, o.kills)
			if err != nil {
				return fmt.Errorf("killed task: %w", err)
			}
			*rows = append(*rows, r)
		}
		if o.losses > 0 {
			r, err := j.losses(ctx, o.losses)
			if err != nil {
				return fmt.Errorf("lost host: %w", err)
			}
			*rows = append(*rows, r)
		}
		j.close() // the rest has the machine to itself
	}
	if o.noLab {
		return nil
	}
	r, err := falseAlarms(ctx, progress)
	*rows = append(*rows, r)
	return err
}
