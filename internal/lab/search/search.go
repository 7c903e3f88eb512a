// Package search says how many of its cases a search plays. A search is a test that plays many seeds, places or sizes.
//
// The race detector makes each case take five to ten times as long, and one case in several shows it the same code. So a search plays
// a slice of its cases with the detector, and all of them without. Start with [Pick], which the test function itself must call:
// scripts/test.sh finds the tests that do, and runs them once more without the detector.
package search

// Pick returns all, or some in a program that is built with the race detector.
func Pick[T any](all, some T) T {
	if raced {
		return some
	}
	return all
}
