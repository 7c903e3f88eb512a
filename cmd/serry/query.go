package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// A query is a command that asks a running service something and prints the answer.
type query struct {
	access
	printer
}

// command makes a command of a query. A mistake in its flags or arguments is one in the command
// line, whatever ask returns is a failure.
func (q *query) command(cmd *cobra.Command, ask func(ctx context.Context, r *remote, args []string) error) *cobra.Command {
	q.access.define(cmd)
	q.printer.define(cmd)
	arguments := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if arguments == nil {
			return nil
		}
		return q.usage(cmd, arguments(cmd, args))
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := q.resolve(cmd); err != nil {
			return q.usage(cmd, err)
		}
		if err := q.printer.open(cmd); err != nil {
			return q.usage(cmd, err)
		}
		if os.Getenv("GOGC") == "" {
			debug.SetGCPercent(gcPercent)
		}
		ctx := cmd.Context()
		r, err := q.access.open(ctx)
		if err != nil {
			return q.usage(cmd, err)
		}
		defer r.Close()
		return failed(ask(ctx, r, args))
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return q.usage(cmd, err) })
	return cmd
}

// usage adds a hint to a mistake in the command line that has none.
func (q *query) usage(cmd *cobra.Command, err error) error {
	_, has := errors.AsType[hinted](err)
	_, ran := errors.AsType[runError](err)
	if err == nil || has || ran {
		return err
	}
	return hinted{err, fmt.Sprintf("see %s --help", cmd.CommandPath())}
}
