// Package xlapb holds the messages of dialect XLA of the coordination service, package
// xla.coordination on the wire: what jaxlib speaks from 0.10.0 on. Package wire gives them their
// meaning; only it and tests of the wire should need this one.
package xlapb
