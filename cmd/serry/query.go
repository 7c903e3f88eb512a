package main

import (
	"context"
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
	check := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if check == nil {
			return nil
		}
		return seeHelp(cmd, check(cmd, args))
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := q.resolve(cmd); err != nil {
			return seeHelp(cmd, err)
		}
		if err := q.printer.open(cmd); err != nil {
			return seeHelp(cmd, err)
		}
		if os.Getenv("GOGC") == "" {
			debug.SetGCPercent(gcPercent)
		}
		ctx := cmd.Context()
		r, err := q.access.open(ctx)
		if err != nil {
			return seeHelp(cmd, err)
		}
		defer r.Close()
		return failed(ask(ctx, r, args))
	}
	return cmd
}
