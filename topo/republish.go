package topo

import (
	"bytes"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Republished reports whether an insert of offered under key may be answered as
// if it were the first, because a restarted task may write key a second time and
// stored says the same. Key is in its stored form, with slashes normalised. It is
// the comparison that the coordination machine is configured with (C-KV-15).
func Republished(key string, stored, offered []byte) bool {
	return republishable(key) && sameValue(key, stored, offered)
}

// republishable says whether a restarted task may write a key a second time
// (P-TOP-1): topologies with and without a platform's prefix, and the two tables
// by which Orbax finds out which task owns which device. Every program that uses
// an insert as an election writes to other keys.
func republishable(key string) bool {
	_, below, inside := strings.Cut(key, "/")
	switch topologyFamily(key) {
	case localFamily:
		return inside
	case globalFamily:
		return inside && !strings.Contains(below, "/")
	}
	for _, table := range []string{"orbax/distributed_to_device_ids/", "jax/process_id/"} {
		if name, ok := strings.CutPrefix(key, table); ok {
			return !strings.Contains(name, "/")
		}
	}
	return false
}

// sameValue compares topologies by meaning, since the order of a map differs
// from one encoding to the next (C-TOP-32), and everything else by bytes.
func sameValue(key string, a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	switch topologyFamily(key) {
	case localFamily:
		return sameLocalBytes(a, b)
	case globalFamily:
		return sameGlobalBytes(a, b)
	}
	return false
}

func sameLocalBytes(a, b []byte) bool {
	x, errX := parseLocal(a)
	y, errY := parseLocal(b)
	return errX == nil && errY == nil && proto.Equal(x, y)
}

// sameGlobalBytes goes task by task, so that the first that differs ends it: the
// topology of a large job takes a while to parse, and the service
// waits for the answer.
func sameGlobalBytes(a, b []byte) bool {
	x, okX := splitTasks(a)
	y, okY := splitTasks(b)
	if !okX || !okY { // garbage, or fields of a later version
		x, errX := parseGlobal(a)
		y, errY := parseGlobal(b)
		return errX == nil && errY == nil && proto.Equal(x, y)
	}
	return slices.EqualFunc(x, y, func(a, b []byte) bool { return bytes.Equal(a, b) || sameLocalBytes(a, b) })
}

// splitTasks takes a global topology apart into its local ones. It is false if
// there is anything else in it.
func splitTasks(value []byte) (tasks [][]byte, ok bool) {
	for len(value) > 0 {
		num, kind, n := protowire.ConsumeTag(value)
		if n < 0 || num != globalPath[0] || kind != protowire.BytesType {
			return nil, false
		}
		task, size := protowire.ConsumeBytes(value[n:])
		if size < 0 {
			return nil, false
		}
		tasks = append(tasks, task)
		value = value[n+size:]
	}
	return tasks, true
}

// The first elements of the keys that are about topologies.
const (
	localFamily    = "local_topology"
	globalFamily   = "global_topology"
	identityFamily = "host_identity"
)

// topologyFamily returns the first element of key without the prefix that a
// client puts before its keys (C-TOP-6).
func topologyFamily(key string) string {
	first, _, _ := strings.Cut(key, "/")
	return first[strings.LastIndexByte(first, ':')+1:]
}
