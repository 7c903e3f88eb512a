package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry/wire"
)

// completionPatience is how long a user who presses the tab key waits for names.
const completionPatience = 500 * time.Millisecond

// complete offers what the service knows. Where it cannot be asked nothing is offered.
func (q *query) complete(cmd *cobra.Command, names func(context.Context, *remote) ([]string, error)) ([]cobra.Completion, cobra.ShellCompDirective) {
	if q.resolve(cmd) != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	q.timeout = min(q.timeout, completionPatience)
	ctx, cancel := context.WithTimeout(context.Background(), completionPatience)
	defer cancel()
	r, err := q.access.open(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer r.Close()
	found, err := names(ctx, r)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	// A shell prints what it is offered, and a name with a line break would be two.
	found = slices.DeleteFunc(found, func(name string) bool { return oneLine(name) != name })
	return found, cobra.ShellCompDirectiveNoFileComp
}

func (q *query) completeTasks(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return q.complete(cmd, func(ctx context.Context, r *remote) ([]string, error) {
		s, err := r.status(ctx, wire.StatusQuery{Tasks: true})
		var names []string
		for _, t := range s.Tasks {
			names = append(names, t.Task)
		}
		return names, err
	})
}

func (q *query) completeKeys(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return q.complete(cmd, func(ctx context.Context, r *remote) ([]string, error) {
		keys, err := r.sizes(ctx, "")
		var names []string
		for _, k := range keys {
			names = append(names, k.Key)
		}
		return names, err
	})
}
