package lab

import (
	"bufio"
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

// root is the folder of the repository, seen from here.
var root = filepath.Join("..", "..")

// TestLedger compares the specification in docs/spec with what cites it: a test must cite every clause that
// binds, and every id that code, a test or a document cites must be a clause that is built.
func TestLedger(t *testing.T) {
	spec := readSpec(t, filepath.Join(root, "docs", "spec"))
	cited := readCitations(t)
	for _, id := range slices.Sorted(maps.Keys(cited.mentions)) {
		if _, ok := spec.find(id); !ok && !notClauses.MatchString(id) {
			t.Errorf("%s is named in %s, but docs/spec has no such clause", id, strings.Join(cited.mentions[id], ", "))
		}
	}
	shown := make(map[string]bool)
	for _, id := range slices.Sorted(maps.Keys(cited.tests)) {
		where := strings.Join(cited.tests[id], ", ")
		switch name, ok := spec.find(id); {
		case !ok:
			t.Errorf("%s is cited in %s, but docs/spec has no such clause", id, where)
		case spec[name].awaited():
			t.Errorf("%s is cited in %s, but docs/spec says that it is not built", id, where)
		default:
			shown[name] = true
		}
	}
	var missing []string
	for _, id := range slices.Sorted(maps.Keys(spec)) {
		if spec[id].binds(id) && !shown[id] {
			missing = append(missing, id)
		}
	}
	if len(missing) > 0 {
		t.Errorf("no test cites these %d clauses:\n%s", len(missing), strings.Join(missing, " "))
	}
}

const (
	idPattern = `[A-Z][A-Z0-9]*(?:-[A-Z][A-Z0-9]*)*-[0-9]+[a-z]?`
	notBuilt  = "**[not built]**"
)

var (
	oneID = regexp.MustCompile(`^` + idPattern + `$`)

	// An id within text. Words that continue on either side are names of other things.
	anyID = regexp.MustCompile(`(?:^|[^\w-])(` + idPattern + `)(?:$|[^\w-])`)

	// Words that look like ids: encodings, digests, curves, devices, counts, arrays of an example.
	notClauses = regexp.MustCompile(`^((UTF|SHA|CRC|GPU|N)-[0-9]+[a-z]?|P-256|W-[0-9])$`)

	// The beginning of a clause: a bullet, a numbered step, the first cell of a row, or a paragraph in bold.
	definition = regexp.MustCompile(`^(?:(?:[*-]|[0-9]+\.|\|) (?:\*\*)?|\*\*)(` + idPattern + `)(?:[ *|]|$)`)

	caseID = regexp.MustCompile(`^(CS|RJ|IT|KV|PJ|ER|GU|TL|NEW|FR|SECT|T-[A-Z0-9]+|TC-[A-Z]+|CLT-[A-Z]+|TD-[A-Z]+|TRT)-[0-9]`)

	// A comment over a step of a script: "# C-BAR-16, CS-48: what it shows".
	script = regexp.MustCompile(`^#\s*([A-Z][A-Z0-9a-z-]*(?:, ?[A-Z][A-Z0-9a-z-]*)*):`)
)

// An entry is the text of one clause of the specification, with its marks; docs/spec/README.md explains them.
type entry string

func (e entry) has(marks ...string) bool {
	return slices.ContainsFunc(marks, func(m string) bool { return strings.Contains(string(e), m) })
}

// binds says whether a test must show the clause.
func (e entry) binds(id string) bool {
	if caseID.MatchString(id) {
		return !e.has("`[E]`", "`[B]`", notBuilt, "`client`:")
	}
	return e.has("`[M]`", "`[S]`")
}

// awaited says whether nothing of the clause is built.
func (e entry) awaited() bool {
	return e.has(notBuilt) && !e.has("`[M]`", "`[S]`", "`[Q]`", "`[+]`")
}

// A spec has the clauses of all documents by their ids.
type spec map[string]entry

// find returns the id of the clause that id names: itself, or for C-EPOCH-2a, which is a part, C-EPOCH-2.
func (s spec) find(id string) (string, bool) {
	if _, ok := s[id]; ok {
		return id, true
	}
	whole := strings.TrimRight(id, "abcdefghijklmnopqrstuvwxyz")
	_, ok := s[whole]
	return whole, ok
}

func readSpec(t *testing.T, dir string) spec {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no specification in %s: %v", dir, err)
	}
	all := make(spec)
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for id, c := range parseSpec(string(text)) {
			if _, twice := all[id]; twice {
				t.Errorf("%s: %s is there twice", name, id)
			}
			all[id] = c
		}
	}
	return all
}

// parseSpec reads a document. A clause in a table is its row; another one ends at the next clause or heading.
func parseSpec(text string) spec {
	all := make(spec)
	open := ""
	for _, line := range outsideFences(text) {
		if m := definition.FindStringSubmatch(line); m != nil {
			open = m[1]
		} else if strings.HasPrefix(line, "#") {
			open = ""
		}
		if open != "" {
			all[open] += entry(line + "\n")
		}
		if strings.HasPrefix(line, "|") {
			open = ""
		}
	}
	return all
}

