package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/serry-dev/serry/server"
)

// A limit is one that --limit can set.
type limit struct {
	name string
	set  func(c *server.Config, n int64)
}

func limits() []limit {
	return []limit{
		{"keys", func(c *server.Config, n int64) { c.Cluster.Limits.Keys = int(n) }},
		{"key-bytes", func(c *server.Config, n int64) { c.Cluster.Limits.KeyBytes = int(n) }},
		{"value-bytes", func(c *server.Config, n int64) { c.Cluster.Limits.ValueBytes = n }},
		{"store-bytes", func(c *server.Config, n int64) { c.Cluster.Limits.StoreBytes = n }},
		{"barriers", func(c *server.Config, n int64) { c.Cluster.Limits.Barriers = int(n) }},
		{"alive-groups", func(c *server.Config, n int64) { c.Cluster.Limits.AliveGroups = int(n) }},
		{"task-waiters", func(c *server.Config, n int64) { c.Cluster.Limits.TaskWaiters = int(n) }},
		{"waiters", func(c *server.Config, n int64) { c.Cluster.Limits.Waiters = int(n) }},
		{"requesters", func(c *server.Config, n int64) { c.Cluster.Limits.Requesters = int(n) }},
		{"request-results", func(c *server.Config, n int64) { c.Cluster.Limits.RequestResults = int(n) }},
		{"connections", func(c *server.Config, n int64) { c.Limits.Connections = int(n) }},
		{"connection-waiters", func(c *server.Config, n int64) { c.Limits.CallsWaiting = int(n) }},
		{"connection-waiting-bytes", func(c *server.Config, n int64) { c.Limits.WaitingBytes = n }},
		{"waiting-bytes", func(c *server.Config, n int64) { c.Limits.AllWaitingBytes = n }},
		{"queue-events", func(c *server.Config, n int64) { c.Limits.QueueEvents = int(n) }},
		{"queue-bytes", func(c *server.Config, n int64) { c.Limits.QueueBytes = n }},
		{"stranger-bytes", func(c *server.Config, n int64) { c.Limits.StrangerBytes = n }},
	}
}

func limitNames() []string {
	var names []string
	for _, l := range limits() {
		names = append(names, l.name)
	}
	return names
}

// setLimits applies what --limit says. What a protobuf message cannot carry is no value to allow.
func setLimits(c *server.Config, given map[string]int64) error {
	all := limits()
	for name, n := range given {
		i := slices.IndexFunc(all, func(l limit) bool { return l.name == name })
		switch {
		case i < 0:
			return fmt.Errorf("--limit %s: no such limit, want one of %s", name, strings.Join(limitNames(), ", "))
		case n < 1:
			return fmt.Errorf("--limit %s=%d: want 1 or more", name, n)
		case name == "value-bytes" && n > math.MaxInt32:
			return fmt.Errorf("--limit %s=%d: want at most %d", name, n, math.MaxInt32)
		}
		all[i].set(c, n)
	}
	return nil
}
