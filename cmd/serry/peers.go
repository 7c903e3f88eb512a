package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry/store/member"
)

// peersPatience is how long the peers may take to agree on who they are. They insist on having known
// each other for some seconds.
const peersPatience = 30 * time.Second

func newPeers() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "peers",
		Short: "List the servers that share a store, and replace one that is lost",
		Long: `List the servers of a service with --peers. It is asked on the host of one of
them, with its folder.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return failed(listPeers(cmd, dir))
		},
	}
	cmd.PersistentFlags().StringVar(&dir, "data-dir", "", "`folder` of a server that runs on this host")
	cmd.AddCommand(&cobra.Command{
		Use:   "replace HOST:PORT",
		Short: "Make room for a server that has lost its folder",
		Long: `Make room for a server that has lost its folder. It has forgotten what it
promised the others, so it must not come back as if nothing had happened: its
former self is removed, and a new one is let in at the same address. Start that
one with an empty folder and --join. The command may be repeated, on this host
or another, if it was interrupted.`,
		Example: `  # on host1; b=host2:8477 has a new disk
  serry peers replace host2:8477 --data-dir /var/lib/serry
  # then on host2
  serry serve --tasks 4 --peers a=host1:8477,b=host2:8477,c=host3:8477 --name b --data-dir /var/lib/serry --join`,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return failed(replacePeer(cmd, dir, args[0]))
		},
	})
	return cmd
}

var errNoFolder = hinted{errors.New("--data-dir is not given"), "it is that of the server on this host: serry peers --data-dir /var/lib/serry"}

func listPeers(cmd *cobra.Command, dir string) error {
	if dir == "" {
		return errNoFolder
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), defaultTimeout)
	defer cancel()
	list, err := member.List(ctx, dir)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tADDRESS")
	for _, e := range list {
		name := e.Name
		if name == "" {
			name = "(to come, with --join)"
		}
		fmt.Fprintf(t, "%s\t%s\n", name, e.Address)
	}
	return t.Flush()
}

func replacePeer(cmd *cobra.Command, dir, address string) error {
	if dir == "" {
		return errNoFolder
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), peersPatience)
	defer cancel()
	if err := member.Replace(ctx, dir, address); err != nil {
		return err
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "there is room for a new server at %s: start it with an empty folder and --join\n", address)
	return err
}
