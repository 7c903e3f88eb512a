package lab

import (
	"strings"
	"testing"
)

// Clause records which clauses and cases of the specification a test is evidence for, by their ids:
// Clause(t, "C-BAR-15", "CS-38"). The ids appear in the output of go test -json, and TestLedger of
// this package holds every clause of docs/spec that binds to have such a test. A test that cannot import
// this package has a function clause that does the same.
func Clause(t testing.TB, ids ...string) {
	t.Helper()
	t.Attr("clause", strings.Join(ids, " "))
}
