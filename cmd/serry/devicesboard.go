package main

import (
	"context"
	"slices"
	"strings"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/topo"
	"github.com/serry-dev/serry/wire"
)

// board reads the topologies that the tasks of a service have published.
func (r *remote) board(ctx context.Context) (*topo.Board, error) {
	status, err := r.status(ctx, wire.StatusQuery{})
	if err != nil {
		return nil, err
	}
	keys, err := result[coord.Sizes](r.call(ctx, coord.ListKeys{}))
	if err != nil {
		return nil, err
	}
	board := topo.NewBoard(status.Size)
	for _, dir := range topologyDirs(keys.Keys) {
		entries, err := r.List(ctx, dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			board.Insert(e.Key, e.Value)
		}
	}
	return board, nil
}

// topologyDirs finds the directories that topologies and records are in.
func topologyDirs(keys []coord.KeySize) []string {
	var dirs []string
	for _, k := range keys {
		if dir, _, ok := strings.Cut(k.Key, "/"); ok && topo.WantsKey(k.Key) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}
