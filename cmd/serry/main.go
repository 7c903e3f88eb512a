// Command serry keeps a multi-host job together. See serry --help.
//
// Answers go to stdout, everything else to stderr: errors as "serry: error: ...", what may help as
// "serry: hint: ...". The exit status is 0 when done, 1 when something failed, 2 when the command
// line is wrong. Every flag can be given by environment, too: --heartbeat-timeout is
// SERRY_HEARTBEAT_TIMEOUT.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// Exit statuses.
const (
	exitDone = iota
	exitFailed
	exitUsage
)

// versionFlag is the flag that stands for the command of this name.
const versionFlag = "version"

// run runs the command line and returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	if slices.Equal(args, []string{"--" + versionFlag}) {
		args = []string{"version"}
	}
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return explain(unknownCommand(root, args, root.Execute()), stderr)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "serry",
		Short: "Keep a multi-host job together",
		Long: `serry keeps the ranks of a multi-host job together: it is the coordination
service that jax and TensorFlow clients connect to without a changed line.`,
		SilenceErrors:      true,
		SilenceUsage:       true,
		DisableSuggestions: true, // unknownCommand has them, on one line
	}
	root.Flags().Bool(versionFlag, false, "print the version of serry")
	root.SetFlagErrorFunc(flagMistake)
	group(root, "Run a job:", newRun(), newServe(), newRelay(), newStop(), newHandover(), newPeers())
	group(root, "Look at a job:", newJobs(), newStatus(), newTop(), newTasks(), newBarriers(), newKV(), newWatch(), newWhy(), newStacks(), newReplay(), newDevices(), newLinks())
	group(root, "Look at arrays:", newMesh(), newCollective(), newExport(), newTransfer())
	group(root, "Set up:", newDoctor(), newBench(), newCert(), newContext(), newVersion())
	root.SetCompletionCommandGroupID("Set up:")
	root.SetHelpCommandGroupID("Set up:")
	root.AddCommand(newGuard(), helpOnSteps())
	return root
}

// group adds commands that help lists under a title.
func group(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, c := range commands {
		c.GroupID = title
		root.AddCommand(c)
	}
}

// A runError is the failure of a command that was called rightly. All other errors are mistakes in
// the command line.
type runError struct{ error }

func (e runError) Unwrap() error { return e.error }

// An exitError is the failure of a command that has an exit status of its own.
type exitError struct {
	error
	status int
}

func (e exitError) Unwrap() error { return e.error }

// An unsaid error is one that is not shown: standard output has said it all, or standard error takes nothing.
type unsaid struct{ error }

func (e unsaid) Unwrap() error { return e.error }

// A hinted error comes with what the user may want to do about it.
type hinted struct {
	error
	hint string
}

func (e hinted) Unwrap() error { return e.error }

// explain says what went wrong and returns the exit status.
func explain(err error, stderr io.Writer) int {
	if err == nil {
		return exitDone
	}
	if _, ok := errors.AsType[unsaid](err); ok {
		stderr = io.Discard
	}
	fmt.Fprintf(stderr, "serry: error: %s\n", printable(err.Error()))
	_, failed := errors.AsType[runError](err)
	exit, own := errors.AsType[exitError](err)
	if h, ok := errors.AsType[hinted](err); ok {
		fmt.Fprintf(stderr, "serry: hint: %s\n", printable(h.hint))
	} else if !failed && !own {
		fmt.Fprintln(stderr, "serry: hint: see serry --help")
	}
	switch {
	case own:
		return exit.status
	case failed:
		return exitFailed
	}
	return exitUsage
}
