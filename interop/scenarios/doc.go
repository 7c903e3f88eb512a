// Package scenarios plays a few of the situations of docs/spec/diagnose.md with real jobs of unmodified jax, for the tests: a crash, and
// a hang of each main kind. make scenarios plays all of them, and measures how long it takes until they are named (bench/scenarios).
package scenarios
