// Package jaxexport holds package export against jax.export itself. Its tests let jaxexport.py make
// random programs with real jax, of the newest release and of one whose files have no tables yet, and
// want the same facts from Go: names, shapes, types, shardings, meshes, platforms and checks. They
// write each file again and let jax read that, and they bind each program to meshes of which some do
// not match, and want jax's verdict and jax's slices. The files that jax ships for its own tests are
// read as well.
//
// The environments are those of scripts/venvs.sh. Without them the tests skip, or fail where CI is
// true. A failure prints the seed; SERRY_EXPORT_SEED runs it again.
package jaxexport