// outsideFences returns the lines of a document without blocks of code.
func outsideFences(text string) []string {
	var lines []string
	fenced := false
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		} else if !fenced {
			lines = append(lines, line)
		}
	}
	return lines
}

// Citations are the ids that the repository names, and the files that do.
type citations struct {
	tests    map[string][]string // as what a test shows: a string that is ids alone, the head of a step of a script
	mentions map[string][]string // in a comment or a document
}

func note(in map[string][]string, where string, ids []string) {
	for _, id := range ids {
		if !slices.Contains(in[id], where) {
			in[id] = append(in[id], where)
		}
	}
}

func readCitations(t *testing.T) citations {
	t.Helper()
	c := citations{make(map[string][]string), make(map[string][]string)}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "out"):
			return filepath.SkipDir
		case d.Name() == "ledger_test.go": // has ids to test itself with
		case strings.HasSuffix(path, ".go"):
			return c.readGo(path)
		case strings.HasSuffix(path, ".txt"), strings.HasSuffix(path, ".txtar"):
			return c.readScript(path)
		case strings.HasSuffix(path, ".md"):
			return c.readDocument(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c citations) readGo(path string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, group := range file.Comments {
		note(c.mentions, path, idsIn(group.Text()))
	}
	if strings.HasSuffix(path, "_test.go") {
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil {
					note(c.tests, path, idList(text))
				}
			}
			return true
		})
	}
	return nil
}

func (c citations) readScript(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if m := script.FindStringSubmatch(lines.Text()); m != nil {
			note(c.tests, path, idList(m[1]))
		}
	}
	return lines.Err()
}

func (c citations) readDocument(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for _, line := range outsideFences(string(text)) {
		note(c.mentions, path, idsIn(line))
	}
	return nil
}

// idsIn finds the ids within text.
func idsIn(text string) []string {
	var ids []string
	for {
		at := anyID.FindStringSubmatchIndex(text)
		if at == nil {
			return ids
		}
		ids = append(ids, text[at[2]:at[3]])
		text = text[at[3]:] // what ends one id may begin the next
	}
}

// idList reads ids with spaces or commas between them, or nothing if there is anything else.
func idList(text string) []string {
	ids := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' })
	for _, id := range ids {
		if !oneID.MatchString(id) || notClauses.MatchString(id) {
			return nil
		}
	}
	return ids
}

func TestIDs(t *testing.T) {
	for text, want := range map[string][]string{
		"C-BAR-16":            {"C-BAR-16"},
		"CS-01 NEW-2, IT-3":   {"CS-01", "NEW-2", "IT-3"},
		"C-EPOCH-2a A-TOL-2a": {"C-EPOCH-2a", "A-TOL-2a"},
		"see C-BAR-16":        nil,
		"UTF-8":               nil,
		"":                    nil,
	} {
		if got := idList(text); !slices.Equal(got, want) {
			t.Errorf("idList(%q) = %q; want %q", text, got, want)
		}
	}
	if m := script.FindStringSubmatch("# CS-82, C-ALIVE-2: everybody asks"); m == nil || m[1] != "CS-82, C-ALIVE-2" {
		t.Errorf("script comment read as %q", m)
	}
	text := "C-REQ-1..3 (A-SIDE-3, 4; F-36/37), host-W-2, W-2-x and E-73."
	if got, want := idsIn(text), []string{"C-REQ-1", "A-SIDE-3", "F-36", "E-73"}; !slices.Equal(got, want) {
		t.Errorf("idsIn(%q) = %q; want %q", text, got, want)
	}
}

func TestParseSpec(t *testing.T) {
	got := parseSpec(strings.Join([]string{
		"* C-A-1 `[M]` one,",
		"  and more `[S]`",
		"* C-A-2 a fact, as C-A-1",
		"",
		"| CS-01 | bound |",
		"| CS-02 | `[E]` excluded |",
		"text after the table",
		"- **F-1 `[S]`** bold",
		"## Heading",
		"```",
		"* C-A-3 `[M]` code",
		"```",
		"1. A-P-1 `[Q]` odd " + notBuilt + " better",
		"**P-A-1** " + notBuilt + " later",
		"P-A-2 is no clause here",
	}, "\n"))
	type facts struct{ binds, awaited bool }
	want := map[string]facts{
		"C-A-1": {binds: true}, "C-A-2": {}, "CS-01": {binds: true}, "CS-02": {}, "F-1": {binds: true},
		"A-P-1": {}, "P-A-1": {awaited: true},
	}
	have := make(map[string]facts)
	for id, c := range got {
		have[id] = facts{c.binds(id), c.awaited()}
	}
	if !maps.Equal(have, want) {
		t.Errorf("parseSpec() = %v; want %v", have, want)
	}
	for id, want := range map[string]string{"C-A-1": "C-A-1", "C-A-2b": "C-A-2", "C-A-9": ""} {
		if name, ok := got.find(id); ok != (want != "") || ok && name != want {
			t.Errorf("find(%s) = %s, %v; want %q", id, name, ok, want)
		}
	}
}
