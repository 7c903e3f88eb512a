// Package topo knows the hosts and devices of a job: how every device gets its
// global id, which devices share a fast network, what a device is (and not only
// what it is called), and what became of each one over a restart.
//
// Start with [Exchange], which a task runs against the key-value store: what
// each task says about itself becomes the one topology that all agree on. The
// coordination machine asks [Republished] whether a second insert of a key says
// the same as the first. Everything else here is computed from values alone.
//
// The package is pure: no clock, goroutine, lock, randomness or map order takes
// part in a result, so two tasks that see the same input come to the same
// answer. Functions may be called from anywhere at any time. Nothing here
// trusts the bytes it is given: what does not parse, or is larger than any real
// job, is an error and never a crash.
package topo
