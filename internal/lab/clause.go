package lab

import (
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
)

// Clause is [clause.Cite], for tests that import this package anyway.
func Clause(t testing.TB, ids ...string) {
	t.Helper()
	clause.Cite(t, ids...)
}
