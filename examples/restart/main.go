// Restart shows a job that finds its data again. Four hosts with two devices each save an array shard by
// shard, every host on its own disk, and a copy in a store that all share. Then the job comes back: one
// host has been replaced, one has rebooted, and the launchers have other numbers than before.
//
//	go run ./examples/restart
//
// The second run keeps a state directory, as serry run --state-dir does: hosts get back the tasks they
// had, and all but the new one read what is on their own disks. The third run has none, so ranks are
// shuffled: the inventory of every disk says which task holds which part, and each device still gets its own
// bytes, some of them from a peer.
//
// The hosts are played: each is a launcher of its own whose tasks are told by environment what machine
// they are on. Tasks are real processes, made from this same program.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
)

func main() {
	ctx := context.Background()
	var err error
	if verb := os.Getenv(envVerb); verb != "" {
		err = work(ctx, os.Stdout, verb)
	} else {
		err = show(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "restart: error:", err)
		os.Exit(1)
	}
}

// show plays three runs in a folder that is removed in the end.
func show(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "restart-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := stage{dir: dir, out: out}
	before := []machine{{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}}
	after := []machine{{"d", 1}, {"e", 1}, {"a", 2}, {"c", 1}} // b is gone, a has rebooted, numbers are shuffled
	fmt.Fprintln(out, "# first run, on hosts a, b, c, d: save")
	if err := s.run(verbSave, before, true); err != nil {
		return err
	}
	fmt.Fprintln(out, "\n# second run, on hosts d, e, a, c, with the state of the first: restore")
	if err := s.run(verbRestore, after, true); err != nil {
		return err
	}
	fmt.Fprintln(out, "\n# third run, on hosts d, e, a, c, without it: restore")
	return s.run(verbRestore, after, false)
}
