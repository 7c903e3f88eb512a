// Package cluster finds out which place a process has in a cluster: where its coordinator is, how many
// processes there are, which of them it is, and which devices of its host are its own.
//
// [Detect] takes what is known already as a [Place], each value with where it came from, looks for
// what is missing in the ways that jax does (Open MPI, Slurm, Cloud TPU, Kubernetes, and variables of
// other launchers), and returns the place together with what it made of each environment, so that
// users need not guess. It reads the world only through a [System], which tests replace.
package cluster
