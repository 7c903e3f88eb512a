package topo

import "testing"

// clause records which clauses of the specification a test stands for.
func clause(t testing.TB, ids ...string) {
	t.Helper()
	t.Logf("clauses %v", ids)
}
