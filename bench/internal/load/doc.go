// Package load is the load of benchmarks on a coordination service: a [Cluster] of tasks in one process,
// each a row of calls of dialect xla.coordination by package wire/back or wire/stream. That costs a fraction of what
// real clients cost, so that figures are those of the server.
package load
