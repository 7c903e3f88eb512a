package topo

import (
	"strings"
	"testing"
)

// clause is lab.Clause, which stands above this package.
func clause(t testing.TB, ids ...string) {
	t.Helper()
	t.Attr("clause", strings.Join(ids, " "))
}
