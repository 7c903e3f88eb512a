// Package clause connects tests with the specification in docs/spec. It imports nothing of serry, so the
// tests of every package can use it, also of those that package lab stands on.
package clause

import (
	"strings"
	"testing"
)

// Cite records which clauses and cases of the specification a test is evidence for, by their ids:
// Cite(t, "C-BAR-15", "CS-38"). The ids appear in the output of go test -json, and TestLedger of package
// lab checks that every clause of docs/spec that binds has such a test.
func Cite(t testing.TB, ids ...string) {
	t.Helper()
	t.Attr("clause", strings.Join(ids, " "))
}
