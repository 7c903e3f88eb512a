package lab

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// An entry is a line of a ledger, of which there is one for each specification:
//
//	must C-BAR-1                    a test has to show it
//	may C-BAR-22                    a fact, or a freedom; a test can cite it
//	later C-LOG-1 why not yet       a test will have to show it
//	never ER-7 why not              nothing of ours shows it
type entry struct {
	duty   string
	reason string
}

// TestLedger holds every clause that binds to have a test that cites it, and every citation to be of
// a clause that exists.
func TestLedger(t *testing.T) {
	ledger := readLedgers(t, filepath.Join("testdata", "ledger"))
	cited := citations(t, filepath.Join("..", ".."))
	families := make(map[string]bool)
	var missing []string
	for _, id := range slices.Sorted(maps.Keys(ledger)) {
		families[family(id)] = true
		if ledger[id].duty == "must" && len(cited[id]) == 0 {
			missing = append(missing, id)
		}
	}
	if len(missing) > 0 {
		t.Errorf("no test cites these %d clauses:\n%s", len(missing), strings.Join(missing, " "))
	}
	for _, id := range slices.Sorted(maps.Keys(cited)) {
		if _, ok := ledger[id]; !ok && families[family(id)] {
			t.Errorf("%s is cited in %s, but there is no such clause", id, strings.Join(cited[id], ", "))
		}
	}
}

// readLedgers reads all ledgers in a folder.
func readLedgers(t *testing.T, dir string) map[string]entry {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no ledgers in %s: %v", dir, err)
	}
	all := make(map[string]entry)
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			id, e, err := parseEntry(line)
			if _, twice := all[id]; err == nil && twice {
				err = fmt.Errorf("%s is there twice", id)
			}
			if err != nil {
				t.Fatalf("%s:%d: %v", name, i+1, err)
			}
			all[id] = e
		}
	}
	return all
}

func parseEntry(line string) (id string, e entry, err error) {
	duty, rest, _ := strings.Cut(line, " ")
	id, reason, _ := strings.Cut(rest, " ")
	wantReason, known := map[string]bool{"must": false, "may": false, "later": true, "never": true}[duty]
	switch {
	case !known || !oneID.MatchString(id):
		return "", entry{}, fmt.Errorf("%q: want must, may, later or never, and an id", line)
	case wantReason != (reason != ""):
		return "", entry{}, fmt.Errorf("%q: later and never have a reason, and only they", line)
	}
	return id, entry{duty, reason}, nil
}

var (
	oneID = regexp.MustCompile(`^[A-Z][A-Z0-9]*(-[A-Z][A-Z0-9]*)*-[0-9]+[a-z]?$`)
	// A comment over a step of a script: "# C-BAR-16, CS-48: what it shows".
	script = regexp.MustCompile(`^#\s*([A-Z][A-Z0-9a-z-]*(?:, ?[A-Z][A-Z0-9a-z-]*)*):`)
)

// family is an id without its number.
func family(id string) string { return id[:strings.LastIndexByte(id, '-')] }

// citations finds which clauses the tests below root cite, and where: a string in Go that is an id or
// several, and a comment in a script.
func citations(t *testing.T, root string) map[string][]string {
	t.Helper()
	cited := make(map[string][]string)
	note := func(where string, ids []string) {
		for _, id := range ids {
			if !slices.Contains(cited[id], where) {
				cited[id] = append(cited[id], where)
			}
		}
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "ledger" || d.Name() == "out"):
			return filepath.SkipDir
		case d.Name() == "ledger_test.go": // has ids to test itself with
		case strings.HasSuffix(path, "_test.go"):
			return citedInGo(path, note)
		case strings.HasSuffix(path, ".txt") || strings.HasSuffix(path, ".txtar"):
			return citedInScript(path, note)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return cited
}

func citedInGo(path string, note func(string, []string)) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				note(path, idList(text))
			}
		}
		return true
	})
	return nil
}

func citedInScript(path string, note func(string, []string)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if m := script.FindStringSubmatch(lines.Text()); m != nil {
			note(path, idList(m[1]))
		}
	}
	return lines.Err()
}

// idList reads ids with spaces or commas between them, or nothing if there is anything else.
func idList(text string) []string {
	ids := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' })
	for i, id := range ids {
		if !oneID.MatchString(id) {
			return nil
		}
		ids[i] = baseID(id)
	}
	return ids
}

// subclauses are clauses of which tests cite parts by a letter: C-EPOCH-2a is part of C-EPOCH-2.
var subclauses = []string{"C-EPOCH-2", "C-BAR-4"}

func baseID(id string) string {
	if whole := strings.TrimRight(id, "abcdefghijklmnopqrstuvwxyz"); slices.Contains(subclauses, whole) {
		return whole
	}
	return id
}

func TestIDList(t *testing.T) {
	for text, want := range map[string][]string{
		"C-BAR-16":            {"C-BAR-16"},
		"CS-01 NEW-2, IT-3":   {"CS-01", "NEW-2", "IT-3"},
		"C-EPOCH-2a A-TOL-2a": {"C-EPOCH-2", "A-TOL-2a"},
		"see C-BAR-16":        nil,
		"":                    nil,
	} {
		if got := idList(text); !slices.Equal(got, want) {
			t.Errorf("idList(%q) = %q; want %q", text, got, want)
		}
	}
	if m := script.FindStringSubmatch("# CS-82, C-ALIVE-2: everybody asks"); m == nil || m[1] != "CS-82, C-ALIVE-2" {
		t.Errorf("script comment read as %q", m)
	}
}

func TestParseEntry(t *testing.T) {
	for line, want := range map[string]entry{
		"must C-BAR-1":       {duty: "must"},
		"may C-BAR-22":       {duty: "may"},
		"later C-LOG-1 soon": {duty: "later", reason: "soon"},
		"never ER-7 theirs":  {duty: "never", reason: "theirs"},
	} {
		if _, got, err := parseEntry(line); err != nil || got != want {
			t.Errorf("parseEntry(%q) = %+v, %v; want %+v", line, got, err, want)
		}
	}
	for _, line := range []string{"C-BAR-1", "must", "must bar", "later C-LOG-1", "must C-BAR-1 because"} {
		if id, e, err := parseEntry(line); err == nil {
			t.Errorf("parseEntry(%q) = %s, %+v; want an error", line, id, e)
		}
	}
}
