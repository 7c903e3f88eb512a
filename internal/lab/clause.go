package lab

import (
	"strings"
	"testing"
)

// Clause records which clauses and cases of the specification a test is evidence for.
func Clause(t testing.TB, ids ...string) {
	t.Helper()
	t.Attr("clause", strings.Join(ids, " "))
}
