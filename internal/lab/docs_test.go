package lab

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// maxWalkFiles is how many files a walk through the code may name, so that it can be walked in an hour.
const maxWalkFiles = 12

var (
	link     = regexp.MustCompile(`\]\(([^():#]*)(?:#([^()]*))?\)`)
	heading  = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	noAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

	// A file of the repository in a document, and behind a comma what of it the reader should look at.
	namedFile = regexp.MustCompile("`([a-z][\\w/]*/\\w+\\.go)`(?:, `([\\w.]+)`)?")
)

// TestDocuments holds links and names of files in documents to lead somewhere.
func TestDocuments(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	specs, err := filepath.Glob(filepath.Join(root, "docs", "spec", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Concat(files, specs, []string{filepath.Join(root, "README.md")}) {
		text := strings.Join(outsideFences(readText(t, name)), "\n")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			to := name
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(name), m[1])
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
			} else if m[2] != "" && !slices.Contains(anchors(readText(t, to)), m[2]) {
				t.Errorf("%s links to %s#%s, which has no such heading", name, m[1], m[2])
			}
		}
		for _, m := range namedFile.FindAllStringSubmatch(text, -1) {
			if names, err := declared(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s names %s: %v", name, m[1], err)
			} else if m[2] != "" && !slices.Contains(names, m[2]) {
				t.Errorf("%s speaks of %s in %s, which has no such function or type", name, m[2], m[1])
			}
		}
	}
}

// TestWalks holds the walks through the code in docs/ARCHITECTURE.md to a dozen files each.
func TestWalks(t *testing.T) {
	text := readText(t, filepath.Join(root, "docs", "ARCHITECTURE.md"))
	for _, title := range []string{"A barrier's way", "A fail-over", "serry run"} {
		_, section, ok := strings.Cut(text, "\n## "+title+"\n")
		if !ok {
			t.Errorf("docs/ARCHITECTURE.md has no section %q", title)
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		var files []string
		for _, m := range namedFile.FindAllStringSubmatch(section, -1) {
			if !slices.Contains(files, m[1]) {
				files = append(files, m[1])
			}
		}
		if len(files) == 0 || len(files) > maxWalkFiles {
			t.Errorf("the section %q names %d files; want 1 to %d", title, len(files), maxWalkFiles)
		}
	}
}

// TestParts holds the list of parts in docs/ARCHITECTURE.md to name every package, but for those
// that are internal to a part. Programs in bench and examples are counted as one part each.
func TestParts(t *testing.T) {
	text := readText(t, filepath.Join(root, "docs", "ARCHITECTURE.md"))
	_, parts, _ := strings.Cut(text, "\n## The parts\n")
	parts, _, _ = strings.Cut(parts, "\n## ")
	words := strings.FieldsFunc(parts, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.IsDir():
			return nil
		case path != root && strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata":
			return filepath.SkipDir
		case d.Name() == "internal" && path != filepath.Join(root, "internal"):
			return filepath.SkipDir
		}
		if files, err := filepath.Glob(filepath.Join(path, "*.go")); err != nil {
			return err
		} else if len(files) > 0 && path != root && !slices.Contains(words, d.Name()) {
			t.Errorf("docs/ARCHITECTURE.md does not name %s among the parts", path)
		}
		if d.Name() == "bench" || d.Name() == "examples" {
			return filepath.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func readText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// anchors are the names by which the headings of a document are linked to.
func anchors(text string) []string {
	var all []string
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		all = append(all, strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}

// declared lists the functions and types of a file. A method is T.m.
func declared(name string) ([]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names = append(names, receiver(d)+d.Name.Name)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, ok := s.(*ast.TypeSpec); ok {
					names = append(names, s.Name.Name)
				}
			}
		}
	}
	return names, nil
}

// receiver is the type of a method with a dot behind it, or empty.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	of := f.Recv.List[0].Type
	if p, ok := of.(*ast.StarExpr); ok {
		of = p.X
	}
	if id, ok := of.(*ast.Ident); ok {
		return id.Name + "."
	}
	return ""
}
