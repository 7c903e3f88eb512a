package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// A query is a command that asks a running service something and prints the answer.
type query struct {
	access
	printer

	// unreached, or nil, may answer in the place of the service, where none was named and none answers.
	unreached func() (done bool, err error)
}

// exitInterrupted is what shells give a command that was ended by Ctrl-C.
const exitInterrupted = 130

var errInterrupted = errors.New("interrupted")

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
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		r, err := q.access.open(ctx)
		if err != nil && q.guessed && q.unreached != nil {
			if done, err := q.unreached(); done {
				return err
			}
		}
		if err != nil {
			return seeHelp(cmd, err)
		}
		defer r.Close() // in order: the service does not wait for a command that is gone
		err = ask(ctx, r, args)
		if ctx.Err() != nil {
			return unsaid{exitError{errInterrupted, exitInterrupted}}
		}
		return failed(err)
	}
	return cmd
}
