// Package memory describes the memory that collectives and transfers move: what its elements are, where
// it lies, and which of it other processes of the host can read.
//
// A [DType] is the type of elements, with the numbers and names that XLA gives them. A [Region] is a
// range of memory without a type; it is a value, and [Region.Slice] cuts a smaller one out of it. It lies
// in one of three [Space]s: in ordinary memory of the process ([Host]), in an [Arena], or on a device. An
// arena is memory that other processes of the host can map, so that they read it without a copy.
//
// Regions do not own memory. The program keeps an arena open, and a slice unchanged, while an operation
// uses a region of it. Arenas may be used from any goroutine.
//
// Read region.go first, then arena.go.
package memory
