// Package proc runs the processes that benchmarks measure: serry itself, the stock service, and
// whatever else they compare. [Start] runs one and waits for its first line; [CPUTime] and [Memory] say
// what it costs. Nothing that is started outlives the benchmark.
package proc
